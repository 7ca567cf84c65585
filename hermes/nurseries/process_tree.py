"""What /proc says about processes: parents, children, sessions, environments; and signals that hit the right one.

Everything here is a short synchronous read of the moment. It knows nothing about supervision: who owns a
process is decided in `process_roster.py`. On a system without /proc every read answers "nothing there".
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping

from hermes.records import dataclass

TAG_VARIABLE = "HERMES_PROCESS_TAG"

_PR_SET_CHILD_SUBREAPER = 36
_LARGEST_ENVIRONMENT = 8 << 20
_KERNEL_THREAD = 0x00200000
_TIMES_EMPTY = 3
_EXEC_WITHIN = 0.2
"""Seconds in which those that are found in an exec are looked at again, so that their marks can be read."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One process at one moment. `start` (ticks since boot) tells it from a later holder of the same pid."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    running: bool
    changing: bool = False
    """In the middle of an exec or of its end, or not ours to look at: its environment cannot be read at this moment."""


@dataclass(frozen=True, slots=True)
class OwnerTag:
    """The mark of one server on its processes: who started them, and for which home."""

    pid: int
    start: int
    home: str
    unique: str

    def __str__(self) -> str:
        return f"{self.pid}.{self.start}.{self.home}.{self.unique}"

    @staticmethod
    def parse(text: str) -> OwnerTag | None:
        """The owner in the tag of a process (`<owner>.<number>`), or None if the text is no such tag."""
        parts = text.split(".")
        if len(parts) < 4 or not (parts[0].isdecimal() and parts[1].isdecimal()):
            return None
        return OwnerTag(int(parts[0]), int(parts[1]), parts[2], parts[3])

    def is_alive(self) -> bool:
        """True while the very process that made this tag still runs."""
        stat = read_stat(self.pid)
        return stat is not None and stat.running and stat.start == self.start


def owner_tag(home: str) -> OwnerTag:
    """A fresh tag for this process as the server of `home`.

    The pid namespace counts as part of the home: seen from another namespace, a living owner's pid means nothing.
    """
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    digest = hashlib.sha256(f"{os.path.realpath(home)}\0{namespace}".encode(errors="surrogateescape")).hexdigest()
    stat = read_stat(os.getpid())
    return OwnerTag(os.getpid(), stat.start if stat else 0, digest[:12], uuid.uuid4().hex[:12])


def become_subreaper() -> bool:
    """Make orphans of our descendants our own children, so that they can be found and reaped. Linux only."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def can_list_children() -> bool:
    """Whether this kernel lists children per task, so that a subtree can be walked without reading all of /proc."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def read_stat(pid: int) -> ProcessStat | None:
    """One process, or None if there is none of that pid."""
    text = _read(f"/proc/{pid}/stat", 4096)
    # The name in parentheses may hold anything, spaces and parentheses included: fields count from its end.
    fields = text[text.rfind(b")") + 2 :].split() if text else []
    if len(fields) < 20:
        return None
    # A dead main thread with other threads still at work shows as a zombie, too.
    running = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    # Where the environment ends is known once an exec has put it there. A kernel thread never has any.
    changing = running and len(fields) > 48 and fields[48] == b"0" and not int(fields[6]) & _KERNEL_THREAD
    return ProcessStat(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), running, changing)


def children_of(pid: int) -> list[int]:
    """The pids whose parent is `pid`, zombies included. May miss one that moves while the list is read.

    For our own process the list is complete: only we reap our children, and a change of our threads (which
    moves children from one list to another) is noticed and read again.
    """
    found: list[int] = []
    threads = _threads_of(pid)
    for _ in range(4):
        found = [
            int(word)
            for thread in threads
            for word in (_read(f"/proc/{pid}/task/{thread}/children", 1 << 20) or b"").split()
        ]
        before, threads = threads, _threads_of(pid)
        if before == threads:
            break
    return found


def read_all() -> dict[int, ProcessStat]:
    """Every process that can be seen, in one pass."""
    return {pid: stat for pid in _all_pids() if (stat := read_stat(pid)) is not None}


