"""Sessions over ACP: new, load with replay, resume, fork, list, close, delete."""

from __future__ import annotations

import base64
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import DeltaKind, ResolvedModel, ToolContext, ToolOutput
from hermes.events import TodoUpdated
from hermes.messages import FileDiff, Prompt
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.acp import methods_sessions
from hermes.protocols.acp.updates import MESSAGE, USER
from hermes.settings import LimitSettings, Settings
from tests.support.acp import AcpClient, acp_client, tool_statuses
from tests.support.core import OneModel, PlainTool, call, hang, make_services, say


async def _write(ctx: ToolContext, arguments: Any) -> ToolOutput:
    diff = FileDiff("notes.txt", None, "new\n")
    details = {"diffs": [{"path": diff.path, "old_text": None, "new_text": "new\n"}]}
    return ToolOutput("{}", diffs=(diff,), details=details)


async def _plan(ctx: ToolContext, arguments: Any) -> ToolOutput:
    todos = ({"id": "1", "content": "look", "status": "cancelled"}, {"id": "2", "content": "do", "status": "pending"})
    ctx.emit(TodoUpdated(ctx.turn_id, todos, 1))
    return ToolOutput("{}", details={"todos": list(todos)})


EDITOR_TOOLS = (PlainTool("write_file", _write), PlainTool("todo_list", _plan))
PLAN = [
    {"content": "[cancelled] look", "priority": "medium", "status": "completed"},
    {"content": "do", "priority": "medium", "status": "pending"},
]


def told(client: AcpClient, after: int) -> list[tuple[str, Any]]:
    """The conversation as it was shown, without ids."""
    shown: list[tuple[str, Any]] = []
    for update in client.updates(after=after):
        match update["sessionUpdate"]:
            case "user_message_chunk" | "agent_message_chunk" as kind:
                shown.append((kind, update["content"]["text"]))
            case "tool_call":
                shown.append(("tool_call", (update["title"], update["kind"], update.get("locations"))))
            case "tool_call_update" if "content" in update:
                shown.append(("tool_call_update", (update["status"], update["content"])))
            case "plan":
                shown.append(("plan", update["entries"]))
            case _:
                pass
    return shown


async def close_server_side(client: AcpClient, session_id: str) -> None:
    session = client.tree.registry.by_key(session_id)
    assert session is not None
    client.tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
    await session.wait_closed()


async def test_a_new_session_is_answered_then_its_commands_and_usage_follow() -> None:
    services, _ = make_services()
    async with acp_client(services) as client:
        result = await client.call("session/new", cwd="/tmp", mcpServers=[])
        assert await client.updated("usage_update") == {"sessionUpdate": "usage_update", "used": 0, "size": 1_000_000}
        kinds = [f["params"]["update"]["sessionUpdate"] for f in client.frames[2:]]
        assert kinds == ["available_commands_update", "usage_update"]
        assert result["modes"]["currentModeId"] == "default"
        assert result["models"]["currentModelId"] == "custom:scripted-1"
        assert [o["id"] for o in result["configOptions"]] == ["mode", "model"]
        names = {c["name"] for c in client.updates("available_commands_update")[0]["availableCommands"]}
        assert {"help", "model", "tools", "context", "reset", "compress", "steer", "queue", "version"} <= names
        stored = await services.store.get_session(result["sessionId"])
        assert stored is not None
        assert (stored.source, stored.cwd) == ("acp", "/tmp")


async def test_a_relative_directory_and_a_missing_one_are_invalid_parameters() -> None:
    services, _ = make_services()
    async with acp_client(services) as client:
        for params in ({"cwd": "work"}, {"cwd": 5}, {}, {"cwd": "C:\\work"}):
            assert (await client.request("session/new", **params))["error"]["code"] == -32602


