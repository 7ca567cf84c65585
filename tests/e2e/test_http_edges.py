"""What clients meet at the edges of the HTTP surface: odd requests, odd characters, other keys. Through the server."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import Reply, Script
from tests.support.http_clients import Served, served

pytestmark = pytest.mark.e2e

HI = {"messages": [{"role": "user", "content": "hi"}]}
ECHO = Script(when_used_up="echo")
UNBOUND: dict[str, Any] = {"gateway": {"api_server": {"max_concurrent_runs": 0}}}
BROWSER: dict[str, Any] = {"browser": {"extension_control": {"enabled": True}}}


def client_of(run: Served, key: str | None = None) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {key or run.server.key}"}
    return httpx2.AsyncClient(base_url=run.server.origin, headers=headers, timeout=30)


async def said_to(run: Served, request: bytes) -> bytes:
    """All that the server answers to these bytes until it closes, or until the first answer is whole."""
    stream = await trio.open_tcp_stream("127.0.0.1", run.server.port)
    async with stream:
        await stream.send_all(request)
        answer = b""
        with trio.move_on_after(2):
            async for chunk in stream:
                answer += chunk
        return answer


async def test_a_turn_that_failed_without_words_says_what_it_was_in_body_and_headers(tmp_path: Path) -> None:
    refusing = Reply.model_validate({"steps": [], "faults": {"status": 403}})
    async with served(tmp_path / "home", Script.of(refusing)) as run, client_of(run) as http:
        answer = await http.post("/v1/chat/completions", json=HI)
    assert answer.status_code == 502
    assert answer.json()["error"]["hermes"] == {"completed": False, "partial": False, "failed": True}
    told = (answer.headers["x-hermes-completed"], answer.headers["x-hermes-partial"])
    assert told == ("false", "false") and answer.headers["x-hermes-error"]


async def test_asking_for_the_head_alone_takes_nothing_and_starts_no_stream(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO, config=BROWSER) as run, client_of(run) as http:
        file = {"Content-Type": "text/plain", "X-Artifact-Filename": "a.txt"}
        path = (await http.post("/v1/artifacts/upload", content=b"text", headers=file)).json()["download_path"]
        run_id = (await http.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
        heads = {p: (await http.head(p)).status_code for p in (path, f"/v1/runs/{run_id}/events", "/v1/tree")}
        assert set(heads.values()) == {405}
        assert (await http.head("/v1/models")).status_code == 200
        assert (await http.get(path)).content == b"text"


async def test_names_in_headers_may_be_of_any_script_and_come_back_as_they_were_sent(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO) as run, client_of(run) as http:
        name = "Gespräch-日本"
        raw: Any = {"X-Hermes-Session-Id": name.encode(), "X-Hermes-Session-Key": "clé".encode()}
        answer = await http.post("/v1/chat/completions", json=HI, headers=raw)
        sent_back = {key.lower(): value for key, value in answer.headers.raw}
        assert sent_back[b"x-hermes-session-id"] == name.encode()
        assert sent_back[b"x-hermes-session-key"] == "clé".encode()
        session = (await http.get(f"/api/sessions/{name}")).json()["session"]
        assert (session["id"], session["message_count"]) == (name, 2)


async def test_a_target_with_the_servers_address_is_the_same_path(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO) as run:
        whole = f"GET {run.server.origin}/health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        assert (await said_to(run, whole.encode())).startswith(b"HTTP/1.1 200 ")
        asked = f"GET {run.server.origin}/v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        assert (await said_to(run, asked.encode())).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n", b"400"),
        (b"POST /v1/runs HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"POST /v1/runs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"501"),
    ],
)
async def test_an_answer_to_what_is_no_request_has_the_security_headers_too(
    request_: bytes, status: bytes, tmp_path: Path
) -> None:
    async with served(tmp_path / "home", ECHO) as run:
        answer = await said_to(run, request_)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"x-content-type-options: nosniff\r\n" in answer.lower()


async def test_no_character_of_an_answer_ends_a_line_of_the_stream(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\u0085four é"
    script = Script(replies=[Reply.of({"text": text})], when_used_up="repeat")
    async with served(tmp_path / "home", script) as run, client_of(run) as http:
        await http.post("/api/sessions", json={"id": "s"})
        streams = [
            (await http.post("/v1/chat/completions", json={**HI, "stream": True})).content,
            (await http.post("/v1/responses", json={"input": "hi", "stream": True})).content,
            (await http.post("/api/sessions/s/chat/stream", json={"message": "hi"})).content,
        ]
        run_id = (await http.post("/v1/runs", json={"input": "hi"})).json()["run_id"]
        for _ in range(2):
            streams.append((await http.get(f"/v1/runs/{run_id}/events")).content)
    for stream in streams:
        # As many clients split it: at all that Unicode calls an end of line.
        data = [line[6:] for line in stream.decode().splitlines() if line.startswith("data: ") and "[DONE]" not in line]
        assert text in "".join(json.dumps(json.loads(one), ensure_ascii=False) for one in data), stream
        assert all(isinstance(json.loads(one), dict) for one in data)


async def test_input_items_come_in_pages_and_a_bad_page_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO) as run, client_of(run) as http:
        response = (await http.post("/v1/responses", json={"input": ["a", "b", "c"]})).json()["id"]
        path = f"/v1/responses/{response}/input_items"
        seen: list[str] = []
        after = ""
        while True:
            page = (await http.get(f"{path}?limit=1&order=asc{after}")).json()
            seen += [item["content"][0]["text"] for item in page["data"]]
            if not page["has_more"]:
                break
            after = f"&after={page['last_id']}"
        assert seen == ["a", "b", "c"]
        for query in ("limit=0", "limit=101", "limit=x", "limit=-1", "order=up", "after=nothing", "after="):
            answer = await http.get(f"{path}?{query}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_pagination"), query
            assert answer.json()["error"]["param"] == query.partition("=")[0]


async def test_a_number_that_cannot_be_held_is_named_as_the_reason(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO) as run, client_of(run) as http:
        for number, status in (("9" * 400, 400), ("1e400", 400), ("9" * 30, 200), ("-0", 200)):
            body = json.dumps(HI)[:-1] + f', "seed": {number}}}'
            answer = await http.post("/v1/chat/completions", content=body.encode())
            assert answer.status_code == status, number
            if status == 400:
                assert answer.json()["error"]["code"] == "invalid_json"
                assert "number" in answer.json()["error"]["message"]


async def test_another_key_sees_none_of_what_was_there_and_can_begin_with_the_same_words(tmp_path: Path) -> None:
    home, keys = tmp_path / "home", ("first-key-0123456789", "second-key-0123456789")
    async with served(home, ECHO, API_SERVER_KEY=keys[0]) as run, client_of(run, keys[0]) as http:
        old = await http.post("/v1/chat/completions", json=HI)
        for number in range(3):
            await http.post("/api/sessions", json={"id": f"old{number}"})
    async with served(home, ECHO, API_SERVER_KEY=keys[1]) as run, client_of(run, keys[1]) as http:
        assert (await http.get("/api/sessions")).json()["data"] == []
        new = await http.post("/v1/chat/completions", json=HI)
        again = await http.post("/v1/chat/completions", json={**HI, "stream": True})
        assert (new.status_code, again.status_code) == (200, 200)
        ids = [answer.headers["x-hermes-session-id"] for answer in (old, new, again)]
        assert ids[0] != ids[1] == ids[2]
        await http.post("/api/sessions", json={"id": "mine"})
        page = (await http.get("/api/sessions?limit=1")).json()
        assert (len(page["data"]), page["has_more"]) == (1, True)


async def test_a_session_answers_to_one_name_and_a_chain_takes_none(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO) as run, client_of(run) as http:

        async def session_of(path: str, body: Any, name: str | None) -> str:
            headers = {} if name is None else {"X-Hermes-Session-Key": name}
            answer = await http.post(path, json=body, headers=headers)
            assert answer.status_code in (200, 202), answer.text
            assert answer.headers.get("x-hermes-session-key") == name
            last.update(answer.json())
            return answer.headers["x-hermes-session-id"]

        last: dict[str, Any] = {}
        first = await session_of("/v1/responses", {"input": "a"}, "one")
        assert await session_of("/v1/runs", {"input": "b"}, "one") == first
        chain = await session_of("/v1/responses", {"input": "c"}, None)
        chained = {"input": "d", "previous_response_id": last["id"]}
        assert await session_of("/v1/responses", chained, "one") == chain
        assert await session_of("/v1/responses", {"input": "e"}, "one") == first
        # A session that has a name gets no second one.
        assert await session_of("/v1/runs", {"input": "f", "session_id": first}, "two") == first
        other = await session_of("/v1/responses", {"input": "g"}, "two")
        assert other != first
        run_id = (await http.get("/api/runs")).json()["data"]
        assert run_id == [] or all(one["session_id"] != other for one in run_id)
        assert (await http.delete(f"/api/sessions/{other}")).status_code == 200
        assert await session_of("/v1/responses", {"input": "h"}, "two") not in (other, first)


async def test_a_chat_completion_takes_no_steer_and_can_be_stopped(tmp_path: Path) -> None:
    script = Script.of(Reply.of({"text": "one"}, {"delay": 60}, {"text": "two"}))
    async with served(tmp_path / "home", script) as run, client_of(run) as http:
        async with http.stream("POST", "/v1/chat/completions", json={**HI, "stream": True}) as answer:
            lines = answer.aiter_lines()
            while '"content"' not in (line := await anext(lines)):
                pass
            run_id = json.loads(line[6:])["id"]
            steer = await http.post(f"/v1/runs/{run_id}/steer", json={"text": "faster"})
            assert (steer.status_code, steer.json()["error"]["code"]) == (409, "run_not_accepting_steer")
            assert (await http.get(f"/v1/runs/{run_id}/events")).status_code == 404
            assert (await http.post(f"/v1/runs/{run_id}/stop")).json()["status"] == "stopping"
            rest = [line async for line in lines]
        assert rest[-2] == "data: [DONE]"


async def test_detailed_health_says_what_the_server_carries(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO) as run, client_of(run) as http:
        body = (await http.get("/health/detailed")).json()
        load = body["load"]
        assert load["loop"]["lag_seconds"] > 0 and load["loop"]["busy_seconds"] > 0
        assert set(load["queues"].values()) == {0} and set(load["drops"].values()) == {0}
        assert load["tasks"] > 5 and load["threads"] >= 1 and load["descriptors"] > 3 and load["connections"] >= 1
        adapter = body["platforms"]["api_server"]
        assert adapter["listener_base"] == run.server.origin and adapter["writer_pid"] == run.server.pid
        assert (adapter["needs_attention"], adapter["retrying_since"]) == (False, None)


@pytest.mark.parametrize("path", ["/v1/browser-control/ws", "/p/default/v1/browser-control/ws"])
async def test_a_browser_without_a_ticket_is_refused_in_the_usual_words(path: str, tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO, config=BROWSER) as run:
        nonce = base64.b64encode(b"0123456789abcdef").decode()
        upgrade = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        upgrade += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n\r\n"
        answer = await said_to(run, upgrade.encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401 ") and b"x-frame-options: DENY" in head
        assert json.loads(body)["error"]["code"] == "gateway_auth_failed"
        assert "refused without a valid key" not in run.server.stderr


async def test_a_key_that_fifty_requests_share_is_one_turn_and_never_a_refusal(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO, config=UNBOUND) as run, client_of(run) as http:

        async def ask(path: str, body: Any, key: str, into: list[httpx2.Response]) -> None:
            into.append(await http.post(path, json=body, headers={"Idempotency-Key": key}))

        for path, body in (
            ("/v1/chat/completions", HI),
            ("/v1/responses", {"input": "hi"}),
            ("/v1/runs", {"input": "x"}),
        ):
            answers: list[httpx2.Response] = []
            before = len(run.provider.requests)
            async with trio.open_nursery() as clients:
                for _ in range(50):
                    clients.start_soon(ask, path, body, "one", answers)
            assert {answer.status_code for answer in answers} <= {200, 202}
            assert len({answer.json().get("id") or answer.json()["run_id"] for answer in answers}) == 1
            assert sum("idempotency-replayed" in answer.headers for answer in answers) == 49
            if path == "/v1/runs":
                await http.get(f"/v1/runs/{answers[0].json()['run_id']}/events")
            assert len(run.provider.requests) == before + 1
        answers = []
        async with trio.open_nursery() as clients:
            for number in range(50):
                body = {"messages": [{"role": "user", "content": f"say {number % 2}"}]}
                clients.start_soon(ask, "/v1/chat/completions", body, "two", answers)
        assert {answer.status_code for answer in answers} == {200}
        said = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
        assert sorted(said) == ["say 0"] * 25 + ["say 1"] * 25


async def test_a_picture_may_be_written_out_in_its_address_and_a_number_in_a_history(tmp_path: Path) -> None:
    async with served(tmp_path / "home", ECHO) as run, client_of(run) as http:
        picture = {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}}
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, picture]}]}
        answer = await http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        history = [{"role": "user", "content": 7}, {"role": "assistant", "content": "seven"}]
        run_id = (await http.post("/v1/runs", json={"input": "and?", "conversation_history": history})).json()["run_id"]
        await http.get(f"/v1/runs/{run_id}/events")
        first, second = (record.body["messages"] for record in run.provider.requests)
        expected = f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}"
        assert expected in json.dumps(first)
        assert [message["content"] for message in second if message["role"] != "system"] == ["7", "seven", "and?"]
