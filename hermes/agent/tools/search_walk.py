"""Searching files without ripgrep: a walk that honours ``.gitignore``, done in slices. Blocking calls, each one short.

A slice looks at a bounded number of files, so that the caller is heard when it was cancelled in between.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from hermes.agent.tools.file_access import FileRefused, read_bytes
from hermes.records import dataclass

VCS = frozenset({".git", ".hg", ".svn", ".bzr", "CVS", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})
_LARGEST = 5_000_000
_SLICE_FILES = 200
_SLICE_BYTES = 8_000_000
MAX_LINE = 500


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

    def slice(self) -> None:
        """Look at the next files. ``done`` is true when nothing is left or enough was found."""
        if self._paths is None:
            self._paths = _walk(self.root) if self.root.is_dir() else iter((self.root,))
        room = _SLICE_BYTES
        for _ in range(_SLICE_FILES):
            path = next(self._paths, None)
            if path is None or len(self.found) + len(self.files) >= self.most:
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
        if b"\0" in raw[:8192]:
            return len(raw)
        assert self.pattern is not None
        lines = raw.decode("utf-8", "replace").splitlines()
        hits = [number for number, line in enumerate(lines) if self.pattern.search(line)]
        if hits:
            self.files.append(str(path))
            self.counts[str(path)] = len(hits)
            wanted = {n for hit in hits for n in range(hit - self.context, hit + self.context + 1)}
            marked = set(hits)
            for number in sorted(n for n in wanted if 0 <= n < len(lines)):
                self.found.append(Found(str(path), number + 1, lines[number][:MAX_LINE], number in marked))
        return len(raw)


def glob_matches(glob: str, path: Path, root: Path) -> bool:
    """A glob with a slash is matched against the path below the root, any other against the name."""
    patterns = _braces(glob)
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return any(fnmatch.fnmatch(shown if "/" in one else path.name, one.removeprefix("**/")) for one in patterns)


def _braces(glob: str) -> list[str]:
    match = re.search(r"\{([^{}]*)\}", glob)
    if match is None:
        return [glob]
    return [one for item in match[1].split(",") for one in _braces(glob[: match.start()] + item + glob[match.end() :])]


def _walk(root: Path) -> Iterator[Path]:
    """Files below ``root``; hidden and ignored ones left out; symlinks to directories are not followed."""
    waiting: list[tuple[Path, tuple[_Ignore, ...]]] = [(root, ())]
    while waiting:
        folder, ignores = waiting.pop()
        own = _Ignore.read(folder)
        ignores = (*ignores, own) if own is not None else ignores
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            continue
        below: list[tuple[Path, tuple[_Ignore, ...]]] = []
        for entry in entries:
            path = Path(entry.path)
            with contextlib.suppress(OSError):
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name.startswith(".") or entry.name in VCS or _ignored(path, ignores, is_folder):
                    continue
                if is_folder:
                    below.append((path, ignores))
                elif entry.is_file():
                    yield path
        waiting.extend(reversed(below))


@dataclass(frozen=True, slots=True)
class _Ignore:
    """The rules of one ``.gitignore``: (pattern, negated, folders only, anchored)."""

    folder: Path
    rules: tuple[tuple[str, bool, bool, bool], ...]

    @staticmethod
    def read(folder: Path) -> _Ignore | None:
        try:
            raw, _ = read_bytes(folder / ".gitignore", limit=200_000)
        except (OSError, FileRefused):
            return None
        rules = []
        for line in raw.decode("utf-8", "replace").splitlines():
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            negated = text.startswith("!")
            text = text.lstrip("!")
            only_folders = text.endswith("/")
            text = text.rstrip("/")
            rules.append((text.lstrip("/").removeprefix("**/"), negated, only_folders, "/" in text.removeprefix("**/")))
        return _Ignore(folder, tuple(rules))


def _ignored(path: Path, ignores: tuple[_Ignore, ...], is_folder: bool) -> bool:
    ignored = False
    for ignore in ignores:
        shown = path.relative_to(ignore.folder).as_posix()
        for pattern, negated, only_folders, anchored in ignore.rules:
            if only_folders and not is_folder:
                continue
            if fnmatch.fnmatch(shown if anchored else path.name, pattern):
                ignored = not negated
    return ignored
