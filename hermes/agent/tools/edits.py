"""Changes to files, made together or not at all: rules, consent, writing, and what is remembered afterwards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from hermes.agent.path_rules import may_write
from hermes.agent.ports import ToolContext
from hermes.agent.redaction import has_mask
from hermes.agent.tools.approval_gate import approve_edit
from hermes.agent.tools.base import absolute, blocked, failure, is_text
from hermes.agent.tools.editor_files import as_edited, editor_holds, write_in_editor
from hermes.agent.tools.file_access import (
    Changed,
    FileRefused,
    FileText,
    NotText,
    PlannedWrite,
    check_cancelled,
    digest_of,
    encode_text,
    read_bytes,
    read_text,
    resolve_target,
    write_all,
)
from hermes.agent.tools.lint import lint
from hermes.agent.tools.read_memory import forget, note_written, seen
from hermes.agent.tools.services import ToolServices
from hermes.messages import FileDiff
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One file's change. ``old`` None creates it, ``new_text`` None deletes it."""

    path: Path
    old: FileText | None
    new_text: str | None

    @property
    def diff(self) -> FileDiff:
        return FileDiff(str(self.path), None if self.old is None else self.old.text, self.new_text)

    def planned(self) -> PlannedWrite:
        expected = "" if self.old is None else self.old.disk_digest
        if self.new_text is None:
            return PlannedWrite(self.path, None, expected)
        encoding, newline = ("utf-8", "\n") if self.old is None else (self.old.encoding, self.old.newline)
        return PlannedWrite(self.path, encode_text(self.new_text, encoding, newline), expected)  # type: ignore[arg-type]


async def load_target(ctx: ToolContext, path: str) -> tuple[Path, FileText | None]:
    """(the resolved file, its present text or None if it does not exist). Raises ``ToolFailure`` if it is no text."""
    target, found = await trio.to_thread.run_sync(_load, absolute(ctx, path))
    return target, None if found is None else await as_edited(ctx, found)


def _load(path: Path) -> tuple[Path, FileText | None]:
    target = resolve_target(path)
    try:
        found = read_text(target)
    except FileNotFoundError:
        return target, None
    except FileRefused as error:
        raise failure(f"{path} cannot be edited: {error}") from None
    except OSError as error:
        raise failure(f"{path} cannot be read: {error.strerror or error}") from None
    if isinstance(found, NotText):
        raise failure(f"{path} is {found.kind}, not text")
    return target, found


def guard_target(ctx: ToolContext, services: ToolServices, path: Path) -> str | None:
    """The key under which writing this path asks, or None. Raises ``ToolFailure`` where it is denied."""
    policy = services.path_policy(
        str(ctx.settings.security.write_safe_root),
        protect_instructions=bool(ctx.settings.security.protected_instruction_files),
    )
    verdict = may_write(path, policy)
    if verdict.verdict == "deny":
        raise blocked(f"writing {path} is denied: {verdict.reason}")
    return verdict.key if verdict.verdict == "ask" else None


def relative_name(path: Path, cwd: str) -> str:
    """The path as people read it: below the working directory without it."""
    try:
        return str(path.relative_to(Path(cwd).resolve()))
    except ValueError:
        return str(path)


def guard_text(text: str) -> None:
    """Refuse a text that carries the mask of a secret: it would destroy the value; and one that no file can hold."""
    if not is_text(text):
        raise failure("the text holds half a character (a lone surrogate), which no file can hold")
    if has_mask(text):
        raise failure("the text holds the mask of a redacted secret; writing it would destroy the value")