async def test_load_replays_the_conversation_as_it_was_live(tmp_path: Path) -> None:
    services, _ = make_services(
        say("Let me see.", calls=[call("write_file", "w1", path="notes.txt"), call("todo_list", "t1")]),
        say("Done."),
        tools=EDITOR_TOOLS,
    )
    async with acp_client(services) as client:
        session = await client.new_session(str(tmp_path))
        start = len(client.frames)
        await client.prompt(session, "write a note")
        live = [("user_message_chunk", "write a note"), *told(client, start)]
        plans = [item for item in live if item[0] == "plan"]
        assert plans == [("plan", PLAN)]
        await close_server_side(client, session)
        start = len(client.frames)
        request = client.start("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        await client.answer(request)
        await client.updated("usage_update", after=start)
        answered = next(i for i, f in enumerate(client.frames) if f.get("id") == request)
        replayed = told(client, start)
        for kinds in (("user_message_chunk", "agent_message_chunk"), ("tool_call",), ("tool_call_update",)):
            # Parallel calls may begin before or after each other's end; each kind by itself has one order.
            assert [item for item in replayed if item[0] in kinds] == [item for item in live if item[0] in kinds]
        assert replayed[-1] == plans[0]
        late = [f for f in client.frames[answered:] if "message_chunk" in str(f) or "tool_call" in str(f)]
        assert late == []
        diff = next(item[1][1][0] for item in replayed if item[0] == "tool_call_update")
        assert diff == {"type": "diff", "path": str(tmp_path / "notes.txt"), "newText": "new\n"}


async def test_load_of_a_session_whose_turn_runs_shows_the_turn_and_goes_on() -> None:
    services, _ = make_services(say("one"), say("two", calls=[call("nap", "n1", seconds=1000)]))
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "first")
        request = client.start_prompt(session, "second")
        await client.updated("tool_call")
        start = len(client.frames)
        await client.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
        assert client.text("user_message_chunk", after=start) == "firstsecond"
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        assert tool_statuses(client.updates(), "n1")[-1] == "failed"


async def test_load_in_the_middle_of_a_message_shows_its_beginning_and_goes_on_with_it() -> None:
    go_on = trio.Event()

    async def reply(request: Any, on_delta: Any) -> Any:
        on_delta(DeltaKind.TEXT, "the beginning ")
        await go_on.wait()
        return await say("and the end")(request, on_delta)

    services, _ = make_services(say("one"), reply)
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "first")
        request = client.start_prompt(session, "second")
        await client.frame(lambda frame: "the beginning" in str(frame))
        start = len(client.frames)
        await client.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
        assert client.text(after=start) == "onethe beginning "
        go_on.set()
        assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
        assert client.text(after=start) == "onethe beginning and the end"
        ids = [update["messageId"] for update in client.updates("agent_message_chunk", after=start)]
        assert len(set(ids)) == 2


async def test_resume_replays_nothing_and_the_next_prompt_knows_the_history() -> None:
    services, model = make_services(say("one"), say("two"))
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "first")
        await close_server_side(client, session)
        start = len(client.frames)
        result = await client.call("session/resume", sessionId=session, cwd="/tmp")
        assert result["modes"]["currentModeId"] == "default"
        assert told(client, start) == []
        await client.prompt(session, "second")
        assert [row.text for row in model.requests[-1].messages] == ["first", "one", "second"]
        stored = await services.store.get_session(session)
        assert stored is not None
        assert stored.ended_at is None


async def test_load_in_another_directory_moves_the_session_there(tmp_path: Path) -> None:
    services, _ = make_services()
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        live = client.tree.registry.by_key(session)
        assert live is not None
        assert live.memory.cwd == str(tmp_path)
        stored = await services.store.get_session(session)
        assert stored is not None
        assert stored.cwd == str(tmp_path)


async def test_a_fork_has_the_history_and_goes_its_own_way() -> None:
    services, model = make_services(say("one"), say("fork"), say("root"))
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "first")
        start = len(client.frames)
        result = await client.call("session/fork", sessionId=session, cwd="/tmp")
        fork = result["sessionId"]
        assert fork != session
        await client.updated("available_commands_update", after=start)
        assert told(client, start) == []
        await client.prompt(fork, "a")
        assert [row.text for row in model.requests[-1].messages] == ["first", "one", "a"]
        await client.prompt(session, "b")
        assert [row.text for row in model.requests[-1].messages] == ["first", "one", "b"]


async def test_an_answer_tells_where_its_session_comes_from() -> None:
    services, _ = make_services(say("one"), say("two"))
    async with acp_client(services) as client:
        new = await client.call("session/new", cwd="/tmp", mcpServers=[])
        root = new["sessionId"]
        await client.prompt(root, "first")
        child = await client.call("session/fork", sessionId=root, cwd="/tmp")
        await client.prompt(child["sessionId"], "second")
        grandchild = await client.call("session/fork", sessionId=child["sessionId"], cwd="/tmp")
        told = [answer["_meta"]["hermes"]["sessionProvenance"] for answer in (new, child, grandchild)]
        assert told[0] == {
            "sessionId": root, "currentSessionId": root, "rootSessionId": root, "kind": "root", "compactionDepth": 0,
        }  # fmt: skip
        assert [one["rootSessionId"] for one in told] == [root] * 3
        assert [one.get("parentSessionId") for one in told] == [None, root, child["sessionId"]]
        assert told[2]["kind"] == "fork"


