"""Questions to clients, in both dialects: who is asked, who answers first, who is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolContext
from hermes.agent.tools.clarify import Clarify
from hermes.messages import Question
from tests.support.core import PlainTool, call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected
from tests.support.tool_context import make_services as tool_services

BATCH = {
    "questions": [
        {"qid": "q0", "question": "Which?", "choices": ["red (Recommended)", "blue"]},
        {"qid": "q1", "question": "Name?"},
    ]
}


async def _clarify(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    return repr(await ctx.ask(Question("clarify", BATCH, timeout=3600)))


async def _secret(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    question = Question("secret", {"env_var": "API_TOKEN", "prompt": "Token?"}, timeout=300)
    return repr(await ctx.ask(question))


TOOLS = (PlainTool("clarify", _clarify), PlainTool("secret", _secret))


async def _asked(host: GatewayHost, tool: str = "ask", **create: Any) -> str:
    """A session whose turn is in the tool that asks."""
    session_id: str = (await host.call("session.create", **create))["session_id"]
    await host.call("prompt.submit", session_id=session_id, text="go")
    return session_id


def _services(tool: str = "ask", times: int = 1) -> Any:
    replies = [say("I will ask.", calls=[call(tool, f"c{number}")]) for number in range(times)]
    return make_services(*replies, say("thanks"), tools=TOOLS)[0]


def _tool_result(host: GatewayHost) -> str:
    frames = [frame for frame in host.frames if frame.get("params", {}).get("type") == "tool.complete"]
    return str(frames[-1]["params"]["payload"]["result"])


async def test_an_approval_stands_between_start_and_end_of_its_tool(autojump_clock: Any) -> None:
    async with running_tree(_services()) as tree, connected(tree) as host:
        declared = await host.call("client.capabilities", server_requests=True)
        assert {"approval", "clarify", "secret", "sudo"} <= set(declared["server_requests"])
        assert declared["server_requests"] == sorted(declared["server_requests"])
        assert declared["declines_not_shown"] is True
        session_id = await _asked(host)
        question = await host.question("approval")
        assert question["id"].startswith("srq-")
        assert question["params"]["session_id"] == session_id
        pending = await host.call("approval.pending", session_id=session_id)
        assert [one["request_id"] for one in pending["approvals"]] == [question["params"]["request_id"]]
        assert pending["approvals"][0]["choices"] == ["once", "session", "always", "deny"]
        active = await host.call("session.active_list", current_session_id=session_id)
        assert (active["sessions"][0]["status"], active["sessions"][0]["current"]) == ("waiting", True)
        received = {"session_id": session_id, "request_id": question["params"]["request_id"]}
        assert await host.call("approval.received", **received) == {"acknowledged": True}
        host.reply(question["id"], {"choice": "once"})
        await host.event("message.complete")
        assert "'choice': 'once'" in _tool_result(host)
        words = host.types()
        assert words.index("tool.start") < words.index("?approval") < words.index("tool.complete")
        assert "request.cancel" not in words


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"choice": "rm -rf"}, "'choice': 'deny'"),
        ({}, "'choice': 'deny'"),
        ("yes", "'choice': 'deny'"),
        ({"choice": "session"}, "'choice': 'session'"),
    ],
)
async def test_a_malformed_approval_is_a_denial(autojump_clock: Any, answer: Any, outcome: str) -> None:
    async with running_tree(_services()) as tree, connected(tree) as host:
        await _asked(host)
        question = await host.question("approval")
        host.reply(question["id"], answer)
        await host.event("message.complete")
        assert outcome in _tool_result(host)


@pytest.mark.parametrize("every", ["yes", "true", "on", "false", 1, 0, 1.0, [True]])
async def test_only_a_boolean_settles_all_approvals(every: Any, autojump_clock: Any) -> None:
    async with running_tree(_services()) as tree, connected(tree) as host:
        session_id = await _asked(host)
        question = await host.question("approval")
        with pytest.raises(Refusal, match="-32602"):
            await host.call("approval.respond", session_id=session_id, choice="once", all=every)
        assert len((await host.call("approval.pending", session_id=session_id))["approvals"]) == 1
        assert await host.call("approval.respond", session_id=session_id, choice="deny", all=True) == {"resolved": 1}
        await host.event("message.complete")
        assert "'choice': 'deny'" in _tool_result(host) and question["id"]


async def test_an_error_answer_fails_fast(autojump_clock: Any) -> None:
    async with running_tree(_services()) as tree, connected(tree) as host:
        await _asked(host)
        question = await host.question("approval")
        started = trio.current_time()
        host.decline(question["id"], -32601)
        await host.event("message.complete")
        assert "Unsupported" in _tool_result(host)
        assert trio.current_time() - started < 1


async def test_not_shown_here_settles_only_when_every_client_says_so(autojump_clock: Any) -> None:
    async with (
        running_tree(_services()) as tree,
        connected(tree, websocket=True, name="a") as a,
        connected(tree, websocket=True, name="b") as b,
    ):
        for host in (a, b):
            await host.call("client.capabilities", server_requests=True)
        session_id = (await a.call("session.create"))["session_id"]
        await b.call("session.activate", session_id=session_id)
        await a.call("prompt.submit", session_id=session_id, text="go")
        first, second = await a.question("approval"), await b.question("approval")
        assert first == second
        a.decline(first["id"], 4404)
        await trio.testing.wait_all_tasks_blocked()
        assert len((await b.call("approval.pending", session_id=session_id))["approvals"]) == 1
        b.decline(first["id"], 4404)
        await a.event("message.complete")
        assert "Declined" in _tool_result(a)


async def test_the_first_answer_wins_and_the_others_are_told(autojump_clock: Any) -> None:
    async with (
        running_tree(_services()) as tree,
        connected(tree, websocket=True, name="a") as a,
        connected(tree, websocket=True, name="b") as b,
    ):
        for host in (a, b):
            await host.call("client.capabilities", server_requests=True)
        session_id = (await a.call("session.create"))["session_id"]
        await b.call("session.activate", session_id=session_id)
        await a.call("prompt.submit", session_id=session_id, text="go")
        question = await b.question("approval")
        b.reply(question["id"], {"choice": "deny"})
        cancel = await a.event("request.cancel")
        assert cancel["payload"] == {"id": question["id"], "method": "approval", "reason": "resolved"}
        a.reply(question["id"], {"choice": "always"})
        await a.event("message.complete")
        assert "'choice': 'deny'" in _tool_result(a)
        assert "request.cancel" not in b.types()


async def test_an_undeclared_websocket_client_is_not_asked_and_a_parked_session_waits(autojump_clock: Any) -> None:
    async with running_tree(_services()) as tree, connected(tree, websocket=True) as host:
        await _asked(host)
        await host.event("message.complete")
        assert "NoClient" in _tool_result(host)
        assert "?approval" not in host.types()
    async with running_tree(_services()) as tree:
        async with connected(tree, websocket=True, name="first") as first:
            await first.call("client.capabilities", server_requests=True)
            session_id = await _asked(first)
            question = await first.question("approval")
        async with connected(tree, websocket=True, name="second") as second:
            await second.call("client.capabilities", server_requests=True)
            snapshot = await second.call("session.activate", session_id=session_id)
            assert snapshot["open_requests"] == [
                {"id": question["id"], "method": "approval", "params": question["params"]}
            ]
            assert snapshot["pending_approval"]["request_id"] == question["params"]["request_id"]
            second.reply(question["id"], {"choice": "once"})
            await second.event("message.complete")
            assert "'choice': 'once'" in _tool_result(second)


async def test_an_interrupt_withdraws_the_question_before_it_answers(autojump_clock: Any) -> None:
    async with running_tree(_services("clarify")) as tree, connected(tree) as host:
        session_id = await _asked(host)
        question = await host.question("clarify")
        assert question["params"]["questions"] == BATCH["questions"]
        await host.call("session.interrupt", session_id=session_id)
        words = host.types()
        assert words.index("request.cancel") < words.index("message.complete") < words.index("=r3")
        cancel = await host.event("request.cancel")
        assert cancel["payload"] == {"id": question["id"], "method": "clarify", "reason": "interrupted"}
        locked = await host.call("clarify.lock", request_id=question["id"], question_id="q0", answer="late")
        assert locked == {"status": "expired"}


async def test_locks_fix_answers_ahead_of_the_rest(autojump_clock: Any) -> None:
    async with running_tree(_services("clarify")) as tree, connected(tree) as host:
        session_id = await _asked(host)
        question = await host.question("clarify")
        lock = {"request_id": question["id"], "question_id": "q0", "answer": "red (Recommended)"}
        assert await host.call("clarify.lock", **lock) == {"status": "ok", "remaining": ["q1"]}
        with pytest.raises(Refusal) as unknown:
            await host.call("clarify.lock", request_id=question["id"], question_id="q7", answer="x")
        assert unknown.value.code == 4002
        snapshot = await host.call("session.activate", session_id=session_id)
        assert snapshot["open_requests"][0]["params"]["answers"] == {"q0": "red"}
        host.reply(question["id"], {"answers": {"q1": "demo"}})
        await host.event("message.complete")
        assert "{'q0': 'red', 'q1': 'demo'}" in _tool_result(host)


async def test_answers_by_method_refuse_what_was_not_offered(autojump_clock: Any) -> None:
    async with running_tree(_services()) as tree, connected(tree) as host:
        session_id = await _asked(host)
        question = await host.question("approval")
        for method, params in (
            ("approval.respond", {"session_id": session_id, "choice": "sure"}),
            ("request.answer", {"id": question["id"], "result": {"choice": "sure"}}),
        ):
            with pytest.raises(Refusal) as refused:
                await host.call(method, **params)
            assert refused.value.code == -32602
        assert len((await host.call("approval.pending", session_id=session_id))["approvals"]) == 1
        with pytest.raises(Refusal) as missing:
            await host.call("request.answer", id=question["id"])
        assert missing.value.code == 4002
        assert await host.call("request.answer", id="srq-none", result={}) == {"status": "expired"}
        stale = {"session_id": "stale", "choice": "once", "request_id": question["params"]["request_id"]}
        assert await host.call("approval.respond", **stale) == {"resolved": 1}
        assert (await host.event("request.cancel"))["payload"]["reason"] == "resolved"
        await host.event("message.complete")
        assert await host.call("approval.respond", session_id=session_id) == {"resolved": 0}


async def test_the_older_dialect_gets_events_and_answers_by_methods(autojump_clock: Any) -> None:
    async with running_tree(_services("clarify")) as tree, connected(tree) as host:
        await host.call("client.capabilities", server_requests=False, legacy_requests=True)
        await _asked(host)
        first = await host.event("clarify.request")
        assert first["payload"]["question"] == "Which?"
        assert first["payload"]["choices"] == ["red (Recommended)", "blue"]
        assert "seq" not in first
        ok = await host.call("clarify.respond", request_id=first["payload"]["request_id"], answer="blue")
        assert ok == {"status": "ok"}
        second = await host.event("clarify.request")
        assert (second["payload"]["question"], second["payload"]["choices"]) == ("Name?", None)
        await host.call("clarify.respond", request_id=second["payload"]["request_id"], answer="")
        await host.event("message.complete")
        assert "{'q0': 'blue', 'q1': None}" in _tool_result(host)
        assert "?clarify" not in host.types()
        with pytest.raises(Refusal) as refused:
            await host.call("clarify.respond", request_id=first["payload"]["request_id"], answer="x")
        assert refused.value.code == 4009


async def test_an_older_secret_expires_and_a_late_value_is_expired(autojump_clock: Any) -> None:
    async with running_tree(_services("secret")) as tree, connected(tree, legacy=True) as host:
        await _asked(host)
        asked = await host.event("secret.request")
        assert asked["payload"]["env_var"] == "API_TOKEN" and asked["payload"]["metadata"] == {}
        expired = await host.event("secret.expire")
        assert expired["payload"] == {"request_id": asked["payload"]["request_id"]}
        late = await host.call("secret.respond", request_id=asked["payload"]["request_id"], value="late")
        assert late == {"status": "expired"}
        for params in ({}, {"request_id": ""}):
            with pytest.raises(Refusal) as refused:
                await host.call("secret.respond", **params)
            assert refused.value.code == 4009


async def test_an_older_approval_on_a_legacy_process_comes_in_both_dialects(autojump_clock: Any) -> None:
    async with running_tree(_services()) as tree, connected(tree, legacy=True) as host:
        session_id = await _asked(host)
        request = await host.question("approval")
        event = await host.event("approval.request")
        assert event["payload"]["request_id"] == request["params"]["request_id"]
        assert event["payload"]["allow_permanent"] is True
        assert await host.call("approval.respond", session_id=session_id, choice="session") == {"resolved": 1}
        await host.event("message.complete")
        assert "'choice': 'session'" in _tool_result(host)


async def test_an_interrupted_approval_is_announced_to_everybody(autojump_clock: Any) -> None:
    async with running_tree(_services()) as tree, connected(tree) as host, connected(tree, name="other") as other:
        session_id = await _asked(host)
        question = await host.question("approval")
        await host.call("session.interrupt", session_id=session_id)
        announced = await other.event("approval.cancelled")
        assert announced["session_id"] == ""
        assert announced["payload"] == {
            "session_id": session_id,
            "stored_session_id": tree.registry.get(session_id).key,
            "reason": "interrupted",
            "cancelled_count": 1,
            "request_ids": [question["params"]["request_id"]],
        }


async def test_answers_that_were_locked_survive_an_interrupt(autojump_clock: Any) -> None:
    asked: dict[str, Any] = {"questions": [{"question": "Which?", "choices": ["red", "blue"]}, {"question": "Name?"}]}
    services, _ = make_services(say(calls=[call("clarify", **asked)]), tools=[Clarify(tool_services(Path(".")))])
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await _asked(host)
        question = await host.question("clarify")
        await host.call("clarify.lock", request_id=question["id"], question_id="q0", answer="red (Recommended)")
        await host.call("session.interrupt", session_id=session_id)
        ended = (await host.event("tool.complete"))["payload"]["result"]
        assert ended["outcome"] == "cancelled"
        assert [(one["status"], one["user_response"]) for one in ended["responses"]] == [
            ("answered", "red"),
            ("unanswered", None),
        ]
