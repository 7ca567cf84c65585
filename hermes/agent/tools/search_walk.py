"""Searching files without ripgrep: a walk that honours ``.gitignore``, done in slices. Blocking calls, each one short.

It finds what ripgrep finds, in the same order: hidden, ignored and binary files are left out, symbolic links are not
followed (their names are found), the ignore files of the folders above count. Only the two dialects of regular
expressions differ. A slice looks at a bounded number of files, so that a cancel is heard in between.
"""

from __future__ import annotations

import codecs
import contextlib
import fnmatch
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from hermes.agent.tools.file_access import FileRefused, read_bytes
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

VCS = frozenset({".git", ".hg", ".svn", ".bzr", "CVS", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})
_LARGEST = 5 << 20
_SLICE_FILES = 200
_SLICE_BYTES = 8_000_000
MAX_LINE = 500
_MOST_BRACES = 64
_BRACES = lazy_pattern(r"\{([^{}]*)\}")
_CLASS = lazy_pattern(r"\[([!^]?)(\]?[^\]]*)\]")
_HARMLESS = lazy_pattern(r"(?:[^\\*+?{}()|\[\]^$]|\\[^\w\s])*")


@dataclass(frozen=True, slots=True)
class Found:
    """One line: a hit, or (``hit`` false) context beside one."""

    path: str
    line: int
    content: str
    hit: bool = True


@dataclass(slots=True)
class Walk:
    """A search in progress. ``pattern`` None lists files; results grow in ``found`` and ``files``."""

    root: Path
    glob: str | None
    pattern: re.Pattern[str] | None
    context: int = 0
    most: int = 5000
    found: list[Found] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    done: bool = False
    _paths: Iterator[Path] | None = None

    @property
    def full(self) -> bool:
        """Enough was found; the file of the last hit is counted to its end."""
        return len(self.found) >= self.most or (self.pattern is None and len(self.files) >= self.most)

    def slice(self) -> None:
        """Look at the next files. ``done`` is true when nothing is left or enough was found."""
        if self._paths is None:
            by_name = self.pattern is None
            self._paths = _walk(self.root, links=by_name) if self.root.is_dir() else iter((self.root,))
        room = _SLICE_BYTES
        for _ in range(_SLICE_FILES):
            path = next(self._paths, None)
            if path is None or self.full:
                self.done = True
                return
            if self.glob and not glob_matches(self.glob, path, self.root):
                continue
            if self.pattern is None:
                self.files.append(str(path))
                continue
            room -= self._search(path)
            if room < 0:
                return

    def _search(self, path: Path) -> int:
        try:
            raw, _ = read_bytes(path, limit=_LARGEST)
        except (OSError, FileRefused):
            return 0
        assert self.pattern is not None
        lines = _lines(raw)
        hits = [number for number, line in enumerate(lines) if self.pattern.search(line)]
        if hits:
            self.files.append(str(path))
            self.counts[str(path)] = len(hits)
            wanted = {n for hit in hits for n in range(hit - self.context, hit + self.context + 1)}
            marked = set(hits)
            for number in sorted(n for n in wanted if 0 <= n < len(lines))[: self.most - len(self.found)]:
                self.found.append(Found(str(path), number + 1, lines[number][:MAX_LINE], number in marked))
        return len(raw)


def may_take_for_ever(pattern: str) -> bool:
    """Whether a search for this could keep a thread busy that nobody can stop: anything but a plain text may."""
    return _HARMLESS.fullmatch(pattern) is None


def walk_alone(arguments: Mapping[str, Any], progress: object) -> dict[str, Any]:
    """A whole search, in a process that can be ended: the results of a ``Walk`` as JSON data."""
    root, glob, pattern = Path(arguments["root"]), arguments["glob"], re.compile(arguments["pattern"])
    walk = Walk(root, glob, pattern, context=arguments["context"], most=arguments["most"])
    while not walk.done:
        walk.slice()
    found = [(one.path, one.line, one.content, one.hit) for one in walk.found]
    return {"found": found, "files": walk.files, "counts": walk.counts}


def text_lines(path: str) -> list[str]:
    """The lines of one file as they are searched; none if it cannot be read."""
    try:
        return _lines(read_bytes(Path(path), limit=_LARGEST)[0])
    except (OSError, FileRefused):
        return []


