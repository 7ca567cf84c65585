"""Browser control: who may register, what a connection may do, and where a browser tool's call goes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio_websocket import WebSocketConnection, open_websocket

from hermes.messages import Prompt
from hermes.nurseries.browser_broker import BrowserBroker, BrowserFailure, ControllerIdentity, Lane
from hermes.settings import Settings
from tests.support.core import call, say
from tests.support.http_surface import Surface, http_surface
from tests.support.raw_http import read_until

ON = Settings.model_validate({"browser": {"extension_control": {"enabled": True}}})
BASE = "hermes-browser-control-v1"
TICKET = "hermes-browser-control-ticket."
BODY = {
    "protocol_version": 1,
    "session_id": "s",
    "controller_id": "ext-1",
    "browser_profile_id": "work",
    "capabilities": ["browser_navigate", "browser_evaluate"],
}


async def register(surface: Surface, **changes: Any) -> str:
    answer = await surface.post("/v1/browser-control/register", {**BODY, **changes})
    assert answer.status_code == 201, answer.text
    ticket: str = answer.json()["ticket"]
    return ticket


@asynccontextmanager
async def connected(surface: Surface, **changes: Any) -> AsyncIterator[WebSocketConnection]:
    ticket = await register(surface, **changes)
    async with open_websocket(
        "127.0.0.1",
        surface.port,
        "/v1/browser-control/ws",
        use_ssl=False,
        subprotocols=[BASE, TICKET + ticket],
    ) as connection:
        assert connection.subprotocol == BASE
        yield connection


async def receive(connection: WebSocketConnection) -> dict[str, Any]:
    with trio.fail_after(5):
        frame: dict[str, Any] = json.loads(await connection.get_message())
        return frame


async def send(connection: WebSocketConnection, method: str, **params: Any) -> None:
    await connection.send_message(json.dumps({"method": method, "params": params}))


@asynccontextmanager
async def controlled(*replies: Any) -> AsyncIterator[Surface]:
    async with http_surface(*replies, settings=ON) as surface:
        await surface.post("/api/sessions", {"id": "s"})
        yield surface


async def test_switched_off_it_says_so_to_everybody() -> None:
    async with http_surface() as surface:
        answer = await surface.client.post("/v1/browser-control/register", headers={"Authorization": ""})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "browser_control_disabled")
        features = (await surface.get("/v1/capabilities")).json()["features"]
        assert features["browser_extension_control"]["enabled"] is False


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"protocol_version": True}, 400, "browser_control_protocol_unsupported"),
        ({"protocol_version": "1"}, 400, "browser_control_protocol_unsupported"),
        ({"protocol_version": 2}, 400, "browser_control_protocol_unsupported"),
        ({"controller_id": ""}, 400, "browser_control_invalid_registration"),
        ({"session_id": "unknown"}, 403, "browser_control_session_forbidden"),
        ({"capabilities": ["browser_evaluate"]}, 403, "browser_control_developer_mode_required"),
        ({"capabilities": ["fly"]}, 400, "browser_control_no_capabilities"),
    ],
)
async def test_a_registration_that_is_refused(changes: Any, status: int, code: str) -> None:
    async with controlled() as surface:
        answer = await surface.post("/v1/browser-control/register", {**BODY, **changes})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_registration_needs_the_key_and_filters_capabilities() -> None:
    async with controlled() as surface:
        refused = await surface.client.post("/v1/browser-control/register", headers={"Authorization": ""})
        assert refused.status_code == 401
        scope = (await surface.post("/v1/browser-control/register", BODY)).json()["scope"]
        assert scope["capabilities"] == ["browser_navigate"]
        assert (scope["transport_family"], scope["session_id"]) == ("local-api", "s")
        assert scope["principal_id"] == surface.surface.api.principal


@pytest.mark.parametrize("how", ["no_base", "no_ticket", "two_tickets", "unknown", "used", "query"])
async def test_an_upgrade_without_one_good_ticket_is_refused(how: str) -> None:
    async with controlled() as surface:
        ticket = await register(surface)
        other = await register(surface)
        protocols = {
            "no_base": [TICKET + ticket],
            "no_ticket": [BASE],
            "two_tickets": [BASE, TICKET + ticket, TICKET + other],
            "unknown": [BASE, TICKET + "x" * 43],
        }.get(how, [BASE, TICKET + ticket])
        path = "/v1/browser-control/ws" + ("?ticket=x" if how == "query" else "")
        if how == "used":
            surface.surface.api.browsers.redeem(ticket)
        upgrade = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {', '.join(protocols)}\r\n"
        )
        stream = await surface.raw("GET", path, headers=upgrade)
        answer = await read_until(stream, b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401")
        stream.socket.close()


async def test_a_heartbeat_is_answered_and_nonsense_is_not() -> None:
    async with controlled() as surface, connected(surface) as browser:
        await browser.send_message("not json")
        await browser.send_message("[1]")
        await send(browser, "browser.controller.unknown")
        await send(browser, "browser.controller.heartbeat", nonce="")
        await send(browser, "browser.controller.heartbeat", nonce="7")
        assert await receive(browser) == {
            "method": "browser.controller.heartbeat",
            "params": {"nonce": "7", "ok": True},
        }


async def test_a_runs_browser_tool_acts_in_the_attached_browser() -> None:
    replies = (say("", calls=[call("browser_navigate", url="https://docs.example/")]), say("done"))
    async with controlled(*replies) as surface, connected(surface) as browser:
        run_id = (await surface.post("/v1/runs", {"input": "open it", "session_id": "s"})).json()["run_id"]
        frame = await receive(browser)
        command = frame["params"]
        assert (frame["method"], command["action"]) == ("browser.controller.command", "browser_navigate")
        assert (command["arguments"], command["tool_call_id"]) == ({"url": "https://docs.example/"}, "c1")
        await send(
            browser, "browser.controller.result", command_id=command["command_id"], ok=True, result={"title": "D"}
        )
        assert (await surface.ended(run_id))["output"] == "done"
        assert any("title" in row.text for row in surface.model.requests[-1].messages if row.role == "tool")


async def test_a_stop_tells_the_browser_at_once() -> None:
    replies = (say("", calls=[call("browser_navigate", url="https://docs.example/")]),)
    async with controlled(*replies) as surface, connected(surface) as browser:
        run_id = (await surface.post("/v1/runs", {"input": "open it", "session_id": "s"})).json()["run_id"]
        command = (await receive(browser))["params"]
        await surface.post(f"/v1/runs/{run_id}/stop")
        with trio.fail_after(1):
            cancel = await receive(browser)
        assert cancel == {
            "method": "browser.controller.cancel",
            "params": {"command_id": command["command_id"], "tool_call_id": "c1"},
        }
        assert (await surface.ended(run_id))["status"] == "cancelled"


async def test_another_conversations_turn_does_not_know_the_browser() -> None:
    async with controlled(say("x")) as surface, connected(surface):
        run_id = (await surface.post("/v1/runs", {"input": "x", "session_id": "other"})).json()["run_id"]
        await surface.ended(run_id)
        assert "browser_navigate" not in [tool.name for tool in surface.model.requests[0].tools]


async def test_each_queued_turn_has_the_browser_of_whoever_submitted_it() -> None:
    replies = (say("", calls=[call("nap", seconds=0.2)]), say("first"), say("second"))
    async with controlled(*replies) as surface, connected(surface):
        session = await surface.tree.registry.resume("s")
        run_id = (await surface.post("/v1/runs", {"input": "one", "session_id": "s"})).json()["run_id"]
        # From elsewhere, and queued while the first still has the browser.
        submission = session.submit_nowait(Prompt("two", source="api"))
        assert submission.status == "queued"
        await surface.ended(run_id)
        turn = await submission.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        known = [[tool.name for tool in request.tools] for request in surface.model.requests]
        assert ["browser_navigate" in names for names in known] == [True, True, False]


async def test_a_browser_that_is_switched_off_meanwhile_is_asked_no_more() -> None:
    broker, wire = BrowserBroker(lambda action: action != "browser_navigate"), Wire()
    broker.attach(ONE, CAN, wire.send)
    got: list[Any] = []
    await outcome(broker, got)
    assert (got, wire.frames) == (["unavailable"], [])


FILES = {"capabilities": ["browser_artifact_download", "browser_artifact_upload"]}


async def test_a_file_of_the_page_reaches_the_model_as_an_artifact() -> None:
    replies = (say("", calls=[call("browser_artifact_download", ref="@e5")]), say("read"))
    async with controlled(*replies) as surface, connected(surface, **FILES) as browser:
        run_id = (await surface.post("/v1/runs", {"input": "fetch it", "session_id": "s"})).json()["run_id"]
        command = (await receive(browser))["params"]
        assert (command["action"], command["arguments"]) == ("browser_artifact_download", {"ref": "@e5"})
        headers = {"Content_Type": "text/plain", "X_Artifact_Filename": "report.txt"}
        held = (await surface.post("/v1/artifacts/upload", b"all is well", **headers)).json()
        result = {"artifact_id": held["artifact_id"]}
        await send(browser, "browser.controller.result", command_id=command["command_id"], ok=True, result=result)
        assert (await surface.ended(run_id))["output"] == "read"
        (row,) = [row for row in surface.model.requests[-1].messages if row.role == "tool"]
        assert "report.txt" in row.text and "all is well" in row.text
        assert (await surface.get(held["download_path"])).status_code == 404


async def test_a_browser_that_names_no_file_fails_the_call() -> None:
    replies = (say("", calls=[call("browser_artifact_download", ref="@e5")]), say("no luck"))
    async with controlled(*replies) as surface, connected(surface, **FILES) as browser:
        run_id = (await surface.post("/v1/runs", {"input": "fetch it", "session_id": "s"})).json()["run_id"]
        command = (await receive(browser))["params"]
        result = {"artifact_id": "0" * 32}
        await send(browser, "browser.controller.result", command_id=command["command_id"], ok=True, result=result)
        assert (await surface.ended(run_id))["status"] == "completed"
        (row,) = [row for row in surface.model.requests[-1].messages if row.role == "tool"]
        assert "without handing a file over" in row.text


async def test_a_file_for_the_page_can_be_fetched_once_and_only_while_it_is_wanted() -> None:
    wanted = call("browser_artifact_upload", ref="@e7", filename="cv.txt", content="Ada")
    async with controlled(say("", calls=[wanted]), say("sent")) as surface, connected(surface, **FILES) as browser:
        run_id = (await surface.post("/v1/runs", {"input": "send it", "session_id": "s"})).json()["run_id"]
        command = (await receive(browser))["params"]
        told = command["arguments"]
        assert (told["ref"], told["filename"], told["size_bytes"]) == ("@e7", "cv.txt", 3)
        fetched = await surface.get(told["download_path"])
        assert (fetched.content, fetched.headers["x-artifact-sha256"]) == (b"Ada", told["sha256"])
        await send(browser, "browser.controller.result", command_id=command["command_id"], ok=True, result="ok")
        assert (await surface.ended(run_id))["output"] == "sent"
        assert (await surface.get(told["download_path"])).status_code == 404


async def test_after_detach_nothing_is_answered() -> None:
    async with controlled() as surface, connected(surface) as browser:
        await send(browser, "browser.controller.detach")
        assert (await receive(browser))["params"] == {"ok": True}
        await send(browser, "browser.controller.heartbeat", nonce="7")
        with trio.move_on_after(0.1) as silence:
            await browser.get_message()
        assert silence.cancelled_caught


# --- the broker alone ------------------------------------------------------------------------------------------------

LANE = Lane("p", "default", "s", "local-api")
ONE = ControllerIdentity(LANE, "ext-1", "work")
TWO = ControllerIdentity(LANE, "ext-2", "work")
CAN = frozenset({"browser_navigate"})


class Wire:
    def __init__(self) -> None:
        self.frames: list[tuple[str, Any]] = []

    def send(self, method: str, params: Any) -> None:
        self.frames.append((method.rpartition(".")[2], params))


async def outcome(broker: BrowserBroker, into: list[Any]) -> None:
    try:
        into.append(await broker.dispatch(LANE, "browser_navigate", {}, "c1"))
    except BrowserFailure as failure:
        into.append(failure.kind)


async def test_a_command_without_an_answer_times_out_and_is_cancelled(autojump_clock: Any) -> None:
    broker, wire = BrowserBroker(), Wire()
    broker.attach(ONE, CAN, wire.send)
    got: list[Any] = []
    began = trio.current_time()
    await outcome(broker, got)
    assert (got, trio.current_time() - began) == (["timeout"], 30)
    assert [name for name, _ in wire.frames] == ["command", "cancel"]


async def test_a_reconnect_keeps_the_command_and_delivers_its_result(autojump_clock: Any) -> None:
    broker, first, second = BrowserBroker(), Wire(), Wire()
    send_first = first.send
    controller = broker.attach(ONE, CAN, send_first)
    got: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome, broker, got)
        await trio.testing.wait_all_tasks_blocked()
        broker.lost(controller, send_first)
        assert not controller.online
        again = broker.attach(ONE, CAN, second.send)
        assert broker.answered(again, first.frames[0][1]["command_id"], {"result": 1})
    assert got == [{"result": 1}]


async def test_another_browser_in_the_lane_replaces_the_first(autojump_clock: Any) -> None:
    broker, first, second = BrowserBroker(), Wire(), Wire()
    broker.attach(ONE, CAN, first.send)
    got: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome, broker, got)
        await trio.testing.wait_all_tasks_blocked()
        broker.attach(TWO, CAN, second.send)
    assert got == ["cancelled"]
    assert second.frames == []


async def test_an_offline_browser_fails_and_hears_of_the_cancel_when_it_is_back(autojump_clock: Any) -> None:
    broker, first, second = BrowserBroker(), Wire(), Wire()
    send_first = first.send
    controller = broker.attach(ONE, CAN, send_first)
    got: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome, broker, got)
        await trio.testing.wait_all_tasks_blocked()
        broker.lost(controller, send_first)
    assert got == ["timeout"]
    await outcome(broker, got)
    assert got[-1] == "unavailable"
    broker.attach(ONE, CAN, second.send)
    assert [name for name, _ in second.frames] == ["cancel"]


async def test_a_ticket_is_good_once_and_for_half_a_minute(autojump_clock: Any) -> None:
    broker = BrowserBroker()
    ticket = broker.mint_ticket(ONE, CAN)
    assert broker.redeem(ticket) is not None
    assert broker.redeem(ticket) is None
    late = broker.mint_ticket(ONE, CAN)
    await trio.sleep(30)
    assert broker.redeem(late) is None


# --- artifacts -------------------------------------------------------------------------------------------------------


async def test_an_artifact_is_taken_once() -> None:
    async with controlled() as surface:
        headers = {"Content_Type": "text/plain; charset=utf-8", "X_Artifact_Filename": "a/b.txt"}
        up = await surface.post("/v1/artifacts/upload", b"hello", **headers)
        assert (up.status_code, up.json()["filename"], up.json()["size_bytes"]) == (201, "a_b.txt", 5)
        down = await surface.get(up.json()["download_path"])
        assert (down.content, down.headers["x-artifact-sha256"]) == (b"hello", up.json()["sha256"])
        assert (await surface.get(up.json()["download_path"])).status_code == 404


@pytest.mark.parametrize(
    ("content_type", "name", "status", "code"),
    [("text/html", "x", 415, "artifact_mime_rejected"), ("text/plain", "", 400, "artifact_rejected")],
)
async def test_an_artifact_that_is_refused(content_type: str, name: str, status: int, code: str) -> None:
    async with controlled() as surface:
        answer = await surface.post("/v1/artifacts/upload", b"x", Content_Type=content_type, X_Artifact_Filename=name)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert (await surface.get("/v1/artifacts/download/nope")).status_code == 400


async def test_a_browser_that_is_replaced_in_mid_action_is_told_to_stop_it() -> None:
    told: list[tuple[str, str]] = []
    lane = Lane("p", "default", "s", "local-api")
    broker = BrowserBroker()

    def to(name: str) -> Any:
        return lambda method, params: told.append((name, f"{method.rpartition('.')[2]} {params['tool_call_id']}"))

    broker.attach(ControllerIdentity(lane, "old", "work"), frozenset({"browser_back"}), to("old"))

    async def ask() -> None:
        with pytest.raises(BrowserFailure) as failed:
            await broker.dispatch(lane, "browser_back", {}, "call_1")
        assert failed.value.kind == "cancelled"

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            broker.attach(ControllerIdentity(lane, "new", "work"), frozenset({"browser_back"}), to("new"))
    assert told == [("old", "command call_1"), ("old", "cancel call_1")]
