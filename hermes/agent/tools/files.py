"""read_file and write_file."""

from __future__ import annotations

import base64
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from hermes.agent.path_rules import PathPolicy, may_read
from hermes.agent.ports import ParallelClass, ToolContext, ToolFailure, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redact_file
from hermes.agent.tool_display import bounded_diffs
from hermes.agent.tools.base import BuiltinTool, absolute, as_json, blocked, failure, number, parameters, result, text
from hermes.agent.tools.editor_files import as_edited
from hermes.agent.tools.edits import (
    FileEdit,
    apply_edits,
    guard_stale,
    guard_target,
    guard_text,
    load_target,
    relative_name,
    verify,
)
from hermes.agent.tools.file_access import FileRefused, FileText, NotText, read_text, resolve_target
from hermes.agent.tools.read_memory import note_read
from hermes.messages import ImagePart
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_NUMBERED = lazy_pattern(r"^\s*\d+\|")
_LARGEST_IMAGE = 4_000_000
_REDACT_WHOLE = 5_000_000


@dataclass(frozen=True, slots=True)
class _Lines:
    """A range of a file, ready to show."""

    shown: tuple[str, ...]
    total: int
    clipped: bool


class ReadFile(BuiltinTool):
    spec = ToolSpec(
        "read_file",
        "Read a text file with line numbers (number|text). Long files come in ranges: go on at next_offset. Values "
        "that look like secrets are shown as a mask, which write tools do not accept.",
        parameters(
            {
                "path": text("The file, absolute or relative to the working directory."),
                "offset": number("First line, from 1.", minimum=1, default=1),
                "limit": number("Number of lines (at most 2000).", minimum=1, maximum=2000, default=2000),
            },
            "path",
        ),
    )
    flags = ToolFlags(ParallelClass.PATH_READ, read_only=True, result_limit=None, toolset="files", kind="read")

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return (str(arguments.get("path", "")),)

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        path = str(arguments["path"])
        offset = max(1, int(arguments.get("offset") or 1))
        limit = max(1, min(int(arguments.get("limit") or 2000), int(ctx.settings.tool_output.max_lines)))
        policy = self.services.path_policy("", protect_instructions=False)
        found = await trio.to_thread.run_sync(_read, absolute(ctx, path), policy)
        if isinstance(found, NotText):
            return _not_text(path, found)
        found = await as_edited(ctx, found)
        lines = await trio.to_thread.run_sync(self._range, ctx.settings, found, offset, limit)
        if offset > max(lines.total, 1):
            raise failure(f"{path} has {lines.total} lines; offset {offset} is behind its end", total_lines=lines.total)
        last = offset + len(lines.shown) - 1
        # Lines cut for their length were not wholly seen; they do not block a write.
        before = note_read(ctx.memory, str(found.path), found.digest, lines.total, offset, last)
        if before >= 3:
            raise failure(f"{path} lines {offset}-{last} were read {before} times and are unchanged; use what you have")
        if before >= 1:
            warning = " This is the third time; do not read it again." if before == 2 else ""
            return result(
                {"status": "unchanged", "note": f"You already have lines {offset}-{last} of this file.{warning}"}
            )
        body: dict[str, Any] = {
            "content": "\n".join(f"{offset + index}|{line}" for index, line in enumerate(lines.shown)),
            "total_lines": lines.total,
            "file_size": found.size,
            "truncated": last < lines.total or lines.clipped,
            "is_binary": False,
            "is_image": False,
        }
        if last < lines.total:
            body["next_offset"] = last + 1
            body["hint"] = f"{lines.total - last} more lines; go on with offset {last + 1}"
        return result(body, summary=f"lines {offset}-{last} of {lines.total}")

    def _range(self, settings: Any, found: FileText, offset: int, limit: int) -> _Lines:
        whole = found.text
        if self.services.redact and len(whole) <= _REDACT_WHOLE:
            whole = redact_file(whole)
        lines = whole.split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        longest = int(settings.tool_output.max_line_length)
        room = int(settings.file_read_max_chars or 100_000)
        shown: list[str] = []
        clipped = False
        for line in lines[offset - 1 : offset - 1 + limit]:
            if len(line) > longest:
                line, clipped = f"{line[:longest]}… [{len(line) - longest} more characters]", True
            room -= len(line) + 8
            if room < 0 and shown:
                break
            shown.append(line)
        if self.services.redact and len(found.text) > _REDACT_WHOLE:
            shown = redact_file("\n".join(shown)).split("\n")
        return _Lines(tuple(shown), len(lines), clipped)


