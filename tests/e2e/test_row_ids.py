"""Edit an earlier message, through the real process: row ids last, stale ones are refused, nothing is guessed."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.row_editor import CONFIRMED, Editor, environment
from tests.support.server_process import server_process

pytestmark = pytest.mark.e2e
RETRIES = 200 if os.environ.get("PROOF") else 20


async def test_every_surviving_id_works_and_every_dropped_id_is_refused(tmp_path: Path) -> None:
    dice = random.Random(7)
    with trio.fail_after(120):
        async with FakeProvider(Script()) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                other = Editor(server, (await server.call("session.create", {}))["session_id"])
                await other.say("somewhere else")
                editor = Editor(server, (await server.call("session.create", {}))["session_id"])
                for number in range(6):
                    await editor.say(f"question {number}")
                for round_ in range(4):
                    # Each id of the list is good for a rewind: tried, and taken back.
                    for row_id in list(editor.ids):
                        before = await editor.history()
                        await editor.edit(row_id, f"edited {row_id}")
                        await editor.take_back()
                        assert await editor.history() == before
                    await editor.edit(dice.choice(editor.ids[1:]), f"edit {round_}")
                    await editor.say(f"and then {round_}")
                    for row_id in editor.dropped:
                        await editor.refused(4018, truncate_before_row_id=row_id, **CONFIRMED)
                shown = [row_id for row_id, _text in await editor.history() if row_id in editor.ids]
                assert shown == editor.ids
                assert server.stray == []


async def test_no_wrong_target_falls_back_to_an_ordinal_or_is_read_as_a_number(tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(Script()) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                other = Editor(server, (await server.call("session.create", {}))["session_id"])
                await other.say("somewhere else")
                editor = Editor(server, (await server.call("session.create", {}))["session_id"])
                for number in range(3):
                    await editor.say(f"question {number}")
                answer = next(row for row, _ in await editor.history() if row is not None and row not in editor.ids)
                for row_id in (10**9, 0, -1, other.ids[0], answer):
                    for ordinal in ({}, {"truncate_before_user_ordinal": 1}):
                        await editor.refused(4018, truncate_before_row_id=row_id, **ordinal, **CONFIRMED)
                for wrong in (True, False, "2", str(editor.ids[1]), 1.5, [1], {"row": 1}):
                    await editor.refused(4004, truncate_before_row_id=wrong, **CONFIRMED)
                    await editor.refused(4004, truncate_before_user_ordinal=wrong, **CONFIRMED)
                for far in (-1, 3, 10**9):
                    await editor.refused(4018, truncate_before_user_ordinal=far, **CONFIRMED)
                for confirm in (None, False, 1, "true"):
                    await editor.refused(4029, truncate_before_row_id=editor.ids[1], confirm_truncate=confirm)
                await editor.refused(4004, confirm_truncate=True)
                await editor.refused(4028, truncate_before_row_id=editor.ids[0], confirm_truncate=True)
                await editor.refused(
                    4030, truncate_before_row_id=editor.ids[1], truncate_before_user_ordinal=2, **CONFIRMED
                )
                await editor.refused(4018, truncate_before_message_id="nobody", **CONFIRMED)
                await editor.edit(editor.ids[1], "after all that")


async def test_the_last_cut_comes_back_until_something_new_is_said_also_after_a_restart(tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(Script()) as provider:
            environ = environment(provider)
            async with server_process(tmp_path / "home", "gateway", environ=environ) as server:
                made = await server.call("session.create", {})
                editor = Editor(server, made["session_id"])
                for number in range(3):
                    await editor.say(f"question {number}")
                whole = await editor.history()
                await editor.edit(editor.ids[1], "another question")
                kept = list(editor.ids)
            async with server_process(tmp_path / "home", "gateway", environ=environ) as server:
                back = await server.call("session.resume", {"session_id": made["stored_session_id"]})
                editor = Editor(server, back["session_id"])
                editor.ids = kept
                await editor.take_back()
                assert await editor.history() == whole
                await editor.edit(editor.ids[2], "edited")
                await editor.say("something new")
                refused = await server.request("session.undo_rewind", {"session_id": editor.session_id})
                assert refused["error"]["code"] == 4018
                for row_id in list(editor.ids):
                    assert row_id in [row for row, _text in await editor.history()]


@pytest.mark.fault("B-121")
async def test_an_edit_after_an_interrupt_is_accepted_at_the_first_try(tmp_path: Path) -> None:
    dice = random.Random(3)
    script = Script.of(
        Reply.of({"text": ["Let ", "me ", "think"]}, {"wait_for": "never"}, when={"last_user_contains": "hang"}),
        Reply.of(
            {"tool_call": {"name": "terminal", "arguments": {"command": "sleep 3019"}}}, when={"last_role": "user"}
        ),
        strict=True,
    )
    with trio.fail_after(60 + RETRIES * 5):
        async with FakeProvider(script) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                session_id = (await server.call("session.create", {}))["session_id"]
                first = (await server.call("prompt.submit", {"session_id": session_id, "text": "hang"}))["user_row_id"]
                for number in range(RETRIES):
                    await trio.sleep(dice.choice([0.0, 0.001, 0.01, 0.05]))
                    edit = {
                        "session_id": session_id,
                        "text": dice.choice(["hang", "use a tool"]),
                        "truncate_before_row_id": first,
                        **CONFIRMED,
                    }
                    stopped = await server.call("session.interrupt", {"session_id": session_id})
                    assert stopped["settled"], f"try {number}"
                    response = await server.request("prompt.submit", edit)
                    assert "error" not in response, f"try {number}: {response}"
                    assert response["result"]["survivor_user_row_ids"] == []
                    first = response["result"]["user_row_id"]


async def test_a_correction_inside_the_edited_turn_is_taken_back_with_it(tmp_path: Path) -> None:
    script = Script.of(
        Reply.of({"text": ["Let ", "me ", "think"]}, {"wait_for": "never"}, when={"last_user_contains": "hang"}),
        Reply.of({"text": "corrected"}, when={"last_user_contains": "differently"}),
        Reply.of({"text": "done"}, when={"last_role": "user"}),
    )
    with trio.fail_after(60):
        async with FakeProvider(script) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                editor = Editor(server, (await server.call("session.create", {}))["session_id"])
                await editor.say("one")
                await editor.say("two")
                whole = await editor.history()
                at = len(server.frames)
                session = {"session_id": editor.session_id}
                edit = {"text": "hang", "truncate_before_row_id": editor.ids[1], **CONFIRMED}
                await server.call("prompt.submit", {**session, **edit})
                await server.event("message.delta", after=at)
                said = await server.call("session.redirect", {**session, "text": "do it differently"})
                assert said["status"] == "redirected"
                assert (await server.event("message.complete", after=at))["params"]["payload"]["text"] == "corrected"
                assert "do it differently" in [text for _row_id, text in await editor.history()]
                await editor.take_back()
                assert await editor.history() == whole
                await editor.edit(editor.ids[1], "edited")


async def test_an_edit_in_a_session_in_which_nothing_was_said_is_stale_and_stores_nothing(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with FakeProvider(Script()) as provider:
            async with server_process(tmp_path / "home", "gateway", environ=environment(provider)) as server:
                made = await server.call("session.create", {})
                editor = Editor(server, made["session_id"])
                await editor.refused(4018, truncate_before_row_id=1, **CONFIRMED)
                await editor.refused(4018, truncate_before_user_ordinal=0, **CONFIRMED)
                await editor.refused(4018, truncate_before_message_id="m", **CONFIRMED)
                await editor.refused(4004, truncate_before_row_id="1", **CONFIRMED)
                await editor.refused(4029, truncate_before_row_id=1)
                with closing(sqlite3.connect(f"file:{server.home / 'sessions.db'}?mode=ro", uri=True)) as database:
                    assert database.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
                assert provider.requests == []
                await editor.say("now something")
                assert [row["id"] for row in (await server.call("session.list", {}))["sessions"]] == [
                    made["stored_session_id"]
                ]


async def test_a_deleted_session_leaves_nothing_behind(tmp_path: Path) -> None:
    """A question of a dead server, an attached file and a saved tree of subagents go with it."""
    with trio.fail_after(90):
        async with FakeProvider(Script.of(ASKS)) as provider:
            environ = environment(provider)
            home = tmp_path / "home"
            async with server_process(home, "gateway", environ=environ) as server:
                made = await server.call("session.create", {})
                key, session = made["stored_session_id"], {"session_id": made["session_id"]}
                await server.call("client.capabilities", {"server_requests": True})
                await server.call(
                    "file.attach", {**session, "name": "a.txt", "data_url": "data:text/plain;base64,aGk="}
                )
                tree = {"session_id": key, "started_at": 1.0, "finished_at": 2.0, "subagents": [{}]}
                await server.call("spawn_tree.save", tree)
                await server.call("prompt.submit", {**session, "text": "ask me"})
                await server.frame(lambda frame: frame.get("method") == "clarify")
                refused = await server.request("session.delete", {"session_id": key})
                assert refused["error"]["code"] == 4023
                while not mentions(home, key).get("records"):
                    await trio.sleep(0.02)
                await server.stop(signal.SIGKILL)
            before = mentions(home, key)
            assert {"records", "sessions", "attachments", "spawn-trees"} <= before.keys(), before
            async with server_process(home, "gateway", environ=environ) as server:
                assert await server.call("session.delete", {"session_id": key}) == {"deleted": key}
                assert mentions(home, key) == {}
                again = await server.request("session.delete", {"session_id": key})
                assert again["error"]["code"] == 4007
                missing = await server.request("session.delete", {"session_id": ""})
                assert missing["error"]["code"] == 4006


ASKS = Reply.of(
    {"tool_call": {"name": "clarify", "arguments": {"question": "Which one?", "choices": ["a", "b"]}}},
    when={"last_user_contains": "ask me"},
)


def mentions(home: Path, key: str) -> dict[str, int]:
    """The tables that name this session in any column, and the folders that have its name."""
    found: dict[str, int] = {}
    with closing(sqlite3.connect(f"file:{home / 'sessions.db'}?mode=ro", uri=True)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
        for (table,) in tables.fetchall():
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            named = " OR ".join(f"instr(CAST({column} AS TEXT), :key)" for column in columns)
            number = database.execute(f"SELECT count(*) FROM {table} WHERE {named}", {"key": key}).fetchone()[0]
            if number:
                found[table] = number
    for folder in home.rglob(key):
        found[folder.parent.name] = 1
    return found
