"""What the tools promise about their results and no other test holds them to, one promise a row."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.ports import ToolOutput
from hermes.agent.tools.base import BuiltinTool
from hermes.agent.tools.files import ReadFile, WriteFile
from hermes.agent.tools.memory import Memory
from hermes.agent.tools.read_memory import forget_repeats
from hermes.agent.tools.search import SearchFiles
from hermes.agent.tools.todo import TodoList
from tests.support.tool_context import FakeToolContext, make_services

ITEM = {"id": "a", "content": "dig", "status": "in_progress"}


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    root = tmp_path / "work"
    root.mkdir()
    (root / "long.txt").write_text("needle " + "x" * 2000 + "\n")
    for number, name in enumerate(("old.txt", "new.txt")):
        (root / name).write_text("hit\n")
        os.utime(root / name, (1_000_000 + number * 1000, 1_000_000 + number * 1000))
    (root / "broken.py").write_text("def f(:\n")
    (root / "sound.py").write_text("x = 1\n")
    return FakeToolContext(root, tmp_path)


async def call(ctx: FakeToolContext, kind: type[BuiltinTool], arguments: Mapping[str, Any]) -> dict[str, Any]:
    output = await kind(make_services(ctx.home.parent)).run(ctx, arguments)
    assert isinstance(output, ToolOutput)
    value: dict[str, Any] = json.loads(output.content)
    return value


async def test_a_search_cuts_long_lines_and_puts_the_latest_files_first(ctx: FakeToolContext) -> None:
    [hit] = (await call(ctx, SearchFiles, {"pattern": "needle"}))["matches"]
    assert len(hit["content"]) == 500
    found = await call(ctx, SearchFiles, {"pattern": "hit", "order": "modified"})
    assert [one["path"] for one in found["matches"]] == ["new.txt", "old.txt"]
    files = await call(ctx, SearchFiles, {"pattern": "hit", "output_mode": "files_only"})
    assert files["files"] == ["new.txt", "old.txt"]


async def test_a_write_reports_only_problems_that_it_brought(ctx: FakeToolContext) -> None:
    await call(ctx, ReadFile, {"path": "broken.py"})
    before = await call(ctx, WriteFile, {"path": "broken.py", "content": "def f(:\n# changed\n"})
    await call(ctx, ReadFile, {"path": "sound.py"})
    brought = await call(ctx, WriteFile, {"path": "sound.py", "content": "x = (\n"})
    mended = await call(ctx, WriteFile, {"path": "sound.py", "content": "x = 2\n"})
    states = [one["lint"]["status"] for one in (before, brought, mended)]
    assert states == ["unchanged", "error", "ok"]
    assert "line 1" in brought["lint"]["output"]
    assert all(one["verified"] is True for one in (before, brought, mended))


async def test_a_text_that_a_compression_took_away_may_be_read_again(ctx: FakeToolContext) -> None:
    assert "content" in await call(ctx, ReadFile, {"path": "sound.py"})
    assert (await call(ctx, ReadFile, {"path": "sound.py"}))["status"] == "unchanged"
    forget_repeats(ctx.memory)
    assert "x = 1" in (await call(ctx, ReadFile, {"path": "sound.py"}))["content"]


async def test_a_list_that_is_not_given_is_read(ctx: FakeToolContext) -> None:
    await call(ctx, TodoList, {"todos": [ITEM]})
    assert (await call(ctx, TodoList, {}))["todos"] == [ITEM]


async def test_a_note_that_is_there_already_is_not_kept_twice(ctx: FakeToolContext) -> None:
    note = {"target": "memory", "action": "add", "content": "the tests need two workers"}
    once = await call(ctx, Memory, note)
    assert (await call(ctx, Memory, note))["entries"] == once["entries"] == [note["content"]]
    assert await call(ctx, Memory, {"target": "user", "action": "add", "content": "writes Python"}) != once
