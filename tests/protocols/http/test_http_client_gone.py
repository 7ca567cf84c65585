"""A client that goes away: in every phase of a turn, in every manner, on every route that runs one.

With ``cancel`` the model's request and the tools end at once and the run says why; with ``continue`` the turn ends by
itself and can be read afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trio

from hermes.nurseries.run import Run
from hermes.protocols.channels.http_listener import ListenerLimits
from hermes.settings import Settings
from tests.protocols.http.test_http_disconnect import HI, leave, long_pieces
from tests.support.core import Reply, call, hang, say
from tests.support.http_surface import KEY, Surface, http_surface
from tests.support.raw_http import read_until

ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": HI}),
    "chat stream": ("/v1/chat/completions", {"messages": HI, "stream": True}),
    "responses": ("/v1/responses", {"input": "hi"}),
    "responses stream": ("/v1/responses", {"input": "hi", "stream": True}),
    "session chat": ("/api/sessions/s1/chat", {"message": "hi"}),
    "session stream": ("/api/sessions/s1/chat/stream", {"message": "hi"}),
}
ASKING = ("chat stream", "session stream")
"""Only these have somebody who could answer a question."""
PHASES: dict[str, Callable[[], tuple[Reply, ...]]] = {
    "before the first byte": lambda: (hang(),),
    "in the text": lambda: (say("some ", "text ", "that ", "goes ", "on", pause=0.15),),
    "in a tool": lambda: (say("wait", calls=[call("nap", seconds=0.8)]), say("rested")),
    "in a question": lambda: (say("may I?", calls=[call("ask")]), say("asked")),
}
MANNERS = ("close", "half_close", "reset")
CASES = [(route, phase) for route in ROUTES for phase in PHASES if phase != "in a question" or route in ASKING]


async def reach(surface: Surface, run: Run, phase: str) -> None:
    """Wait until the turn is where the client shall leave it."""
    match phase:
        case "before the first byte":
            await surface.until(lambda: surface.model.open == 1)
        case "in the text":
            await surface.until(lambda: run.turn is not None and bool(run.session.inflight()))
        case "in a tool":
            await surface.until(lambda: run.turn is not None and "nap" in str(run.turn.scope.snapshot()))
        case _:
            await surface.until(lambda: bool(run.open_questions("approval")))


async def started(surface: Surface, route: str, headers: str = "") -> tuple[trio.SocketStream, Run]:
    path, body = ROUTES[route]
    if path.startswith("/api/sessions"):
        assert (await surface.post("/api/sessions", {"id": "s1"})).status_code == 201
    stream = await surface.raw("POST", path, body, headers)
    await surface.until(lambda: bool(surface.live_runs()))
    (run,) = surface.live_runs()
    if "stream" in route:
        await read_until(stream, b"data: ")
    return stream, run


@pytest.mark.fault("B-106", "B-175")
@pytest.mark.parametrize("how", MANNERS)
@pytest.mark.parametrize(("route", "phase"), CASES)
async def test_cancel_ends_the_turn_at_once_and_the_run_says_why(route: str, phase: str, how: str) -> None:
    async with http_surface(*PHASES[phase]()) as surface:
        stream, run = await started(surface, route)
        await reach(surface, run, phase)
        await leave(stream, how)
        with trio.fail_after(1):
            record = await run.wait_ended()
        assert (record.run_status, record.cause) == ("cancelled", "client_disconnect")
        assert "sse_client_disconnected" in record.exit_reason
        assert surface.model.open == 0
        assert not run.session.requests.entries()
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        status = await surface.ended(run.run_id)
        assert (status["status"], status["cause"], status["interrupted"]) == ("cancelled", "client_disconnect", True)
        if route.startswith("responses"):
            stored = (await surface.get(f"/v1/responses/{run.run_id}")).json()
            assert stored["status"] == "incomplete"
        stream.socket.close()


@pytest.mark.fault("B-106")
@pytest.mark.parametrize("how", MANNERS)
@pytest.mark.parametrize(
    ("route", "phase"), [case for case in CASES if case[1] not in ("before the first byte", "in a question")]
)
async def test_continue_lets_the_turn_end_by_itself(route: str, phase: str, how: str) -> None:
    async with http_surface(*PHASES[phase]()) as surface:
        stream, run = await started(surface, route, "X-Hermes-On-Disconnect: continue\r\n")
        await reach(surface, run, phase)
        await leave(stream, how)
        status = await surface.ended(run.run_id)
        expected = "rested" if phase == "in a tool" else "some text that goes on"
        assert (status["status"], status["output"]) == ("completed", expected)
        if route.startswith("responses"):
            stored = (await surface.get(f"/v1/responses/{run.run_id}")).json()
            assert (stored["status"], stored["output"][-1]["content"][0]["text"]) == ("completed", expected)
        stream.socket.close()


async def test_continue_leaves_a_question_open_for_whoever_comes() -> None:
    async with http_surface(*PHASES["in a question"]()) as surface:
        stream, run = await started(surface, "chat stream", "X-Hermes-On-Disconnect: continue\r\n")
        await reach(surface, run, "in a question")
        stream.socket.close()
        await surface.until(lambda: surface.surface.api.runs.active == 1)
        answer = await surface.post(f"/v1/runs/{run.run_id}/approval", {"choice": "deny"})
        assert answer.status_code == 200, answer.text
        assert (await surface.ended(run.run_id))["output"] == "asked"


@pytest.mark.fault("B-175")
@pytest.mark.parametrize("route", ["chat stream", "responses stream"])
async def test_an_http2_stream_that_is_reset_ends_its_turn_and_not_its_connection(route: str) -> None:
    async with http_surface(hang(), say("next")) as surface:
        stream = await trio.open_tcp_stream("127.0.0.1", surface.port)
        wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        wire.initiate_connection()
        path, body = ROUTES[route]
        await _ask(stream, wire, 1, path, body)
        await surface.until(lambda: surface.model.open == 1)
        (run,) = surface.live_runs()
        await _until(stream, wire, h2.events.DataReceived)
        wire.reset_stream(1)
        await stream.send_all(wire.data_to_send())
        with trio.fail_after(1):
            assert (await run.wait_ended()).cause == "client_disconnect"
        assert surface.model.open == 0
        await _ask(stream, wire, 3, "/v1/models", None)
        await _until(stream, wire, h2.events.StreamEnded)
        await stream.aclose()


@pytest.mark.fault("B-106", "B-175")
@pytest.mark.parametrize("how", ["reset", "goaway", "close"])
@pytest.mark.parametrize(("route", "phase"), CASES)
async def test_a_client_over_http2_that_goes_in_any_phase_ends_its_turn(route: str, phase: str, how: str) -> None:
    async with http_surface(*PHASES[phase](), say("next")) as surface:
        path, body = ROUTES[route]
        if path.startswith("/api/sessions"):
            assert (await surface.post("/api/sessions", {"id": "s1"})).status_code == 201
        stream = await trio.open_tcp_stream("127.0.0.1", surface.port)
        wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        wire.initiate_connection()
        await _ask(stream, wire, 1, path, body)
        await surface.until(lambda: bool(surface.live_runs()))
        (run,) = surface.live_runs()
        if "stream" in route:
            await _until(stream, wire, h2.events.DataReceived)
        await reach(surface, run, phase)
        if how == "reset":
            wire.reset_stream(1)
        elif how == "goaway":
            wire.close_connection()
        if data := wire.data_to_send():
            await stream.send_all(data)
        if how == "close":
            stream.socket.close()
        elif how == "goaway":
            await stream.send_eof()
        with trio.fail_after(2):
            record = await run.wait_ended()
        assert (record.run_status, record.cause) == ("cancelled", "client_disconnect")
        assert surface.model.open == 0
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        if how == "reset":
            # The connection lives on, and serves what comes next.
            await _ask(stream, wire, 3, "/v1/models", None)
            await _until(stream, wire, h2.events.StreamEnded)
        stream.socket.close()


async def test_one_of_several_turns_on_an_http2_connection_ends_alone() -> None:
    async with http_surface(hang(), hang(), hang()) as surface:
        stream = await trio.open_tcp_stream("127.0.0.1", surface.port)
        wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        wire.initiate_connection()
        for number in (1, 3, 5):
            body = {"messages": [{"role": "user", "content": f"hi {number}"}], "stream": True}
            await _ask(stream, wire, number, "/v1/chat/completions", body)
        await surface.until(lambda: surface.model.open == len((1, 3, 5)))
        runs = {run.prompt.text: run for run in surface.live_runs()}
        wire.reset_stream(3)
        await stream.send_all(wire.data_to_send())
        with trio.fail_after(2):
            assert (await runs["hi 3"].wait_ended()).cause == "client_disconnect"
        assert [runs[text].record for text in ("hi 1", "hi 5")] == [None, None]
        assert surface.model.open == 2
        stream.socket.close()
        with trio.fail_after(2):
            for text in ("hi 1", "hi 5"):
                assert (await runs[text].wait_ended()).cause == "client_disconnect"


async def _ask(stream: trio.SocketStream, wire: h2.connection.H2Connection, number: int, path: str, body: Any) -> None:
    data = b"" if body is None else json.dumps(body).encode()
    head = [(":method", "GET" if body is None else "POST"), (":path", path), (":scheme", "http"), (":authority", "x")]
    wire.send_headers(number, [*head, ("authorization", f"Bearer {KEY}")], end_stream=not data)
    if data:
        wire.send_data(number, data, end_stream=True)
    await stream.send_all(wire.data_to_send())


async def _until(stream: trio.SocketStream, wire: h2.connection.H2Connection, kind: type) -> None:
    with trio.fail_after(5):
        while True:
            received = await stream.receive_some()
            assert received, "the connection was closed"
            events = wire.receive_data(received)
            await stream.send_all(wire.data_to_send())
            if any(isinstance(event, kind) for event in events):
                return


async def test_a_reader_that_stalls_is_cut_off_and_takes_its_turn_along() -> None:
    flood = say(*long_pieces(300), pause=0.001)
    async with http_surface(flood, limits=ListenerLimits(write_deadline=0.3)) as surface:
        stream, run = await started(surface, "responses stream")
        with trio.fail_after(20):
            record = await run.wait_ended()
        assert record.completed or record.cause == "client_disconnect"
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        stream.socket.close()


async def test_with_continue_a_reader_that_stalls_costs_only_itself() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"on_disconnect": "continue"}}})
    flood = say(*long_pieces(60), pause=0.001)
    async with http_surface(flood, settings=settings, limits=ListenerLimits(write_deadline=0.3)) as surface:
        stream, run = await started(surface, "chat stream")
        assert (await surface.ended(run.run_id))["status"] == "completed"
        stream.socket.close()
