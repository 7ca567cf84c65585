"""Whose process is that? The roster of supervised commands and of everything that descends from them.

Theory of operation, on Linux with the server as subreaper. A descendant of a command is always found below
our own process: either below the command itself, or, once its parent has died, as a direct child of ours, an
orphan. So one walk over our children finds all there is, however many other processes the machine runs. An
orphan belongs to the command

1. in whose tree it was seen before (pid and start time are remembered), or
2. in whose session or process group it still is, or
3. whose tag is in its environment.

One that was never seen, has left its session and has dropped its environment bears no mark. It is a stray, and
belongs to the command that is ending if no other living command can have started it. An orphan in the
server's own session is never ours: every command got a session of its own.

Where orphans do not come to us, the same rules are applied to one pass over all of /proc. Without /proc all
that is known of a command is its process group.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable

import trio

from hermes.errors import Overloaded
from hermes.nurseries.process_spec import LiveProcess, ProcessKind, ProcessSpec
from hermes.nurseries.process_tree import (
    OwnerTag,
    ProcessStat,
    can_list_children,
    children_of,
    read_all,
    read_environment,
    read_stat,
    tag_in,
)

_MOST_LOOKS = 50


class Entry:
    """One supervised command, from its admission until nothing of it is left."""

    def __init__(self, spec: ProcessSpec, kind: ProcessKind, tag: str, process_id: str, started_at: float) -> None:
        self.spec = spec
        self.kind = kind
        self.tag = tag
        self.process_id = process_id
        self.started_at = started_at
        self.process: trio.Process | None = None
        self.start = 0
        self.ending = False
        self.stop: Callable[[], None] | None = None
        self.terminal: trio.lowlevel.FdStream | None = None
        """Our end of its pseudo-terminal, while it is open."""
        self.gone = trio.Event()

    @property
    def pid(self) -> int | None:
        """The pid of the direct child, also after its end; None before it is started."""
        return self.process.pid if self.process is not None else None

    def child_is_unreaped(self) -> bool:
        """True while the direct child runs. Looking reaps it, so its status is never lost to anybody else."""
        return self.process is not None and self.process.returncode is None


class Roster:
    """All supervised commands of one server."""

    def __init__(self, owner: OwnerTag, limit_per_session: int) -> None:
        self._owner = owner
        self._limit = limit_per_session
        self._me = os.getpid()
        self._my_session = os.getsid(0)
        self._entries: dict[str, Entry] = {}
        self._leaders: dict[int, Entry] = {}
        self._seen: dict[int, tuple[int, Entry]] = {}
        self._orphans_come_to_us = False
        self._count = 0

    def adopt_orphans(self) -> None:
        """Told once the server has become subreaper: children in sessions of their own are ours to end and reap."""
        self._orphans_come_to_us = can_list_children()

    def admit(self, spec: ProcessSpec, kind: ProcessKind) -> Entry:
        """Reserve a place for a command. Raises `Overloaded` when its session holds as many as it may."""
        if sum(entry.spec.session_id == spec.session_id for entry in self._entries.values()) >= self._limit:
            raise Overloaded(f"this session already runs {self._limit} processes; end one of them first")
        self._count += 1
        tag = f"{self._owner}.{self._count}"
        entry = Entry(spec, kind, tag, f"p{self._count}", trio.current_time())
        self._entries[tag] = entry
        return entry

    def started(self, entry: Entry, process: trio.Process) -> None:
        """The command of this entry runs as `process`."""
        entry.process = process
        stat = read_stat(process.pid)
        entry.start = stat.start if stat is not None else 0
        self._leaders[process.pid] = entry

    def forget(self, entry: Entry) -> None:
        """Nothing is left of the command; its place is free."""
        self._entries.pop(entry.tag, None)
        if entry.pid is not None and self._leaders.get(entry.pid) is entry:
            del self._leaders[entry.pid]
        for pid in [pid for pid, (_, owner) in self._seen.items() if owner is entry]:
            del self._seen[pid]
        entry.gone.set()

    def descendants(self) -> list[ProcessStat]:
        """Every running descendant of the server in a session of its own, whosever it is; nothing where orphans do not
        come to us."""
        found: list[ProcessStat] = []
        stack = children_of(self._me) if self._orphans_come_to_us else []
        while stack:
            pid = stack.pop()
            stat = read_stat(pid)
            if stat is not None and stat.running:
                if stat.session != self._my_session:
                    found.append(stat)
                stack += children_of(pid)
        return found

    def entries(self) -> list[Entry]:
        """The commands of which something may still run, oldest first."""
        return list(self._entries.values())

    def live(self) -> list[LiveProcess]:
        """The same as data."""
        return [
            LiveProcess(
                entry.process_id,
                entry.kind,
                entry.spec.label,
                entry.spec.session_id,
                entry.spec.turn_id,
                entry.pid,
                entry.started_at,
                entry.ending,
            )
            for entry in self._entries.values()
        ]

    def members(self, entry: Entry) -> dict[int, ProcessStat]:
        """Every running process of this command, its descendants wherever they have gone included."""
        if sys.platform != "linux":
            return self._group_of(entry)
        seen: list[int] | None = None
        found: dict[int, ProcessStat] = {}
        for _ in range(_MOST_LOOKS):
            unreaped = entry.child_is_unreaped()
            if self._orphans_come_to_us:
                listed = self._orphans_among(children_of(self._me))
                found = self._below(entry, unreaped, map(read_stat, listed), children_of)
            else:
                table = read_all()
                listed = []
                orphans = map(table.get, self._orphans_among(table))
                found = self._below(entry, unreaped, orphans, _children_in(table))
            # Nothing found proves something only if nothing died under our eyes. A child that did is reaped by
            # the next look. An orphan that did may have left a child, which is an orphan only now: dead ones
            # stay listed until we reap them, so a list that has not changed proves that there is none.
            if found or (not unreaped and listed == (seen or [])):
                break
            seen = listed
        if not found and entry.child_is_unreaped():
            # /proc cannot be read, as when descriptors have run out: the group can be signalled all the same.
            pid = entry.process.pid if entry.process is not None else 0
            found[pid] = ProcessStat(pid, self._me, pid, pid, entry.start, True)
        return found

    def _below(
        self,
        entry: Entry,
        unreaped: bool,
        orphans: Iterable[ProcessStat | None],
        children: Callable[[int], list[int]],
    ) -> dict[int, ProcessStat]:
        stack = [entry.process.pid] if entry.process is not None and unreaped else []
        stack += [stat.pid for stat in orphans if stat and stat.running and self._owner_of(stat, entry) is entry]
        found: dict[int, ProcessStat] = {}
        while stack:
            pid = stack.pop()
            stat = None if pid in found else read_stat(pid)
            if stat is not None and stat.running:
                found[pid] = stat
                self._seen[pid] = (stat.start, entry)
                stack += children(pid)
        return found

    def reap(self) -> None:
        """Collect orphans that have died. Never a child that somebody waits for, nor one just being started."""
        if not self._orphans_come_to_us:
            return
        starting = any(entry.process is None for entry in self._entries.values())
        for stat in map(read_stat, self._orphans_among(children_of(self._me))):
            if stat is None:
                continue
            known = self._marked_owner(stat) is not None
            # While a command is being started its process is no leader yet, and must not be taken for an orphan.
            if not stat.running and (known or not (starting or stat.session == self._my_session)):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(stat.pid, os.WNOHANG)

    def _orphans_among(self, pids: Iterable[int]) -> list[int]:
        """Those that may belong to a command whose part above them is gone: all but us and the direct children."""
        leaders = self._leaders
        return [p for p in pids if p != self._me and not (p in leaders and leaders[p].child_is_unreaped())]

    def _marked_owner(self, stat: ProcessStat) -> Entry | None:
        start, entry = self._seen.get(stat.pid, (None, None))
        if entry is not None and start == stat.start:
            return entry
        return self._leaders.get(stat.session) or self._leaders.get(stat.group)

    def _owner_of(self, stat: ProcessStat, asker: Entry) -> Entry | None:
        if stat.session == self._my_session:
            return None
        owner = self._marked_owner(stat)
        if owner is not None:
            return owner
        environment = read_environment(stat.pid)
        tag = tag_in(environment or b"")
        if tag is not None and tag.startswith(f"{self._owner}."):
            # A tag of ours that names no entry: left over from a command that is already forgotten.
            return self._entries.get(tag, asker)
        if tag is not None or not self._orphans_come_to_us or stat.parent != self._me:
            return None
        if environment and environment == read_environment(self._me):
            return None  # a child of ours between fork and exec
        return asker if self._only_possible_owner(stat, asker) else None

    def _only_possible_owner(self, stray: ProcessStat, asker: Entry) -> bool:
        return stray.start >= asker.start and not any(
            entry is not asker and (entry.process is None or entry.start <= stray.start)
            for entry in self._entries.values()
        )

    def _group_of(self, entry: Entry) -> dict[int, ProcessStat]:
        if entry.process is None:
            return {}
        entry.child_is_unreaped()
        pid = entry.process.pid
        try:
            os.killpg(pid, 0)
        except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
            return {}
        return {pid: ProcessStat(pid, self._me, pid, pid, 0, True)}


def _children_in(table: dict[int, ProcessStat]) -> Callable[[int], list[int]]:
    children: dict[int, list[int]] = {}
    for stat in table.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    return lambda pid: children.get(pid, [])
