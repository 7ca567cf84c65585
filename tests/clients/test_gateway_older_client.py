"""What the terminal client of release 0.19 says and needs, replayed to the real process (gateway §11.2 to §11.6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.server_process import COMMAND, ServerProcess, server_process

pytestmark = pytest.mark.e2e

CREATED = {"session_id", "stored_session_id", "message_count", "messages", "info"}
CREATED_INFO = {
    "model",
    "tools",
    "skills",
    "cwd",
    "branch",
    "project",
    "lazy",
    "desktop_contract",
    "profile_name",
}
ACTIVATED = {"info", "message_count", "messages", "running", "session_id", "session_key", "started_at", "status"}
LISTED = {"id", "title", "preview", "started_at", "message_count", "source"}


@asynccontextmanager
async def older(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    with trio.fail_after(120):
        async with server_process(tmp_path / "home", "gateway", "--legacy-requests") as server:
            ready = await server.event("gateway.ready")
            assert set(ready["params"]["payload"]) >= {"skin"} and "heartbeat" not in ready["params"]["payload"]
            yield server


async def created(server: ServerProcess) -> str:
    session_id: str = (await server.call("session.create", {"cols": 100}))["session_id"]
    return session_id


async def turn(server: ServerProcess, session_id: str, text: str) -> dict[str, Any]:
    start = len(server.frames)
    assert await server.call("input.detect_drop", {"session_id": session_id, "text": text}) == {"matched": False}
    assert await server.call("prompt.submit", {"session_id": session_id, "text": text}) == {"status": "streaming"}
    done = await server.event("message.complete", after=start)
    payload: dict[str, Any] = done["params"]["payload"]
    return payload


async def test_the_start_up_sequence(tmp_path: Path) -> None:
    async with older(tmp_path) as server:
        answer = await server.request("pet.cells", {"graphics": True, "state": "idle"})
        assert answer["error"]["code"] == -32601
        assert "display" in (await server.call("config.get", {"key": "full"}))["config"]
        catalogue = await server.call("commands.catalog", {})
        assert {"pairs", "canon", "sub", "categories", "skill_count", "warning"} <= set(catalogue)
        assert "provider_configured" in await server.call("setup.status", {})
        made = await server.call("session.create", {"cols": 100})
        assert set(made) == CREATED and set(made["info"]) == CREATED_INFO
        assert made["info"]["desktop_contract"] == 4
        info = (await server.event("session.info"))["params"]["payload"]
        assert {"model", "tools", "skills", "cwd", "version", "usage", "mcp_servers", "install_warning"} <= set(info)
        assert not {"terminal_backend", "turn_started_at", "reasoning_effort_wire"} & set(info)
        assert "mtime" in await server.call("config.get", {"key": "mtime"})
        listed = await server.call("session.active_list", {"current_session_id": made["session_id"]})
        assert [row["current"] for row in listed["sessions"]] == [True]
        assert (await server.call("reload.mcp", {"confirm": True}))["status"] == "reloaded"


async def test_a_turn_with_an_approval(tmp_path: Path) -> None:
    async with older(tmp_path) as server:
        session_id = await created(server)
        start = len(server.frames)
        await server.call("prompt.submit", {"session_id": session_id, "text": f"run: rm -rf {tmp_path}/gone"})
        asked = (await server.event("approval.request", after=start))["params"]
        assert {"command", "description", "pattern_key", "pattern_keys", "allow_permanent", "choices"} <= set(
            asked["payload"]
        )
        answered = await server.call("approval.respond", {"session_id": session_id, "choice": "deny"})
        assert answered == {"resolved": 1}
        done = (await server.event("message.complete", after=start))["params"]["payload"]
        assert {"text", "usage", "status"} <= set(done) and done["status"] == "complete"
        assert await server.call("approval.respond", {"session_id": session_id}) == {"resolved": 0}


async def test_sessions_have_the_older_shapes(tmp_path: Path) -> None:
    async with older(tmp_path) as server:
        session_id = await created(server)
        await turn(server, session_id, "run: echo hi")
        history = await server.call("session.history", {"session_id": session_id})
        assert [set(row) for row in history["messages"]] == [
            {"role", "text"} if row["role"] != "tool" else {"role", "name", "context"} for row in history["messages"]
        ]
        assert "tool" in [row["role"] for row in history["messages"]]
        assert set(await server.call("session.activate", {"session_id": session_id})) == ACTIVATED
        rows = (await server.call("session.list", {"limit": 200}))["sessions"]
        assert [set(row) for row in rows] == [LISTED]
        key = rows[0]["id"]
        live = await server.call("session.resume", {"cols": 100, "session_id": key})
        assert ACTIVATED | {"resumed"} <= set(live) and live["session_id"] == session_id
        made = await server.call("session.branch", {"session_id": session_id, "name": "other"})
        assert set(made) == {"session_id", "title", "parent"}
        assert await server.call("session.close", {"session_id": session_id}) == {"closed": True}
        cold = await server.call("session.resume", {"cols": 100, "session_id": key})
        assert set(cold) == ACTIVATED | {"resumed", "inflight"} and cold["inflight"] is None
        assert await server.call("session.close", {"session_id": cold["session_id"]}) == {"closed": True}
        assert await server.call("session.delete", {"session_id": key}) == {"deleted": key}


async def test_prompts_steers_and_settings_while_a_turn_runs(tmp_path: Path) -> None:
    async with older(tmp_path) as server:
        session_id = await created(server)
        early = await server.call("session.steer", {"session_id": session_id, "text": "be brief"})
        assert early == {"status": "queued", "text": "be brief"}
        start = len(server.frames)
        await server.call("prompt.submit", {"session_id": session_id, "text": "run: sleep 30"})
        await server.event("tool.start", after=start)
        model = {"key": "model", "session_id": session_id, "value": "other"}
        assert (await server.request("config.set", model))["error"]["code"] == 4009
        again = await server.call("prompt.submit", {"session_id": session_id, "text": "hello"})
        assert again == {"status": "queued"}
        ends = []
        after = start
        for _ in range(2):
            frame = await server.event("message.complete", after=after)
            after = server.frames.index(frame) + 1
            ends.append(frame["params"]["payload"]["status"])
        assert ends == ["interrupted", "complete"]


async def test_the_other_calls_that_it_makes(tmp_path: Path) -> None:
    async with older(tmp_path) as server:
        session_id = await created(server)
        await turn(server, session_id, "hello")
        here = {"session_id": session_id}
        assert (await server.call("complete.slash", {"text": "/he"}))["items"]
        assert (await server.call("complete.path", {"word": "@"}))["items"]
        assert (await server.call("model.options", here))["providers"]
        assert (await server.call("session.title", {**here, "title": "mine"}))["title"] == "mine"
        assert (await server.call("session.usage", here))["total"] > 0
        assert "Session ID" in (await server.call("session.status", here))["output"]
        assert "refused_would_grow" not in (await server.call("session.compress", here)).get("summary", {})
        assert await server.call("config.set", {"key": "compact", "value": "on"}) == {"key": "compact", "value": "on"}
        assert (await server.call("delegation.status"))["paused"] is False
        assert (await server.call("rollback.list", here))["enabled"] is False
        tree = await server.call("spawn_tree.save", {**here, "subagents": [{"id": "a"}], "finished_at": 1.0})
        assert (await server.call("spawn_tree.load", {"path": tree["path"]}))["subagents"] == [{"id": "a"}]
        assert await server.call("terminal.resize", {**here, "cols": 90}) == {"cols": 90}
        assert (await server.call("shell.exec", {"command": "echo hi"}))["stdout"] == "hi\n"
        assert "paste" in (await server.call("paste.collapse", {"text": "a\nb"}))["placeholder"].lower()
        assert (await server.call("slash.exec", {**here, "command": "/help"}))["output"]
        assert (await server.call("session.undo", here))["removed"] == 2
        assert (await server.request("clarify.respond", {"request_id": "x", "answer": "y"}))["error"]["code"] == 4009
        assert await server.call("sudo.respond", {"request_id": "x", "password": ""}) == {"status": "expired"}
        assert (await server.request("sudo.respond", {"password": ""}))["error"]["code"] == 4009


async def test_the_command_stands_in_for_the_interpreter_that_this_client_starts(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path / "home", "-m", "tui_gateway.entry") as server:
            await server.event("gateway.ready")
            made = await server.call("session.create", {"cols": 80})
            assert made["info"]["desktop_contract"] == 4
            await server.close_input()
            assert await server.exit_code() == 0
    assert COMMAND.exists()
