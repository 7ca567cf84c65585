"""The V4A patch format: several files in one text, hunks found by their context. Pure.

*** Begin Patch
*** Update File: path
*** Move to: other path
@@ a line above the change
 context
-removed
+added
*** Add File: path
+line
*** Delete File: path
*** End Patch
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Literal

from hermes.agent.tools.patch_match import Hit, closest_region, find, line_of
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_HEADER = lazy_pattern(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MOVE = lazy_pattern(r"\*\*\* Move to: (.+)")


class BadPatch(Exception):
    """The text is no patch, or a hunk has no place; the text says what to change."""


@dataclass(slots=True)
class Hunk:
    anchors: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    at_end: bool = False


@dataclass(slots=True)
class FileChange:
    action: Literal["add", "update", "delete"]
    path: str
    move_to: str | None = None
    hunks: list[Hunk] = field(default_factory=list)
    content: str = ""


def parse(text: str) -> list[FileChange]:
    """The changes of a patch. Raises ``BadPatch``."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    if lines and lines[0].strip() == "*** Begin Patch":
        lines = lines[1:]
    if lines and lines[-1].strip() == "*** End Patch":
        lines = lines[:-1]
    changes: list[FileChange] = []
    for number, line in enumerate(lines, 2):
        if header := _HEADER.fullmatch(line.strip()):
            kind: Literal["add", "update", "delete"] = {"Add": "add", "Update": "update", "Delete": "delete"}[header[1]]  # type: ignore[assignment]
            changes.append(FileChange(kind, header[2].strip()))
        elif not changes:
            if line.strip():
                raise BadPatch(f"line {number}: expected *** Add, Update or Delete File: <path>")
        elif move := _MOVE.fullmatch(line.strip()):
            changes[-1].move_to = move[1].strip()
        else:
            _take_line(changes[-1], line, number)
    if not changes:
        raise BadPatch("the patch names no file")
    for change in changes:
        _check(change)
    return changes


def _take_line(change: FileChange, line: str, number: int) -> None:
    if change.action == "add":
        if not line.startswith("+") and line.strip():
            raise BadPatch(f"line {number}: every line of an added file begins with +")
        change.content += f"{line[1:]}\n"
        return
    if change.action == "delete":
        if line.strip():
            raise BadPatch(f"line {number}: a deleted file has no lines")
        return
    if line.startswith("@@"):
        anchor = line[2:].removesuffix("@@").strip()
        last = change.hunks[-1] if change.hunks else None
        if last is None or last.old or last.new:
            last = Hunk()
            change.hunks.append(last)
        if anchor and not re.fullmatch(r"-\d+(,\d+)? \+\d+(,\d+)?", anchor):
            last.anchors.append(anchor)
        return
    if line.strip() == "*** End of File":
        if change.hunks:
            change.hunks[-1].at_end = True
        return
    if not change.hunks:
        change.hunks.append(Hunk())
    hunk = change.hunks[-1]
    mark, rest = (line[:1], line[1:]) if line else (" ", "")
    if mark not in "+- ":
        raise BadPatch(f"line {number}: expected a line that begins with a space, + or -")
    if mark in "- ":
        hunk.old.append(rest)
    if mark in "+ ":
        hunk.new.append(rest)


def _check(change: FileChange) -> None:
    change.hunks = [hunk for hunk in change.hunks if hunk.old or hunk.new]
    if change.action == "update" and not change.hunks and change.move_to is None:
        raise BadPatch(f"the update of {change.path} has no hunks")


@dataclass(frozen=True, slots=True)
class Applied:
    text: str
    notes: tuple[str, ...]


def apply(text: str, change: FileChange, between: Callable[[], None] = lambda: None) -> Applied:
    """The new text of an updated file. Raises ``BadPatch`` if one hunk has no place or more than one.

    ``between`` is called before each hunk: looking for the place of one in a long file takes a while.
    """
    notes: list[str] = []
    at = 0
    for number, hunk in enumerate(change.hunks, 1):
        between()
        for anchor in hunk.anchors:
            at = _after_anchor(text, anchor, at, change.path, number)
        if not hunk.old:
            text, at = _insert(text, hunk, at)
            continue
        hit, strategy = _place(text, hunk, at, change.path, number)
        new = "\n".join(hunk.new)
        end = hit.end
        if not hunk.new and end < len(text):
            end += 1
        text = text[: hit.start] + new + text[end:]
        at = hit.start + len(new)
        if strategy != "exact":
            notes.append(f"hunk {number} of {change.path}: {strategy}")
    return Applied(text, tuple(notes))


def _after_anchor(text: str, anchor: str, start: int, path: str, number: int) -> int:
    for offset in (start, 0):
        at = offset
        for line in text[offset:].split("\n"):
            if line.strip() == anchor.strip():
                return at + len(line) + 1
            at += len(line) + 1
    raise BadPatch(f"hunk {number} of {path}: no line {anchor!r}")


def _insert(text: str, hunk: Hunk, at: int) -> tuple[str, int]:
    """A hunk that only adds: behind its anchor, or at the end of the file."""
    added = "\n".join(hunk.new)
    if not hunk.anchors or hunk.at_end or at >= len(text):
        gap = "" if not text or text.endswith("\n") else "\n"
        tail = "\n" if not text or text.endswith("\n") else ""
        return f"{text}{gap}{added}{tail}", len(text) + len(gap) + len(added)
    return f"{text[:at]}{added}\n{text[at:]}", at + len(added) + 1


def _place(text: str, hunk: Hunk, at: int, path: str, number: int) -> tuple[Hit, str]:
    wanted = "\n".join(hunk.old)
    match = find(text, wanted)
    if match is None:
        region = closest_region(text, wanted)
        hint = f"; closest is line {region[0]}:\n{region[1]}" if region else ""
        raise BadPatch(f"hunk {number} of {path}: its lines are not in the file; read it again{hint}")
    hits = [hit for hit in match.hits if _whole_lines(text, hit)] or list(match.hits)
    if hunk.at_end:
        hits = hits[-1:]
    behind = [hit for hit in hits if hit.start >= at]
    if len(hits) > 1 and hunk.anchors and behind:
        hits = behind[:1]
    if len(hits) > 1 and number > 1 and len(behind) == 1:
        hits = behind
    if len(hits) > 1:
        lines = ", ".join(str(line_of(text, hit.start)) for hit in hits[:10])
        raise BadPatch(f"hunk {number} of {path}: its lines are there several times (lines {lines}); add context or @@")
    return hits[0], match.strategy


def _whole_lines(text: str, hit: Hit) -> bool:
    starts = hit.start == 0 or text[hit.start - 1] == "\n"
    return starts and (hit.end == len(text) or text[hit.end] == "\n")
