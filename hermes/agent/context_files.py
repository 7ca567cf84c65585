"""Project instruction files for the system prompt: which are read, how much of them, what is refused (agent-core §1.5).

Pure over a reader that is handed in: the first *type* of file that is found wins, types are never mixed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from hermes.records import dataclass

MIN_CHARS = 20_000
MAX_CHARS = 500_000
WINDOW_SHARE = 0.06
HEAD_SHARE, TAIL_SHARE = 0.7, 0.2
HINT_CHARS = 32_000
HINT_ANCESTORS = 5
AGENT_NAMES = ("AGENTS.override.md", "AGENTS.md", "agents.md")
HERMES_NAMES = (".hermes.md", "HERMES.md")

Scan = Callable[[str], Sequence[str]]
"""What looks like an injection in a text; empty if nothing does."""


class FileReader(Protocol):
    """Contract: never raises. ``read`` gives None for what is not there, not text, or not allowed to be read."""

    def read(self, path: str) -> str | None: ...

    def names(self, directory: str) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class ContextFile:
    path: str
    text: str


def find_context_files(reader: FileReader, cwd: str, root: str | None) -> list[ContextFile]:
    """The instruction files of a working directory; ``root`` is its git root, or None outside a repository."""
    chain = _chain(cwd, root)
    for directory in reversed(chain):
        found = _first(reader, directory, HERMES_NAMES)
        if found is not None:
            return [found]
    files: list[ContextFile] = []
    for directory in chain:
        found = _first(reader, directory, AGENT_NAMES)
        if found is not None and all(found.text != other.text for other in files):
            files.append(found)
    if files:
        return files
    claude = _first(reader, cwd, ("CLAUDE.md",))
    if claude is not None:
        return [claude]
    return list(_cursor_rules(reader, cwd))


def _chain(cwd: str, root: str | None) -> list[str]:
    """Directories from the root down to the working directory; only the latter if it does not lie below a root."""
    if root is None or not (cwd == root or cwd.startswith(root.rstrip("/") + "/")):
        return [cwd]
    chain = [cwd]
    while chain[-1] != root:
        chain.append(posixpath.dirname(chain[-1]))
    return chain[::-1]


def _first(reader: FileReader, directory: str, names: Sequence[str]) -> ContextFile | None:
    for name in names:
        path = posixpath.join(directory, name)
        text = reader.read(path)
        if text is not None and text.strip():
            return ContextFile(path, text)
    return None


def _cursor_rules(reader: FileReader, cwd: str) -> Iterator[ContextFile]:
    single = _first(reader, cwd, (".cursorrules",))
    if single is not None:
        yield single
    folder = posixpath.join(cwd, ".cursor/rules")
    for name in sorted(reader.names(folder)):
        found = _first(reader, folder, (name,)) if name.endswith(".mdc") else None
        if found is not None:
            yield found


def size_limit(context_length: int, configured: int | None) -> int:
    """Characters of one file: six percent of the window, within bounds, unless the configuration says."""
    if configured is not None:
        return configured
    return min(max(int(context_length * WINDOW_SHARE) * 4, MIN_CHARS), MAX_CHARS)


def bounded(text: str, limit: int) -> str:
    """Head and tail of an oversize file, with what was left out between them."""
    if len(text) <= limit:
        return text
    head, tail = int(limit * HEAD_SHARE), int(limit * TAIL_SHARE)
    left_out = len(text) - head - tail
    return f"{text[:head]}\n\n[{left_out} characters left out]\n\n{text[len(text) - tail :]}"


def render_context_files(files: Sequence[ContextFile], limit: int, scan: Scan) -> str:
    """The files as a section of the prompt. One that looks like an injection is replaced by a notice."""
    sections: list[str] = []
    for file in files:
        findings = scan(file.text)
        if findings:
            body = f"[This file was left out: it contains {', '.join(findings)}.]"
        else:
            body = bounded(file.text.strip(), limit)
        sections.append(f"## {file.path}\n\n{body}")
    return "\n\n".join(sections)


class DirectoryHints:
    """Instruction files of directories that tools touch, each given once (TL-11).

    Relative paths are meant from ``cwd``. Never outside ``root`` (``cwd`` if it is not given); the reader refuses what
    may not be read. What lies on the way from the root to ``cwd`` is the system prompt's own matter.
    """

    def __init__(
        self, reader: FileReader, cwd: str, scan: Scan, *, root: str | None = None, already: Sequence[str] = ()
    ) -> None:
        self._reader = reader
        self._cwd = posixpath.normpath(cwd)
        self._root = posixpath.normpath(root or cwd)
        self._scan = scan
        self._seen = {self._root, *_chain(self._cwd, self._root)}
        self._told = set(already)

    def __call__(self, paths: Sequence[str]) -> str | None:
        return self.tell(self.read(self.unseen(paths)))

    def unseen(self, paths: Sequence[str]) -> list[str]:
        """The directories that have not been looked at; from now on they have. Touches no disk."""
        found: list[str] = []
        for path in paths:
            directory = posixpath.normpath(posixpath.join(self._cwd, path))
            for _ in range(HINT_ANCESTORS + 1):
                if not directory.startswith(self._root.rstrip("/") + "/") or directory in self._seen:
                    break
                self._seen.add(directory)
                found.append(directory)
                directory = posixpath.dirname(directory)
        return found

    def read(self, directories: Sequence[str]) -> list[ContextFile]:
        """Their instruction files, as they may be shown. Waits for the disk; changes nothing here."""
        names = (*HERMES_NAMES, *AGENT_NAMES, "CLAUDE.md")
        files = [file for directory in directories if (file := _first(self._reader, directory, names)) is not None]
        return [ContextFile(file.path, render_context_files([file], HINT_CHARS, self._scan)) for file in files]

    def tell(self, files: Sequence[ContextFile]) -> str | None:
        """The text for the model, of those it has not been given yet."""
        new = {file.path: file.text for file in files if file.path not in self._told}
        if not new:
            return None
        self._told.update(new)
        text = "\n\n".join(new.values())[:HINT_CHARS]
        return f"instructions that apply to this directory:\n\n{text}"
