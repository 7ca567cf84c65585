"""Child agents: below their call, stoppable alone, bounded, told in order; in the background a turn of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest, ToolContext, ToolOutput
from hermes.agent.tools.base import blocked
from hermes.errors import NotFound, SessionBusy
from hermes.events import SessionEvent, SubagentProgress, TurnStarted
from hermes.messages import Prompt, TurnLimits
from hermes.nurseries.child_control import control
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from tests.support.child_agents import DELEGATE, ModelByTask, ask_for
from tests.support.core import (
    PlainTool,
    Reply,
    call,
    events_of,
    hang,
    make_services,
    running_tree,
    say,
)
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")


def progress(events: Sequence[SessionEvent], index: int = 0) -> list[str]:
    return [
        event.kind for event in events if isinstance(event, SubagentProgress) and event.payload["task_index"] == index
    ]


def results_of(session: Session) -> list[dict[str, Any]]:
    row = next(row for row in session.rows if row.role == "tool")
    return list(json.loads(row.text)["results"])


async def test_children_work_side_by_side_and_their_results_come_in_order(autojump_clock: trio.abc.Clock) -> None:
    model = ModelByTask(
        ask_for("slow", "quick"), say("both done"), slow=say("s", pause=5), quick=say("q", calls=[], pause=1)
    )
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        began = trio.current_time()
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        record = await turn.wait_ended()
        assert record.text == "both done"
        assert trio.current_time() - began == pytest.approx(5)
        results = results_of(session)
        assert [(one["task_index"], one["status"], one["summary"]) for one in results] == [
            (0, "completed", "s"),
            (1, "completed", "q"),
        ]
        events = events_of(session)
        assert_events_are_well_formed(events)
        assert progress(events) == ["spawn_requested", "start", "complete"]
        assert turn.children_usage.calls == 2
        assert [stored.key for stored in await services.store.list_sessions()] == [session.key]
        child_key = next(iter(session.children.walk())).session_key
        assert child_key is not None
        stored = await services.store.get_session(child_key)
        assert stored is not None
        assert (stored.source, stored.parent_key, stored.hidden, stored.model_config["_delegate_from"]) == (
            "subagent",
            session.key,
            True,
            session.key,
        )


async def test_a_childs_tools_are_told_between_its_start_and_its_end(autojump_clock: trio.abc.Clock) -> None:
    first = say("looking", calls=[call("nap")])
    replies = [first, say("found")]

    async def child(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        return await replies.pop(0)(request, on_delta)

    services, _ = make_services(model=ModelByTask(ask_for("find"), say("ok"), find=child), tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert progress(events_of(session)) == ["spawn_requested", "start", "progress", "tool", "complete"]
        assert results_of(session)[0]["tool_trace"] == [{"tool": "nap", "status": "ok", "size": 6}]


async def test_the_trace_of_a_child_tells_how_each_of_its_tools_ended(autojump_clock: trio.abc.Clock) -> None:
    async def play(ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        if arguments["end"] == "crash":
            raise RuntimeError("broken")
        if arguments["end"] == "blocked":
            raise blocked("not here")
        return ToolOutput("said", is_error=arguments["end"] == "error", status=arguments["end"])

    ends = ("ok", "error", "crash", "blocked")
    calls = [call("play", f"c{number}", end=end) for number, end in enumerate(ends)]
    replies = [say("", calls=[*calls, call("no_such_tool", "c9")]), say("done")]

    async def child(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        return await replies.pop(0)(request, on_delta)

    tools = [DELEGATE, PlainTool("play", play)]
    services, _ = make_services(model=ModelByTask(ask_for("find"), say("ok"), find=child), tools=tools)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert [(one["tool"], one["status"]) for one in results_of(session)[0]["tool_trace"]] == [
            ("play", "ok"),
            ("play", "error"),
            ("play", "error"),
            ("play", "blocked"),
            ("no_such_tool", "error"),
        ]


async def test_a_stop_of_the_parent_reaches_every_child_with_the_parent_as_its_cause(
    autojump_clock: trio.abc.Clock,
) -> None:
    model = ModelByTask(ask_for("one", "two"), one=hang(), two=hang())
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await trio.testing.wait_all_tasks_blocked()
        assert model.open == 2
        kinds = [node.kind for node in turn.scope.walk()]
        assert kinds.count("subagent") == 2 and kinds.count("session") == 2
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert result.settled and model.open == 0
        children = list(session.children.walk())
        assert [child.status for child in children] == ["interrupted", "interrupted"]
        assert all(child.record is not None and child.record.cause is Cause.PARENT for child in children)
        assert progress(events_of(session), 1) == ["spawn_requested", "start", "complete"]
        assert_events_are_well_formed(events_of(session))
        assert_history_is_whole(session.rows)


async def test_a_stop_of_one_child_leaves_its_sibling_and_its_parent_alone(autojump_clock: trio.abc.Clock) -> None:
    model = ModelByTask(ask_for("one", "two"), say("ok"), one=hang(), two=say("fine", pause=3))
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await trio.testing.wait_all_tasks_blocked()
        first = next(iter(session.children.walk()))
        assert first.cancel(CancelReason(Cause.NODE_CANCEL, "no"))
        assert session.children.find("sa-unknown") is None
        assert (await turn.wait_ended()).text == "ok"
        assert [one["status"] for one in results_of(session)] == ["interrupted", "completed"]


async def test_a_child_that_takes_too_long_is_a_timeout(autojump_clock: trio.abc.Clock) -> None:
    settings = Settings.model_validate({"delegation": {"child_timeout_seconds": 7}})
    services, _ = make_services(
        model=ModelByTask(ask_for("one"), say("ok"), one=hang()), tools=[DELEGATE], settings=settings
    )
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        assert (await turn.wait_ended()).text == "ok"
        assert results_of(session)[0]["status"] == "timeout"


async def test_no_more_children_than_allowed_work_at_once(autojump_clock: trio.abc.Clock) -> None:
    settings = Settings.model_validate({"delegation": {"max_concurrent_children": 2}})
    model = ModelByTask(ask_for("one", "two", "three"), say("ok"), **{n: say("x", pause=1) for n in ("one", "two")})
    model.children["three"] = say("x", pause=1)
    services, _ = make_services(model=model, tools=[DELEGATE], settings=settings)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await trio.testing.wait_all_tasks_blocked()
        assert model.open == 2
        [waiting] = [child for child in list(session.children.walk()) if child.status == "queued"]
        assert waiting.cancel(STOP)
        await turn.wait_ended()
        assert sorted(one["status"] for one in results_of(session)) == ["completed", "completed", "interrupted"]
        assert results_of(session)[waiting.index]["status"] == "interrupted"


async def test_pause_depth_and_number_are_refused(autojump_clock: trio.abc.Clock) -> None:
    many = [f"g{number}" for number in range(51)]
    services, _ = make_services(
        model=ModelByTask(ask_for("one"), say("ok"), ask_for(*many), say("ok")), tools=[DELEGATE]
    )
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        services.delegation.paused = True
        for expected in ("refused: delegation is paused", "refused: at most 50"):
            turn = await session.submit_nowait(Prompt("go")).wait_turn()
            assert turn is not None
            await turn.wait_ended()
            row = [row for row in session.rows if row.role == "tool"][-1]
            assert row.text.startswith(expected)
            services.delegation.paused = False
        assert not session.children.live()


async def test_children_cannot_delegate_beyond_the_depth(autojump_clock: trio.abc.Clock) -> None:
    replies = [ask_for("deeper"), say("alone then")]

    async def child(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        return await replies.pop(0)(request, on_delta)

    services, _ = make_services(model=ModelByTask(ask_for("one"), say("ok"), one=child), tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        result = results_of(session)[0]
        assert (result["summary"], result["tool_trace"][0]["tool"]) == ("alone then", "delegate")


async def test_a_childs_child_is_told_in_the_events_of_the_session_above(autojump_clock: trio.abc.Clock) -> None:
    settings = Settings.model_validate({"delegation": {"max_spawn_depth": 2}})
    replies = [ask_for("two"), say("passed on")]

    async def child(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        return await replies.pop(0)(request, on_delta)

    model = ModelByTask(ask_for("one"), say("ok"), one=child, two=say("deep"))
    services, _ = make_services(model=model, tools=[DELEGATE], settings=settings)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        record = await turn.wait_ended()
        told = [event.payload for event in events_of(session) if isinstance(event, SubagentProgress)]
        deep = [payload for payload in told if payload["depth"] == 2]
        assert [payload["status"] for payload in deep] == ["queued", "running", "completed"]
        assert {payload["parent_id"] for payload in deep} == {told[0]["subagent_id"]}
        assert record.extras["children_usage"].calls == 3
        assert_events_are_well_formed(events_of(session))


async def test_what_children_spend_counts_against_the_callers_budget(autojump_clock: trio.abc.Clock) -> None:
    replies: list[Reply] = [say("", calls=[call("nap", f"n{number}")]) for number in range(20)]

    async def child(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        return await replies.pop(0)(request, on_delta)

    services, _ = make_services(model=ModelByTask(ask_for("one"), one=child), tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        prompt = Prompt("go", limits=TurnLimits(max_tokens_total=60))
        turn = await session.submit_nowait(prompt).wait_turn()
        assert turn is not None
        record = await turn.wait_ended()
        assert record.cause is Cause.BUDGET
        assert results_of(session)[0]["exit_reason"] == "interrupted_by_system(budget)"
        assert turn.spent().total_tokens == 60


async def test_a_live_child_is_found_by_its_key_and_takes_no_other_prompt(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(model=ModelByTask(ask_for("one"), say("ok"), one=say("x", pause=2)), tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await trio.testing.wait_all_tasks_blocked()
        child = next(iter(session.children.walk()))
        assert child.session_key is not None and child.agent is not None
        opened = await tree.registry.resume(child.session_key)
        assert opened is child.agent.session and tree.registry.get(opened.runtime_id) is opened
        assert tree.registry.live() == [session]
        with pytest.raises(SessionBusy):
            opened.submit_nowait(Prompt("me too"))
        assert child.steer("be brief")
        assert child.tail() == ("", False)
        await turn.wait_ended()
        assert results_of(session)[0]["missed_steer"] == "be brief"
        again = await tree.registry.resume(child.session_key)
        assert again is not opened and [row.text for row in again.rows] == ["one", "x"]


async def test_an_answer_is_checked_against_the_wanted_schema(autojump_clock: trio.abc.Clock) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = ModelByTask(ask_for("one", "two", output_schema=schema), say("ok"), one=say('{"n": 3}'), two=say("three"))
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert [one["schema_valid"] for one in results_of(session)] == [True, False]


async def test_a_background_delegation_comes_back_as_a_turn_behind_the_users_prompts(
    autojump_clock: trio.abc.Clock,
) -> None:
    model = ModelByTask(
        ask_for("one", background=True), say("dispatched", pause=3), say("user's", pause=5), say("told"), one=say("x")
    )
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.submit_nowait(Prompt("go"))
        await trio.sleep(2)
        assert not session.side_work and len(session.slot.queued) == 1
        session.submit_nowait(Prompt("mine"))
        with trio.fail_after(60):
            while session.slot.taken:
                await trio.sleep(1)
        started = [event for event in events_of(session) if isinstance(event, TurnStarted)]
        assert [event.display_kind for event in started] == [None, None, "async_delegation_complete"]
        assert started[1].user_text == "mine"
        assert "x" in (session.rows[-2].api_content or "")


async def test_an_interrupt_reaches_a_background_delegation_and_no_turn_follows(
    autojump_clock: trio.abc.Clock,
) -> None:
    model = ModelByTask(ask_for("one", background=True), say("dispatched"), one=hang())
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        await trio.testing.wait_all_tasks_blocked()
        assert model.open == 1 and session.has_work
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert (result.status, result.settled) == ("interrupted", True)
        assert "delegation" in [node["kind"] for node in result.stopped]
        assert model.open == 0 and not session.slot.taken and not session.side_work
        assert next(iter(session.children.walk())).status == "interrupted"


async def test_a_notice_that_an_interrupt_met_comes_behind_the_next_prompt(autojump_clock: trio.abc.Clock) -> None:
    model = ModelByTask(ask_for("one", background=True), hang(), say("next"), say("told"), one=say("x"))
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.submit_nowait(Prompt("go"))
        await trio.testing.wait_all_tasks_blocked()
        assert len(session.slot.queued) == 1
        result = await session.interrupt_nowait(STOP).wait_settled(0.9)
        assert result.dropped_prompts == () and not session.slot.taken
        session.submit_nowait(Prompt("on"))
        with trio.fail_after(60):
            while session.slot.taken:
                await trio.sleep(1)
        assert [row.text for row in session.rows if row.role == "assistant"][-2:] == ["next", "told"]


async def test_a_delegation_whose_server_died_is_told_as_lost_once_behind_the_next_prompt(
    autojump_clock: trio.abc.Clock,
) -> None:
    model = ModelByTask(ask_for("one", background=True), say("dispatched"), one=hang())
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        await tree.registry.close_all(CancelReason(Cause.SHUTDOWN))
    for expected in (1, 1):
        later, _ = make_services(store=services.store)
        async with running_tree(later) as tree:
            again = await tree.registry.resume(session.key)
            assert not again.slot.taken
            again.submit_nowait(Prompt("on"))
            with trio.fail_after(60):
                while again.slot.taken:
                    await trio.sleep(1)
            notices = [row for row in again.rows if row.display_kind == "async_delegation_complete"]
            assert len(notices) == expected and "was lost" in notices[0].text
            await tree.registry.close_all(CancelReason(Cause.SHUTDOWN))


async def test_the_model_can_list_steer_and_stop_its_background_children(autojump_clock: trio.abc.Clock) -> None:
    model = ModelByTask(ask_for("one", background=True), say("dispatched"), one=say("x", pause=5))
    services, _ = make_services(model=model, tools=[DELEGATE])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        await trio.testing.wait_all_tasks_blocked()
        [shown] = control(session, "list", {})["subagents"]
        subagent_id = shown["subagent_id"]
        assert (shown["status"], shown["goal"], shown["accepting_steer"]) == ("running", "one", True)
        steered = control(session, "steer", {"subagent_id": subagent_id, "message": "be brief"})
        assert steered["status"] == "queued"
        assert control(session, "stop", {"subagent_id": subagent_id})["stopped"]
        with trio.fail_after(30):
            while session.side_work or session.slot.taken:
                await trio.sleep(1)
        assert not control(session, "stop", {"subagent_id": subagent_id})["stopped"]
        late = control(session, "steer", {"subagent_id": subagent_id, "message": "more"})
        assert late["status"] == "rejected"
        with pytest.raises(NotFound):
            control(session, "stop", {"subagent_id": "sa-none"})
        assert "interrupted" in (session.rows[-2].api_content or "")
