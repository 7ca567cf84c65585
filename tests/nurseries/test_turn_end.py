"""How a turn ends: what happened decides, the same keys on every path, and the end is told once, in one breath."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import ToolContext
from hermes.errors import ProviderError
from hermes.events import SessionEvent, SessionInfoChanged, SteerDelivered, TextDelta, TurnEnded, TurnRefused
from hermes.messages import Prompt, TurnLimits
from hermes.nurseries import turn_end
from hermes.nurseries.session import Session
from hermes.nurseries.turn import IllegalTransition, Turn
from hermes.outcomes import Cancelled, CancelReason, Cause, Failed, RunStatus, TurnPhase, TurnRecord
from tests.support.core import PlainTool, Reply, call, events_of, hang, make_services, running_tree, say
from tests.support.failing_store import FailingStore
from tests.support.invariants import assert_history_is_whole

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")


async def started(session: Session, text: str = "hello", **options: Any) -> Turn:
    turn = await session.submit_nowait(Prompt(text, **options)).wait_turn()
    assert turn is not None
    await trio.testing.wait_all_tasks_blocked()
    return turn


async def fails(request: Any, on_delta: Any) -> Any:
    await trio.lowlevel.checkpoint()
    raise ProviderError("the key is wrong", error_class="auth", status=401, provider="custom")


async def ended_turn(*replies: Reply, stop_after: float | None = None, **options: Any) -> tuple[Session, TurnRecord]:
    services, _ = make_services(*replies)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session, **options)
        if stop_after is not None:
            await trio.sleep(stop_after)
            turn.cancel(STOP)
        return session, await turn.wait_ended()


async def test_the_slot_is_free_and_the_record_is_there_when_the_end_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("done"))
    seen: list[object] = []
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")

        def look(event: SessionEvent) -> None:
            if isinstance(event, TurnEnded):
                seen.append((session.slot.taken, session.running, session.status))

        session.log.observers.append(look)
        session.on_turn_end.append(lambda turn, record: seen.append((turn.ended.settled, record.completed)))
        turn = await started(session)
        await turn.wait_ended()
        assert seen == [(False, False, "idle"), (True, True)]
        last = events_of(session)[-2:]
        assert isinstance(last[0], TurnEnded) and isinstance(last[1], SessionInfoChanged)
        assert not last[1].info.running


async def test_a_record_is_complete_for_a_plain_answer(autojump_clock: trio.testing.MockClock) -> None:
    session, record = await ended_turn(say("done"))
    assert record.exit_reason == "text_response(finish_reason=stop)"
    assert (record.text, record.api_calls, record.iterations) == ("done", 1, 1)
    assert (record.model, record.requested_model, record.served_model, record.provider) == (
        "scripted-1", "scripted-1", "scripted-1", "custom",
    )  # fmt: skip
    assert record.usage.total_tokens == record.session_usage.total_tokens == session.usage.total_tokens == 15
    assert record.row_ids == tuple(row.row_id for row in session.rows)
    assert (record.user_row_id, record.final_row_id) == record.row_ids
    assert record.last_prompt_tokens == session.last_prompt_tokens > 0
    assert record.ended_at >= record.started_at > 0
    assert (record.cleanup_errors, record.pending_steer, record.guardrail) == ((), None, None)


async def test_a_provider_that_refuses_is_a_failed_turn_with_a_whole_history(
    autojump_clock: trio.testing.MockClock,
) -> None:
    session, record = await ended_turn(fails, fails, fails, fails)
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.failure_reason, record.exit_reason) == ("auth", "provider_error(auth)")
    assert record.run_status is RunStatus.FAILED
    assert_history_is_whole(session.rows)
    inflight = session.inflight()
    assert inflight is not None
    assert inflight["error_surface"]["layer"] == "provider"
    assert inflight["error_surface"]["code"] == "auth"


async def test_a_crash_of_the_server_is_a_failed_turn_that_keeps_its_secrets(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def crash(request: Any, on_delta: Any) -> Any:
        from hermes.agent.ports import DeltaKind

        on_delta(DeltaKind.TEXT, "half")
        await trio.lowlevel.checkpoint()
        raise RuntimeError("password is hunter2")

    session, record = await ended_turn(*[crash] * 8)
    assert isinstance(record.outcome, Failed)
    assert record.exit_reason == "repeated_outer_errors(RuntimeError)"
    assert record.text == "half"
    assert "".join(event.text for event in events_of(session) if isinstance(event, TextDelta)) == "half"
    assert "hunter2" not in repr(record) + repr(events_of(session)) + repr(session.rows)
    assert_history_is_whole(session.rows)


async def test_a_stop_before_the_turn_began_is_told_as_a_refusal(autojump_clock: trio.testing.MockClock) -> None:
    services, model = make_services(say("never"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        submission = session.submit_nowait(Prompt("hello"))
        turn = session.slot.turn
        assert turn is not None
        turn.cancel(STOP)
        record = await turn.wait_ended()
        assert isinstance(record.outcome, Cancelled)
        (event,) = [event for event in events_of(session) if isinstance(event, (TurnRefused, TurnEnded))]
        assert isinstance(event, TurnRefused)
        assert "user_interrupt" in event.message
        assert (await submission.wait_accepted()).user_row_id is None
        assert session.rows == [] and model.requests == []


async def test_a_failure_of_the_cleanup_leaves_a_stopped_turn_stopped(autojump_clock: trio.testing.MockClock) -> None:
    async def messy(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("while cleaning up")

    services, _ = make_services(say("", calls=[call("messy")]), tools=[PlainTool("messy", messy)])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        turn.cancel(STOP)
        record = await turn.wait_ended()
        assert record.cause is Cause.USER_INTERRUPT
        assert_history_is_whole(session.rows)


async def test_last_rows_that_take_too_long_do_not_hold_the_end_back(autojump_clock: trio.testing.MockClock) -> None:
    slow = False

    async def wait(method: str) -> None:
        if slow and method == "finish_turn":
            await trio.sleep(1000)
        await trio.lowlevel.checkpoint()

    services, _ = make_services(hang(), store=FailingStore(before=wait))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        slow = True
        began = trio.current_time()
        turn.cancel(STOP)
        record = await turn.wait_ended()
        assert trio.current_time() == began + turn_end.STORE_WITHIN
        assert record.cleanup_errors == ("the last rows could not be stored in time",)
        assert record.interrupted
        assert not session.slot.taken


async def test_a_stop_that_reaches_the_turns_processes_waits_for_them(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(hang(), hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        stopped: list[str] = []

        async def stop_turn(turn_id: str) -> int:
            await trio.sleep(1)
            stopped.append(turn_id)
            return 1

        session.processes.stop_turn = stop_turn  # type: ignore[method-assign]
        owning = await started(session, owns_processes=True)
        owning.cancel(STOP)
        await owning.wait_ended()
        assert stopped == [owning.turn_id]
        plain = await started(session)
        plain.cancel(STOP)
        await plain.wait_ended()
        assert stopped == [owning.turn_id]


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        (TurnLimits(deadline_s=3), Cause.DEADLINE),
        (TurnLimits(max_iterations=1), Cause.BUDGET),
        (TurnLimits(max_tokens_total=12), Cause.BUDGET),
    ],
)
async def test_a_limit_of_the_caller_ends_the_turn_as_cancelled_with_its_cause(
    autojump_clock: trio.testing.MockClock, limits: TurnLimits, cause: Cause
) -> None:
    session, record = await ended_turn(
        say("part", calls=[call("nap", seconds=2)], pause=2), say("never", pause=2), limits=limits
    )
    assert (record.run_status, record.cause) == (RunStatus.CANCELLED, cause)
    assert_history_is_whole(session.rows)


async def test_a_session_that_closes_ends_its_turn_with_the_same_reason(
    autojump_clock: trio.testing.MockClock,
) -> None:
    services, _ = make_services(say("", calls=[call("nap", seconds=50)]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        session.cancel(CancelReason(Cause.SESSION_CLOSED, "bye"))
        record = await turn.wait_ended()
        assert (record.cause, record.reason_text) == (Cause.SESSION_CLOSED, "bye")
        assert record.exit_reason == "interrupted_by_system(session_closed)"
        assert_history_is_whole(session.rows)
        await session.wait_closed()


async def test_a_phase_that_the_table_does_not_allow_is_our_bug(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await turn.wait_ended()
        assert turn.phase is TurnPhase.ENDED
        with pytest.raises(IllegalTransition, match="ended to ended"):
            turn.move_to_ended()


async def test_a_steer_is_given_back_when_the_stop_comes_while_the_answer_is_being_stored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    storing, go_on = trio.Event(), trio.Event()

    async def hold(name: str) -> None:
        # The answer's own row: by then the turn has taken its steers back.
        if name == "finish_turn" and not storing.is_set():
            storing.set()
            await go_on.wait()

    store = FailingStore(before=hold)
    services, _ = make_services(say("do", "ne", pause=5), store=store)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        assert session.steer("one") and session.steer("two")
        await storing.wait()
        assert not session.steer("much too late")
        turn.cancel(STOP)
        record = await turn.wait_ended()
        assert record.interrupted and record.pending_steer == "one\ntwo"


async def test_a_limit_of_the_caller_is_announced_once_before_it_cuts(autojump_clock: trio.testing.MockClock) -> None:
    naps = [say("", calls=[call("nap", f"c{number}", seconds=2)]) for number in range(8)]
    session, record = await ended_turn(*naps, limits=TurnLimits(deadline_s=11))
    assert record.cause is Cause.DEADLINE
    notices = [row for row in session.rows if row.display_kind == "internal_notification"]
    assert len(notices) == 1 and "10 of 11 seconds" in notices[0].text
    assert not record.user_intervened
    assert not any(isinstance(event, SteerDelivered) for event in events_of(session))
