"""patch: replace text in a file, or apply a V4A patch to several. All or nothing per call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from hermes.agent.ports import ParallelClass, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.tool_display import bounded_diffs, patch_targets, unified_diff
from hermes.agent.tools.base import BuiltinTool, absolute, choice, failure, flag, parameters, result, text
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
from hermes.agent.tools.file_access import FileText, check_cancelled, resolve_target
from hermes.agent.tools.patch_match import closest_region, find, line_of, reindent
from hermes.agent.tools.patch_v4a import BadPatch, FileChange, apply, parse
from hermes.records import dataclass

_REPLACE = {
    "path": text("The file."),
    "old_string": text("The text to replace, copied from the file with enough context to be unique."),
    "new_string": text("The text in its place."),
    "replace_all": flag("Replace every occurrence."),
}


@dataclass(frozen=True, slots=True)
class _Replaced:
    text: str
    count: int
    note: str | None


_BOTH_FORMS = parameters(
    {
        "mode": choice("How the change is given.", "replace", "patch", default="replace"),
        **_REPLACE,
        "patch": text("For mode patch: *** Begin Patch … *** Update File: path … *** End Patch."),
    }
)


class Patch(BuiltinTool):
    spec = ToolSpec(
        "patch",
        "Replace a text in a file. old_string must be unique unless replace_all is set.",
        parameters(_REPLACE, "path", "old_string", "new_string"),
        accepts=_BOTH_FORMS,
    )
    flags = ToolFlags(ParallelClass.PATH_WRITE, edits_files=True, toolset="files", kind="edit")

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return patch_targets(arguments)

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        if arguments.get("patch"):
            return await self._apply_patch(ctx, str(arguments["patch"]))
        missing = [name for name in ("path", "old_string", "new_string") if arguments.get(name) is None]
        if missing:
            raise failure(f"missing required argument: {', '.join(missing)} (or patch, with mode: patch)")
        return await self._replace(ctx, arguments)

    # --- replace -----------------------------------------------------------------------------------------------------

    async def _replace(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        shown, old, new = str(arguments["path"]), str(arguments["old_string"]), str(arguments["new_string"])
        guard_text(old)
        guard_text(new)
        if old == new:
            return result({"success": True, "no_change": True, "note": "old_string and new_string are equal"})
        path, present = await self._target(ctx, shown)
        if present is None:
            raise failure(f"{shown} does not exist; use write_file to create it", success=False)
        others = guard_stale(ctx, self.services, path, present, whole=False)
        every = bool(arguments.get("replace_all"))
        replaced = await trio.to_thread.run_sync(_replaced, present, shown, old, new, every)
        if replaced.text == present.text:
            return result({"success": True, "no_change": True, "resolved_path": str(path)})
        edit = FileEdit(path, present, replaced.text)
        notes = [note for note in (replaced.note, others) if note]
        return await self._finish(ctx, [edit], notes, {"replacements": replaced.count, "resolved_path": str(path)})

    async def _target(self, ctx: ToolContext, shown: str) -> tuple[Path, FileText | None]:
        target = await trio.to_thread.run_sync(resolve_target, absolute(ctx, shown))
        guard_target(ctx, self.services, target)
        return await load_target(ctx, str(target))

    # --- V4A ---------------------------------------------------------------------------------------------------------

    async def _apply_patch(self, ctx: ToolContext, patch: str) -> ToolOutput:
        guard_text(patch)
        try:
            changes = parse(patch)
            edits, notes = await self._edits(ctx, changes)
        except BadPatch as error:
            raise failure(f"{error}. Nothing was written.", success=False) from None
        return await self._finish(ctx, edits, notes, {})

    async def _edits(self, ctx: ToolContext, changes: Sequence[FileChange]) -> tuple[list[FileEdit], list[str]]:
        """Every change resolved against the present files, before anything is written."""
        edits: dict[Path, FileEdit] = {}
        notes: list[str] = []
        for change in changes:
            path, old = await self._target(ctx, change.path)
            if change.action == "add":
                if old is not None or path in edits:
                    raise BadPatch(f"{change.path} exists already")
                edits[path] = FileEdit(path, None, change.content)
                continue
            earlier = edits.get(path)
            if old is None or (earlier is not None and earlier.new_text is None):
                raise BadPatch(f"{change.path} does not exist")
            others = guard_stale(ctx, self.services, path, old, whole=False)
            notes += [others] if others else []
            if change.action == "delete":
                edits[path] = FileEdit(path, old, None)
                continue
            before = old.text if earlier is None or earlier.new_text is None else earlier.new_text
            applied = await trio.to_thread.run_sync(apply, before, change, check_cancelled)
            notes += applied.notes
            if change.move_to is None:
                edits[path] = FileEdit(path, old, applied.text)
                continue
            target, there = await self._target(ctx, change.move_to)
            if there is not None or target in edits:
                raise BadPatch(f"{change.move_to} exists already")
            edits[path] = FileEdit(path, old, None)
            edits[target] = _moved(target, old, applied.text)
        return list(edits.values()), notes

    # --- both --------------------------------------------------------------------------------------------------------

    async def _finish(
        self, ctx: ToolContext, edits: Sequence[FileEdit], notes: Sequence[str], more: Mapping[str, Any]
    ) -> ToolOutput:
        await apply_edits(ctx, self.services, "patch", edits)
        body: dict[str, Any] = {
            "success": True,
            "diff": "",
            "files_modified": [],
            "files_created": [],
            "files_deleted": [],
        }
        checks: dict[str, Any] = {}
        diffs = []
        for edit in edits:
            name = relative_name(edit.path, ctx.memory.cwd)
            kind = (
                "files_created" if edit.old is None else "files_deleted" if edit.new_text is None else "files_modified"
            )
            body[kind].append(str(edit.path))
            body["diff"] += await trio.to_thread.run_sync(unified_diff, edit.diff.old_text, edit.diff.new_text, name)
            diffs.append(replace(edit.diff, name=name))
            verified, check, _ = await verify(ctx, edit)
            if check is not None:
                checks[name] = check
            if not verified:
                body["error"] = f"{name} does not hold what was written; another program may have changed it"
        body.update(more)
        if checks:
            body["lint"] = next(iter(checks.values())) if len(checks) == 1 else checks
        if notes:
            body["note"] = "; ".join(notes)
        summary = f"changed {', '.join(edit.path.name for edit in edits[:4])}"
        return result(body, summary=summary, diffs=tuple(diffs), details={"diffs": bounded_diffs(diffs)})


class PatchWithV4A(Patch):
    """The same tool as OpenAI-family models know it, with the V4A format in its schema."""

    spec = ToolSpec(
        "patch",
        "Replace a text in a file (mode replace), or apply a V4A patch to several files (mode patch).",
        _BOTH_FORMS,
    )


def _moved(target: Path, old: FileText, new_text: str) -> FileEdit:
    # A new file by its place, but with the encoding and line endings of the one it was.
    return _MovedEdit(target, None, new_text, old)


@dataclass(frozen=True, slots=True)
class _MovedEdit(FileEdit):
    source: FileText | None = None

    def planned(self) -> Any:
        write = FileEdit(self.path, self.source, self.new_text).planned()
        return type(write)(write.path, write.data, "")


def _replaced(present: FileText, shown: str, old: str, new: str, every: bool) -> _Replaced:
    if present.newline == "\r\n":
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old:
        raise failure("old_string is empty; use write_file for a whole file", success=False)
    body = present.text
    match = find(body, old)
    if match is None:
        region = closest_region(body, old)
        more = {"closest_line": region[0], "closest_text": region[1]} if region else {}
        raise failure(f"old_string is not in {shown}; read the file again and copy the text", success=False, **more)
    count = len(match.hits)
    if count > 1 and not (every and match.exact):
        why = "" if match.exact else f" (found with {match.strategy})"
        hint = "add context to make it unique" + (", or set replace_all" if match.exact else "")
        lines = [line_of(body, hit.start) for hit in match.hits[:50]]
        raise failure(f"old_string is in {shown} {count} times{why}; {hint}", success=False, lines=lines)
    if match.exact:
        # In one go: a text may be there a million times.
        return _Replaced(body.replace(old, new), count, None)
    [hit] = match.hits
    put = reindent(body[hit.start : hit.end], old, new)
    if match.strategy == "escapes resolved":
        put = put.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t")
    note = f"old_string matched with {match.strategy} at line {line_of(body, hit.start)}"
    return _Replaced(body[: hit.start] + put + body[hit.end :], count, note)
