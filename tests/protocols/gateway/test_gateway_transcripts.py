"""Whole conversations, frame by frame, as the protocol's worked transcripts have them (ids and times apart)."""

from __future__ import annotations

import json
from typing import Any

from hermes.agent.ports import ToolContext
from hermes.errors import ProviderError
from hermes.messages import Question
from hermes.outcomes import Usage
from tests.support.core import PlainTool, call, hang, make_services, running_tree, say
from tests.support.gateway_host import EPOCH, GatewayHost, connected

APPROVAL = Question(
    "approval",
    {
        "command": "rm -rf build",
        "description": "recursive delete",
        "pattern_key": "recursive delete",
        "pattern_keys": ["recursive delete"],
        "choices": ["once", "session", "always", "deny"],
        "allow_permanent": True,
        "allow_session": True,
    },
    choices=("once", "session", "always", "deny"),
    timeout=300,
)


async def _terminal(ctx: ToolContext, arguments: Any) -> str:
    await ctx.ask(APPROVAL)
    return json.dumps({"output": "", "exit_code": 0, "error": None})


def _shown(host: GatewayHost, start: int = 0) -> list[Any]:
    """The frames without what changes from run to run and without the status lines of this very server."""
    shown = []
    for frame in host.frames[start:]:
        params = frame.get("params", {})
        if params.get("type") in ("sessions.changed", "session.usage", "status.update", "session.title"):
            continue
        if params.get("type") == "session.info":
            shown.append({"session.info": params["payload"]["running"]})
        elif params.get("type") == "message.complete":
            payload = params["payload"]
            kept = ("text", "status", "persisted_turn")
            shown.append({"message.complete": {name: payload[name] for name in kept if name in payload}})
        elif frame.get("method") == "event":
            payload = dict(params.get("payload", {}))
            payload.pop("node_id", None)
            payload.pop("duration_s", None)
            shown.append({params["type"]: payload} if "payload" in params else params["type"])
        else:
            shown.append({name: value for name, value in frame.items() if name != "jsonrpc"})
    return shown


async def test_create_ask_finish(autojump_clock: Any) -> None:
    services, _ = make_services(
        say("I will remove it.", calls=[call("terminal", "call_1", command="rm -rf build")]),
        say("Done."),
        tools=[PlainTool("terminal", _terminal)],
    )
    async with running_tree(services) as tree, connected(tree) as host:
        await host.call("client.capabilities", server_requests=True)
        created = await host.call("session.create", cols=100, cwd="/tmp")
        session_id = created["session_id"]
        assert created == {
            "session_id": "00000001",
            "stored_session_id": "20260101_000000_000001",
            "message_count": 0,
            "messages": [],
            "info": created["info"],
        }
        await host.event("session.info")
        start = len(host.frames)
        await host.call("prompt.submit", session_id=session_id, text="clean the build folder")
        question = await host.question("approval")
        host.reply(question["id"], {"choice": "once"})
        await host.event("message.complete")
        await host.event("session.info")
        answer = {"id": "r3", "result": {"status": "streaming", "user_row_id": 1}}
        story = [frame for frame in _shown(host, start) if frame != answer]
        assert answer in _shown(host, start)
        assert story == [
            "message.start",
            {"thinking.delta": {"text": "thinking"}},
            {"thinking.delta": {"text": ""}},
            {"message.delta": {"text": "I will remove it."}},
            {"tool.generating": {"name": "terminal"}},
            {"message.interim": {"text": "I will remove it.", "already_streamed": True}},
            {
                "tool.start": {
                    "tool_id": "call_1",
                    "name": "terminal",
                    "context": "terminal",
                    "args": {"command": "rm -rf build"},
                }
            },
            {
                "id": "srq-1",
                "method": "approval",
                "params": {"session_id": session_id, "request_id": "00000001", **APPROVAL.params},
            },
            {
                "tool.complete": {
                    "tool_id": "call_1",
                    "name": "terminal",
                    "args": {"command": "rm -rf build"},
                    "result": {"output": "", "exit_code": 0, "error": None},
                }
            },
            {"thinking.delta": {"text": "thinking"}},
            {"thinking.delta": {"text": ""}},
            {"message.delta": {"text": "\n\nDone."}},
            {"session.info": True},
            {
                "message.complete": {
                    "text": "Done.",
                    "status": "complete",
                    "persisted_turn": {
                        "row_ids": [1, 2, 3, 4],
                        "complete": True,
                        "user_row_id": 1,
                        "final_assistant_row_id": 4,
                    },
                }
            },
            {"session.info": False},
        ]


async def test_edit_while_the_agent_is_still_working(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"), say("b"), say("c"), hang(), say("tabs"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        for text in ("first", "second", "third"):
            await host.call("prompt.submit", session_id=session_id, text=text)
            await host.event("message.complete")
        await host.call("prompt.submit", session_id=session_id, text="fourth")
        await host.event("message.start")
        edit = {
            "session_id": session_id,
            "text": "use tabs",
            "truncate_before_row_id": 5,
            "truncate_before_user_ordinal": 2,
            "confirm_truncate": True,
        }
        start = len(host.frames)
        refused = host.start("prompt.submit", **edit)
        stop = host.start("session.interrupt", session_id=session_id)
        again = host.start("prompt.submit", **edit)
        await host.event("message.complete")
        settled = await host.answer(stop)
        assert settled["status"] == "interrupted" and settled["settled"] is True
        frames = {frame["id"]: frame for frame in host.frames[start:] if "id" in frame}
        error = frames[refused]["error"]
        assert (error["code"], error["message"], error["data"]["state"]) == (4009, "session busy", "running")
        if "error" in frames.get(again, {}):
            assert frames[again]["error"]["code"] == 4009
            again = host.start("prompt.submit", **edit)
        done = await host.answer(again)
        assert done["status"] == "streaming"
        assert done["survivor_user_row_ids"] == [1, 3]
        assert (await host.event("message.complete"))["payload"]["text"] == "tabs"


async def test_the_provider_fails_and_the_turn_stays_in_flight_until_the_next(autojump_clock: Any) -> None:
    async def broken(request: Any, on_delta: Any) -> Any:
        raise ProviderError("the key was refused", error_class="auth", status=401, provider="custom", model="m")

    services, model = make_services(*[broken] * 50)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        failed = (await host.event("message.complete"))["payload"]
        model.replies[:] = [say("fine")]
        assert failed["status"] == "error" and failed["error"] and failed["text"]
        assert failed["error_surface"]["retryable"] is failed["recoverable"]
        snapshot = await host.call("session.activate", session_id=session_id)
        assert (snapshot["running"], snapshot["inflight"]["user"]) == (False, "go")
        assert (snapshot["inflight"]["streaming"], snapshot["inflight"]["status"]) == (False, "error")
        await host.call("prompt.submit", session_id=session_id, text="again")
        await host.event("message.complete")
        assert (await host.call("session.activate", session_id=session_id))["inflight"] is None


async def test_the_usage_of_a_turn_adds_up_to_the_session(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"), say("b"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        totals = []
        for text in ("first", "second"):
            await host.call("prompt.submit", session_id=session_id, text=text)
            totals.append((await host.event("message.complete"))["payload"]["usage"])
        assert [total["total"] for total in totals] == [15, 30]
        assert tree.registry.get(session_id).usage == Usage(input_tokens=20, output_tokens=10, calls=2)
        assert host.frames[0]["params"]["payload"]["replay_epoch"] == EPOCH