def guard_stale(
    ctx: ToolContext, services: ToolServices, path: Path, old: FileText | None, *, whole: bool
) -> str | None:
    """Refuse to write over what the session has not seen: changed since its last read, or (``whole``) read in part.

    Returns a note if what is there, and was never read here, comes from another agent.
    """
    entry = seen(ctx.memory, str(path))
    if old is None:
        return None
    by_another = services.writers.is_by_another(str(path), old.digest, ctx.session_key)
    if entry is None:
        return f"another agent of this server had written {path} before this change" if by_another else None
    if entry.digest != old.digest:
        how = "was written by another agent of this server" if by_another else "changed on disk"
        raise failure(f"{path} {how} since it was read; read it again before writing")
    if whole and not entry.complete:
        raise failure(f"only a part of {path} was read; read the rest first, or use patch")
    return None


async def apply_edits(ctx: ToolContext, services: ToolServices, tool: str, edits: Sequence[FileEdit]) -> list[str]:
    """Ask where needed, then make all changes or none; returns the directories created."""
    keys = [key for edit in edits if (key := guard_target(ctx, services, edit.path))]
    await approve_edit(ctx, services, tool, [edit.diff for edit in edits], keys)
    writes = [edit.planned() for edit in edits]
    made: list[str] = []
    if not await _written_by_editor(ctx, edits, writes):
        try:
            made = await trio.to_thread.run_sync(_write, writes)
        except (Changed, FileRefused) as error:
            raise failure(str(error)) from None
        except OSError as error:
            why = f"{error.strerror or error} ({error.filename or edits[0].path})"
            raise failure(f"nothing was written: {why}") from None
    for write, edit in zip(writes, edits, strict=True):
        if write.data is None or edit.new_text is None:
            forget(ctx.memory, str(write.path))
        else:
            digest = digest_of(write.data)
            note_written(ctx.memory, str(write.path), digest, len(edit.new_text.splitlines()))
            services.writers.note(str(write.path), digest, ctx.session_key)
    return made


def _write(writes: list[PlannedWrite]) -> list[str]:
    def same_places() -> None:
        check_cancelled()
        # Asking a person takes a while: a directory may be a link to elsewhere by now, where other rules hold.
        for write in writes:
            if resolve_target(write.path) != write.path:
                raise Changed(write.path)

    return write_all(writes, before_commit=same_places)


async def _written_by_editor(ctx: ToolContext, edits: Sequence[FileEdit], writes: Sequence[PlannedWrite]) -> bool:
    """A change of one file is made by the client's editor, if it does that; several are made on disk, together."""
    edit, write = edits[0], writes[0]
    if len(edits) > 1 or write.data is None:
        return False
    if edit.old is not None:
        # Nobody but us knows what was agreed to: a buffer in which the user went on typing is left alone.
        now = await as_edited(ctx, await _present(edit))
        if now.digest != edit.old.digest:
            raise failure(str(Changed(edit.path)))
    if await write_in_editor(ctx, edit.path, write.data, edit.old):
        return True
    # It may have written and failed to say so in time.
    return (await trio.to_thread.run_sync(_verify, edit))[0]


async def _present(edit: FileEdit) -> FileText:
    _, found = await trio.to_thread.run_sync(_load, edit.path)
    if found is None:
        raise failure(str(Changed(edit.path)))
    return found


async def verify(ctx: ToolContext, edit: FileEdit) -> tuple[bool, dict[str, Any] | None, int]:
    """(the file, or the editor's buffer of it, holds what was written; syntax check or None; size in bytes)."""
    verified, check, size = await trio.to_thread.run_sync(_verify, edit)
    data = edit.planned().data
    if not verified and data is not None and await editor_holds(ctx, edit.path, data):
        return True, check, size
    return verified, check, size


def _verify(edit: FileEdit) -> tuple[bool, dict[str, Any] | None, int]:
    wanted = edit.planned().data
    if wanted is None or edit.new_text is None:
        return not os.path.lexists(edit.path), None, 0
    try:
        raw, _ = read_bytes(edit.path)
    except (OSError, FileRefused):
        return False, None, 0
    check = lint(edit.path, edit.new_text, edit.old.text if edit.old is not None else None)
    return raw == wanted, check, len(wanted)
