"""One stop of a session: synchronous in what it stops, bounded in what it waits for, truthful in what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import ToolContext
from hermes.events import ClientRequestClosed, TurnEnded, TurnStopping
from hermes.messages import Prompt, RewindIntent
from hermes.nurseries.interrupt import InterruptResult
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from hermes.outcomes import CancelReason, Cause, TurnPhase
from tests.support.core import PlainTool, call, events_of, hang, make_services, running_tree, say

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")


async def started(session: Session, text: str = "hello", **options: Any) -> Turn:
    turn = await session.submit_nowait(Prompt(text, **options)).wait_turn()
    assert turn is not None
    await trio.testing.wait_all_tasks_blocked()
    return turn


async def test_an_idle_session_says_so_and_nothing_changes(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        assert await session.interrupt_nowait(STOP).wait_settled(0.9) == InterruptResult("idle", True)
        assert events_of(session) == []


async def test_everything_is_asked_to_stop_before_the_interrupt_waits(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        queued = session.submit_nowait(Prompt("later", client_message_id="m1"))
        session.steer("mind")
        with trio.testing.assert_no_checkpoints():
            interrupt = session.interrupt_nowait(STOP)
            assert turn.phase is TurnPhase.STOPPING
            assert len(session.requests) == 0
            assert queued.turn.settled
            told = [event for event in events_of(session) if isinstance(event, (ClientRequestClosed, TurnStopping))]
            assert [type(event).__name__ for event in told] == ["ClientRequestClosed", "TurnStopping"]
        result = await interrupt.wait_settled(0.9)
        assert (result.status, result.settled, result.pending_steer) == ("interrupted", True, "mind")
        assert result.dropped_prompts == ({"text": "later", "client_message_id": "m1"},)
        assert [node["kind"] for node in result.stopped] == ["turn", "tool_call", "question"]
        assert all(node["node_id"] and node["name"] for node in result.stopped)
        assert isinstance(events_of(session)[-2], TurnEnded)


@pytest.mark.fault("B-005")
async def test_a_stop_that_takes_long_is_answered_in_time_and_settles_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def clings(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
        return "late"

    services, _ = make_services(say("", calls=[call("clings")]), tools=[PlainTool("clings", clings)])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        began = trio.current_time()
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert (result.status, result.settled) == ("interrupted", False)
        assert trio.current_time() == pytest.approx(began + 0.9)
        assert session.submit_nowait(Prompt("again")).status == "queued"
        record = await turn.wait_ended()
        assert record.interrupted
        assert trio.current_time() == pytest.approx(began + 3)


@pytest.mark.fault("B-003")
async def test_a_second_stop_changes_neither_the_reason_nor_the_number_of_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        first = session.interrupt_nowait(STOP)
        second = session.interrupt_nowait(CancelReason(Cause.RUN_STOP, "other"))
        assert not turn.cancel(CancelReason(Cause.SHUTDOWN))
        assert (await first.wait_settled(0.9)).settled and (await second.wait_settled(0.9)).settled
        assert turn.ended.value is not None
        assert (turn.ended.value.cause, turn.ended.value.reason_text) == (Cause.USER_INTERRUPT, "enough")
        third = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert third.status == "idle"
        assert sum(isinstance(event, TurnEnded) for event in events_of(session)) == 1


async def test_the_very_next_prompt_is_accepted_with_a_rewind_too(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(hang(), say("second"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(session)
        assert (await session.interrupt_nowait(STOP).wait_settled(0.9)).settled
        intent = RewindIntent(row_id=session.rows[0].row_id, confirm_empty=True)
        again = session.submit_nowait(Prompt("better"), rewind=intent)
        assert again.status == "streaming"
        turn = await again.wait_turn()
        assert turn is not None
        assert (await turn.wait_ended()).text == "second"


@pytest.mark.fault("B-040")
async def test_a_turn_that_finished_in_the_same_tick_is_finished(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await turn.wait_ended()
        assert not turn.cancel(STOP)
        assert turn.ended.value is not None and turn.ended.value.completed