def glob_matches(glob: str, path: Path, root: Path) -> bool:
    """A glob with a slash is matched against the path below the root, any other against the name."""
    patterns = _braces(glob)
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return any(fnmatch.fnmatch(shown if "/" in one else path.name, one.removeprefix("**/")) for one in patterns)


def _braces(glob: str) -> list[str]:
    """The alternatives of a glob; bounded, what is beyond stands for itself."""
    made = [glob]
    for _ in range(_MOST_BRACES):
        at = next((number for number, one in enumerate(made) if _BRACES.search(one)), None)
        if at is None:
            break
        one = made[at]
        match = _BRACES.search(one)
        assert match is not None
        items = match[1].split(",")
        if len(made) + len(items) > _MOST_BRACES:
            break
        made[at : at + 1] = [one[: match.start()] + item + one[match.end() :] for item in items]
    return made


def _lines(raw: bytes) -> list[str]:
    """The lines of a text; none of a binary file, which has a NUL anywhere."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = raw.decode("utf-16", "replace")
    elif b"\0" in raw:
        return []
    else:
        text = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]


def _walk(root: Path, *, links: bool) -> Iterator[Path]:
    """Files below ``root`` by path; hidden and ignored ones left out, ``links`` to files if wanted."""
    above = [own for folder in reversed(root.absolute().parents) if (own := _Ignore.read(folder)) is not None]
    waiting = [_entries(root, tuple(above))]
    while waiting:
        following = next(waiting[-1], None)
        if following is None:
            waiting.pop()
            continue
        entry, ignores = following
        path = Path(entry.path)
        with contextlib.suppress(OSError):
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name.startswith(".") or (is_folder and entry.name in VCS) or _ignored(path, ignores, is_folder):
                continue
            if is_folder:
                waiting.append(_entries(path, ignores))
            elif entry.is_file(follow_symlinks=links):
                yield path


def _entries(folder: Path, ignores: tuple[_Ignore, ...]) -> Iterator[tuple[os.DirEntry[str], tuple[_Ignore, ...]]]:
    own = _Ignore.read(folder)
    ignores = (*ignores, own) if own is not None else ignores
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return
    for entry in entries:
        yield entry, ignores


@dataclass(frozen=True, slots=True)
class _Ignore:
    """The rules of one ``.gitignore``: (what it matches, negated, folders only, anchored)."""

    folder: Path
    rules: tuple[tuple[re.Pattern[str], bool, bool, bool], ...]

    @staticmethod
    def read(folder: Path) -> _Ignore | None:
        try:
            raw, _ = read_bytes(folder / ".gitignore", limit=200_000)
        except (OSError, FileRefused):
            return None
        rules = [_rule(line) for line in raw.decode("utf-8", "replace").splitlines()]
        return _Ignore(folder.absolute(), tuple(rule for rule in rules if rule is not None))


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool, bool] | None:
    text = line.rstrip("\r")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    only_folders = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    try:
        return re.compile(_translated(text.removeprefix("/"))), negated, only_folders, anchored
    except re.error:
        return None


def _translated(pattern: str) -> str:
    """A pattern of a ``.gitignore`` as a regular expression for the whole path."""
    made, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        if rest.startswith("**/") and (at == 0 or pattern[at - 1] == "/"):
            made, at = made + "(?:.*/)?", at + 3
        elif rest == "**" and at and pattern[at - 1] == "/":
            made, at = made + ".+", at + 2
        elif rest[0] == "*":
            made, at = made + "[^/]*", at + (len(rest) - len(rest.lstrip("*")))
        elif rest[0] == "?":
            made, at = made + "[^/]", at + 1
        elif rest[0] == "\\" and len(rest) > 1:
            made, at = made + re.escape(rest[1]), at + 2
        elif rest[0] == "[" and (found := _CLASS.match(rest)) is not None:
            body = found[2].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
            made, at = f"{made}(?!/)[{'^' if found[1] else ''}{body}]", at + found.end()
        else:
            made, at = made + re.escape(rest[0]), at + 1
    return rf"(?s:{made})\Z"


def _ignored(path: Path, ignores: tuple[_Ignore, ...], is_folder: bool) -> bool:
    ignored = False
    for ignore in ignores:
        shown = path.absolute().relative_to(ignore.folder).as_posix()
        for pattern, negated, only_folders, anchored in ignore.rules:
            if only_folders and not is_folder:
                continue
            if pattern.match(shown if anchored else path.name):
                ignored = not negated
    return ignored
