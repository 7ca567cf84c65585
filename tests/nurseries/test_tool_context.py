"""What one tool call may use, over the real turn: its own session, questions in order, progress without a flood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from hermes.agent.ports import ParallelClass, ToolContext
from hermes.events import ClientRequestOpened, StatusUpdate, ToolProgress
from hermes.messages import Answered, NoClient, Prompt, Question
from hermes.nurseries.client_requests import Attachment
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from tests.support.core import PlainTool, call, events_of, hang, make_services, running_tree, say

APPROVAL = Question("approval", {"command": "x"}, choices=("once", "deny"), timeout=300)


async def started(session: Session, text: str = "hello", **options: Any) -> Turn:
    turn = await session.submit_nowait(Prompt(text, **options)).wait_turn()
    assert turn is not None
    await trio.testing.wait_all_tasks_blocked()
    return turn


async def test_a_call_sees_its_own_turn_and_session(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[ToolContext] = []

    async def look(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        seen.append(ctx)
        ctx.emit(StatusUpdate(ctx.turn_id, "status", "looking"))
        assert await ctx.client_tool("none", {}) is None
        return f"{ctx.now():.0f} {await ctx.ask_model('sys', 'user', max_tokens=5, timeout=5)}"

    services, _ = make_services(
        say("", calls=[call("look")]), say("asked"), say("done"), tools=[PlainTool("look", look)]
    )
    async with running_tree(services) as tree:
        session = tree.registry.create(source="tui", cwd="/work")
        turn = await started(session, unattended=True, source="cron")
        await turn.wait_ended()
        (ctx,) = seen
        assert (ctx.call_id, ctx.turn_id, ctx.session_key) == ("c1", turn.turn_id, session.key)
        assert (ctx.memory, ctx.store, ctx.home) == (session.memory, services.store, services.home)
        assert (ctx.unattended, ctx.allow_clarify, ctx.source, ctx.depth) == (True, True, "cron", 0)
        assert ctx.settings is turn.settings
        assert session.rows[2].text == "1780000000 asked"
        assert StatusUpdate(turn.turn_id, "status", "looking") in events_of(session)


async def test_progress_is_shown_at_most_ten_times_a_second(autojump_clock: trio.testing.MockClock) -> None:
    async def chatter(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        for number in range(100):
            ctx.progress(str(number))
            await trio.sleep(0.01)
        return "done"

    services, _ = make_services(say("", calls=[call("chatter")]), say("ok"), tools=[PlainTool("chatter", chatter)])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await (await started(session)).wait_ended()
        shown = [event.preview for event in events_of(session) if isinstance(event, ToolProgress)]
        assert shown[0] == "0"
        assert 9 <= len(shown) <= 11


async def test_a_turn_that_nobody_attends_asks_nobody(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[object] = []

    async def ask(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        answers.append(await ctx.ask(APPROVAL))
        return "asked"

    services, _ = make_services(say("", calls=[call("question")]), say("ok"), tools=[PlainTool("question", ask)])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.attach(Attachment("tui", lambda method: True))
        await (await started(session, unattended=True)).wait_ended()
        assert answers == [NoClient()]
        assert not any(isinstance(event, ClientRequestOpened) for event in events_of(session))


async def test_parallel_calls_ask_one_at_a_time_in_the_models_order(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[object] = []

    async def ask(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        answers.append((ctx.call_id, await ctx.ask(APPROVAL)))
        return "asked"

    calls = [call("question", f"c{number}") for number in range(4)]
    services, _ = make_services(say("", calls=calls), say("ok"), tools=[PlainTool("question", ask, ParallelClass.FREE)])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        for number in range(4):
            await trio.testing.wait_all_tasks_blocked()
            (request,) = session.requests.open_requests()
            assert request.question.tool_call_id == f"c{number}"
            session.requests.answer_response(request.request_id, {"choice": "once"}, by="test")
        await turn.wait_ended()
    assert answers == [(f"c{number}", Answered({"choice": "once"}, "test")) for number in range(4)]


async def test_a_steer_that_waits_can_be_seen_and_taken_back(autojump_clock: trio.testing.MockClock) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        assert session.steer("one") and session.steer("two")
        assert list(turn.pending_steers) == ["one", "two"]
        assert turn.withdraw_steer("one")
        assert not turn.withdraw_steer("one")
        assert list(turn.pending_steers) == ["two"]


@pytest.mark.parametrize("kind", ["model_call", "turn"])
async def test_a_cancel_of_one_node_ends_what_lies_below_it(autojump_clock: trio.testing.MockClock, kind: str) -> None:
    from hermes.outcomes import CancelReason, Cause

    services, model = make_services(hang(), say("next"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        node = next(node for node in turn.scope.walk() if node.kind == kind)
        assert services.tree.get(node.node_id).request_cancel(CancelReason(Cause.NODE_CANCEL, "this one"))
        record = await turn.wait_ended()
        assert (record.cause, record.reason_text) == (Cause.NODE_CANCEL, "this one")
        assert model.open == 0
        assert (await (await started(session)).wait_ended()).text == "next"


async def test_a_question_to_the_auxiliary_model_lies_below_its_call_and_ends_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    from hermes.outcomes import CancelReason, Cause

    async def review(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        return await ctx.ask_model("sys", "user", max_tokens=5, timeout=30)

    services, model = make_services(
        say("", calls=[call("review")]), hang(), say("went on"), tools=[PlainTool("review", review)]
    )
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        (reviewing,) = [node for node in turn.scope.walk() if node.kind == "tool_call"]
        assert [node.kind for node in reviewing.walk()][-1] == "model_call"
        assert services.tree.get(reviewing.node_id).request_cancel(CancelReason(Cause.NODE_CANCEL, "too long"))
        record = await turn.wait_ended()
        assert (model.open, record.text) == (0, "went on")
        assert "too long" in session.rows[2].text


async def test_a_pause_between_tries_ends_with_a_stop(autojump_clock: trio.testing.MockClock) -> None:
    from hermes.errors import ProviderError
    from hermes.outcomes import CancelReason, Cause

    async def limited(request: Any, on_delta: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise ProviderError("slow down", error_class="rate_limit", status=429, retry_after=500.0)

    services, _ = make_services(limited, say("next"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await started(session)
        await trio.sleep(1)
        assert [node.kind for node in turn.scope.walk()][1:] == ["backoff"]
        turn.cancel(CancelReason(Cause.USER_INTERRUPT))
        record = await turn.wait_ended()
        assert record.interrupted
        assert trio.current_time() == pytest.approx(1.0)
