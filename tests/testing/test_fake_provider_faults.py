"""Each fault of the script format, seen at the bytes."""

from __future__ import annotations

import json
from typing import Any

import h11
import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.raw_http import HELLO, encode_request, open_raw, read_to_close, read_until

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
TWO_CALLS = (
    {"tool_call": {"name": "a", "arguments": {"x": 1}, "id": "one"}},
    {"tool_call": {"name": "b", "arguments": {"y": 2}, "id": "two"}},
)


async def post(provider: FakeProvider, path: str = CHAT, **more: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=10) as client:
        return await client.post(provider.origin + path, json=HELLO | {"input": "hello"} | more)


async def answer(*steps: dict[str, Any], path: str = CHAT, stream: bool = True, **faults: Any) -> httpx2.Response:
    """The complete answer to one request, of a reply with these faults."""
    with trio.fail_after(10):
        async with FakeProvider(Script.of(Reply.of(*steps, faults=faults))) as provider:
            return await post(provider, path, stream=stream)


async def bytes_until_close(*steps: dict[str, Any], path: str = CHAT, **faults: Any) -> bytes:
    with trio.fail_after(10):
        async with FakeProvider(Script.of(Reply.of(*steps, faults=faults))) as provider:
            async with await open_raw(provider.origin) as stream:
                await stream.send_all(encode_request(path, HELLO | {"input": "hello"}))
                return await read_to_close(stream)


def payloads(response: httpx2.Response) -> list[Any]:
    lines = response.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]


def calls_of(response: httpx2.Response) -> list[Any]:
    deltas = [choice["delta"] for chunk in payloads(response) for choice in chunk["choices"]]
    return [call for delta in deltas for call in delta.get("tool_calls", [])]


async def test_hang_accepts_the_request_and_sends_no_byte() -> None:
    with trio.fail_after(10):
        async with FakeProvider(Script.of(Reply.of({"text": "never"}, faults={"hang": True}))) as provider:
            async with await open_raw(provider.origin) as stream:
                await stream.send_all(encode_request(CHAT, HELLO))
                record = await provider.wait_for_request(1)
                await trio.testing.wait_all_tasks_blocked()
                assert (record.first_byte_at, provider.open_requests) == (None, 1)
            record = await provider.wait_closed(1)
            assert (record.closed_by, record.first_byte_at, record.chunks_sent) == ("client", None, 0)


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_hang_after_sends_that_many_frames_and_then_nothing(path: str) -> None:
    with trio.fail_after(10):
        async with FakeProvider(Script.of(Reply.of({"text": "a b c d"}, faults={"hang_after": 3}))) as provider:
            async with await open_raw(provider.origin) as stream:
                await stream.send_all(encode_request(path, HELLO | {"input": "hello"}))
                record = await provider.wait_chunks(1, 3)
                await trio.testing.wait_all_tasks_blocked()
                assert (record.chunks_sent, record.closed_at) == (3, None)
            assert (await provider.wait_closed(1)).closed_by == "client"


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_drop_after_closes_in_the_middle_of_the_next_frame(path: str) -> None:
    received = await bytes_until_close({"text": "a b c"}, path=path, drop_after=2)
    body = received.split(b"\r\n\r\n", 1)[1]
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "fake")]))
    client.send(h11.EndOfMessage())
    client.receive_data(received)
    client.receive_data(b"")
    with pytest.raises(h11.RemoteProtocolError):
        while client.next_event() is not h11.PAUSED:
            pass
    assert body.count(b"\n\n") == 2
    assert not body.endswith(b"\n\n\r\n")


async def test_drop_closes_in_the_middle_of_the_first_frame() -> None:
    received = await bytes_until_close({"text": "a"}, drop=True)
    assert b"data: " in received
    assert b"\n\n" not in received.split(b"\r\n\r\n", 1)[1]


@pytest.mark.parametrize(("kind", "marker"), [("json", b'{"cont\n'), ("sse", b"<html>"), ("bytes", b"\xff\xfe\x00")])
async def test_garbage_is_inserted_between_frames(kind: str, marker: bytes) -> None:
    response = await answer({"text": "a b"}, garbage=kind, garbage_after=2)
    before, _, after = response.content.partition(marker)
    assert (before.count(b"\n\ndata"), b"[DONE]" in after) == (1 if kind == "sse" else 2, True)


