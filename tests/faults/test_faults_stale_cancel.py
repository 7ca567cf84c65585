"""Cancels, texts and grants that came late: nothing of one turn reaches the next."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.tools import file_access
from hermes.agent.tools.file_access import PlannedWrite, write_all
from hermes.messages import Prompt, TurnLimits
from hermes.testing import Reply
from tests.support.core import call, make_services, running_tree
from tests.support.core import say as core_say
from tests.support.drivers import AcpDriver
from tests.support.fault_play import answer, frame, playing, say, stream, text_of

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
async def test_an_interrupt_of_an_idle_session_does_not_touch_the_prompt_behind_it(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", say("one"), say("two")) as (driver, _provider):
        await driver.start("first")
        assert (await driver.terminal())["status"] == "complete"
        session = {"session_id": driver.session_id}
        driver._turn_from = len(driver.frames)
        await driver.server.send(
            frame("stop", "session.interrupt", session), frame("go", "prompt.submit", {**session, "text": "second"})
        )
        assert (await answer(driver, "stop"))["result"]["status"] == "idle"
        assert (await answer(driver, "go"))["result"]["status"] == "streaming"
        assert (await driver.terminal())["text"] == "two"


@pytest.mark.e2e
@pytest.mark.fault("B-021")
async def test_nothing_of_a_cancelled_turn_follows_its_answer_however_the_cancel_falls(tmp_path: Path) -> None:
    rounds = 20
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
            text = str(one.get("params", {}).get("update", {}).get("content", ""))
            assert not any(f"turn-{number} " in text for number in range(ended + 1)), "a late update"
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
