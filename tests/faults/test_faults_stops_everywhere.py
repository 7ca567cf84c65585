"""Cancels that reached nothing, over every surface that has a stop: while starting, again and again, in children."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import Reply
from tests.support.drivers import AcpDriver, GatewayDriver, RunDriver
from tests.support.fault_play import answer, calls, delegate, events, frame, playing, say, stream, terminal
from tests.support.proof import PROOF, times
from tests.support.server_process import assert_no_children, children_of, server_process

pytestmark = pytest.mark.e2e
MCP_PROGRAM = Path(__file__).parent.parent / "support" / "mcp_hostile_program.py"
ENDS = ("message.complete", "error")
STUBBORN = "trap '' TERM; sleep 7004 & wait; sleep 7005"


def mcp(behaviour: str, notes: Path, **more: Any) -> dict[str, Any]:
    peer = {"command": sys.executable, "args": [str(MCP_PROGRAM), behaviour, str(notes)], **more}
    return {"mcp_servers": {"peer": peer}}


async def acp_answers(driver: AcpDriver, number: int) -> list[dict[str, Any]]:
    """All answers to a request, after one more round trip."""
    await driver.server.frame(lambda one: one.get("id") == number and "method" not in one)
    await driver.server.request("session/list", {})
    return [one for one in driver.server.frames if one.get("id") == number and "method" not in one]


@pytest.mark.fault("B-001")
@pytest.mark.parametrize("surface", ["gateway websocket", "acp", "http run"])
async def test_a_stop_while_the_agent_is_still_starting_holds_and_the_next_prompt_runs(
    surface: str, tmp_path: Path
) -> None:
    config = mcp("hang", tmp_path / "notes", connect_timeout=1.5)
    async with playing(tmp_path / "home", say("next"), surface=surface, config=config) as (driver, provider):
        await driver.start("first")
        await driver.stop()
        if isinstance(driver, GatewayDriver):
            await driver.event("error")
        else:
            assert (await driver.terminal())["status"] == "interrupted"
        assert provider.requests == []
        await driver.start("second")
        assert (await driver.terminal())["status"] == "complete"
        assert len(provider.requests) == 1
        assert "first" not in provider.requests[0].body["messages"][-1]["content"]
        if isinstance(driver, GatewayDriver):
            assert len(events(driver, "error")) == 1 and len(events(driver, "message.complete")) == 1


@pytest.mark.fault("B-003")
async def test_stops_without_a_pause_over_a_socket_are_all_answered(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a"), surface="gateway websocket") as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 1)
        session = {"session_id": driver.session_id}
        for number in range(3):
            await driver.send(frame(f"s{number}", "session.interrupt", session))
        for number in range(3):
            assert (await answer(driver, f"s{number}"))["result"]["status"] == "interrupted"
        assert (await driver.terminal())["status"] == "interrupted"
        assert (await driver.call("session.interrupt", session))["status"] == "idle"
        ids = [one["id"] for one in driver.frames if "id" in one and "method" not in one]
        assert len(ids) == len(set(ids))


@pytest.mark.fault("B-003")
async def test_cancels_without_a_pause_give_an_editor_one_answer(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a"), say("b"), surface="acp") as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 1)
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": driver.session_id}}
        await driver.server.send(cancel, cancel, cancel)
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.server.send(cancel)
        assert len(await acp_answers(driver, driver._prompt_id)) == 1
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"


@pytest.mark.fault("B-003")
@pytest.mark.fault("B-052")
async def test_stops_of_a_run_at_the_same_time_are_all_answered_and_the_late_one_with_its_end(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a"), surface="http run") as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 1)
        told: list[Any] = []

        async def stop() -> None:
            told.append(await driver.client.post(f"/v1/runs/{driver.run_id}/stop", json={}))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(stop)
        assert [one.status_code for one in told] == [200] * 3
        assert (await driver.terminal())["status"] == "interrupted"
        status = await driver.status()
        for _ in range(2):
            late = await driver.client.post(f"/v1/runs/{driver.run_id}/stop", json={})
            assert (late.status_code, late.json()["status"]) == (200, "cancelled")
        assert await driver.status() == status


@pytest.mark.fault("B-005")
async def test_the_answer_to_a_stop_does_not_wait_for_what_refuses_to_end(tmp_path: Path) -> None:
    hung = Reply.of({"text": "x"}, faults={"hang": True}, when={"last_user_contains": "two", "last_role": "user"})
    work = (delegate("one", "two"), terminal(STUBBORN, when="one"), hung)
    limits = {"limits": {"kill_grace": 1.5, "interrupt_ack": 0.1}}
    async with playing(tmp_path / "home", *work, config=limits) as (driver, provider):
        await driver.start("go")
        await provider.wait_for_request(3)
        while not any("sleep 7004" in line for line in children_of(driver.server).values()):
            await trio.sleep(0.01)
        with trio.fail_after(12):
            stopped = await driver.call("session.interrupt", {"session_id": driver.session_id})
            acknowledged = len(driver.frames)
            assert (stopped["status"], stopped["settled"]) == ("interrupted", False)
            end = await driver.event("message.complete", driver._turn_from)
            assert driver.frames.index(end) >= acknowledged, "the answer came only with the end"
            assert end["params"]["payload"]["status"] == "interrupted"
        await assert_no_children(driver.server)


@pytest.mark.fault("B-007")
@pytest.mark.parametrize("surface", ["gateway websocket", "acp", "http run", "http chat"])
async def test_a_stop_over_any_surface_ends_the_model_requests_of_children(surface: str, tmp_path: Path) -> None:
    work = (delegate("one", "two"), stream("a"), stream("b"))
    async with playing(tmp_path / "home", *work, surface=surface) as (driver, provider):
        await driver.start("go")
        for number in (2, 3):
            await provider.wait_chunks(number, 1)
        await driver.stop()
        assert [(await provider.wait_closed(number)).closed_by for number in (2, 3)] == ["client", "client"]
        assert (await driver.terminal())["status"] == "interrupted"
        assert provider.open_requests == 0 and len(provider.requests) == 3
        ends: list[dict[str, Any]] = []
        if isinstance(driver, GatewayDriver):
            ends = events(driver, "subagent.complete")
        elif isinstance(driver, RunDriver):
            ends = [one for one in await driver._events(None) if one["event"] == "subagent.complete"]
        if surface in ("gateway websocket", "http run"):
            assert [(one["status"], one["cause"]) for one in ends] == [("interrupted", "parent")] * 2


@pytest.mark.fault("B-015")
async def test_an_editor_that_leaves_while_its_session_waits_for_a_slow_peer_leaves_nothing(tmp_path: Path) -> None:
    peer = {"name": "slow", "command": sys.executable, "args": [str(MCP_PROGRAM), "hang"], "env": []}
    hello = frame(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    create = frame(2, "session/new", {"cwd": str(tmp_path), "mcpServers": [peer]})
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "x"}}
    rounds = times(200, 3)
    with trio.fail_after(20 + rounds * 3):
        for number in range(rounds):
            async with server_process(tmp_path / "home", "acp") as server:
                await server.send(hello, create, *[cancel] * (number % 2))
                if number % 3:
                    await server.frame(lambda one: one.get("id") == 1)
                await server.close_input()
                assert await server.exit_code() == 0
                assert children_of(server) == {}
                assert not any("error" in one for one in server.frames if one.get("id") == 1)


@pytest.mark.fault("B-017")
@pytest.mark.parametrize("surface", ["gateway stdio", "acp"])
async def test_a_peer_hears_the_cancel_then_the_end_of_its_input_and_is_killed_when_it_stays(
    surface: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    config = mcp("lingers", notes)
    async with playing(tmp_path / "home", calls(("mcp_peer_mute", {})), surface=surface, config=config) as (driver, _):
        await driver.start("go")
        await driver.wait_for_tool()
        while "call mute" not in notes.read_text():
            await trio.sleep(0.01)
        with trio.fail_after(12):
            await driver.stop()
            assert (await driver.terminal())["status"] == "interrupted"
            while "got notifications/cancelled" not in notes.read_text():
                await trio.sleep(0.01)
            assert await driver.server.stop() == 0
        assert children_of(driver.server) == {}
        told = notes.read_text().splitlines()
        assert told.index("got notifications/cancelled") < told.index("end of input")


@pytest.mark.fault("B-021")
@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
async def test_nothing_of_a_stopped_turn_with_a_loud_tool_follows_its_end(surface: str, tmp_path: Path) -> None:
    rounds = times(20, 5)
    loud = terminal("while :; do echo a line of output; sleep 0.001; done")
    dice = random.Random(int(os.environ.get("CANCEL_SEED", "21")))
    replies, limit = [*[loud] * rounds, say("end")], 60 + rounds
    async with playing(tmp_path / "home", *replies, surface=surface, limit=limit) as (driver, provider):
        await driver.call("client.capabilities", {"server_requests": True, "tool_progress": True, "turn_ids": True})
        driver.session_id = (await driver.call("session.create", {}))["session_id"]
        await driver.start("turn 0")
        session = {"session_id": driver.session_id}
        for number in range(rounds):
            await provider.wait_for_request(number + 1)
            await trio.sleep(dice.random() * 0.2)
            # The next prompt is in the same write: it must not begin before the old turn has ended.
            following = {**session, "text": f"turn {number + 1}"}
            both = (
                frame(f"stop{number}", "session.interrupt", session),
                frame(f"next{number}", "prompt.submit", following),
            )
            if surface == "gateway stdio":
                await driver.server.send(*both)
            else:
                for one in both:
                    await driver.send(one)
            assert (await answer(driver, f"stop{number}"))["result"]["settled"] is True
            assert "result" in await answer(driver, f"next{number}")
        while len(events(driver, "message.complete")) <= rounds:
            await driver.event("message.complete", len(driver.frames))
        await assert_no_children(driver.server)
        check_turns(driver, rounds)
        again = (await driver.call("session.events.since", {**session, "last_seen": 0}))["events"]
        live = {one["params"]["seq"]: one["params"] for one in driver.frames if "seq" in one.get("params", {})}
        assert all(one.get("turn_id") == live[one["seq"]].get("turn_id") for one in again if one["seq"] in live)


def check_turns(driver: GatewayDriver, stopped: int) -> None:
    """Each turn's events stand between its start and its one end, and name it; numbers only grow."""
    is_open, statuses, numbers = False, [], []
    current, over = None, set[str]()
    for one in driver.frames:
        params = one.get("params", {})
        kind = params.get("type", "")
        if "seq" in params:
            numbers.append(params["seq"])
        turn_id = params.get("turn_id")
        assert turn_id not in over, f"{kind} of a turn that has ended"
        if kind == "message.start" and statuses:
            assert turn_id is not None and turn_id != current
        if turn_id is not None and kind.startswith(("tool.", "message.")):
            assert current in (None, turn_id) or kind == "message.start", "an event of another turn"
            current = turn_id
            if kind == "message.complete":
                over.add(turn_id)
        if kind == "message.start":
            assert not is_open, "a turn began before the end of the last one"
            is_open = True
        elif kind == "message.complete":
            assert is_open, "an end without a turn"
            is_open = False
            statuses.append(params["payload"]["status"])
        elif kind.startswith(("tool.", "message.", "subagent.", "reasoning.")):
            assert is_open, f"{kind} came outside of a turn"
    assert statuses == ["interrupted"] * stopped + ["complete"]
    assert len(over) == len(statuses)
    assert numbers == sorted(set(numbers))


