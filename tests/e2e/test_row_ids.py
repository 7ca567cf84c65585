"""Edit an earlier message, through the real process: row ids last, stale ones are refused, nothing is guessed."""

from __future__ import annotations

import os
import random
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
