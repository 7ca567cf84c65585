"""After a compression, through the real process: everything is still shown, and what the summary stands for is counted
but can not be edited any more, on this server and the next, in a branch, and on every surface."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.row_editor import CONFIRMED, Editor, environment
from tests.support.server_process import COMMAND, ServerProcess, http_server, server_process

pytestmark = pytest.mark.e2e

LONG = "This answer is long enough that a summary of it is shorter. " * 60
NOTES = Reply.of({"text": "Questions were asked and answered."}, when={"last_user_contains": "Write the notes under"})
SCRIPT = Script.of(NOTES, Reply.of({"echo": LONG}, when={"last_role": "user"}))
TOLD = 8


@asynccontextmanager
async def compressed(tmp_path: Path) -> AsyncIterator[tuple[ServerProcess, Editor, str, FakeProvider]]:
    """A conversation of eight prompts of which a summary stands for all but the first two and the last."""
    with trio.fail_after(150):
        async with FakeProvider(SCRIPT) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                made = await server.call("session.create", {})
                editor = Editor(server, made["session_id"])
                for number in range(TOLD):
                    await editor.say(f"question {number}")
                whole = texts(await messages(server, editor.session_id))
                result = await server.call(
                    "session.compress", {"session_id": editor.session_id, "focus_topic": "here 1"}
                )
                assert result["status"] == "compressed" and result["removed"] > 0, result["summary"]
                assert texts(result["messages"]) == whole
                assert texts(await messages(server, editor.session_id)) == whole
                yield server, editor, made["stored_session_id"], provider


async def messages(server: ServerProcess, session_id: str) -> list[dict[str, Any]]:
    result = await server.call("session.history", {"session_id": session_id})
    assert result["count"] == len(result["messages"])
    found: list[dict[str, Any]] = result["messages"]
    return found


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [message["text"] for message in found]


def reach(found: list[dict[str, Any]]) -> list[int | None]:
    """As a list of survivors: the ids of the prompts, None for those that a summary stands for."""
    return [None if one.get("compacted") else one["row_id"] for one in found if one["role"] == "user"]


async def test_every_answer_about_the_session_shows_all_that_was_said(tmp_path: Path) -> None:
    async with compressed(tmp_path) as (server, editor, key, _provider):
        shown = await messages(server, editor.session_id)
        prompts = [one for one in shown if one["role"] == "user"]
        assert [one["row_id"] for one in prompts] == editor.ids
        assert 0 < reach(shown).count(None) < TOLD and reach(shown)[-1] == editor.ids[-1]
        assert not any("reference" in one["text"] and one["role"] == "user" for one in shown), "the summary is shown"
        activated = await server.call("session.activate", {"session_id": editor.session_id})
        assert activated["messages"] == shown
        assert (await server.call("session.resume", {"session_id": key}))["messages"] == shown
        said = await server.call("command.dispatch", {"session_id": editor.session_id, "name": "history", "arg": ""})
        assert all(f"question {number}" in json.dumps(said) for number in range(TOLD))
        saved = Path((await server.call("session.save", {"session_id": editor.session_id}))["file"])
        assert [f"question {number}" in saved.read_text() for number in range(TOLD)] == [True] * TOLD


async def test_the_other_surfaces_and_the_next_server_show_the_same(tmp_path: Path) -> None:
    async with compressed(tmp_path) as (server, editor, key, provider):
        shown = await messages(server, editor.session_id)
        home = server.home
        environ = environment(provider)
        async with server_process(home, "gateway", environ=environ) as second:
            assert (await second.call("session.resume", {"session_id": key}))["messages"] == shown
        async with server_process(home, "acp", environ=environ) as acp:
            await acp.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            await acp.call("session/load", {"sessionId": key, "cwd": str(home), "mcpServers": []})
            updates = [frame["params"]["update"] for frame in acp.frames if frame.get("method") == "session/update"]
            said = [one for one in updates if one["sessionUpdate"] == "user_message_chunk"]
            plain = [one["content"]["text"] for one in said if "_meta" not in one]
            assert plain == [f"question {number}" for number in range(TOLD)]
            assert len(said) == TOLD + 1, "the summary is told and marked"
        async with http_server(home, environ=environ) as web:
            headers = {"Authorization": f"Bearer {web.key}"}
            async with httpx2.AsyncClient(base_url=web.origin, headers=headers, timeout=60) as client:
                path = f"/api/sessions/{key}/messages"
                data = (await client.get(path)).json()["data"]
                visible = [one for one in data if one["display_kind"] != "hidden"]
                assert [one["id"] for one in visible] == [one["row_id"] for one in shown]
                assert [one["content"] for one in visible] == texts(shown)
                assert [one.get("compacted") for one in visible] == [one.get("compacted") for one in shown]
                context = (await client.get(path, params={"include_compacted": "false"})).json()["data"]
                assert [one["id"] for one in context] == [one["id"] for one in data if not one.get("compacted")]
        printed = await trio.run_process(
            [str(COMMAND), "sessions", "--home", str(home), "show", key], capture_stdout=True
        )
        assert all(f"question {number}" in printed.stdout.decode() for number in range(TOLD))


async def test_an_ordinal_counts_what_is_shown_and_what_the_summary_stands_for_is_out_of_range(
    tmp_path: Path,
) -> None:
    async with compressed(tmp_path) as (server, editor, _key, _provider):
        alive = reach(await messages(server, editor.session_id))
        old = [ordinal for ordinal, row_id in enumerate(alive) if row_id is None]
        for ordinal in (*old, TOLD, -1):
            await editor.refused(4018, truncate_before_user_ordinal=ordinal, **CONFIRMED)
        for ordinal in old:
            for beside in ({}, {"truncate_before_user_ordinal": TOLD - 1}, {"truncate_before_user_ordinal": ordinal}):
                await editor.refused(4018, truncate_before_row_id=editor.ids[ordinal], **beside, **CONFIRMED)
        for row_id in (10**9, 0):
            await editor.refused(4018, truncate_before_row_id=row_id, truncate_before_user_ordinal=0, **CONFIRMED)
        for wrong in (True, "7", 1.0):
            await editor.refused(4004, truncate_before_row_id=wrong, **CONFIRMED)
            await editor.refused(4004, truncate_before_user_ordinal=wrong, **CONFIRMED)
        last = editor.ids[-1]
        await editor.refused(4030, truncate_before_row_id=last, truncate_before_user_ordinal=old[1], **CONFIRMED)
        await editor.refused(4028, truncate_before_user_ordinal=0, confirm_truncate=True)
        # By ordinal, and by both with either way of counting: the same turn.
        for target in (
            {"truncate_before_user_ordinal": TOLD - 1},
            {"truncate_before_row_id": last, "truncate_before_user_ordinal": TOLD - 1},
            {"truncate_before_row_id": last, "truncate_before_user_ordinal": TOLD - 1 - len(old)},
        ):
            before = await editor.history()
            response = await editor.submit("edited", **target, **CONFIRMED)
            assert response["result"]["survivor_user_row_ids"] == alive[:-1]
            shown = await messages(server, editor.session_id)
            assert texts(shown)[:-2] == [text for _row_id, text in before[:-2]]
            back = await server.call("session.undo_rewind", {"session_id": editor.session_id})
            assert back["survivor_user_row_ids"] == alive
            assert [(one["row_id"], one["text"]) for one in back["messages"]] == before == await editor.history()


async def test_every_id_of_a_list_of_survivors_is_good_and_every_other_is_stale_also_on_the_next_server(
    tmp_path: Path,
) -> None:
    async with compressed(tmp_path) as (server, editor, key, provider):
        for number in range(2):
            await editor.say(f"afterwards {number}")
        alive = reach(await messages(server, editor.session_id))
        whole = await editor.history()
        for row_id in filter(None, alive):
            response = await editor.submit(f"edited {row_id}", truncate_before_row_id=row_id, **CONFIRMED)
            left = response["result"]["survivor_user_row_ids"]
            assert left == alive[: alive.index(row_id)]
            shown = await messages(server, editor.session_id)
            assert reach(shown) == [*left, response["result"]["user_row_id"]]
            mapped = await editor.submit(
                "again",
                truncate_before_row_id=response["result"]["user_row_id"],
                rebind_survivor_row_ids=[one for one in editor.ids if one],
                **CONFIRMED,
            )
            kept = {int(old) for old, new in mapped["result"]["survivor_row_id_map"].items() if new is not None}
            assert kept == set(filter(None, left))
            gone = set(editor.ids) - kept
            for dropped in gone:
                await editor.refused(4018, truncate_before_row_id=dropped, truncate_before_user_ordinal=0, **CONFIRMED)
            for _cut in range(2):
                back = await server.call("session.undo_rewind", {"session_id": editor.session_id})
            assert back["survivor_user_row_ids"] == alive
            assert await editor.history() == whole
        # An edit before the summary takes all that it stands for along, and another process sees the same.
        first = alive[0]
        await editor.submit("all anew", truncate_before_row_id=first, **CONFIRMED)
        assert texts(await messages(server, editor.session_id))[0] == "all anew"
        async with server_process(server.home, "gateway", environ=environment(provider)) as second:
            there = Editor(second, (await second.call("session.resume", {"session_id": key}))["session_id"])
            assert texts(await messages(second, there.session_id))[0] == "all anew"
            for dropped in filter(None, {*editor.ids}):
                await there.refused(4018, truncate_before_row_id=dropped, truncate_before_user_ordinal=0, **CONFIRMED)
            back = await second.call("session.undo_rewind", {"session_id": there.session_id})
            assert back["survivor_user_row_ids"] == alive
            assert await there.history() == whole


async def test_a_branch_shows_the_same_with_ids_of_its_own_and_one_of_the_beginning_can_be_edited(
    tmp_path: Path,
) -> None:
    async with compressed(tmp_path) as (server, editor, _key, _provider):
        shown = await messages(server, editor.session_id)
        made = await server.call("session.branch", {"session_id": editor.session_id, "name": "whole"})
        assert texts(made["messages"]) == texts(shown)
        assert [one.get("compacted") for one in made["messages"]] == [one.get("compacted") for one in shown]
        assert made["title"] == "whole"
        branch = Editor(server, made["session_id"])
        for row_id in editor.ids:
            await branch.refused(4018, truncate_before_row_id=row_id, truncate_before_user_ordinal=0, **CONFIRMED)
        own = reach(made["messages"])
        response = await branch.submit("edited", truncate_before_row_id=own[-1], **CONFIRMED)
        assert response["result"]["survivor_user_row_ids"] == own[:-1]
        part = await server.call("session.branch", {"session_id": editor.session_id, "count": 7})
        assert texts(part["messages"]) == texts(shown)[:7]
        assert None not in reach(part["messages"]), "without the summary the old rows are the context again"
        early = Editor(server, part["session_id"])
        response = await early.submit("edited", truncate_before_row_id=reach(part["messages"])[2], **CONFIRMED)
        assert response["result"]["survivor_user_row_ids"] == reach(part["messages"])[:2]
        assert await messages(server, editor.session_id) == shown


async def test_an_undo_does_not_skip_what_the_summary_stands_for(tmp_path: Path) -> None:
    async with compressed(tmp_path) as (server, editor, _key, _provider):
        before = await editor.history()
        refused = await server.request("session.undo", {"session_id": editor.session_id, "count": 2})
        assert refused["error"]["code"] == 4018
        assert await editor.history() == before
        alive = reach(await messages(server, editor.session_id))
        result = await server.call("session.undo", {"session_id": editor.session_id})
        assert (result["text"], result["survivor_user_row_ids"]) == (f"question {TOLD - 1}", alive[:-1])
        refused = await server.request("session.undo", {"session_id": editor.session_id})
        assert refused["error"]["code"] == 4018
        assert await editor.history() == before[:-2]
