"""What the session has seen of each file: guards against stale and partial reads, and against re-reads."""

from __future__ import annotations

from dataclasses import field

from hermes.agent.ports import SessionMemory
from hermes.records import dataclass

MAX_FILES = 2000


@dataclass(slots=True)
class FileSeen:
    """``ranges`` are 1-based line ranges, inclusive; ``written_here``: what is on disk comes from this session."""

    digest: str
    total_lines: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    written_here: bool = False
    repeats: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Every line was seen (or the content comes from us)."""
        if self.written_here or self.total_lines == 0:
            return True
        reached = 0
        for first, last in sorted(self.ranges):
            if first > reached + 1:
                return False
            reached = max(reached, last)
        return reached >= self.total_lines


class Writers:
    """Which session wrote a file last, of all sessions of the server: agents that work side by side share files."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}

    def note(self, path: str, digest: str, session_key: str) -> None:
        self._last.pop(path, None)
        self._last[path] = digest, session_key
        if len(self._last) > MAX_FILES:
            del self._last[next(iter(self._last))]

    def is_by_another(self, path: str, digest: str, session_key: str) -> bool:
        """Whether exactly this content was written by a session other than this one."""
        written, by = self._last.get(path, ("", session_key))
        return written == digest and by != session_key


def seen(memory: SessionMemory, path: str) -> FileSeen | None:
    entry = memory.file_reads.get(path)
    return entry if isinstance(entry, FileSeen) else None


def note_read(memory: SessionMemory, path: str, digest: str, total_lines: int, first: int, last: int) -> int:
    """Record a read; returns how often exactly this range of exactly this content was read before."""
    entry = seen(memory, path)
    if entry is None or entry.digest != digest:
        entry = FileSeen(digest, total_lines)
    _remember(memory, path, entry)
    before = entry.repeats.get((first, last), 0)
    entry.repeats[(first, last)] = before + 1
    entry.ranges.append((first, last))
    return before


def note_written(memory: SessionMemory, path: str, digest: str, total_lines: int) -> None:
    """What is on disk now comes from this session."""
    _remember(memory, path, FileSeen(digest, total_lines, written_here=True))


def forget(memory: SessionMemory, path: str) -> None:
    memory.file_reads.pop(path, None)


def forget_repeats(memory: SessionMemory) -> None:
    """After compression the model has the texts no longer: re-reads are wanted again."""
    for entry in memory.file_reads.values():
        if isinstance(entry, FileSeen):
            entry.repeats.clear()


def _remember(memory: SessionMemory, path: str, entry: FileSeen) -> None:
    memory.file_reads.pop(path, None)
    memory.file_reads[path] = entry
    if len(memory.file_reads) > MAX_FILES:
        del memory.file_reads[next(iter(memory.file_reads))]