def read_environment(pid: int) -> bytes | None:
    """The environment a process was started with, or None if it may not be read or the process is gone."""
    return _read(f"/proc/{pid}/environ", _LARGEST_ENVIRONMENT)


def tag_in(environment: bytes) -> str | None:
    """The value of the tag variable in an environment block."""
    prefix = TAG_VARIABLE.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return None


def send_signal(target: ProcessStat, number: signal.Signals) -> None:
    """Signal exactly the process that `target` describes, never a later holder of its pid."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(target.pid) if sys.platform == "linux" else None
        except OSError:
            handle = None  # no descriptor to spare, or an old kernel: the check below still holds
        try:
            now = read_stat(target.pid)
            if now is None or now.start != target.start:
                return
            if handle is not None and sys.platform == "linux":
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(target.pid, number)
        finally:
            if handle is not None:
                os.close(handle)


def kill_left_behind(owner: OwnerTag, known: Mapping[int, ProcessStat], *, unclean: bool = False) -> list[int]:
    """Kill the processes of dead servers of the same home, with all that descends from them: those that carry a mark,
    and those that are ``known``. ``unclean``: a server of this home is known to have been killed.

    Never this process or one of its ancestors: a server may itself have been started by a tool.
    """
    killed: list[int] = []
    clean = 0
    for _ in range(20):  # a process may fork while we read; the next pass finds its child
        processes = read_all()
        targets = _left_behind(processes, owner, known) if processes else set()
        for pid in sorted(targets):
            send_signal(processes[pid], signal.SIGKILL)
            if pid not in killed:
                killed.append(pid)
        # Whoever forks and ends while we read shows neither itself nor its child: one more look, where there is reason.
        clean = 0 if targets else clean + 1
        if clean > int(unclean or bool(killed)):
            break
    return killed


def find_left_behind(owner: OwnerTag, known: Mapping[int, ProcessStat]) -> list[int]:
    """What ``kill_left_behind`` would kill."""
    processes = read_all()
    return sorted(_left_behind(processes, owner, known)) if processes else []


def _left_behind(processes: dict[int, ProcessStat], owner: OwnerTag, known: Mapping[int, ProcessStat]) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in processes.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    spared = {os.getpid()}
    ancestor = processes.get(os.getpid())
    while ancestor is not None and ancestor.parent not in spared:
        spared.add(ancestor.parent)
        ancestor = processes.get(ancestor.parent)
    until = time.monotonic() + _EXEC_WITHIN
    found: set[int] = set()
    stack = [
        pid
        for pid, stat in processes.items()
        if pid not in spared and (_is_known(stat, known) or _has_dead_owner(stat, owner, until))
    ]
    while stack:
        pid = stack.pop()
        if pid not in found and pid not in spared:
            found.add(pid)
            stack += children.get(pid, [])
    return {pid for pid in found if processes[pid].running}


def _is_known(stat: ProcessStat, known: Mapping[int, ProcessStat]) -> bool:
    return stat.pid in known and known[stat.pid].start == stat.start


def _has_dead_owner(stat: ProcessStat, owner: OwnerTag, until: float) -> bool:
    tag = tag_in(_settled_environment(stat, until))
    author = OwnerTag.parse(tag) if tag else None
    return author is not None and author.home == owner.home and not author.is_alive()


def _settled_environment(stat: ProcessStat, until: float) -> bytes:
    """The environment; one that reads as empty is looked at again, as it does so in the middle of an exec."""
    environment = read_environment(stat.pid)
    empty = 0
    while environment == b"" and empty < _TIMES_EMPTY and time.monotonic() < until:
        now = read_stat(stat.pid)
        if now is None or now.start != stat.start or not now.running:
            break
        if now.changing:
            os.sched_yield()
        else:
            empty += 1
        environment = read_environment(stat.pid)
    return environment or b""


def _all_pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _threads_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _read(path: str, limit: int) -> bytes | None:
    # os.read instead of open(): these reads are the cost of a scan, and a file object doubles it.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = bytearray()
        while len(content) < limit:
            piece = os.read(descriptor, min(limit, 1 << 16))
            if not piece:
                break
            content += piece
        return bytes(content)
    except OSError:
        return None
    finally:
        os.close(descriptor)
