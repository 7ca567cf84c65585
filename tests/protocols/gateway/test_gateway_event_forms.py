"""Events that come seldom, each with the form that hosts expect of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes import events as ev
from hermes.agent.ports import ToolContext
from hermes.messages import Question
from hermes.settings import Settings
from tests.protocols.gateway.test_gateway_commands import configured
from tests.support.core import PlainTool, call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected

FORMS: tuple[tuple[ev.SessionEvent, str, Any], ...] = (
    (ev.Notice("Low disk", "warning"), "notification.show", {"text": "Low disk", "level": "warning", "kind": "notice"}),
    (
        ev.Notice("Still building", kind="build", key="build", ttl_ms=500),
        "notification.show",
        {"text": "Still building", "level": "info", "kind": "build", "key": "build", "ttl_ms": 500},
    ),
    (ev.Notice(None, key="build"), "notification.clear", {"key": "build"}),
    (ev.ReasoningDelta("t", "because"), "reasoning.delta", {"text": "because"}),
    (ev.ReasoningAvailable("t", "because of it"), "reasoning.available", {"text": "because of it"}),
    (ev.ThinkingStatus("t", "pondering"), "thinking.delta", {"text": "pondering"}),
    (ev.ThinkingStatus("t", ""), "thinking.delta", {"text": ""}),
    (
        ev.TodoUpdated("t", [{"id": "1", "content": "dig", "status": "pending"}], 3),
        "todo.updated",
        {"todos": [{"id": "1", "content": "dig", "status": "pending"}], "revision": 3},
    ),
    (
        ev.ToolOutputRisk("t", "c1", "fetch", "high", ("asks for the key",)),
        "tool.output_risk",
        {"tool_id": "c1", "name": "fetch", "risk": "high", "findings": ["asks for the key"], "redacted": False},
    ),
    *(
        (ev.SubagentProgress("t", kind, CHILD), f"subagent.{kind}", CHILD)
        for CHILD in ({"goal": "count", "task_count": 1, "task_index": 0, "subagent_id": "s1"},)
        for kind in ("spawn_requested", "start", "thinking", "tool", "progress", "complete")
    ),
)


async def created(host: GatewayHost) -> str:
    session_id: str = (await host.call("session.create"))["session_id"]
    await host.event("session.info")
    return session_id


@pytest.mark.parametrize(("event", "kind", "payload"), FORMS, ids=lambda value: value if isinstance(value, str) else "")
async def test_an_event_has_its_form(event: Any, kind: str, payload: Any, autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host)
        seq = tree.registry.get(session_id).emit(event)
        told = await host.event(kind)
        assert told == {"type": kind, "session_id": session_id, "payload": payload, "seq": seq}


async def test_reasoning_is_shown_only_where_it_is_wished_for(autojump_clock: Any) -> None:
    services, _ = make_services(settings=Settings.model_validate({"display": {"show_reasoning": False}}))
    async with running_tree(services) as tree, connected(tree) as host:
        session = tree.registry.get(await created(host))
        session.emit(ev.ReasoningDelta("t", "because"))
        session.emit(ev.ReasoningAvailable("t", "because"))
        session.emit(ev.StatusUpdate(None, "status", "after"))
        await host.event("status.update")
        assert not [word for word in host.types() if word.startswith("reasoning")]


async def test_a_new_skin_is_told_to_everybody(tmp_path: Path) -> None:
    services, _ = configured(tmp_path)
    async with running_tree(services) as tree, connected(tree) as host, connected(tree, name="other") as other:
        await host.call("config.set", key="skin", value="dusk")
        for one in (host, other):
            assert await one.event("skin.changed") == {
                "type": "skin.changed",
                "session_id": "",
                "payload": {"name": "dusk"},
            }
        assert (await host.call("config.get", key="skin"))["value"] == "dusk"


async def test_a_deferred_history_is_announced_and_can_be_fetched(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host)
        key = tree.registry.get(session_id).key
        await host.call("prompt.submit", session_id=session_id, text="first")
        await host.event("message.complete")
        await host.call("session.close", session_id=session_id)
        back = await host.call("session.resume", session_id=key, defer_history=True)
        assert (back["messages"], back["hydrating"], back["status"]) == ([], True, "resuming")
        told = [await host.event("session.resume_progress") for _ in range(2)]
        assert [one["payload"]["status"] for one in told] == ["loading", "complete"]
        assert told[1]["seq"] == told[0]["seq"] + 1 and told[1]["payload"]["message_count"] == 2
        assert (await host.call("session.history", session_id=back["session_id"]))["count"] == 2


@pytest.mark.parametrize(
    ("question", "request_payload", "expires"),
    [
        (Question("sudo", {"command": "apt"}, timeout=120), {}, True),
        (
            Question("secret", {"env_var": "KEY", "prompt": "Key?"}, timeout=300),
            {"env_var": "KEY", "prompt": "Key?"},
            True,
        ),
        (Question("terminal.read", {"start": 0, "count": 5}, timeout=30), {"start": 0, "count": 5}, False),
    ],
    ids=lambda value: value.method if isinstance(value, Question) else "",
)
async def test_a_question_in_the_older_dialect_expires_where_it_may(
    question: Question, request_payload: Mapping[str, Any], expires: bool, autojump_clock: Any
) -> None:
    async def ask(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        return type(await ctx.ask(question)).__name__

    services, _ = make_services(say(calls=[call("inquire")]), say("Done."), tools=[PlainTool("inquire", ask)])
    async with running_tree(services) as tree, connected(tree, legacy=True) as host:
        await host.call("client.capabilities", server_requests=False, legacy_requests=True)
        session_id = await created(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        asked = (await host.event(f"{question.method}.request"))["payload"]
        assert {name: asked[name] for name in request_payload} == request_payload
        began = trio.current_time()
        ended = await host.event("tool.complete")
        assert ended["payload"]["result"] == "TimedOut" and trio.current_time() - began == question.timeout
        told = [
            f["params"]["payload"]
            for f in host.frames
            if f.get("params", {}).get("type") == f"{question.method}.expire"
        ]
        assert told == ([{"request_id": asked["request_id"]}] if expires else [])