async def test_what_was_allowed_for_a_session_holds_after_a_load_and_for_no_other() -> None:
    async def use(ctx: ToolContext, arguments: Any) -> str:
        had = sorted(ctx.memory.grants)
        ctx.memory.grants.add("rm")
        return f"had {had}"

    replies = [reply for name in ("c1", "c2", "c3", "c4") for reply in (say(calls=[call("use", name)]), say("ok"))]
    services, _ = make_services(*replies, tools=[PlainTool("use", use)])
    async with acp_client(services) as client:

        async def had(session: str) -> str:
            await client.prompt(session, "go")
            text: str = client.updates("tool_call_update")[-1]["content"][0]["content"]["text"]
            return text

        session = await client.new_session()
        assert await had(session) == "had []"
        await client.call("session/close", sessionId=session)
        await client.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
        assert await had(session) == "had ['rm']"
        fork = (await client.call("session/fork", sessionId=session, cwd="/tmp"))["sessionId"]
        assert await had(fork) == "had []"
        assert await had(await client.new_session()) == "had []"


async def test_the_list_holds_sessions_with_messages_newest_first_in_pages(tmp_path: Path) -> None:
    services, _ = make_services()
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real")
    async with acp_client(services) as client:
        await client.new_session()
        made = []
        for number in range(52):
            session = await client.new_session(str(link if number % 2 else tmp_path / "real"))
            await client.prompt(session, f"prompt {number}\nmore")
            await client.call("session/close", sessionId=session)
            made.append(session)
        first = await client.call("session/list")
        second = await client.call("session/list", cursor=first["nextCursor"])
        assert len(first["sessions"]) == 50
        assert "nextCursor" not in second
        assert {entry["sessionId"] for page in (first, second) for entry in page["sessions"]} == set(made)
        assert first["sessions"][0]["title"].startswith("prompt ")
        here = await client.call("session/list", cwd=str(link))
        assert len(here["sessions"]) == 50
        assert (await client.call("session/list", cwd="/nowhere"))["sessions"] == []
        for cursor in ("x", base64.b64encode(b"after:x").decode(), ""):
            assert (await client.request("session/list", cursor=cursor))["error"]["code"] == -32602


async def test_close_answers_the_running_prompt_as_cancelled_and_the_session_can_be_loaded() -> None:
    services, _ = make_services(say("hi"), hang())
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "first")
        request = client.start_prompt(session, "second")
        closing = client.start("session/close", sessionId=session)
        assert (await client.answer(closing))["result"] == {}
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        order = [f["id"] for f in client.frames if f.get("id") in (closing, request)]
        assert order == [request, closing]
        await client.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])


async def test_what_comes_behind_a_close_is_for_the_session_as_it_is_loaded_anew() -> None:
    services, model = make_services(say("one"), hang(), *[say("ok")] * 20)
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "hi")
        running = client.start_prompt(session, "running")
        with trio.fail_after(10):
            while not model.open:
                await trio.testing.wait_all_tasks_blocked()
        for number in range(10):
            closed = client.start("session/close", sessionId=session)
            prompt = client.start_prompt(session, f"number {number}")
            assert (await client.answer(closed))["result"] == {}
            assert (await client.answer(prompt))["result"]["stopReason"] == "end_turn"
            loaded = client.start("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
            assert "result" in await client.answer(loaded)
        assert (await client.answer(running))["result"]["stopReason"] == "cancelled"
        asked = [row.text for row in model.requests[-1].messages if row.role == "user"]
        assert asked[-10:] == [f"number {number}" for number in range(10)]


async def test_delete_takes_a_session_out_of_the_list_and_is_never_an_error() -> None:
    services, _ = make_services()
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "hi")
        for _ in range(2):
            assert await client.call("session/delete", sessionId=session) == {}
        assert await client.call("session/delete", sessionId="unknown") == {}
        assert (await client.call("session/list"))["sessions"] == []
        assert (await client.request("session/resume", sessionId=session, cwd="/tmp"))["error"]["code"] == -32002


async def test_unknown_sessions_are_resources_that_were_not_found() -> None:
    services, _ = make_services()
    async with acp_client(services) as client:
        requests: dict[str, dict[str, Any]] = {
            "session/load": {"cwd": "/tmp", "mcpServers": []},
            "session/resume": {"cwd": "/tmp"},
            "session/fork": {"cwd": "/tmp"},
            "session/prompt": {"prompt": [{"type": "text", "text": "hi"}]},
            "session/set_mode": {"modeId": "default"},
            "session/set_model": {"modelId": "x"},
            "session/set_config_option": {"configId": "mode", "value": "default"},
        }
        for method, params in requests.items():
            answer = await client.request(method, sessionId="nothing", **params)
            assert answer["error"]["code"] == -32002, method


