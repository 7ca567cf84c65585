"""What bounds child agents besides their number: silence, their role, a stop of the whole delegation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio

from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest, ToolContext
from hermes.events import SubagentProgress
from hermes.messages import Prompt
from hermes.nurseries.child_control import control
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from tests.support.child_agents import DELEGATE, ModelByTask, ask_for
from tests.support.core import PlainTool, Reply, call, events_of, hang, make_services, running_tree, say

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")


def silence(**seconds: float) -> Settings:
    limits = {"stale_idle_seconds": 10, "stale_tool_seconds": 30, "stale_grace_seconds": 5, **seconds}
    return Settings.model_validate({"delegation": limits})


def in_turn(*replies: Reply) -> Reply:
    waiting = list(replies)

    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        return await waiting.pop(0)(request, on_delta)

    return reply


def dripping(seconds: int) -> Reply:
    """A model that says one word a second."""

    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        for _ in range(seconds):
            await trio.sleep(1)
            on_delta(DeltaKind.TEXT, "word ")
        return ModelFinished(text="word " * seconds, finish_reason="stop")

    return reply


async def _rest(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    await trio.sleep(float(arguments["seconds"]))
    return "rested"


REST = PlainTool("rest", _rest)


async def played(session: Session) -> None:
    turn = await session.submit_nowait(Prompt("go")).wait_turn()
    assert turn is not None
    await turn.wait_ended()


def tool_result(session: Session) -> dict[str, Any]:
    row = next(row for row in session.rows if row.role == "tool")
    return dict(json.loads(row.text))


@pytest.mark.parametrize(
    ("child", "limits", "status", "within"),
    [
        pytest.param(hang(), {}, "timeout", 15, id="a silent model"),
        pytest.param(dripping(60), {}, "completed", 60, id="a slow model"),
        pytest.param(
            in_turn(say("", calls=[call("rest", seconds=29)]), say("x")), {}, "completed", 29, id="a tool at work"
        ),
        pytest.param(
            in_turn(say("", calls=[call("rest", seconds=3600)]), say("x")), {}, "timeout", 35, id="a tool that hangs"
        ),
        pytest.param(
            in_turn(say("", calls=[call("rest", seconds=1)]), hang()), {}, "timeout", 16, id="silent behind a tool"
        ),
        pytest.param(say("x", pause=14), {}, "completed", 14, id="a word within the grace"),
        pytest.param(
            say("x", pause=90_000), {"stale_idle_seconds": 0}, "completed", 90_000, id="silence that is allowed"
        ),
    ],
)
async def test_a_child_without_a_sign_of_life_is_ended_and_a_slow_one_is_not(
    child: Reply, limits: dict[str, float], status: str, within: float, autojump_clock: trio.abc.Clock
) -> None:
    model = ModelByTask(ask_for("one"), say("ok"), one=child)
    services, _ = make_services(model=model, tools=[DELEGATE, REST], settings=silence(**limits))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        began = trio.current_time()
        await played(session)
        assert trio.current_time() - began == pytest.approx(within, abs=0.5)
        [result] = tool_result(session)["results"]
        assert result["status"] == status
        if status == "timeout":
            assert "no sign of life" in result["error"]


async def test_a_child_is_not_silent_while_its_own_children_work(autojump_clock: trio.abc.Clock) -> None:
    settings = Settings.model_validate(
        {"delegation": {"max_spawn_depth": 2, "stale_idle_seconds": 10, "stale_tool_seconds": 30}}
    )
    model = ModelByTask(
        ask_for("one", role="orchestrator"), say("ok"), one=in_turn(ask_for("two"), say("up")), two=dripping(600)
    )
    services, _ = make_services(model=model, tools=[DELEGATE], settings=settings)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await played(session)
        [result] = tool_result(session)["results"]
        assert (result["status"], result["summary"]) == ("completed", "up")


@pytest.mark.parametrize("role", ["orchestrator", "leaf", None])
async def test_only_an_orchestrator_is_offered_delegation(role: str | None, autojump_clock: trio.abc.Clock) -> None:
    seen: list[bool] = []

    async def child(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        seen.append("delegate_task" in [spec.name for spec in request.tools])
        return await say("x")(request, on_delta)

    async def delegate(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        return json.dumps(await ctx.delegate(arguments["tasks"], background=False))

    task = {"goal": "one"} | ({"role": role} if role is not None else {})
    model = ModelByTask(say("", calls=[call("delegate_task", tasks=[task])]), say("ok"), one=child)
    services, _ = make_services(model=model, tools=[PlainTool("delegate_task", delegate)])
    async with running_tree(services) as tree:
        await played(tree.registry.create(source="test", cwd="/"))
    assert seen == [role == "orchestrator"]


async def test_a_background_delegation_that_is_stopped_by_its_node_says_so_in_a_turn(
    autojump_clock: trio.abc.Clock,
) -> None:
    model = ModelByTask(ask_for("one", "two", background=True), say("dispatched"), one=hang(), two=say("half"))
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await played(session)
        await trio.testing.wait_all_tasks_blocked()
        [work] = session.side_work.values()
        assert work.node.request_cancel(CancelReason(Cause.NODE_CANCEL, "not needed"))
        with trio.fail_after(60):
            while session.side_work or session.slot.taken:
                await trio.sleep(1)
        [told] = [row for row in session.rows if row.display_kind == "async_delegation_complete"]
        assert "was stopped (node_cancel: not needed): 1 of 2 completed" in told.text
        assert told.api_content is not None and "half" in told.api_content and "(interrupted): one" in told.api_content
        assert session.rows[-1].role == "assistant"


async def test_a_background_delegation_that_an_interrupt_met_is_told_of_with_the_next_prompt(
    autojump_clock: trio.abc.Clock,
) -> None:
    model = ModelByTask(ask_for("one", background=True), say("dispatched"), one=hang())
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await played(session)
        await trio.testing.wait_all_tasks_blocked()
        assert (await session.interrupt_nowait(STOP).wait_settled(0.9)).settled
        await trio.testing.wait_all_tasks_blocked()
        assert not session.slot.taken
        await played(session)
        with trio.fail_after(60):
            while session.slot.taken:
                await trio.sleep(1)
        notices = [row.text for row in session.rows if row.display_kind == "async_delegation_complete"]
        assert len(notices) == 1 and "was stopped (user_interrupt: enough)" in notices[0]
        # It is no turn: what was stopped does not go on by itself.
        kinds = [(row.role, row.display_kind) for row in session.rows[-3:]]
        assert kinds == [("user", "async_delegation_complete"), ("user", None), ("assistant", None)]


async def test_a_dispatch_names_where_each_child_can_be_read_while_it_works(autojump_clock: trio.abc.Clock) -> None:
    model = ModelByTask(ask_for("one", background=True), say("dispatched"), one=hang())
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await played(session)
        await trio.testing.wait_all_tasks_blocked()
        told = tool_result(session)
        [child] = session.children.walk()
        assert told["live_transcripts"] == [{"subagent_id": child.subagent_id, "session_id": child.session_key}]
        stored = await services.store.load_rows(told["live_transcripts"][0]["session_id"])
        assert [(row.role, row.text) for row in stored] == [("user", "one")]


async def test_a_long_goal_is_given_whole_and_told_by_its_beginning(autojump_clock: trio.abc.Clock) -> None:
    goal = "dig " * 5000
    services, model = make_services(model=ModelByTask(ask_for(goal), say("ok"), dig=say("dug")), tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        await played(session)
        assert model.requests[1].messages[0].text.startswith(goal.strip())
        told = [event.payload["goal"] for event in events_of(session) if isinstance(event, SubagentProgress)]
        assert told and all(len(one) == 1000 and one.startswith("dig dig") for one in told)
        [shown] = control(session, "list", {})["subagents"]
        assert shown["goal"] == told[0]


async def test_another_number_of_children_holds_from_the_next_delegation_on(autojump_clock: trio.abc.Clock) -> None:
    most = [1, 3]
    goals = ("one", "two", "three")
    model = ModelByTask(
        *(reply for _ in most for reply in (ask_for(*goals), say("ok"))),
        **{goal: say("x", pause=1) for goal in goals},
    )
    made, _ = make_services(model=model, tools=[DELEGATE])
    services = replace(
        made, settings=lambda: Settings.model_validate({"delegation": {"max_concurrent_children": most[0]}})
    )
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        for seconds in (3, 1):
            began = trio.current_time()
            await played(session)
            assert trio.current_time() - began == pytest.approx(seconds, abs=0.5)
            del most[0:-1]
