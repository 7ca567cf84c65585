"""Old results that were left out to make room, through the real process: a strict model gets one line for each, always
the same, and people go on seeing all of them, on this server and the next, after edits and in a branch."""

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
from tests.support.server_process import ServerProcess, http_server, server_process

pytestmark = pytest.mark.e2e

MOST = 20
LINE = "all work and no play makes a long file that nobody reads twice\n"


def script(folder: Path) -> Script:
    reads = [
        Reply.of(
            {"tool_call": {"name": "read_file", "arguments": {"path": str(folder / f"{number}.txt")}}},
            when={"last_role": "user", "last_user_contains": f"read number {number}."},
        )
        for number in range(MOST)
    ]
    return Script.of(
        Reply.of(faults={"status": 500}, when={"last_user_contains": "Write the notes under"}),
        *reads,
        Reply.of({"text": "I have read it."}, when={"last_role": "tool"}),
        Reply.of({"text": "Well."}, when={"last_role": "user"}),
        strict=True,
    )


def files(folder: Path) -> None:
    folder.mkdir()
    for number in range(MOST):
        (folder / f"{number}.txt").write_text(f"file {number}\n" + LINE * 320)


@asynccontextmanager
async def pruned(tmp_path: Path) -> AsyncIterator[tuple[ServerProcess, Editor, str, FakeProvider]]:
    """A conversation that read files until the first of them were left out."""
    home, folder = tmp_path / "home", tmp_path / "files"
    files(folder)
    home.mkdir()
    (home / "config.yaml").write_text(json.dumps({"compression": {"threshold_tokens": 60_000}}))
    with trio.fail_after(150):
        async with FakeProvider(script(folder)) as provider:
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                made = await server.call("session.create", {"cwd": str(folder)})
                editor = Editor(server, made["session_id"])
                await read_on(editor, provider)
                yield server, editor, made["stored_session_id"], provider


async def read_on(editor: Editor, provider: FakeProvider) -> None:
    """Read one file after the other until more results are left out than before."""
    before = sum(left_out(sent(provider))) if provider.requests else 0
    for number in range(len(editor.ids), MOST):
        await editor.say(f"please read number {number}.")
        if sum(left_out(sent(provider))) > before:
            return
    raise AssertionError("nothing was left out")


def sent(provider: FakeProvider) -> list[dict[str, Any]]:
    """The messages of the newest request."""
    found: list[dict[str, Any]] = provider.requests[-1].body["messages"]
    return found


def left_out(messages: list[dict[str, Any]]) -> list[bool]:
    return ["result left out to save room" in str(one["content"]) for one in messages if one["role"] == "tool"]


def assert_goes_on(provider: FakeProvider, front: list[dict[str, Any]]) -> None:
    """The newest request begins as the former one did: that is what the cache of a provider lives on."""
    assert json.dumps(sent(provider)[: len(front)]) == json.dumps(front)


async def test_the_model_reads_one_line_for_old_results_and_no_summary_was_asked_for(tmp_path: Path) -> None:
    async with pruned(tmp_path) as (server, editor, _key, provider):
        assert len(provider.requests) == 2 * len(editor.ids)
        assert all(record.status == 200 for record in provider.requests)
        which = left_out(sent(provider))
        assert which == sorted(which, reverse=True) and which[0] and not which[-1]
        first = next(one["content"] for one in sent(provider) if one["role"] == "tool")
        assert "read_file" in first and "0.txt" in first and "succeeded" in first and len(first) < 400
        told = [
            one["params"]["payload"] for one in server.frames if one.get("params", {}).get("type") == "status.update"
        ]
        assert [one["kind"] for one in told][-2:] == ["compressing", "status"]
        front = sent(provider)
        await editor.say("go on")
        assert_goes_on(provider, front)
        tools = [one for one in await messages(server, editor.session_id) if one["role"] == "tool"]
        assert len(tools) == len(which) and "left out" not in json.dumps(tools)
        saved = Path((await server.call("session.save", {"session_id": editor.session_id}))["file"]).read_text()
        results = [row["content"] for row in json.loads(saved)["messages"] if row["role"] == "tool"]
        assert all(f"file {at}" in text and LINE.strip() in text for at, text in enumerate(results))


