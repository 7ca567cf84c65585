"""What the methods about stored sessions give, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.row_editor import Editor, environment
from tests.support.server_process import ServerProcess, server_process

pytestmark = pytest.mark.e2e

LONG = "This answer is long enough that a summary of it is shorter. " * 60
NOTES = Reply.of({"text": "Questions were asked and answered."}, when={"last_user_contains": "Write the notes under"})
SCRIPT = Script.of(NOTES, Reply.of({"echo": LONG}, when={"last_role": "user"}))
USAGE = {"model", "input", "output", "reasoning", "prompt", "completion", "total", "calls", "compressions"}
OPTIONAL_USAGE = {
    *("context_used", "context_max", "context_percent", "context_source", "context_estimated", "cache_read"),
    *("cache_write", "cache_hit_pct", "avg_latency_s", "avg_tps", "active_subagents", "cost_usd", "cost_status"),
}
LISTED = {"id", "title", "preview", "started_at", "message_count", "source", "_lineage_root_id"}


async def refused(server: ServerProcess, method: str, **params: Any) -> int:
    code: int = (await server.request(method, params))["error"]["code"]
    return code


async def test_title_usage_and_the_list(tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(SCRIPT) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                nothing = {"session_id": None, "title": None, "started_at": None, "source": None}
                assert await server.call("session.most_recent", {}) == nothing
                assert await server.call("session.list", {}) == {"sessions": []}
                made = await server.call("session.create", {})
                session = {"session_id": made["session_id"]}
                key = made["stored_session_id"]
                fresh = await server.call("session.usage", session)
                assert USAGE <= fresh.keys() <= USAGE | {"context_max"}
                assert {fresh[name] for name in USAGE - {"model"}} == {0}
                assert await server.call("session.title", session) == {"title": None, "session_key": key}
                for title, code in (("", 4021), ("  ", 4021), ("\u200b", 4022)):
                    assert await refused(server, "session.title", **session, title=title) == code
                named = await server.call("session.title", {**session, "title": "Mine"})
                assert (named["pending"], named["title"]) == (True, "Mine")
                assert await server.call("session.list", {}) == {"sessions": []}, "not stored before it is used"
                editor = Editor(server, made["session_id"])
                await editor.say("question")
                at = len(server.frames)
                named = await server.call("session.title", {**session, "title": "Mine too"})
                assert (named["pending"], named["title"]) == (False, "Mine too")
                assert (await server.event("session.info", after=at))["params"]["payload"]["title"] == "Mine too"
                used = await server.call("session.usage", session)
                assert USAGE <= used.keys() <= USAGE | OPTIONAL_USAGE
                assert used["calls"] == 1 and used["total"] == used["prompt"] + used["completion"] > 0
                assert all(isinstance(used[name], int) for name in USAGE - {"model"})
                (row,) = (await server.call("session.list", {}))["sessions"]
                assert row.keys() == LISTED
                assert (row["id"], row["title"], row["preview"], row["message_count"]) == (
                    key,
                    "Mine too",
                    "question",
                    2,
                )
                assert row["_lineage_root_id"] is None and row["source"] == "tui"
                newest = await server.call("session.most_recent", {})
                assert newest == {name: row[name] for name in ("title", "started_at", "source")} | {"session_id": key}
                other = Editor(server, (await server.call("session.create", {}))["session_id"])
                await other.say("another")
                assert await refused(server, "session.title", session_id=other.session_id, title="Mine too") == 4022
                await server.call("session.set_hidden", {**session, "hidden": True})
                assert await refused(server, "session.set_hidden", **session) == 4021
                assert [one["preview"] for one in (await server.call("session.list", {}))["sessions"]] == ["another"]
                (found,) = (await server.call("session.list", {"title": "Mine too"}))["sessions"]
                assert found.keys() == LISTED | {"resolved_id", "live_message_count"}
                assert (found["resolved_id"], found["live_message_count"]) == (key, 2)
                said = (await server.call("session.status", session))["output"].splitlines()
                labels = [line.partition(":")[0] for line in said[1:]]
                for label in ("Session ID", "Path", "Title", "Model", "Created", "Last Activity", "Tokens"):
                    assert label in labels
                assert f"Session ID: {key}" in said and "Agent Running: No" in said
                archived = await server.call("session.archive", session)
                assert archived == {"archived": True, "session_key": key}
                back = await server.call("session.archive", {"session_key": key, "archived": False})
                assert back == {"archived": False, "session_key": key}


async def test_branch_undo_compress_and_save(tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(SCRIPT) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                made = await server.call("session.create", {"title": "Mine"})
                session = {"session_id": made["session_id"]}
                key = made["stored_session_id"]
                for method in ("session.branch", "session.branch_whole"):
                    assert await refused(server, method, **session) == 4008
                assert (
                    await refused(server, "session.branch_stored", parent_session_id="20000101_000000_abcdef") == 4007
                )
                assert await refused(server, "session.undo", **session) == 4018
                editor = Editor(server, made["session_id"])
                for number in range(6):
                    await editor.say(f"question {number}")
                before = await editor.history()
                branch = await server.call("session.branch", session)
                assert branch.keys() == {
                    *("session_id", "stored_session_id", "title", "parent", "message_count", "messages", "info")
                }
                assert (branch["title"], branch["parent"], branch["message_count"]) == ("Mine #2", key, 12)
                own = {one["row_id"] for one in branch["messages"]}
                assert len(own) == 12 and not own & {row_id for row_id, _text in before}
                assert branch["info"]["stored_session_id"] == branch["stored_session_id"] != key
                part = await server.call("session.branch", {**session, "count": 3, "name": "Three"})
                assert (part["title"], part["message_count"]) == ("Three", 3)
                assert [one["text"] for one in part["messages"]] == [text for _row_id, text in before[:3]]
                whole = await server.call("session.branch_stored", {"parent_session_id": key})
                assert (whole["messages_omitted"], whole["message_count"], whole["title"]) == (True, 12, "Mine #3")
                undone = await server.call("session.undo", session)
                assert undone["removed"] == 2
                assert await editor.history() == before[:-2]
                at = len(server.frames)
                done = await server.call("session.compress", {**session, "focus_topic": "here 1"})
                assert done.keys() == {
                    *("status", "removed", "before_messages", "after_messages", "before_tokens", "after_tokens"),
                    *("summary", "usage", "info", "messages"),
                }
                assert done["status"] == "compressed"
                assert done["removed"] == done["before_messages"] - done["after_messages"] > 0
                assert {"noop", "aborted", "refused_would_grow", "fallback_used", "headline", "token_line"} <= {
                    *done["summary"]
                }
                assert done["usage"]["compressions"] == 1
                kinds = [
                    (frame["params"]["payload"]["kind"], frame["params"]["payload"]["text"])
                    for frame in server.frames[at:]
                    if frame.get("params", {}).get("type") == "status.update"
                ]
                assert kinds[0][0] == "compressing" and kinds[-1] == ("status", "ready")
                saved = await server.call("session.save", session)
                assert saved.keys() == {"file"}
                path = Path(saved["file"])
                assert path.parent == server.home / "sessions" / "saved"
                document = json.loads(path.read_text())
                said = [one["content"] for one in document["messages"] if not one.get("compacted_summary")]
                assert said == [text for _row_id, text in before[:-2]]
                (server.home / "sessions" / "saved").rename(server.home / "moved")
                (server.home / "sessions" / "saved").write_text("in the way")
                assert await refused(server, "session.save", **session) == 5011
