"""The processes of a server, written down while it lives, so that its successor knows them without any mark.

A descendant that has cleared its environment, left its session and lost its parents is known as ours only because we
are its subreaper. When the server is killed, that knowledge goes with it; what the journal holds does not. An entry is
a pid with its start time, and so is never mistaken for a later holder of that pid. What came and went unmarked between
two looks (a fraction of a second) is the one thing that a `kill -9` can leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from hermes.nurseries.process_tree import OwnerTag, ProcessStat, read_stat

FOLDER = Path("cache", "processes")
_MOST_LINES = 20_000
_LARGEST = 4 << 20


class ProcessJournal:
    """The journal of one server. Writes are small and go to the page cache, which outlives the process."""

    def __init__(self, home: Path, owner: OwnerTag) -> None:
        self._path = home / FOLDER / str(owner)
        self._written: dict[int, int] = {}
        self._lines = 0

    def note(self, running: Iterable[ProcessStat]) -> bool:
        """Write down those that are new; true if there were any. A disk that takes nothing costs only the journal."""
        now = {stat.pid: stat.start for stat in running}
        new = {pid: start for pid, start in now.items() if self._written.get(pid) != start}
        if not new:
            return False
        self._written |= new
        self._lines += len(new)
        with contextlib.suppress(OSError):
            if self._lines > _MOST_LINES or not self._path.exists():
                self._begin(now)
            else:
                self._append(self._path, new)
        return True

    def remove(self) -> None:
        """The server has ended in order: nothing of it is left."""
        self._path.unlink(missing_ok=True)

    def _begin(self, now: dict[int, int]) -> None:
        self._written, self._lines = dict(now), len(now)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_name(f".{self._path.name}")
        fresh.write_text(f"{_boot_id()}\n")
        self._append(fresh, now)
        fresh.replace(self._path)

    def _append(self, path: Path, entries: dict[int, int]) -> None:
        with path.open("a") as file:
            file.write("".join(f"{pid} {start}\n" for pid, start in entries.items()))


def recorded(home: Path, owner: OwnerTag) -> dict[int, ProcessStat]:
    """What dead servers of this home wrote down and what still runs of it."""
    found: dict[int, ProcessStat] = {}
    for path, author in _journals(home):
        if author.home == owner.home and not author.is_alive():
            found |= {stat.pid: stat for stat in _still_running(path)}
    return found


def has_dead(home: Path, owner: OwnerTag) -> bool:
    """Whether a server of this home has ended without removing its journal."""
    return any(author.home == owner.home and not author.is_alive() for _path, author in _journals(home))


def forget_dead(home: Path, owner: OwnerTag) -> None:
    """Remove the journals of dead servers of this home."""
    for path, author in _journals(home):
        if author.home == owner.home and not author.is_alive():
            with contextlib.suppress(OSError):
                path.unlink()


def _journals(home: Path) -> Iterator[tuple[Path, OwnerTag]]:
    with contextlib.suppress(OSError):
        for path in sorted((home / FOLDER).iterdir()):
            author = OwnerTag.parse(path.name.removeprefix("."))
            if author is not None:
                yield path, author


def _still_running(path: Path) -> Iterator[ProcessStat]:
    try:
        boot, *lines = path.read_text(errors="replace")[:_LARGEST].splitlines() or [""]
    except OSError:
        return
    if not boot or boot != _boot_id():
        return
    for line in lines:
        pid, _, start = line.partition(" ")
        stat = read_stat(int(pid)) if pid.isdecimal() and start.isdecimal() else None
        if stat is not None and stat.running and stat.start == int(start):
            yield stat


def _boot_id() -> str:
    """Start times count from the boot: after another one they mean nothing."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