async def test_more_sessions_than_may_live_are_opened_and_the_older_ones_still_take_prompts() -> None:
    settings = Settings(limits=LimitSettings(max_sessions=2))
    services, model = make_services(say("one"), settings=settings)
    async with acp_client(services) as client:
        sessions, alive = [], []
        for _ in range(4):
            sessions.append(await client.new_session())
            alive.append(weakref.ref(client.tree.registry.live()[-1]))
        assert len(client.tree.registry.live()) == 2
        # What made room is not kept by the connection either.
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert [session() is not None for session in alive] == [False, False, True, True]
        await client.prompt(sessions[0], "hi")
        await client.new_session()
        await client.new_session()
        assert client.tree.registry.by_key(sessions[0]) is None
        assert await client.call("session/set_mode", sessionId=sessions[0], modeId="dont_ask") == {}
        await client.prompt(sessions[0], "again")
        assert [row.text for row in model.requests[-1].messages] == ["hi", "one", "again"]


async def test_a_cancel_finds_the_prompt_whose_session_is_being_loaded() -> None:
    services, model = make_services(say("one"))
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "hi")
        await client.call("session/close", sessionId=session)
        request = client.start_prompt(session, "again")
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        await client.call("session/close", sessionId=session)
        request = client.start_prompt(session, "again")
        client.notify("$/cancel_request", requestId=request)
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        assert len(model.requests) == 1


async def test_prompts_whose_session_is_being_loaded_begin_in_the_order_in_which_they_came() -> None:
    # Which task is scheduled first is chance; so is the order in which they would begin.
    services, model = make_services(*[say("ok")] * 50)
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "number 0")
        for number in range(1, 40, 3):
            await client.call("session/close", sessionId=session)
            requests = [client.start_prompt(session, f"number {number + more}") for more in range(3)]
            for request in requests:
                assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
        asked = [row.text for row in model.requests[-1].messages if row.role == "user"]
        assert asked == [f"number {number}" for number in range(40)]


async def test_load_shows_the_running_turn_of_a_session_that_another_host_started() -> None:
    async def reply(request: Any, on_delta: Any) -> Any:
        on_delta(DeltaKind.TEXT, "unfinished")
        return await hang()(request, on_delta)

    services, model = make_services(say("one"), reply)
    async with acp_client(services) as client:
        session = client.tree.registry.create(source="gateway", cwd="/tmp")
        await first_turn(session)
        session.submit_nowait(Prompt("second"))
        with trio.fail_after(10):
            while not model.open:
                await trio.testing.wait_all_tasks_blocked()
        request = client.start("session/load", sessionId=session.key, cwd="/tmp", mcpServers=[])
        await client.answer(request)
        await client.frame(lambda frame: "unfinished" in str(frame))
        shown = [(u["sessionUpdate"], u["content"]["text"]) for u in client.updates(USER, MESSAGE)]
        assert shown == [(USER, "first"), (MESSAGE, "one"), (USER, "second"), (MESSAGE, "unfinished")]
        client.notify("session/cancel", sessionId=session.key)


async def first_turn(session: Session) -> str:
    turn = await session.submit_nowait(Prompt("first")).wait_turn()
    assert turn is not None
    await turn.wait_ended()
    return session.key


class SlowModel(OneModel):
    """A gateway that has to ask its endpoint, which does not answer."""

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel:
        await trio.sleep_forever()
        raise AssertionError


async def test_a_new_session_whose_client_gave_up_does_not_stay() -> None:
    services, model = make_services()
    object.__setattr__(services, "models", SlowModel(model))
    async with acp_client(services) as client:
        request = client.start("session/new", cwd="/tmp", mcpServers=[])
        with trio.fail_after(10):
            while not client.tree.registry.live():
                await trio.testing.wait_all_tasks_blocked()
        (session,) = client.tree.registry.live()
        client.notify("$/cancel_request", requestId=request)
        assert (await client.answer(request))["error"]["code"] == -32800
        with trio.fail_after(10):
            await session.wait_closed()
        assert client.tree.registry.live() == []


async def test_a_model_that_cannot_be_found_out_soon_does_not_hold_up_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods_sessions, "RESOLVE_WITHIN", 0.01)
    services, model = make_services()
    object.__setattr__(services, "models", SlowModel(model))
    async with acp_client(services) as client:
        result = await client.call("session/new", cwd="/tmp", mcpServers=[])
        assert "models" not in result
        assert [option["id"] for option in result["configOptions"]] == ["mode"]


async def test_two_loads_at_the_same_time_share_one_session() -> None:
    services, _ = make_services(say("one"))
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "first")
        await client.call("session/close", sessionId=session)
        loads = [client.start("session/load", sessionId=session, cwd="/tmp", mcpServers=[]) for _ in range(2)]
        for load in loads:
            assert "result" in await client.answer(load)
        assert len(client.tree.registry.live()) == 1
        start = len(client.frames)
        await client.prompt(session, "again")
        assert client.text(after=start) == "done"