async def test_slow_waits_before_each_frame(autojump_clock: trio.abc.Clock) -> None:
    started = trio.current_time()
    await answer({"text": "a b"}, slow=1)
    assert trio.current_time() - started == pytest.approx(5)  # role, two pieces, the end, the marker


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 529])
async def test_a_status_is_answered_with_retry_after_and_body(status: int) -> None:
    response = await answer(status=status, retry_after=1.5, body={"error": {"message": "mine"}})
    assert (response.status_code, response.headers["retry-after"]) == (status, "1.5")
    assert response.json() == {"error": {"message": "mine"}}


async def test_an_error_object_can_come_with_status_200() -> None:
    response = await answer(error_at_200=True)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_a_mid_stream_error_is_the_last_frame(path: str) -> None:
    response = await answer({"text": "a b c"}, path=path, mid_stream_error={"after": 3, "message": "overheated"})
    assert (response.status_code, len(payloads(response))) == (200, 4)
    assert "overheated" in json.dumps(payloads(response)[-1])


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_an_empty_reply_ends_properly_without_content(path: str) -> None:
    response = await answer({"text": "swallowed"}, path=path, empty=True)
    whole = await answer({"text": "swallowed"}, path=path, stream=False, empty=True)
    assert "swallowed" not in response.text + whole.text
    assert any(end in response.text for end in ('"stop"', "message_stop", "response.completed"))


@pytest.mark.parametrize(
    ("path", "marker"), [(CHAT, "[DONE]"), (MESSAGES, "message_stop"), (RESPONSES, "response.completed")]
)
async def test_no_done_leaves_out_the_end_marker(path: str, marker: str) -> None:
    assert marker in (await answer({"text": "a"}, path=path)).text
    assert marker not in (await answer({"text": "a"}, path=path, no_done=True)).text


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("stream", [True, False])
async def test_no_usage_never_tells_the_usage(path: str, stream: bool) -> None:
    response = await answer({"text": "a"}, path=path, stream=stream, no_usage=True)
    assert not any(word in response.text for word in ("prompt_tokens", "input_tokens", "total_tokens"))


async def test_no_finish_reason_leaves_it_null_or_out() -> None:
    chat = payloads(await answer({"text": "a"}, no_finish_reason=True))
    assert {choice["finish_reason"] for chunk in chat for choice in chunk["choices"]} == {None}
    assert "message_delta" not in (await answer({"text": "a"}, path=MESSAGES, no_finish_reason=True)).text


async def test_chat_usage_is_streamed_only_on_request_or_in_another_style() -> None:
    assert not any("usage" in chunk for chunk in payloads(await answer({"text": "a"})))
    last = payloads(await answer({"text": "a"}, usage_style="last_chunk"))[-1]
    assert (last["choices"][0]["finish_reason"], "usage" in last) == ("stop", True)
    every = payloads(await answer({"text": "a b"}, usage_style="every_chunk"))
    totals = [chunk["usage"]["completion_tokens"] for chunk in every[:-1]]
    assert totals == [1, 2, 3]


async def test_keepalive_comments_stand_before_each_frame() -> None:
    text = (await answer({"text": "a"}, keepalive=2)).text
    assert text.startswith(": keep-alive\n\n: keep-alive\n\ndata: ")
    assert text.count(": keep-alive\n\n") == 2 * text.count("data: ")


async def test_tool_ids_can_be_missing_or_integers() -> None:
    missing = calls_of(await answer(*TWO_CALLS, missing_tool_ids=True))
    assert not any("id" in call for call in missing)
    numbers = calls_of(await answer(*TWO_CALLS, integer_tool_ids=True))
    assert [call["id"] for call in numbers if "id" in call] == [1, 2]
    for path in (MESSAGES, RESPONSES):
        text = (await answer(*TWO_CALLS, path=path, missing_tool_ids=True)).text
        assert '"one"' not in text and '"two"' not in text


async def test_two_calls_can_share_an_index_or_have_none() -> None:
    assert {call["index"] for call in calls_of(await answer(*TWO_CALLS))} == {0, 1}
    assert {call["index"] for call in calls_of(await answer(*TWO_CALLS, same_tool_index=True))} == {0}
    assert not any("index" in call for call in calls_of(await answer(*TWO_CALLS, no_tool_index=True)))


