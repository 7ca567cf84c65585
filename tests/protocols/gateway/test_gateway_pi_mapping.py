"""The commands of the Pi RPC, one test each, by the methods that stand for them (gateway §8.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.agent.ports import ToolContext
from hermes.messages import Question
from tests.support.core import PlainTool, call, hang, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected

BATCH = {"questions": [{"qid": "q0", "question": "Which?", "choices": ["red", "blue"]}]}


async def _clarify(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    return repr(await ctx.ask(Question("clarify", BATCH, timeout=3600)))


async def _secret(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    return repr(await ctx.ask(Question("secret", {"env_var": "T", "prompt": "Token?"}, timeout=300)))


async def _sudo(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    return repr(await ctx.ask(Question("sudo", {"command": "true"}, timeout=120)))


ASKING = (PlainTool("clarify", _clarify), PlainTool("secret", _secret), PlainTool("sudo", _sudo))


async def created(host: GatewayHost, *texts: str) -> str:
    session_id: str = (await host.call("session.create"))["session_id"]
    for text in texts:
        await host.call("prompt.submit", session_id=session_id, text=text)
        await host.event("message.complete")
    return session_id


async def test_prompt_is_a_submit(autojump_clock: Any) -> None:
    services, _ = make_services(say("hello"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host)
        submitted = await host.call("prompt.submit", session_id=session_id, text="hi")
        assert submitted == {"status": "streaming", "user_row_id": 1}
        assert (await host.event("message.complete"))["payload"]["text"] == "hello"


async def test_steer_reaches_the_running_turn_behind_its_tool(autojump_clock: Any) -> None:
    services, model = make_services(say("", calls=[call("nap", seconds=5)]), say("done"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("tool.start")
        assert await host.call("session.steer", session_id=session_id, text="use tabs") == {
            "status": "queued",
            "text": "use tabs",
        }
        await host.event("message.complete")
        assert "use tabs" in repr(model.requests[1].messages)


async def test_follow_up_waits_for_the_turn_and_never_redirects(autojump_clock: Any) -> None:
    services, model = make_services(say("one", pause=5), say("two"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        later = await host.call("prompt.submit", session_id=session_id, text="then this", queued=True)
        assert later == {"status": "queued", "queue_position": 1}
        assert [(await host.event("message.complete"))["payload"]["text"] for _ in range(2)] == ["one", "two"]
        assert "then this" not in repr(model.requests[0].messages)


async def test_abort_is_an_interrupt(autojump_clock: Any) -> None:
    services, _ = make_services(hang())
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        stopped = await host.call("session.interrupt", session_id=session_id)
        assert (stopped["status"], stopped["settled"]) == ("interrupted", True)
        assert (await host.event("message.complete"))["payload"]["status"] == "interrupted"


async def test_set_model_is_a_dispatched_command_and_stays_with_the_session(autojump_clock: Any) -> None:
    services, model = make_services(say("a"), say("b"))
    async with running_tree(services) as tree, connected(tree) as host:
        created_session = await host.call("session.create")
        session_id, key = created_session["session_id"], created_session["stored_session_id"]
        await host.call("prompt.submit", session_id=session_id, text="one")
        await host.event("message.complete")
        done = await host.call("command.dispatch", command="/model custom:other-1", session_id=session_id)
        assert done["type"] == "exec" and "other-1" in done["output"]
        info = await host.until(
            lambda frame: (
                frame.get("params", {}).get("type") == "session.info"
                and frame["params"]["payload"]["model"] == "other-1"
            )
        )
        assert info["params"]["payload"]["provider"] == "custom"
        await host.call("session.close", session_id=session_id)
        resumed = await host.call("session.resume", session_id=key)
        await host.call("prompt.submit", session_id=resumed["session_id"], text="two")
        await host.event("message.complete")
        assert model.requests[-1].model == "other-1"


async def test_compact_is_a_compress(autojump_clock: Any) -> None:
    services, _ = make_services(*[say("word " * 400) for _ in range(8)], say("a summary"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host, *[f"prompt {number}" for number in range(8)])
        result = await host.call("session.compress", session_id=session_id, focus_topic="the files")
        assert result["status"] in ("compressed", "aborted")
        assert result["before_messages"] == 16 and result["before_messages"] - result["removed"] <= 16


async def test_get_state_is_a_text_and_the_snapshot_is_its_data(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host, "one")
        text = (await host.call("session.status", session_id=session_id))["output"]
        key = tree.registry.get(session_id).key
        assert f"Session ID: {key}" in text and "Agent Running: No" in text
        snapshot = await host.call("session.activate", session_id=session_id)
        assert (snapshot["session_key"], snapshot["running"], snapshot["message_count"]) == (key, False, 2)


async def test_get_messages_is_the_history(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host, "one")
        history = await host.call("session.history", session_id=session_id)
        assert history["count"] == 2
        assert [(row["role"], row["text"]) for row in history["messages"]] == [("user", "one"), ("assistant", "a")]


async def test_switch_session_is_a_resume_by_key_or_title(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host, "one")
        key = tree.registry.get(session_id).key
        await host.call("session.title", session_id=session_id, title="the first")
        await host.call("session.close", session_id=session_id)
        by_title = await host.call("session.resume", session_id="the first")
        by_key = await host.call("session.resume", session_id=key)
        assert by_title["resumed"] == by_key["resumed"] == key
        assert by_title["session_id"] == by_key["session_id"]


async def test_fork_is_a_branch_with_its_own_rows(autojump_clock: Any) -> None:
    services, _ = make_services(say("a"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = await created(host, "one")
        made = await host.call("session.branch", session_id=session_id)
        assert made["parent"] == tree.registry.get(session_id).key
        ours = {row["row_id"] for row in (await host.call("session.history", session_id=session_id))["messages"]}
        assert made["message_count"] == 2 and not ours & {row["row_id"] for row in made["messages"]}


async def test_ui_request_and_response_in_the_older_dialect(autojump_clock: Any) -> None:
    names = ("ask", "clarify", "sudo", "secret")
    services, _ = make_services(*[say("", calls=[call(name, f"c_{name}")]) for name in names], tools=ASKING)
    async with running_tree(services) as tree, connected(tree, websocket=True) as host:
        await host.call("client.capabilities", server_requests=False, legacy_requests=True)
        session_id = await created(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("approval.request")
        assert await host.call("approval.respond", session_id=session_id, choice="once") == {"resolved": 1}
        asked = (await host.event("clarify.request"))["payload"]
        assert (asked["question"], asked["choices"]) == ("Which?", ["red", "blue"])
        ok = {"status": "ok"}
        assert await host.call("clarify.respond", request_id=asked["request_id"], answer="blue") == ok
        asked = (await host.event("sudo.request"))["payload"]
        assert await host.call("sudo.respond", request_id=asked["request_id"], password="p") == ok
        asked = (await host.event("secret.request"))["payload"]
        assert await host.call("secret.respond", request_id=asked["request_id"], value="v") == ok
        assert (await host.event("message.complete"))["payload"]["status"] == "complete"


async def test_ui_request_and_response_as_server_requests(autojump_clock: Any) -> None:
    answers: dict[str, Any] = {
        "approval": {"choice": "once"},
        "clarify": {"answers": {"q0": "blue"}},
        "sudo": {"value": "p"},
        "secret": {"value": "v"},
    }
    tools = ("ask", "clarify", "sudo", "secret")
    services, _ = make_services(*[say("", calls=[call(name, f"c_{name}")]) for name in tools], tools=ASKING)
    async with running_tree(services) as tree, connected(tree, websocket=True) as host:
        await host.call("client.capabilities", server_requests=True)
        session_id = await created(host)
        await host.call("prompt.submit", session_id=session_id, text="go")
        for method, answer in answers.items():
            question = await host.question(method)
            assert question["params"]["session_id"] == session_id
            host.reply(question["id"], answer)
        assert (await host.event("message.complete"))["payload"]["status"] == "complete"
