"""One prompt until its one outcome: the turn over the real loop, with a scripted model."""

from __future__ import annotations

import pytest
import trio

from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest
from hermes.errors import SessionBusy
from hermes.events import (
    ClientRequestClosed,
    ClientRequestOpened,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRefused,
    TurnStarted,
)
from hermes.messages import Prompt, RewindIntent, Withdrawn
from hermes.nurseries.session import Session
from hermes.nurseries.turn import MAX_STEERS, Turn
from hermes.outcomes import CancelReason, Cause, RunStatus
from tests.support.core import ScriptedModel, call, events_of, hang, make_services, running_tree, say

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")


async def started(session: Session, text: str = "hello", **options: object) -> Turn:
    submission = session.submit_nowait(Prompt(text, **options))  # type: ignore[arg-type]
    await submission.wait_accepted()
    turn = await submission.wait_turn()
    assert turn is not None
    return turn


async def test_a_plain_turn_streams_stores_and_ends_once(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(say("Hel", "lo"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        record = await turn.wait_ended()
        assert record.run_status is RunStatus.COMPLETED
        assert record.text == "Hello"
        assert [row.role for row in session.rows] == ["user", "assistant"]
        assert [row.role for row in await services.store.load_rows(session.key)] == ["user", "assistant"]
        events = events_of(session)
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hel", "lo"]
        assert sum(isinstance(event, TurnEnded) for event in events) == 1
        assert model.open == 0
        assert not session.slot.taken


async def test_the_slot_is_free_when_the_last_event_is_seen(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("one"), say("two"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        subscription = session.log.subscribe(0)
        await started(session)
        while True:
            batch = await subscription.next()
            if any(isinstance(entry.event, TurnEnded) for entry in batch):
                break
        assert session.submit_nowait(Prompt("again")).status == "streaming"


async def test_an_interrupt_of_a_silent_model_settles_and_the_next_prompt_is_accepted(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, model = make_services(hang(), say("next"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.testing.wait_all_tasks_blocked()
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert (result.status, result.settled) == ("interrupted", True)
        assert {item["kind"] for item in result.stopped} == {"turn", "model_call"}
        record = turn.ended.value
        assert record is not None
        assert record.run_status is RunStatus.CANCELLED
        assert (record.cause, record.reason_text) == (Cause.USER_INTERRUPT, "enough")
        assert record.exit_reason == "interrupted_during_api_call"
        assert model.open == 0
        again = await started(session, "again")
        assert (await again.wait_ended()).text == "next"


async def test_an_interrupt_in_mid_stream_keeps_the_partial_text(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("Hel", "lo", " wor", "ld", pause=1))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(2.5)
        await session.interrupt_nowait(STOP).wait_settled(0.9)
        record = await turn.wait_ended()
        assert record.text == "Hello"
        assert session.rows[-1].text == "Hello"
        assert session.rows[-1].display_metadata is not None
        assert session.rows[-1].display_metadata["interrupted"] is True


async def test_an_open_question_is_withdrawn_before_the_interrupt_returns(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("ask")]))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.testing.wait_all_tasks_blocked()
        assert len(session.requests) == 1
        assert turn.phase.value == "waiting_for_client"
        interrupt = session.interrupt_nowait(STOP)
        assert len(session.requests) == 0
        closed = [event for event in events_of(session) if isinstance(event, ClientRequestClosed)]
        assert [event.answer for event in closed] == [Withdrawn("interrupted")]
        assert (await interrupt.wait_settled(0.9)).settled
        kinds = [type(event) for event in events_of(session)]
        assert kinds.index(ClientRequestOpened) < kinds.index(ClientRequestClosed) < kinds.index(TurnEnded)


async def test_one_of_three_parallel_calls_is_cancelled_and_the_turn_goes_on(autojump_clock: trio.abc.Clock) -> None:
    calls = [call("nap", f"c{number}", seconds=5) for number in (1, 2, 3)]
    services, model = make_services(say("", calls=calls), say("all done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        begun = {event.call_id: event.node_id for event in events_of(session) if isinstance(event, ToolStarted)}
        assert len(begun) == 3
        assert services.tree.get(begun["c2"]).request_cancel(CancelReason(Cause.NODE_CANCEL, "not this"))
        record = await turn.wait_ended()
        assert record.text == "all done"
        rows = {row.tool_call_id: row for row in session.rows if row.role == "tool"}
        assert list(rows) == ["c1", "c2", "c3"]
        assert rows["c1"].text == "rested"
        assert rows["c3"].text.startswith("rested")
        assert "cancelled" in rows["c2"].text
        assert rows["c2"].effect_disposition == "unknown"
        assert len(model.requests) == 2


async def test_a_stop_during_tools_gives_every_call_a_result(autojump_clock: trio.abc.Clock) -> None:
    calls = [call("nap", "c1", seconds=1), call("nap", "c2", seconds=50), call("ask", "c3"), call("nap", "c4")]
    services, _ = make_services(say("working", calls=calls))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(2)
        turn.cancel(STOP)
        record = await turn.wait_ended()
        assert record.exit_reason == "interrupted_by_user"
        assert [row.tool_call_id for row in session.rows if row.role == "tool"] == ["c1", "c2", "c3", "c4"]
        dispositions = [row.effect_disposition for row in session.rows if row.role == "tool"]
        assert dispositions == [None, "unknown", "none", "none"]
        ended = [event.call_id for event in events_of(session) if isinstance(event, ToolEnded)]
        begun = [event.call_id for event in events_of(session) if isinstance(event, ToolStarted)]
        assert sorted(ended) == sorted(begun)
        assert session.rows[-1].role == "assistant"


async def test_a_tool_that_breaks_is_a_result_and_not_the_end_of_the_turn(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("fail")]), say("went on"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        record = await (await started(session)).wait_ended()
        assert record.text == "went on"
        assert "RuntimeError" in next(row.text for row in session.rows if row.role == "tool")


async def test_an_interrupt_right_behind_the_submit_stops_that_turn(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(say("never"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        submission = session.submit_nowait(Prompt("hello"))
        interrupt = session.interrupt_nowait(STOP)
        assert (await interrupt.wait_settled(0.9)).settled
        assert (await submission.wait_accepted()).user_row_id is None
        assert model.requests == []
        events = events_of(session)
        assert not any(isinstance(event, (TurnStarted, TurnEnded)) for event in events)
        assert sum(isinstance(event, TurnRefused) for event in events) == 1


async def test_a_rewind_is_refused_while_a_turn_runs_and_accepted_right_after_its_interrupt(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, _ = make_services(say("first"), hang(), say("third"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session, "one")).wait_ended()
        await started(session, "two")
        intent = RewindIntent(row_id=session.rows[2].row_id)
        with pytest.raises(SessionBusy):
            session.submit_nowait(Prompt("two, better"), rewind=intent)
        await session.interrupt_nowait(STOP).wait_settled(0.9)
        submission = session.submit_nowait(Prompt("two, better"), rewind=intent)
        accepted = await submission.wait_accepted()
        assert accepted.survivors == (session.rows[0].row_id,)
        turn = await submission.wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert [row.text for row in session.rows] == ["one", "first", "two, better", "third"]


async def test_closing_the_session_ends_the_turn_with_that_cause(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
        await session.wait_closed()
        record = turn.ended.value
        assert record is not None
        assert record.cause is Cause.SESSION_CLOSED
        assert model.open == 0
        assert len(tree.registry) == 0
        assert [node.kind for node in tree.scope.walk()] == ["server", "sessions"]


async def test_a_cancel_from_outside_the_session_is_a_shutdown(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.testing.wait_all_tasks_blocked()
        tree.scope.cancel(CancelReason(Cause.SHUTDOWN))
        tree.registry.scope.cancel(CancelReason(Cause.SHUTDOWN))
        record = await turn.wait_ended()
        assert record.run_status is RunStatus.INTERRUPTED
        assert session.rows[-1].role == "assistant"


async def test_a_deadline_of_the_caller_ends_the_turn_as_cancelled(autojump_clock: trio.abc.Clock) -> None:
    from hermes.messages import TurnLimits

    services, _ = make_services(say("a", "b", "c", pause=4))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        record = await (await started(session, limits=TurnLimits(deadline_s=10))).wait_ended()
        assert record.run_status is RunStatus.CANCELLED
        assert record.cause is Cause.DEADLINE
        assert record.text == "ab"


async def test_queued_prompts_run_in_order_and_an_interrupt_drops_them(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(say("one", pause=5), say("two", pause=5), say("three"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await started(session, "first")
        second = session.submit_nowait(Prompt("second"))
        assert second.status == "queued"
        turn = await second.wait_turn()
        assert turn is not None
        await trio.testing.wait_all_tasks_blocked()
        third = session.submit_nowait(Prompt("third", client_message_id="m3"))
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert result.dropped_prompts == ({"text": "third", "client_message_id": "m3"},)
        assert await third.wait_turn() is None
        assert "third" not in [row.text for row in session.rows]
        assert len(model.requests) == 2


async def test_a_steer_is_delivered_at_the_tool_boundary(autojump_clock: trio.abc.Clock) -> None:
    model = ScriptedModel(say("", calls=[call("nap", seconds=5)]), say("steered"))
    services, _ = make_services(model=model)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        assert session.steer("  be quick ")
        record = await turn.wait_ended()
        assert record.pending_steer is None
        assert [(row.role, row.display_kind) for row in session.rows] == [
            ("user", None),
            ("assistant", None),
            ("tool", None),
            ("user", "steer"),
            ("assistant", None),
        ]
        assert "be quick" in str(model.requests[1].messages[-1])


async def test_a_steer_that_finds_no_boundary_comes_back(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("a", "b", pause=5))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        assert session.steer("too late")
        record = await turn.wait_ended()
        assert record.pending_steer == "too late"
        assert not session.steer("much too late")


async def test_steers_that_nobody_takes_are_bounded_and_every_accepted_one_comes_back(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        taken = [session.steer(f"steer {number}") for number in range(MAX_STEERS + 1)]
        assert taken == [True] * MAX_STEERS + [False]
        session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
        record = await turn.wait_ended()
        assert record.pending_steer == "\n".join(f"steer {number}" for number in range(MAX_STEERS))


async def test_a_redirect_restarts_the_model_call_and_keeps_what_was_said(autojump_clock: trio.abc.Clock) -> None:
    model = ScriptedModel(say("wrong ", "way", pause=5), say("right way"))
    services, _ = make_services(model=model)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(6)
        assert session.redirect("the other way") == "redirected"
        record = await turn.wait_ended()
        assert record.text == "right way"
        assert [row.role for row in session.rows] == ["user", "assistant", "user", "assistant"]
        assert record.user_intervened


async def test_an_answer_that_goes_round_in_circles_is_cut_off(autojump_clock: trio.abc.Clock) -> None:
    said: list[str] = []

    async def circles(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        while True:
            await trio.lowlevel.checkpoint()
            said.append("and so on, ")
            on_delta(DeltaKind.TEXT, said[-1])

    services, model = make_services(circles, say("next"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        record = await (await started(session)).wait_ended()
        assert record.exit_reason == "truncated"
        assert record.partial and not record.failed and not record.completed
        assert record.text == "".join(said) == session.rows[-1].text
        assert len(said) < 1_000
        assert (record.api_calls, model.open) == (1, 0)
        assert record.usage.output_tokens > 0
        assert (await (await started(session, "again")).wait_ended()).text == "next"


async def test_a_long_table_is_no_circle(autojump_clock: trio.abc.Clock) -> None:
    lines = [f"| {number} | the same words in every line of the table |\n" for number in range(600)]
    services, _ = make_services(say(*lines))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        assert (await (await started(session)).wait_ended()).text == "".join(lines)
