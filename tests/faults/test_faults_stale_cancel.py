"""Cancels, texts and grants that came late: nothing of one turn reaches the next."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolContext
from hermes.agent.tools import file_access
from hermes.agent.tools.file_access import PlannedWrite, write_all
from hermes.messages import Prompt, TurnLimits
from hermes.outcomes import CancelReason, Cause, TurnPhase
from hermes.testing import FakeProvider, Reply, Script
from tests.support.core import PlainTool, call, make_services, running_tree
from tests.support.core import say as core_say
from tests.support.drivers import AcpDriver, GatewayDriver, StdioGateway, http_driver
from tests.support.fault_play import (
    LIMIT,
    answer,
    calls,
    events,
    frame,
    model_environment,
    playing,
    say,
    stream,
    text_of,
)
from tests.support.server_process import server_process

CANCEL = "session/cancel"


def acp_prompt(number: int, session_id: str, text: str) -> dict[str, Any]:
    return frame(number, "session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]})


def acp_cancel(session_id: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": CANCEL, "params": {"sessionId": session_id}}


async def acp_answer(driver: AcpDriver, number: int) -> dict[str, Any]:
    return await driver.server.frame(lambda one: one.get("id") == number and "method" not in one)


@pytest.mark.e2e
@pytest.mark.fault("B-019")
async def test_a_cancel_of_an_idle_editor_session_does_not_touch_the_prompt_behind_it(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", say("one"), say("two"), surface="acp") as (driver, _provider):
        await driver.start("first")
        assert (await driver.terminal())["status"] == "complete"
        await driver.server.send(acp_cancel(driver.session_id), acp_prompt(9001, driver.session_id, "second"))
        assert (await acp_answer(driver, 9001))["result"]["stopReason"] == "end_turn"


@pytest.mark.e2e
@pytest.mark.fault("B-019")
@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
async def test_an_interrupt_of_an_idle_session_does_not_touch_the_prompt_behind_it(
    surface: str, tmp_path: Path
) -> None:
    async with playing(tmp_path / "home", say("one"), say("two"), surface=surface) as (driver, _provider):
        await driver.start("first")
        assert (await driver.terminal())["status"] == "complete"
        session = {"session_id": driver.session_id}
        driver._turn_from = len(driver.frames)
        both = (
            frame("stop", "session.interrupt", session),
            frame("go", "prompt.submit", {**session, "text": "second"}),
        )
        if surface == "gateway stdio":
            await driver.server.send(*both)
        else:
            for one in both:
                await driver.send(one)
        assert (await answer(driver, "stop"))["result"]["status"] == "idle"
        assert (await answer(driver, "go"))["result"]["status"] == "streaming"
        assert (await driver.terminal())["text"] == "two"


@pytest.mark.e2e
@pytest.mark.fault("B-021")
async def test_nothing_of_a_cancelled_turn_follows_its_answer_however_the_cancel_falls(tmp_path: Path) -> None:
    rounds = 20
    spoken: dict[str, set[str]] = {}
    replies = [
        Reply.of({"text": [f"turn-{number} " for _ in range(300)]}, {"wait_for": "never"}, faults={"slow": 0.001})
        for number in range(rounds)
    ]
    async with playing(tmp_path / "home", *replies, say("end"), surface="acp") as (driver, provider):
        await driver.start("turn 0")
        session_id, numbers = driver.session_id, [driver._prompt_id]
        for number in range(rounds):
            await provider.wait_chunks(number + 1, 1 + number * 7 % 40)
            numbers.append(9000 + number)
            # The next prompt is in the same write: it must not begin before the old turn has ended.
            await driver.server.send(acp_cancel(session_id), acp_prompt(9000 + number, session_id, "next"))
            assert (await acp_answer(driver, numbers[-2]))["result"]["stopReason"] == "cancelled"
            assert (await provider.wait_closed(number + 1)).closed_by == "client"
        assert (await acp_answer(driver, numbers[-1]))["result"]["stopReason"] == "end_turn"
        ended = -1
        for one in driver.server.frames:
            if one.get("id") in numbers and "method" not in one:
                ended += 1
                assert one["id"] == numbers[ended], "answers out of order"
            update = one.get("params", {}).get("update", {})
            text = str(update.get("content", ""))
            assert not any(f"turn-{number} " in text for number in range(ended + 1)), "a late update"
            if "messageId" in update:
                spoken.setdefault(update["messageId"], set()).update(text[text.find("turn-") :].split()[:1])
        # What is said names its message: no two turns speak in one.
        assert spoken and all(len(turns) == 1 for turns in spoken.values()), spoken
        opened = [provider.requests[number].opened_at for number in range(1, rounds + 1)]
        closed = [provider.requests[number].closed_at for number in range(rounds)]
        assert all(before is not None and before <= after for before, after in zip(closed, opened, strict=True))


@pytest.mark.e2e
@pytest.mark.fault("B-023")
async def test_the_words_of_a_stop_never_become_a_prompt(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a"), say("two")) as (driver, provider):
        await driver.start("first")
        await provider.wait_chunks(1, 1)
        session = {"session_id": driver.session_id}
        await driver.call("session.interrupt", {**session, "reason": "do something else"})
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("second")
        assert (await driver.terminal())["text"] == "two"
        rows = (await driver.call("session.history", session))["messages"]
        told = [row.get("text") or text_of(row.get("content", "")) for row in rows if row["role"] == "user"]
        assert told == ["first", "second"]
        assert len(provider.requests) == 2


@pytest.mark.fault("B-025")
async def test_the_deadline_of_one_turn_does_not_reach_the_turn_that_was_queued_behind_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    slow = core_say("x", pause=3), core_say("", calls=[call("nap", seconds=3600)]), core_say("slept well")
    services, _ = make_services(*slow)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        first = session.submit_nowait(Prompt("one", limits=TurnLimits(deadline_s=5)))
        second = session.submit_nowait(Prompt("two"))
        turns = [await first.wait_turn(), await second.wait_turn()]
        records = [await turn.wait_ended() for turn in turns if turn is not None]
        assert [(record.run_status, record.text) for record in records] == [
            ("completed", "x"),
            ("completed", "slept well"),
        ]
        assert trio.current_time() >= 3600


@pytest.mark.fault("B-025")
async def test_the_grace_of_a_stopped_turn_does_not_reach_the_turn_behind_it(autojump_clock: trio.abc.Clock) -> None:
    async def clean_up_slowly(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
        raise AssertionError

    tool = PlainTool("slow_end", clean_up_slowly)
    replies = core_say("", calls=[call("slow_end")]), core_say("", calls=[call("nap", seconds=3600)]), core_say("slept")
    services, _ = make_services(*replies, tools=[tool])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        first = await session.submit_nowait(Prompt("one")).wait_turn()
        assert first is not None
        await trio.sleep(1)
        stop = session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
        # The grace of the first turn runs while the second one waits behind it, and is over long before that ends.
        second = session.submit_nowait(Prompt("two"))
        assert not (await stop.wait_settled(0.5)).settled
        turn = await second.wait_turn()
        assert turn is not None and first.phase is TurnPhase.ENDED
        record = await turn.wait_ended()
        assert (record.run_status, record.text, record.cause) == ("completed", "slept", None)
        assert trio.current_time() >= 3600


@pytest.mark.e2e
@pytest.mark.fault("B-025")
async def test_the_pause_that_a_lost_reader_has_does_not_reach_the_next_turn(tmp_path: Path) -> None:
    config = {"limits": {"ws_orphan_reap_grace_s": 0.3}}
    work = (stream("a", gate="first"), stream("b", gate="second"))
    async with playing(tmp_path / "home", *work, surface="gateway websocket", config=config) as (driver, provider):
        async with http_driver("gateway websocket", driver.server) as lost:
            assert isinstance(lost, GatewayDriver)
            await lost.start("one")
            await provider.wait_chunks(1, 1)
        driver.session_id = lost.session_id
        await driver.call("client.capabilities", {"server_requests": True})
        await driver.call("session.activate", {"session_id": driver.session_id})
        provider.release("first")
        await driver.event("message.complete")
        await driver.start("two")
        await provider.wait_chunks(2, 1)
        # Longer than the pause that began in the first turn.
        await trio.sleep(0.6)
        provider.release("second")
        assert (await driver.terminal())["status"] == "complete"


WITH_A_PAUSE = """#!{python}
import os, pathlib, time
from hermes.agent.ports import ToolContext
from hermes.agent.tools import file_access
original = file_access._check_expected
def pause(write):
    original(write)
    pathlib.Path(os.environ["STAGED"]).touch()
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.005)
file_access._check_expected = pause
from hermes.cli import main
raise SystemExit(main())
"""


@pytest.mark.e2e
@pytest.mark.fault("B-027")
async def test_a_stop_just_before_the_rename_leaves_the_file_and_the_call_is_told_as_stopped(tmp_path: Path) -> None:
    home, target = tmp_path / "home", tmp_path / "notes.txt"
    program, staged, go_on = tmp_path / "hermes-with-a-pause", tmp_path / "staged", tmp_path / "go"
    program.write_text(WITH_A_PAUSE.format(python=sys.executable))
    program.chmod(0o755)
    target.write_text("old")
    write = calls(("write_file", {"path": str(target), "content": "new"}))
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(write, say("next"), strict=True)) as provider:
            environ = model_environment(provider) | {"STAGED": str(staged), "GO": str(go_on)}
            async with server_process(home, "gateway", environ=environ, command=program) as server:
                async with trio.open_nursery() as nursery:
                    driver = StdioGateway(server)
                    nursery.start_soon(driver.pump)
                    await driver.start("go")
                    while not staged.exists():
                        await trio.sleep(0.01)
                    stopped = await driver.call("session.interrupt", {"session_id": driver.session_id})
                    assert stopped["status"] == "interrupted"
                    go_on.touch()
                    assert (await driver.terminal())["status"] == "interrupted"
                    assert target.read_text() == "old"
                    (end,) = events(driver, "tool.complete")
                    assert "cancel" in str(end).lower() or "interrupt" in str(end).lower(), end
                    await driver.start("again")
                    assert (await driver.terminal())["status"] == "complete"
                    (result,) = [r["content"] for r in provider.requests[1].body["messages"] if r["role"] == "tool"]
                    assert "interrupted" in result or "cancelled" in result, result
                    assert sorted(path.name for path in tmp_path.glob("*notes*")) == ["notes.txt"]
                    nursery.cancel_scope.cancel()


@pytest.mark.fault("B-027")
async def test_a_write_that_is_stopped_just_before_its_rename_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("old")
    staged, go_on = threading.Event(), threading.Event()
    original = file_access._check_expected

    def pause(write: PlannedWrite) -> None:
        original(write)
        staged.set()
        assert go_on.wait(10)

    monkeypatch.setattr(file_access, "_check_expected", pause)
    with trio.fail_after(20):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, partial(write_all, [PlannedWrite(target, b"new")]))
                await trio.to_thread.run_sync(staged.wait)
                scope.cancel()
                go_on.set()
    assert scope.cancelled_caught
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
