"""memory: notes that last beyond the session, in two small files."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from hermes.agent.injection_scan import scan
from hermes.agent.ports import ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redacts
from hermes.agent.tools.base import BuiltinTool, choice, failure, is_text, parameters, result, text
from hermes.agent.tools.file_access import FileRefused, PlannedWrite, read_bytes, write_all

_LOCKED_AT_MOST, _BETWEEN_TRIES = 10.0, 0.05
SEPARATOR = "\n§\n"
FILES = {"memory": "MEMORY.md", "user": "USER.md"}
_OPERATION = {
    "action": choice("What to do.", "add", "patch", "remove"),
    "content": text("For add: the note, one fact in a sentence or two."),
    "old_text": text("For patch and remove: words that only this note contains."),
    "new_text": text("For patch: the note as it shall be."),
}


class Memory(BuiltinTool):
    spec = ToolSpec(
        "memory",
        "Remember facts beyond this conversation: target memory for notes about work and environment, user for who the "
        "user is and what they prefer. Space is small; replace instead of adding.",
        parameters(
            {
                "target": choice("Which notes.", "memory", "user"),
                **_OPERATION,
                "operations": {
                    "type": "array",
                    "items": {"type": "object", "properties": _OPERATION, "required": ["action"]},
                    "description": "Several operations, applied together.",
                },
            },
            "target",
        ),
    )
    flags = ToolFlags(toolset="memory")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        target = str(arguments["target"])
        if target not in FILES:
            raise failure("target is memory or user")
        settings = ctx.settings.memory
        enabled = settings.memory_enabled if target == "memory" else settings.user_profile_enabled
        if not enabled:
            raise failure("these notes are switched off in the configuration")
        limit = int(settings.memory_char_limit if target == "memory" else settings.user_char_limit)
        operations = arguments.get("operations")
        wanted: Sequence[Any] = operations if isinstance(operations, list) and operations else [arguments]
        path = self.services.agent_home / "memories" / FILES[target]
        entries = await _changed(path, wanted, limit)
        used = len(SEPARATOR.join(entries))
        body = {"target": target, "entries": entries, "usage": f"{used} of {limit} characters"}
        return result(body, summary=f"{len(entries)} notes")


async def _changed(path: Path, operations: Sequence[Any], limit: int) -> list[str]:
    """The notes after the change. Another process that holds them is waited for here, where a stop is heard."""
    give_up = trio.current_time() + _LOCKED_AT_MOST
    while True:
        with contextlib.suppress(BlockingIOError):
            return await trio.to_thread.run_sync(_change, path, operations, limit)
        if trio.current_time() >= give_up:
            raise failure("another process holds the notes; try again later")
        await trio.sleep(_BETWEEN_TRIES)


def _change(path: Path, operations: Sequence[Any], limit: int) -> list[str]:
    """Apply all operations or none, under a lock that other processes honour. Raises ``BlockingIOError``."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stored = _stored(path)
        entries = list(stored)
        for operation in operations:
            _apply(entries, operation, stored)
        size = len(SEPARATOR.join(entries))
        if size > limit:
            raise failure(
                f"the notes would have {size} of {limit} characters; merge or remove some first", entries=stored
            )
        write_all([PlannedWrite(path, SEPARATOR.join(entries).encode())])
        return entries
    finally:
        os.close(lock)


def read_entries(path: Path) -> list[str]:
    """The notes in a file; none if there is no file or it cannot be read."""
    try:
        return _read(path)
    except (OSError, FileRefused):
        return []


def _stored(path: Path) -> list[str]:
    """The notes in a file that is to be written again: one that is there and cannot be read must not be replaced."""
    try:
        return _read(path)
    except FileNotFoundError:
        return []
    except (OSError, FileRefused) as error:
        raise failure(f"the notes cannot be read, so nothing is changed: {error}") from None


def _read(path: Path) -> list[str]:
    raw, _ = read_bytes(path, limit=1_000_000)
    return [entry.strip() for entry in raw.decode("utf-8", "replace").split("§") if entry.strip()]


def _apply(entries: list[str], operation: Any, stored: Sequence[str]) -> None:
    """Change ``entries``. A failure shows what is ``stored``, which stays."""
    if not isinstance(operation, Mapping):
        raise failure("an operation is an object with action")
    match operation.get("action"):
        case "add":
            note = _clean(operation.get("content"))
            if note not in entries:
                entries.append(note)
        case "patch":
            index = _index(entries, operation.get("old_text"), stored)
            entries[index] = _clean(operation.get("new_text") or operation.get("content"))
        case "remove":
            del entries[_index(entries, operation.get("old_text") or operation.get("content"), stored)]
        case other:
            raise failure(f"unknown action {other!r}; use add, patch or remove")


def _clean(note: Any) -> str:
    text = str(note or "").replace("§", "").strip()
    if not text:
        raise failure("the note is empty")
    if not is_text(text):
        raise failure("the note holds half a character (a lone surrogate)")
    if found := scan(text):
        raise failure(f"the note was refused: it reads like an attempt to steer the model ({', '.join(found)})")
    if redacts(text):
        raise failure("the note was refused: it holds something that looks like a secret")
    return text


def _index(entries: Sequence[str], old: Any, stored: Sequence[str]) -> int:
    wanted = str(old or "").strip()
    found = [index for index, entry in enumerate(entries) if wanted and wanted in entry]
    if not found:
        raise failure("no note contains old_text", entries=list(stored))
    if len(found) > 1:
        raise failure(f"old_text is in {len(found)} notes; quote more of it", entries=list(stored))
    return found[0]
