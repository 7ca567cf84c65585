"""The file tools with a client that has the files open in an editor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.ports import ToolFailure
from hermes.agent.tools.files import ReadFile, WriteFile
from hermes.agent.tools.patch import Patch
from hermes.messages import Answered
from tests.support.tool_context import FakeToolContext, make_services


class FakeEditor:
    """Buffers by path. ``saves``: a write goes to disk too."""

    def __init__(self, *, saves: bool = True) -> None:
        self.buffers: dict[str, str] = {}
        self.saves = saves
        self.written: list[str] = []

    async def read(self, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        path = params["path"]
        if path not in self.buffers and not Path(path).is_file():
            return None
        return {"content": self.buffers.get(path, "") if path in self.buffers else Path(path).read_text()}

    async def write(self, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self.written.append(params["path"])
        self.buffers[params["path"]] = params["content"]
        if self.saves:
            Path(params["path"]).write_bytes(params["content"].encode())
        return {}


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    return FakeToolContext(tmp_path, tmp_path)


def attach(ctx: FakeToolContext, editor: FakeEditor) -> None:
    ctx.client_tools |= {"fs/read_text_file": editor.read, "fs/write_text_file": editor.write}


def body(output: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(output.content)
    return value


async def test_a_read_shows_the_unsaved_buffer(ctx: FakeToolContext, tmp_path: Path) -> None:
    file, editor = tmp_path / "a.txt", FakeEditor()
    file.write_text("saved\n")
    editor.buffers[str(file)] = "typed\n"
    attach(ctx, editor)
    read = await ReadFile(make_services(tmp_path)).run(ctx, {"path": "a.txt"})
    assert body(read)["content"] == "1|typed"


async def test_a_change_is_made_to_the_buffer_and_by_the_editor(ctx: FakeToolContext, tmp_path: Path) -> None:
    file, editor = tmp_path / "a.txt", FakeEditor(saves=False)
    file.write_text("one\n")
    editor.buffers[str(file)] = "one\ntwo\n"
    attach(ctx, editor)
    arguments = {"path": "a.txt", "old_string": "two", "new_string": "three"}
    output = await Patch(make_services(tmp_path)).run(ctx, arguments)
    assert editor.buffers[str(file)] == "one\nthree\n"
    assert file.read_text() == "one\n"
    assert "error" not in body(output)
    assert [(diff.old_text, diff.new_text) for diff in output.diffs] == [("one\ntwo\n", "one\nthree\n")]


async def test_line_endings_of_the_file_survive(ctx: FakeToolContext, tmp_path: Path) -> None:
    file, editor = tmp_path / "a.txt", FakeEditor()
    file.write_bytes(b"one\r\ntwo\r\n")
    editor.buffers[str(file)] = "one\ntwo\n"
    attach(ctx, editor)
    await Patch(make_services(tmp_path)).run(ctx, {"path": "a.txt", "old_string": "two", "new_string": "three"})
    assert file.read_bytes() == b"one\r\nthree\r\n"


async def test_other_encodings_are_left_to_the_disk(ctx: FakeToolContext, tmp_path: Path) -> None:
    file, editor = tmp_path / "a.txt", FakeEditor()
    file.write_bytes("gr\u00fcn\n".encode("latin-1"))
    attach(ctx, editor)
    await Patch(make_services(tmp_path)).run(ctx, {"path": "a.txt", "old_string": "gr", "new_string": "Gr"})
    assert file.read_bytes() == "Gr\u00fcn\n".encode("latin-1")
    assert editor.written == []


async def test_the_disk_serves_where_the_editor_refuses(ctx: FakeToolContext, tmp_path: Path) -> None:
    async def refuse(params: Mapping[str, Any]) -> None:
        return None

    ctx.client_tools |= {"fs/read_text_file": refuse, "fs/write_text_file": refuse}
    services = make_services(tmp_path)
    await WriteFile(services).run(ctx, {"path": "sub/a.txt", "content": "new\n"})
    await Patch(services).run(ctx, {"path": "sub/a.txt", "old_string": "new", "new_string": "newer"})
    assert (tmp_path / "sub" / "a.txt").read_text() == "newer\n"


async def test_a_buffer_that_changed_while_the_user_was_asked_is_left_alone(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    file, editor = tmp_path / "a.txt", FakeEditor()
    file.write_text("one\n")
    attach(ctx, editor)
    ctx.memory.extras["edit_permission"] = "default"
    ctx.answers.append(Answered({"choice": "once"}))

    async def types() -> None:
        editor.buffers[str(file)] = "one and more\n"

    ctx.before_answer = types
    with pytest.raises(ToolFailure, match="changed"):
        await Patch(make_services(tmp_path)).run(ctx, {"path": "a.txt", "old_string": "one", "new_string": "two"})
    assert editor.buffers[str(file)] == "one and more\n"
    assert file.read_text() == "one\n"


async def test_consent_and_path_rules_come_before_the_editor(ctx: FakeToolContext, tmp_path: Path) -> None:
    editor = FakeEditor()
    attach(ctx, editor)
    ctx.memory.extras["edit_permission"] = "default"
    ctx.answers.append(Answered({"choice": "deny"}))
    with pytest.raises(ToolFailure, match="denied"):
        await WriteFile(make_services(tmp_path)).run(ctx, {"path": "a.txt", "content": "x\n"})
    with pytest.raises(ToolFailure, match="denied"):
        await WriteFile(make_services(tmp_path)).run(ctx, {"path": "~/.ssh/authorized_keys", "content": "x\n"})
    assert editor.written == []


async def test_several_files_change_together_on_disk(ctx: FakeToolContext, tmp_path: Path) -> None:
    editor = FakeEditor()
    attach(ctx, editor)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\n")
    hunk = "@@\n-one\n+two\n"
    patch = f"*** Begin Patch\n*** Update File: a.txt\n{hunk}*** Update File: b.txt\n{hunk}*** End Patch"
    await Patch(make_services(tmp_path)).run(ctx, {"patch": patch})
    assert [(tmp_path / name).read_text() for name in ("a.txt", "b.txt")] == ["two\n", "two\n"]
    assert editor.written == []