@pytest.mark.parametrize(("path", "key"), [(CHAT, "arguments"), (MESSAGES, "partial_json"), (RESPONSES, "delta")])
async def test_arguments_are_split_at_odd_points(path: str, key: str) -> None:
    call = {"tool_call": {"name": "a", "arguments": {"text": 'a"b\\n'}}}
    response = await answer(call, path=path, split_arguments=1)
    if path == CHAT:
        pieces = [found["function"][key] for found in calls_of(response)[1:]]
    else:
        pieces = [str(p.get(key) or p.get("delta", {}).get(key)) for p in payloads(response) if "delta" in p["type"]]
        pieces = [piece for piece in pieces if piece != "None"]
    assert {len(piece) for piece in pieces} == {1}
    assert json.loads("".join(pieces)) == {"text": 'a"b\\n'}


async def test_arguments_can_be_invalid_cut_or_given_as_they_are() -> None:
    async def arguments(call: dict[str, Any], **faults: Any) -> str:
        return "".join(c["function"]["arguments"] for c in calls_of(await answer({"tool_call": call}, **faults)))

    call = {"name": "a", "arguments": {"text": "hello"}}
    assert await arguments(call, broken_arguments=True) == '{"text": "hello", broken}'
    assert await arguments(call, truncated_arguments=True) == '{"text": "h'
    assert await arguments({"name": "a", "arguments": "```json {}```"}) == "```json {}```"


async def test_calls_can_come_as_objects_or_in_a_whole_message() -> None:
    as_object = calls_of(await answer(*TWO_CALLS, arguments_as_object=True))
    assert [call["function"]["arguments"] for call in as_object] == [{"x": 1}, {"y": 2}]
    whole = await answer(*TWO_CALLS, whole_message=True)
    assert calls_of(whole) == []
    assert [c["id"] for c in payloads(whole)[-1]["choices"][0]["message"]["tool_calls"]] == ["one", "two"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text", "reasoning_details"])
async def test_chat_reasoning_comes_in_the_field_that_the_script_names(field: str) -> None:
    chunks = payloads(await answer({"reasoning": "hm"}, reasoning_field=field))
    found = [c["choices"][0]["delta"][field] for c in chunks if field in c["choices"][0]["delta"]]
    assert found[0] in ("hm", [{"type": "reasoning.text", "text": "hm", "index": 0, "signature": "signature-1"}])


@pytest.mark.parametrize(
    ("path", "marker"), [(CHAT, '"stop"'), (MESSAGES, '"end_turn"'), (RESPONSES, '"type": "response.completed"')]
)
async def test_the_final_frame_can_be_sent_twice(path: str, marker: str) -> None:
    assert (await answer({"text": "a"}, path=path)).text.count(marker) == 1
    assert (await answer({"text": "a"}, path=path, duplicate_final=True)).text.count(marker) == 2


async def test_a_completed_response_can_list_no_output() -> None:
    events = payloads(await answer({"text": "a"}, path=RESPONSES, completed_without_output=True))
    assert events[-1]["response"]["output"] == []
    assert any(event["type"] == "response.output_item.done" for event in events)


async def test_lines_can_end_in_cr_lf() -> None:
    text = (await answer({"text": "a"}, crlf=True)).content
    assert text.count(b"\n") == text.count(b"\r\n") > 0


async def test_the_body_can_be_written_in_pieces_that_cut_characters() -> None:
    received = await bytes_until_close({"text": "ü"}, split_bytes=1, mid_stream_error={"after": 2})
    assert b"1\r\n\xc3\r\n1\r\n\xbc\r\n" in received


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_faults_hit_an_answer_in_one_piece_as_well(path: str) -> None:
    body = HELLO | {"input": "hello", "stream": False}
    replies = [Reply.of({"text": "a"}, faults=fault) for fault in ({"garbage": "json"}, {"drop": True})]
    with trio.fail_after(10):
        async with FakeProvider(Script.of(*replies)) as provider:
            with pytest.raises(json.JSONDecodeError):
                (await post(provider, path, stream=False)).json()
            async with await open_raw(provider.origin) as stream:
                await stream.send_all(encode_request(path, body))
                head, _, rest = (await read_to_close(stream)).partition(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    assert 0 < len(rest) < int(length.split(b":")[1])


async def test_delays_stand_between_chunks(autojump_clock: trio.abc.Clock) -> None:
    with trio.fail_after(100):
        async with FakeProvider(Script.of(Reply.of({"text": "before"}, {"delay": 30}, {"text": "after"}))) as provider:
            async with await open_raw(provider.origin) as stream:
                await stream.send_all(encode_request(CHAT, HELLO))
                started = trio.current_time()
                await read_until(stream, b'"before"')
                assert trio.current_time() == started
                await read_until(stream, b'"after"')
                assert trio.current_time() == pytest.approx(started + 30)
