"""The fake provider as a server: routes, log, gates, concurrency, and the client that leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script, ScriptError
from hermes.testing.fake_provider import run
from tests.support.raw_http import HELLO, encode_request, open_raw, read_until

CHAT = "/v1/chat/completions"


async def test_without_a_script_it_echoes() -> None:
    with trio.fail_after(10):
        async with FakeProvider() as provider, httpx2.AsyncClient() as client:
            answers = [
                (await client.post(f"{provider.base_url}/chat/completions", json=HELLO | {"stream": False})).json(),
                (await client.post(f"{provider.base_url}/messages", json=HELLO | {"stream": False})).json(),
                (await client.post(f"{provider.base_url}/responses", json={"model": "m", "input": "hello"})).json(),
            ]
    assert answers[0]["choices"][0]["message"]["content"] == "hello"
    assert answers[1]["content"] == [{"type": "text", "text": "hello"}]
    assert answers[2]["output"][0]["content"][0]["text"] == "hello"


async def test_a_client_that_leaves_a_silent_stream_is_noticed_without_a_write() -> None:
    script = Script.of(Reply.of({"text": "a"}, {"wait_for": "never"}, {"text": "b"}))
    with trio.fail_after(10):
        async with FakeProvider(script) as provider:
            stream = await open_raw(provider.origin)
            await stream.send_all(encode_request(CHAT, HELLO))
            await read_until(stream, b'"a"')
            assert provider.open_requests == 1
            await stream.aclose()
            record = await provider.wait_closed(1)
    assert (record.closed_by, record.chunks_sent, provider.open_requests) == ("client", 2, 0)
    assert record.first_byte_at is not None and record.closed_at is not None
    assert record.opened_at <= record.first_byte_at <= record.closed_at


async def test_a_gate_holds_the_stream_until_it_is_released() -> None:
    script = Script.of(Reply.of({"text": "before"}, {"wait_for": "go"}, {"text": "after"}))
    with trio.fail_after(10):
        async with FakeProvider(script) as provider, await open_raw(provider.origin) as stream:
            await stream.send_all(encode_request(CHAT, HELLO))
            assert b"after" not in await read_until(stream, b"before")
            await trio.testing.wait_all_tasks_blocked()
            assert provider.requests[0].chunks_sent == 2
            provider.release("go")
            await read_until(stream, b"[DONE]")
            assert (await provider.wait_closed(1)).closed_by == "server"


async def test_requests_on_several_connections_are_answered_side_by_side() -> None:
    script = Script.of(*(Reply.of({"wait_for": "all"}, {"text": "done"}) for _ in range(5)))
    with trio.fail_after(10):
        async with FakeProvider(script) as provider, trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one_exchange, provider)
            await provider.wait_for_request(5)
            assert provider.open_requests == 5
            provider.release("all")
    assert [record.closed_by for record in provider.requests] == ["server"] * 5


async def one_exchange(provider: FakeProvider) -> None:
    async with await open_raw(provider.origin) as stream:
        await stream.send_all(encode_request(CHAT, HELLO))
        await read_until(stream, b"[DONE]")


async def test_a_connection_is_kept_alive_and_serves_pipelined_requests() -> None:
    with trio.fail_after(10):
        async with FakeProvider() as provider, await open_raw(provider.origin) as stream:
            body = HELLO | {"stream": False}
            await stream.send_all(encode_request(CHAT, body) + encode_request("/__open", method="GET"))
            received = await read_until(stream, b'{"open": 0}')
            assert received.count(b"HTTP/1.1 200") == 2
            await stream.send_all(encode_request(CHAT, body))
            await read_until(stream, b"chat.completion")
            assert len(provider.requests) == 2


async def test_the_log_keeps_body_and_headers_and_hides_keys_from_other_processes() -> None:
    with trio.fail_after(10):
        async with FakeProvider() as provider, httpx2.AsyncClient() as client:
            headers = {"authorization": "Bearer sesame", "x-other": "1"}
            await client.post(f"{provider.base_url}/chat/completions", json=HELLO, headers=headers)
            told = (await client.get(f"{provider.origin}/__log")).json()
            record = provider.requests[0]
    assert (record.body, record.headers["authorization"], record.status) == (HELLO, "Bearer sesame", 200)
    assert "x-other" not in record.headers
    assert told["requests"][0]["headers"]["authorization"] == "***"
    assert (told["requests"][0]["body"], told["open"]) == (HELLO, 0)


async def test_another_process_can_wait_release_and_replace_the_script() -> None:
    script = "replies: [{steps: [{wait_for: go}, {text: from the new script}]}]"
    seen: list[Any] = []
    with trio.fail_after(10):
        async with FakeProvider() as provider, httpx2.AsyncClient() as client, trio.open_nursery() as nursery:
            assert (await client.post(f"{provider.origin}/__script", content=script)).json() == {"replies": 1}

            async def ask() -> None:
                answer = await client.post(f"{provider.base_url}/chat/completions", json=HELLO)
                seen.append(answer.text)

            nursery.start_soon(ask)
            record = (await client.get(f"{provider.origin}/__request/1")).json()
            assert (record["path"], record["closed_at"]) == (CHAT, None)
            await client.post(f"{provider.origin}/__release/go")
            closed = (await client.get(f"{provider.origin}/__closed/1")).json()
            assert closed["closed_by"] == "server"
    assert " script" in seen[0]


@pytest.mark.parametrize("script", ["replies: 5", "{", "replies: [{steps: [{text: a, delay: 1}]}]"])
async def test_a_bad_script_is_refused_and_the_old_one_stays(script: str) -> None:
    with trio.fail_after(10):
        async with FakeProvider(Script.of(Reply.of({"text": "old"}))) as provider, httpx2.AsyncClient() as client:
            refused = await client.post(f"{provider.origin}/__script", content=script)
            answer = await client.post(f"{provider.base_url}/chat/completions", json=HELLO)
    assert (refused.status_code, "old" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/nothing", b"", 404),
        ("GET", CHAT, b"", 404),
        ("POST", CHAT, b"{", 400),
        ("POST", CHAT, b"[]", 400),
        ("POST", CHAT, b"\xff", 400),
        ("POST", CHAT, b'{"messages": 5, "stream_options": [], "include": 1}', 200),
        ("GET", "/__request/x", b"", 404),
    ],
)
async def test_odd_requests_get_an_answer(method: str, path: str, body: bytes, status: int) -> None:
    with trio.fail_after(10):
        async with FakeProvider() as provider, httpx2.AsyncClient() as client:
            assert (await client.request(method, provider.origin + path, content=body)).status_code == status


async def test_what_is_not_http_closes_only_its_own_connection() -> None:
    with trio.fail_after(10):
        async with FakeProvider() as provider:
            async with await open_raw(provider.origin) as stream:
                await stream.send_all(b"\x16\x03\x01 no http\r\n\r\n")
                assert await stream.receive_some() == b""
            await one_exchange(provider)


async def test_strict_mode_refuses_a_malformed_history_before_the_script_is_asked() -> None:
    rows = [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "x", "content": "b"}]
    with trio.fail_after(10):
        async with FakeProvider(Script.of(Reply.of({"text": "fine"}), strict=True)) as provider:
            async with httpx2.AsyncClient() as client:
                url = f"{provider.base_url}/chat/completions"
                refused = await client.post(url, json=HELLO | {"messages": rows})
                accepted = await client.post(url, json=HELLO)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("messages[1]: answers 'x'")
    assert '"fine"' in accepted.text


async def test_a_script_that_is_used_up_says_so() -> None:
    with trio.fail_after(10):
        async with FakeProvider(Script.of(Reply.of({"text": "only"}))) as provider, httpx2.AsyncClient() as client:
            url = f"{provider.base_url}/chat/completions"
            await client.post(url, json=HELLO)
            second = await client.post(url, json=HELLO)
    assert (second.status_code, second.json()["error"]["code"]) == (400, "script_used_up")


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    with pytest.raises(LookupError):
        async with FakeProvider():
            raise LookupError


async def test_cancelling_the_server_closes_open_streams(nursery: trio.Nursery) -> None:
    provider = FakeProvider(Script.of(Reply.of({"text": "a"}, {"wait_for": "never"})))
    with trio.fail_after(10):
        async with trio.open_nursery() as serving:
            await serving.start(provider.serve)
            stream = await open_raw(provider.origin)
            await stream.send_all(encode_request(CHAT, HELLO))
            await read_until(stream, b'"a"')
            serving.cancel_scope.cancel()
        await stream.aclose()
    assert (provider.requests[0].closed_by, provider.open_requests) == ("server", 0)


async def test_run_serves_a_script_file_and_reports_its_address(tmp_path: Path, nursery: trio.Nursery) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("- steps: [{text: from a file}]\n")
    told, heard = trio.open_memory_channel[str](1)

    async def serve() -> None:
        await run(path, "127.0.0.1", 0, report=told.send_nowait)

    with trio.fail_after(10):
        nursery.start_soon(serve)
        url = next(word for word in (await heard.receive()).split() if word.startswith("http"))
        async with httpx2.AsyncClient() as client:
            answer = await client.post(f"{url}/chat/completions", json=HELLO | {"stream": False})
        assert answer.json()["choices"][0]["message"]["content"] == "from a file"
        nursery.cancel_scope.cancel()


async def test_run_refuses_a_bad_script_before_it_listens(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"replies": [{"steps": [{"txt": "a"}]}]}))
    with pytest.raises(ScriptError, match=r"replies\.0\.steps\.0"):
        await run(path, "127.0.0.1", 0, report=lambda line: None)


async def test_a_port_that_is_taken_is_a_plain_error() -> None:
    async with FakeProvider() as first:
        with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
            async with FakeProvider(port=int(first.base_url.split(":")[2].split("/")[0])):
                pass


async def test_a_script_that_is_no_text_is_a_script_error(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScriptError, match="not text in UTF-8"):
        await run(tmp_path / "script.yaml", "127.0.0.1", 0, report=print)
