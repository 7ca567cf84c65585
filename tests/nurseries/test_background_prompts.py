"""Side agents: beside the turns, without a trace in the history, one event each."""

from __future__ import annotations

import pytest
import trio

from hermes.errors import EmptyText, Overloaded
from hermes.events import BackgroundEnded
from hermes.messages import Prompt
from hermes.nurseries.background import MAX_SIDE_AGENTS, start_background, start_btw
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from tests.support.core import call, events_of, hang, make_services, running_tree, say


async def answer(session: Session) -> BackgroundEnded:
    subscription = session.log.subscribe(0)
    while True:
        for entry in await subscription.next():
            if isinstance(entry.event, BackgroundEnded):
                return entry.event


async def test_a_background_prompt_runs_beside_a_turn_and_leaves_the_history_alone(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, model = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await session.submit_nowait(Prompt("a")).wait_accepted()
        await trio.testing.wait_all_tasks_blocked()
        model.replies[:] = [say("", calls=[call("nap")]), say("found it")]
        task_id = start_background(session, "look for it")
        ended = await answer(session)
        assert (ended.task_id, ended.kind, ended.text) == (task_id, "background", "found it")
        assert session.running and len(session.rows) == 1
        assert not session.side_work
        assert [stored.key for stored in await services.store.list_sessions()] == [session.key]


async def test_a_side_question_sees_the_conversation_and_has_no_tools(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(say("Paris"), say("aside"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("capital of France?")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        start_btw(session, "and why?")
        ended = await answer(session)
        assert (ended.kind, ended.question, ended.text) == ("btw", "and why?", "aside")
        request = model.requests[-1]
        assert request.tools == ()
        assert [row.text for row in request.messages] == ["capital of France?", "Paris", "and why?"]


async def test_a_failure_is_told_as_one(autojump_clock: trio.abc.Clock) -> None:
    async def broken(request: object, on_delta: object) -> None:
        raise RuntimeError("no")

    services, _ = make_services(*[broken] * 9)  # type: ignore[arg-type]
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        start_background(session, "x")
        assert (await answer(session)).text.startswith("error:")


async def test_an_interrupt_does_not_reach_it_and_its_own_node_does(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        task_id = start_background(session, "x")
        await trio.testing.wait_all_tasks_blocked()
        result = await session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT)).wait_settled(1)
        assert result.status == "idle" and task_id in session.side_work
        session.side_work[task_id].node.request_cancel(CancelReason(Cause.NODE_CANCEL, "enough"))
        assert (await answer(session)).text == "error: stopped (node_cancel: enough)"
        assert model.open == 0


async def test_closing_the_session_ends_it(autojump_clock: trio.abc.Clock) -> None:
    services, model = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        start_background(session, "x")
        await trio.testing.wait_all_tasks_blocked()
        tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
        await session.wait_closed()
        assert model.open == 0
        assert sum(isinstance(event, BackgroundEnded) for event in events_of(session)) == 1


async def test_empty_text_and_too_many_are_refused(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(*[hang()] * MAX_SIDE_AGENTS)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        with pytest.raises(EmptyText):
            start_btw(session, "  ")
        for _ in range(MAX_SIDE_AGENTS):
            start_background(session, "x")
        with pytest.raises(Overloaded):
            start_background(session, "x")