@pytest.mark.fault("B-023")
async def test_a_stop_with_words_in_the_moment_of_the_end_starts_no_turn(tmp_path: Path) -> None:
    rounds = times(50, 6)
    replies = [stream(f"answer {number}", gate=f"gate {number}") for number in range(rounds)]
    async with playing(tmp_path / "home", *replies, limit=20 + rounds) as (driver, provider):
        texts = [f"prompt {number}" for number in range(rounds)]
        for number, text in enumerate(texts):
            await driver.start(text)
            await provider.wait_chunks(number + 1, 1)
            provider.release(f"gate {number}")
            if number % 2:
                await provider.wait_closed(number + 1)
            words = {"session_id": driver.session_id, "reason": f"do something else {number}"}
            assert (await driver.call("session.interrupt", words))["settled"] is True
            assert (await driver.terminal())["status"] in ("complete", "interrupted")
        await trio.sleep(3 if PROOF else 0.2)
        session = {"session_id": driver.session_id}
        rows = (await driver.call("session.history", session))["messages"]
        assert [row["text"] for row in rows if row["role"] == "user"] == texts
        assert len(provider.requests) == rounds == len(events(driver, "message.start"))


@pytest.mark.fault("B-046")
@pytest.mark.parametrize("surface", ["gateway stdio", "http run"])
async def test_a_stop_soon_after_a_prompt_is_one_end_and_no_failure(surface: str, tmp_path: Path) -> None:
    pauses = (0.0, 0.001, 0.005, 0.02)
    async with playing(tmp_path / "home", *[stream("a")] * 4, surface=surface) as (driver, _provider):
        for pause in pauses:
            await driver.start("go")
            await trio.sleep(pause)
            at = driver._turn_from if isinstance(driver, GatewayDriver) else 0
            await driver.stop()
            if not isinstance(driver, GatewayDriver):
                assert (await driver.terminal())["status"] == "interrupted"
                continue
            await driver.call("ping", {})
            told = [one["params"] for one in driver.frames[at:] if one.get("params", {}).get("type") in ENDS]
            assert len(told) == 1
            assert told[0]["type"] == "error" or told[0]["payload"]["status"] == "interrupted"
