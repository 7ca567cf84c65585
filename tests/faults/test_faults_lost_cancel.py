"""Cancels that reached nothing: during a slow start, twice, against what does not listen, in children, in peers."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

import pytest
import trio

from hermes.testing import Reply
from tests.support.drivers import ChatDriver, GatewayDriver, http_driver
from tests.support.fault_play import (
    answer,
    calls,
    delegate,
    events,
    frame,
    playing,
    say,
    stream,
    terminal,
    user_texts,
)
from tests.support.proof import times
from tests.support.server_process import assert_no_children, children_of, open_descriptors, server_process

pytestmark = pytest.mark.e2e
MCP_PROGRAM = Path(__file__).parent.parent / "support" / "mcp_hostile_program.py"
STUBBORN = "trap '' TERM; sleep 7004 & wait; sleep 7005"


def mcp(behaviour: str, notes: Path) -> dict[str, object]:
    return {"mcp_servers": {"peer": {"command": sys.executable, "args": [str(MCP_PROGRAM), behaviour, str(notes)]}}}


@pytest.mark.fault("B-001")
async def test_a_stop_during_a_slow_start_lets_no_model_request_begin(tmp_path: Path) -> None:
    config = mcp("hang", tmp_path / "notes")
    async with playing(tmp_path / "home", say("next"), config=config) as (driver, provider):
        await driver.start("first")
        stopped = await driver.call("session.interrupt", {"session_id": driver.session_id})
        assert (stopped["status"], stopped["settled"]) == ("interrupted", True)
        # A prompt whose turn never began ends with an error event in place of message.complete.
        assert "stopped before it began" in (await driver.event("error"))["params"]["payload"]["message"]
        await driver.call("ping", {})
        assert provider.requests == []
        assert len(events(driver, "error")) == 1 and events(driver, "message.complete") == []


@pytest.mark.fault("B-001")
async def test_a_stop_drops_what_waits_and_says_so_and_only_later_prompts_run(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a"), say("next")) as (driver, provider):
        await driver.start("first")
        await provider.wait_chunks(1, 1)
        queued = await driver.call("prompt.submit", {"session_id": driver.session_id, "text": "second", "queued": True})
        assert queued["status"] == "queued"
        stopped = await driver.call("session.interrupt", {"session_id": driver.session_id})
        assert [one["text"] for one in stopped["dropped_prompts"]] == ["second"]
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("third")
        assert (await driver.terminal())["status"] == "complete"
        assert len(provider.requests) == 2
        assert "second" not in "".join(user_texts(provider.requests[1]))


@pytest.mark.fault("B-003")
async def test_every_one_of_four_stops_is_answered_and_the_turn_ends_once(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a", "b")) as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 2)
        session = {"session_id": driver.session_id}
        await driver.server.send(*(frame(f"s{number}", "session.interrupt", session) for number in (1, 2, 3)))
        results = [(await answer(driver, f"s{number}"))["result"]["status"] for number in (1, 2, 3)]
        assert results == ["interrupted"] * 3
        assert (await driver.terminal())["status"] == "interrupted"
        assert (await driver.call("session.interrupt", session))["status"] == "idle"
        ids = [one["id"] for one in driver.frames if "id" in one and "method" not in one]
        assert len(ids) == len(set(ids))
        assert len(events(driver, "message.complete")) == 1


@pytest.mark.fault("B-005")
@pytest.mark.parametrize("work", [terminal(STUBBORN), Reply.of({"text": "x"}, faults={"hang": True})])
async def test_a_stop_is_acknowledged_and_ends_the_turn_although_nothing_cooperates(
    work: Reply, tmp_path: Path
) -> None:
    async with playing(tmp_path / "home", work, config={"limits": {"kill_grace": 0.5}}) as (driver, provider):
        await driver.start("go")
        await provider.wait_for_request(1)
        if not work.faults.hang:
            await driver.wait_for_tool()
            while not any("sleep 7004" in line for line in children_of(driver.server).values()):
                await trio.sleep(0.01)
        with trio.fail_after(10):
            assert (await driver.call("session.interrupt", {"session_id": driver.session_id}))[
                "status"
            ] == "interrupted"
            assert (await driver.terminal())["status"] == "interrupted"
        await assert_no_children(driver.server)


@pytest.mark.fault("B-007")
async def test_a_stop_of_the_parent_ends_the_model_requests_of_its_children(tmp_path: Path) -> None:
    work = (delegate("one", "two"), stream("a"), stream("b"))
    async with playing(tmp_path / "home", *work) as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(2, 1)
        await provider.wait_chunks(3, 1)
        await driver.stop()
        assert [(await provider.wait_closed(number)).closed_by for number in (2, 3)] == ["client", "client"]
        assert (await driver.terminal())["status"] == "interrupted"
        assert (await driver.call("delegation.status", {}))["active"] == []
        ends = events(driver, "subagent.complete")
        assert [end["status"] for end in ends] == ["interrupted", "interrupted"]
        assert provider.open_requests == 0 and len(provider.requests) == 3


@pytest.mark.fault("B-009")
async def test_a_stop_of_an_idle_session_names_and_ends_its_children_in_the_background(tmp_path: Path) -> None:
    work = (delegate("one", background=True), say("dispatched", when={"last_role": "tool"}), stream("a"))
    async with playing(tmp_path / "home", *work) as (driver, provider):
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete"
        await provider.wait_for_request(3)
        stopped = await driver.call("session.interrupt", {"session_id": driver.session_id})
        assert stopped["status"] == "interrupted" and stopped["settled"]
        assert "delegation" in [node["kind"] for node in stopped["stopped"]]
        assert provider.open_requests == 0
        assert (await driver.call("delegation.status", {}))["active"] == []
        status = await driver.call("session.active_list", {"current_session_id": driver.session_id})
        assert [one["status"] for one in status["sessions"]] == ["idle"]
        assert len(events(driver, "message.start")) == 1 and len(provider.requests) == 3


@pytest.mark.fault("B-011")
@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_a_client_of_a_completion_that_leaves_ends_the_model_request(how: str, tmp_path: Path) -> None:
    work = stream("piece-a ", "piece-b ", "piece-c ")
    async with playing(tmp_path / "home", work, surface="http chat") as (driver, provider):
        assert isinstance(driver, ChatDriver)
        await driver.start("go")
        await driver._until("piece-c")
        if how == "RST":
            assert driver._answer is not None
            driver._answer.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await driver.stop()
        assert (await provider.wait_closed(1)).closed_by == "client"
        end = await driver.terminal()
        assert (end["status"], end["cause"]) == ("interrupted", "client_disconnect")


@pytest.mark.fault("B-013")
async def test_a_stopped_child_writes_nothing_later_and_a_rewind_is_not_refused(tmp_path: Path) -> None:
    work = (delegate("one"), terminal("sleep 7011", when="one"), say("next"))
    async with playing(tmp_path / "home", *work) as (driver, provider):
        await driver.start("go")
        await provider.wait_for_request(2)
        while not any("sleep 7011" in line for line in children_of(driver.server).values()):
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        session = {"session_id": driver.session_id}
        before = await driver.call("session.history", session)
        rewind = {"truncate_before_user_ordinal": 0, "confirm_truncate": True, "confirm_empty_truncate": True}
        assert children_of(driver.server) == {} and len(provider.requests) == 2
        for _ in range(times(50, 3)):
            await trio.sleep(0.1)
            assert await driver.call("session.history", session) == before
        driver._turn_from = len(driver.frames)
        submitted = await driver.call("prompt.submit", {**session, "text": "instead", **rewind})
        assert submitted["status"] == "streaming"
        assert (await driver.terminal())["status"] == "complete"
        assert user_texts(provider.requests[-1]) == ["instead"]


@pytest.mark.fault("B-015")
async def test_a_connection_that_ends_while_its_session_is_made_leaves_no_session(tmp_path: Path) -> None:
    create = frame(2, "session/new", {"cwd": str(tmp_path), "mcpServers": []})
    first = frame(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    with trio.fail_after(60):
        async with server_process(tmp_path / "acp", "acp") as server:
            cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "x"}}
            await server.send(first, create, cancel)
            await server.close_input()
            assert await server.exit_code() == 0
            assert children_of(server) == {}


@pytest.mark.fault("B-015")
async def test_two_hundred_clients_that_leave_in_the_middle_of_a_create_leave_nothing(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", surface="gateway websocket") as (driver, _provider):
        await driver.call("ping", {})
        before = open_descriptors(driver.server.pid)
        for _ in range(200):
            async with http_driver("gateway websocket", driver.server) as other:
                assert isinstance(other, GatewayDriver)
                await other.send(frame(1, "session.create", {"cwd": str(tmp_path), "close_on_disconnect": True}))
        with trio.fail_after(20):
            while (await driver.call("session.active_list", {}))["sessions"]:
                await trio.sleep(0.02)
            while open_descriptors(driver.server.pid) > before + 2:
                await trio.sleep(0.02)


@pytest.mark.fault("B-017")
async def test_a_peer_that_says_nothing_is_told_of_the_stop_and_does_not_hold_the_turn(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    work = (calls(("mcp_peer_mute", {})), say("next"))
    async with playing(tmp_path / "home", *work, config=mcp("plain", notes)) as (driver, _provider):
        await driver.start("go")
        await driver.wait_for_tool()
        while "call mute" not in notes.read_text():
            await trio.sleep(0.01)
        with trio.fail_after(10):
            await driver.stop()
            assert (await driver.terminal())["status"] == "interrupted"
            while "got notifications/cancelled" not in notes.read_text():
                await trio.sleep(0.01)
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"


@pytest.mark.fault("B-017")
async def test_a_peer_that_does_not_even_read_does_not_hold_the_turn_nor_the_end_of_the_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with playing(tmp_path / "home", calls(("mcp_peer_mute", {})), config=mcp("stuck", notes)) as (driver, _):
        await driver.start("go")
        await driver.wait_for_tool()
        while "stuck" not in notes.read_text():
            await trio.sleep(0.01)
        with trio.fail_after(10):
            await driver.stop()
            assert (await driver.terminal())["status"] == "interrupted"
            assert await driver.server.stop() == 0
        assert children_of(driver.server) == {}
