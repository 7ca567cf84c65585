"""read_file and write_file: ranges, guards, atomic writes, what must be refused."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolFailure
from hermes.agent.redaction import SENTINEL
from hermes.agent.tools.file_access import Changed, PlannedWrite, digest_of, write_all
from hermes.agent.tools.files import ReadFile, WriteFile
from hermes.agent.tools.read_memory import forget_repeats
from hermes.messages import Answered, ClientAnswer, Question
from hermes.settings import Settings
from tests.support.tool_context import FakeToolContext, make_services


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    (tmp_path / "work").mkdir()
    return FakeToolContext(tmp_path / "work", tmp_path)


async def read(ctx: FakeToolContext, path: str, **more: Any) -> dict[str, Any]:
    output = await ReadFile(make_services(ctx.home.parent)).run(ctx, {"path": path, **more})
    value: dict[str, Any] = json.loads(output.content)
    return value


async def write(ctx: FakeToolContext, path: str, content: str) -> dict[str, Any]:
    output = await WriteFile(make_services(ctx.home.parent)).run(ctx, {"path": path, "content": content})
    value: dict[str, Any] = json.loads(output.content)
    return value


async def refused(awaitable: Any) -> str:
    with pytest.raises(ToolFailure) as caught:
        await awaitable
    return str(json.loads(caught.value.content)["error"])


async def test_lines_are_numbered_and_long_files_come_in_ranges(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "work/a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    value = await read(ctx, "a.txt", limit=4)
    assert value["content"].splitlines()[0] == "1|line 1"
    assert (value["total_lines"], value["next_offset"], value["truncated"]) == (10, 5, True)
    value = await read(ctx, "a.txt", offset=9)
    assert value["content"] == "9|line 9\n10|line 10"
    assert "next_offset" not in value


async def test_unchanged_reread_is_a_short_note_then_a_warning_then_refused(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    (tmp_path / "work/a.txt").write_text("x\n")
    assert "content" in await read(ctx, "a.txt")
    assert (await read(ctx, "a.txt"))["status"] == "unchanged"
    assert "third" in (await read(ctx, "a.txt"))["note"]
    assert "unchanged" in await refused(read(ctx, "a.txt"))
    forget_repeats(ctx.memory)
    assert "content" in await read(ctx, "a.txt")
    (tmp_path / "work/a.txt").write_text("y\n")
    assert (await read(ctx, "a.txt"))["content"] == "1|y"


async def test_missing_file_suggests_similar_names(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "work/config.py").touch()
    with pytest.raises(ToolFailure) as caught:
        await read(ctx, "confg.py")
    assert json.loads(caught.value.content)["similar_files"] == [str(tmp_path / "work/config.py")]


async def test_pipe_device_and_directory_are_refused_without_blocking(ctx: FakeToolContext, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "work/pipe")
    with trio.fail_after(5):
        assert "pipe" in await refused(read(ctx, "pipe"))
        assert "device" in await refused(read(ctx, "/dev/zero"))
        assert "directory" in await refused(read(ctx, "."))
        assert "not a regular file" in await refused(write(ctx, "pipe", "x"))


async def test_protected_files_are_not_read_even_through_a_symlink(ctx: FakeToolContext, tmp_path: Path) -> None:
    ctx.home.mkdir()
    (ctx.home / ".env").write_text("OPENAI_API_KEY=x")
    (tmp_path / "work/link").symlink_to(ctx.home / ".env")
    assert "denied" in await refused(read(ctx, "link"))
    assert "denied" in await refused(read(ctx, "/proc/self/environ"))


async def test_binary_is_named_and_an_image_comes_as_an_image(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "work/x.pdf").write_bytes(b"%PDF-1.7\0")
    assert "PDF" in (await read(ctx, "x.pdf"))["error"]
    (tmp_path / "work/x.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    output = await ReadFile(make_services(tmp_path)).run(ctx, {"path": "x.png"})
    assert output.images[0].mime_type == "image/png"
    assert not output.is_error


async def test_secret_in_a_file_is_a_sentinel_that_cannot_be_written_back(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "work/.env").write_text("A=1\nAPI_KEY=abcdef123456\n")
    value = await read(ctx, ".env")
    assert "abcdef123456" not in value["content"]
    assert SENTINEL in value["content"]
    assert "mask" in await refused(write(ctx, ".env", f"A=2\nAPI_KEY={SENTINEL}\n"))


async def test_private_key_masking_keeps_line_numbers(ctx: FakeToolContext, tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nabc\ndef\n-----END PRIVATE KEY-----"
    (tmp_path / "work/k.txt").write_text(f"one\n{key}\nsix\n")
    assert (await read(ctx, "k.txt"))["content"].splitlines()[-1] == "6|six"


@pytest.mark.parametrize(
    "raw", [b"\xef\xbb\xbfh\xc3\xa9\r\n", "hé\n".encode("utf-16"), b"h\xe9\n", b"a\r\nb\r\n", b"a\r\nb\n"]
)
async def test_encoding_mark_and_line_endings_survive_a_rewrite(
    ctx: FakeToolContext, tmp_path: Path, raw: bytes
) -> None:
    path = tmp_path / "work/x.txt"
    path.write_bytes(raw)
    from_file = (await read(ctx, "x.txt"))["content"]
    text = "\n".join(line.partition("|")[2] for line in from_file.split("\n")) + "\n"
    await write(ctx, "x.txt", text)
    assert path.read_bytes() == raw


async def test_write_creates_parents_and_reports_what_it_did(ctx: FakeToolContext, tmp_path: Path) -> None:
    value = await write(ctx, "new/deep/x.py", "def f(:\n")
    assert value["bytes_written"] == 8
    assert value["verified"] is True
    assert value["dirs_created"] == [f"{tmp_path}/work/new", f"{tmp_path}/work/new/deep"]
    assert value["lint"]["status"] == "error"


async def test_mode_bits_are_kept_and_symlinks_lead_to_their_target(ctx: FakeToolContext, tmp_path: Path) -> None:
    script = tmp_path / "work/run.sh"
    script.write_text("old\n")
    script.chmod(0o751)
    (tmp_path / "work/link").symlink_to(script)
    await write(ctx, "link", "new\n")
    assert (tmp_path / "work/link").is_symlink()
    assert script.read_text() == "new\n"
    assert script.stat().st_mode & 0o777 == 0o751


async def test_stale_and_partial_reads_are_not_overwritten(ctx: FakeToolContext, tmp_path: Path) -> None:
    path = tmp_path / "work/a.txt"
    path.write_text("1\n2\n3\n")
    await read(ctx, "a.txt", limit=1)
    assert "only a part" in await refused(write(ctx, "a.txt", "x\n"))
    await read(ctx, "a.txt", offset=2)
    path.write_text("changed\n")
    assert "changed on disk" in await refused(write(ctx, "a.txt", "x\n"))
    await read(ctx, "a.txt")
    await write(ctx, "a.txt", "x\n")
    await write(ctx, "a.txt", "y\n")
    assert path.read_text() == "y\n"


async def test_numbered_content_is_refused(ctx: FakeToolContext) -> None:
    assert "line numbers" in await refused(write(ctx, "a.txt", "1|a\n2|b\n"))


async def test_write_rules_hold_on_resolved_paths(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "work/ssh").symlink_to(tmp_path / ".ssh")
    assert "denied" in await refused(write(ctx, "ssh/authorized_keys", "x"))
    assert "denied" in await refused(write(ctx, "../.hermes/config.yaml", "x"))
    ctx.settings = Settings.model_validate({"security": {"write_safe_root": str(tmp_path / "work")}})
    assert "limited" in await refused(write(ctx, "../x", "x"))
    await write(ctx, "inside", "x")


async def test_instruction_file_is_written_only_after_a_yes(ctx: FakeToolContext, tmp_path: Path) -> None:
    assert "BLOCKED" in await refused(write(ctx, "AGENTS.md", "x"))
    assert not (tmp_path / "work/AGENTS.md").exists()
    ctx.answers.append(Answered({"choice": "session"}))
    await write(ctx, "AGENTS.md", "x")
    await write(ctx, "AGENTS.md", "y")
    assert len(ctx.asked) == 2


async def test_a_directory_that_becomes_a_link_while_a_person_is_asked_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/AGENTS.md").write_text("be kind")
    (tmp_path / ".ssh/AGENTS.md").write_text("be kind")

    class Swapping(FakeToolContext):
        async def ask(self, question: Question) -> ClientAnswer:
            (tmp_path / "docs").rename(tmp_path / "gone")
            (tmp_path / "docs").symlink_to(tmp_path / ".ssh")
            return await super().ask(question)

    ctx = Swapping(tmp_path, tmp_path)
    ctx.answers.append(Answered({"choice": "once"}))
    assert "changed on disk" in await refused(write(ctx, "docs/AGENTS.md", "x"))
    assert [one.method for one in ctx.asked] == ["approval"]
    assert [(one.name, one.read_text()) for one in (tmp_path / ".ssh").iterdir()] == [("AGENTS.md", "be kind")]


async def test_write_that_is_cancelled_before_the_rename_leaves_the_target_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    paused, go_on = trio.Event(), threading.Event()

    def hook() -> None:
        trio.from_thread.run_sync(paused.set)
        assert go_on.wait(10)
        trio.from_thread.check_cancelled()

    async def call() -> None:
        await trio.to_thread.run_sync(lambda: write_all([PlannedWrite(path, b"new")], before_commit=hook))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await paused.wait()
            nursery.cancel_scope.cancel()
            go_on.set()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_several_writes_happen_all_or_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    with pytest.raises(Changed):
        write_all(
            [PlannedWrite(one, b"x", digest_of(b"1")), PlannedWrite(two, b"y", digest_of(b"other"))],
            before_commit=lambda: None,
        )
    assert (one.read_text(), two.read_text()) == ("1", "2")
    assert len(list(tmp_path.iterdir())) == 2


def test_failure_in_the_middle_of_the_renames_restores_what_was_replaced(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("1")
    with pytest.raises(OSError):
        write_all([PlannedWrite(one, b"x"), PlannedWrite(tmp_path / "gone", None)], before_commit=lambda: None)
    assert one.read_text() == "1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["one"]