async def messages(server: ServerProcess, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.call("session.history", {"session_id": session_id}))["messages"]
    return found


async def test_the_next_server_sends_the_same_and_shows_the_same(tmp_path: Path) -> None:
    async with pruned(tmp_path) as (server, editor, key, provider):
        front, shown = sent(provider), await messages(server, editor.session_id)
        environ = environment(provider)
        assert await server.stop() == 0
        async with http_server(server.home, environ=environ) as web:
            headers = {"Authorization": f"Bearer {web.key}"}
            async with httpx2.AsyncClient(base_url=web.origin, headers=headers, timeout=60) as client:
                data = (await client.get(f"/api/sessions/{key}/messages")).json()["data"]
                results = [one["content"] for one in data if one["role"] == "tool"]
                assert len(results) == len(left_out(front))
                assert all(f"file {at}" in text and LINE.strip() in text for at, text in enumerate(results))
        async with server_process(server.home, "gateway", environ=environ) as second:
            resumed = await second.call("session.resume", {"session_id": key})
            assert resumed["messages"] == shown
            await Editor(second, resumed["session_id"]).say("go on")
            assert_goes_on(provider, front)


async def test_edits_behind_and_before_it_and_their_undo_change_nothing_of_it(tmp_path: Path) -> None:
    async with pruned(tmp_path) as (server, editor, _key, provider):
        await editor.say("go on")
        front, whole = sent(provider)[:-1], await messages(server, editor.session_id)
        await editor.edit(editor.ids[-1], "go on differently")
        assert_goes_on(provider, front)
        await editor.take_back()
        assert await messages(server, editor.session_id) == whole
        alive = list(editor.ids)
        # Each prompt whose results were left out can still be edited: none of them is out of reach.
        for row_id in alive[:3]:
            response = await editor.submit("anew", truncate_before_row_id=row_id, **CONFIRMED)
            assert response["result"]["survivor_user_row_ids"] == alive[: alive.index(row_id)]
            await editor.take_back()
            assert editor.ids == alive and await messages(server, editor.session_id) == whole
        response = await editor.submit("anew", truncate_before_user_ordinal=1, **CONFIRMED)
        assert response["result"]["survivor_user_row_ids"] == alive[:1]
        assert left_out(sent(provider)) == [True]
        await editor.take_back()
        await editor.say("after all")
        assert_goes_on(provider, front)


async def test_a_branch_of_it_sends_the_same_and_shows_all(tmp_path: Path) -> None:
    async with pruned(tmp_path) as (server, editor, _key, provider):
        front, shown = sent(provider), await messages(server, editor.session_id)
        made = await server.call("session.branch", {"session_id": editor.session_id, "name": "other"})
        assert [one["text"] for one in made["messages"] if "text" in one] == [
            one["text"] for one in shown if "text" in one
        ]
        await Editor(server, made["session_id"]).say("go on")
        assert left_out(sent(provider)) == left_out(front)
        assert json.dumps(sent(provider)[1 : len(front)]) == json.dumps(front[1:])


async def test_another_process_with_the_conversation_open_sends_what_this_one_has_left_out(tmp_path: Path) -> None:
    async with pruned(tmp_path) as (server, editor, key, provider):
        async with server_process(server.home, "gateway", environ=environment(provider)) as second:
            resumed = await second.call("session.resume", {"session_id": key})
            other = Editor(second, resumed["session_id"])
            await other.say("go on there")
            first = sum(left_out(sent(provider)))
            await read_on(editor, provider)
            front = sent(provider)
            assert sum(left_out(front)) > first
            await other.say("and there again")
            assert_goes_on(provider, front)
