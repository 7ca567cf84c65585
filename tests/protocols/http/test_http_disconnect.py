"""What a client takes along when it goes: real sockets, closed, reset or silent."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
import trio

from hermes.protocols.channels.http_listener import ListenerLimits
from hermes.settings import Settings
from tests.support.core import call, hang, say
from tests.support.http_surface import Surface, http_surface
from tests.support.raw_http import read_until

HI = [{"role": "user", "content": "hi"}]
STREAMS = [
    ("/v1/chat/completions", {"messages": HI, "stream": True}, b'"role":"assistant"'),
    ("/v1/responses", {"input": "hi", "stream": True}, b"response.in_progress"),
    ("/api/sessions/s1/chat/stream", {"message": "hi"}, b"message.started"),
]
BLOCKING = [
    ("/v1/chat/completions", {"messages": HI}),
    ("/v1/responses", {"input": "hi"}),
    ("/api/sessions/s1/chat", {"message": "hi"}),
]


def long_pieces(count: int) -> list[str]:
    """Much text that never repeats itself, which would be cut."""
    return [" ".join(f"{number}.{n}" for n in range(6000)) for number in range(count)]


def reset(stream: trio.SocketStream) -> None:
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def leave(stream: trio.SocketStream, how: str) -> None:
    match how:
        case "close":
            stream.socket.close()
        case "half_close":
            await stream.send_eof()
        case _:
            reset(stream)


async def prepare(surface: Surface, path: str) -> None:
    if path.startswith("/api/sessions"):
        assert (await surface.post("/api/sessions", {"id": "s1"})).status_code == 201


@pytest.mark.fault("B-011")
@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
@pytest.mark.parametrize(("path", "body", "first"), STREAMS)
async def test_a_stream_that_is_left_ends_its_turn(path: str, body: Any, first: bytes, how: str) -> None:
    async with http_surface(hang()) as surface:
        await prepare(surface, path)
        stream = await surface.raw("POST", path, body)
        await read_until(stream, first)
        await surface.until(lambda: surface.model.open == 1)
        (run,) = surface.live_runs()
        await leave(stream, how)
        with trio.fail_after(1):
            record = await run.wait_ended()
        assert (record.run_status, record.cause) == ("cancelled", "client_disconnect")
        assert record.exit_reason.endswith("(sse_client_disconnected)")
        assert surface.model.open == 0
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        stream.socket.close()


@pytest.mark.parametrize(("path", "body"), BLOCKING)
async def test_a_request_that_is_left_ends_its_turn(path: str, body: Any) -> None:
    async with http_surface(hang()) as surface:
        await prepare(surface, path)
        stream = await surface.raw("POST", path, body)
        await surface.until(lambda: surface.model.open == 1)
        (run,) = surface.live_runs()
        stream.socket.close()
        with trio.fail_after(1):
            record = await run.wait_ended()
        assert record.cause == "client_disconnect"
        assert surface.model.open == 0


async def test_a_turn_in_a_tool_ends_with_its_client() -> None:
    async with http_surface(say("wait", calls=[call("nap", seconds=3600)])) as surface:
        stream = await surface.raw("POST", "/v1/chat/completions", {"messages": HI, "stream": True})
        await read_until(stream, b"hermes.tool.progress")
        (run,) = surface.live_runs()
        stream.socket.close()
        with trio.fail_after(1):
            assert (await run.wait_ended()).cause == "client_disconnect"


async def test_continue_lets_the_turn_end_and_its_run_tells_the_answer() -> None:
    async with http_surface(say("so", " be", " it", pause=0.05)) as surface:
        headers = "X-Hermes-On-Disconnect: continue\r\n"
        stream = await surface.raw("POST", "/v1/chat/completions", {"messages": HI, "stream": True}, headers)
        await read_until(stream, b'"role":"assistant"')
        (run,) = surface.live_runs()
        stream.socket.close()
        status = await surface.ended(run.run_id)
        assert (status["status"], status["output"]) == ("completed", "so be it")


async def test_an_idempotency_key_lets_a_blocking_call_finish_for_its_retry() -> None:
    async with http_surface(say("kept", pause=0.05)) as surface:
        body = {"messages": HI}
        stream = await surface.raw("POST", "/v1/chat/completions", body, "Idempotency-Key: k1\r\n")
        await surface.until(lambda: surface.model.open == 1)
        stream.socket.close()
        answer = await surface.post("/v1/chat/completions", body, Idempotency_Key="k1")
        assert answer.json()["choices"][0]["message"]["content"] == "kept"
        assert answer.headers["idempotency-replayed"] == "true"
        assert len(surface.model.requests) == 1


@pytest.mark.fault("B-106")
async def test_the_configured_policy_holds_where_the_request_says_nothing() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"on_disconnect": "continue"}}})
    async with http_surface(say("still here", pause=0.05), settings=settings) as surface:
        stream = await surface.raw("POST", "/v1/chat/completions", {"messages": HI, "stream": True})
        await read_until(stream, b'"role":"assistant"')
        (run,) = surface.live_runs()
        stream.socket.close()
        assert (await run.wait_ended()).completed


async def test_a_run_does_not_mind_its_readers() -> None:
    async with http_surface(say("on", " and", " on", pause=0.05)) as surface:
        run_id = (await surface.post("/v1/runs", {"input": "hi"})).json()["run_id"]
        stream = await surface.raw("GET", f"/v1/runs/{run_id}/events")
        await read_until(stream, b": open")
        reset(stream)
        assert (await surface.ended(run_id))["status"] == "completed"


@pytest.mark.fault("B-106")
async def test_a_reader_can_ask_to_take_the_run_along() -> None:
    async with http_surface(hang()) as surface:
        run_id = (await surface.post("/v1/runs", {"input": "hi"})).json()["run_id"]
        stream = await surface.raw("GET", f"/v1/runs/{run_id}/events", headers="X-Hermes-On-Disconnect: cancel\r\n")
        await read_until(stream, b": open")
        stream.socket.close()
        status = await surface.ended(run_id)
        assert (status["status"], status["cause"]) == ("cancelled", "client_disconnect")


async def test_a_prompt_that_waits_is_dropped_with_its_client() -> None:
    async with http_surface(hang()) as surface:
        first = await surface.raw("POST", "/v1/chat/completions", {"messages": HI, "stream": True})
        await surface.until(lambda: surface.model.open == 1)
        second = await surface.raw("POST", "/v1/chat/completions", {"messages": HI, "stream": True})
        await read_until(second, b'"role":"assistant"')
        waiting = next(run for run in surface.live_runs() if run.turn is None)
        second.socket.close()
        with trio.fail_after(1):
            assert (await waiting.wait_ended()).cause == "client_disconnect"
        assert not waiting.session.slot.queued
        first.socket.close()


async def test_a_reader_that_stops_reading_ends_its_stream_and_its_turn() -> None:
    limits = ListenerLimits(write_deadline=0.3)
    flood = say(*long_pieces(200), pause=0.0005)
    async with http_surface(flood, hang(), limits=limits) as surface:
        stream = await surface.raw("POST", "/v1/chat/completions", {"messages": HI, "stream": True})
        await surface.until(lambda: bool(surface.live_runs()))
        (run,) = surface.live_runs()
        with trio.fail_after(20):
            record = await run.wait_ended()
        assert record.completed or record.cause == "client_disconnect"
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        stream.socket.close()


async def test_a_stalled_reader_that_half_closes_is_noticed_although_a_write_is_blocked() -> None:
    flood = say(*long_pieces(400), pause=0.002)
    async with http_surface(flood) as surface:
        stream = await surface.raw("POST", "/v1/chat/completions", {"messages": HI, "stream": True})
        await surface.until(lambda: bool(surface.live_runs()))
        (run,) = surface.live_runs()
        await trio.sleep(0.3)
        await stream.send_eof()
        with trio.fail_after(2):
            assert (await run.wait_ended()).cause == "client_disconnect"
        stream.socket.close()