def _read(path: Path, policy: PathPolicy) -> FileText | NotText:
    target = resolve_target(path)
    for candidate in (path, target):
        verdict = may_read(candidate, policy)
        if verdict.verdict == "deny":
            raise blocked(f"reading {path} is denied: {verdict.reason}")
    try:
        return read_text(target)
    except FileNotFoundError:
        raise _missing(path) from None
    except FileRefused as error:
        raise failure(f"{path} cannot be read: {error}") from None
    except OSError as error:
        raise failure(f"{path} cannot be read: {error.strerror or error}") from None


def _missing(path: Path) -> ToolFailure:
    similar: list[str] = []
    if path.parent.is_dir():
        names = sorted(entry.name for entry in os.scandir(path.parent))[:2000]
        lowered = {name.lower(): name for name in names}
        close = difflib.get_close_matches(path.name.lower(), lowered, n=5, cutoff=0.5)
        similar = [str(path.parent / lowered[name]) for name in close]
    return failure(f"{path} does not exist", similar_files=similar)


def _not_text(path: str, found: NotText) -> ToolOutput:
    body = {"file_size": found.size, "truncated": False, "is_binary": True, "is_image": found.mime_type is not None}
    if found.mime_type is not None and found.mime_type != "image/bmp" and found.size <= _LARGEST_IMAGE:
        image = ImagePart(found.mime_type, base64.b64encode(found.raw).decode("ascii"))
        body["content"] = f"[{found.mime_type} image]"  # type: ignore[assignment]
        return ToolOutput(as_json(body), summary="image", images=(image,))
    return result({**body, "error": f"{path} is {found.kind}, not text"})


class WriteFile(BuiltinTool):
    spec = ToolSpec(
        "write_file",
        "Write a whole file (parents are created). For changes to a part of a file use patch. A file must have "
        "been read completely if it was read at all.",
        parameters({"path": text("The file."), "content": text("Its whole new content.")}, "path", "content"),
    )
    flags = ToolFlags(ParallelClass.PATH_WRITE, edits_files=True, toolset="files", kind="edit")

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return (str(arguments.get("path", "")),)

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        content = str(arguments["content"])
        guard_text(content)
        if _looks_numbered(content):
            raise failure("the content carries the line numbers of read_file; write the text without them")
        target = await trio.to_thread.run_sync(resolve_target, absolute(ctx, str(arguments["path"])))
        guard_target(ctx, self.services, target)
        path, old = await load_target(ctx, str(target))
        note = guard_stale(ctx, self.services, path, old, whole=True)
        edit = FileEdit(path, old, content)
        made = await apply_edits(ctx, self.services, "write_file", [edit])
        verified, check, size = await verify(ctx, edit)
        body: dict[str, Any] = {
            "bytes_written": size,
            "dirs_created": made,
            "verified": verified,
            "resolved_path": str(path),
            "files_modified": [str(path)],
        }
        if check is not None:
            body["lint"] = check
        if note is not None:
            body["note"] = note
        if not verified:
            body["error"] = "the file does not hold what was written; another program may have changed it"
        verb = "created" if old is None else "wrote"
        diff = replace(edit.diff, name=relative_name(path, ctx.memory.cwd))
        details = {"diffs": bounded_diffs([diff])}
        return result(body, summary=f"{verb} {path.name}", diffs=(diff,), details=details)


def _looks_numbered(content: str) -> bool:
    lines = [line for line in content.splitlines() if line.strip()]
    numbered = sum(bool(_NUMBERED.match(line)) for line in lines[:200])
    return len(lines) >= 2 and numbered == len(lines[:200])
