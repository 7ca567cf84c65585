"""The process supervisor: no child process, however it behaves, outlives the scope that started it.

Every command gets its own session, a tag in its environment and a place in the roster. It ends when its direct
child ends; then, or on cancel or timeout, everything that descends from it is asked to stop (SIGTERM), and after
a grace killed, until /proc shows nothing of it any more. That clean-up is shielded and bounded by the grace plus
`HARD_LIMIT`. A tree that stops politely costs only the milliseconds it needs.

Who owns the scopes and nurseries in which commands run is decided elsewhere; `run` needs none, background and
piped processes (`background_process.py`, `piped_process.py`) are supervised in the task that their owner gives
them. Out of reach: a process that has dropped every mark and was born in the last moment before the server was killed
(`process_journal.py`), and one that another user owns. On systems other than Linux the process group is all that is
reached.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

import trio

from hermes.nurseries import process_tree
from hermes.nurseries.process_journal import ProcessJournal, forget_dead, has_dead, recorded
from hermes.nurseries.process_output import OutputPump, single_error
from hermes.nurseries.process_roster import Entry, Roster
from hermes.nurseries.process_spec import (
    LiveProcess,
    ProcessEnd,
    ProcessKind,
    ProcessSpec,
    Stdin,
    TerminalSize,
    exit_status,
    spawn_failure,
)
from hermes.nurseries.process_tree import TAG_VARIABLE, OwnerTag, ProcessStat
from hermes.nurseries.pty_process import open_terminal, resize, under_terminal
from hermes.records import dataclass

logger = logging.getLogger(__name__)

HARD_LIMIT = 2.0
JUST_BEGUN = 0.2
"""Seconds in which a command has nothing yet that it would have to clean up."""
DRAIN = 0.05
_FIRST_LOOK = 0.001
_DOUBTS = 5
_SLOWEST_LOOK = 0.01
_JOURNAL_SOON, _JOURNAL_LATE = 0.1, 0.5


@dataclass(slots=True)
class Streams:
    """Our ends of a child's streams. With a terminal `stdin` and `stdout` are the same stream."""

    stdin: trio.lowlevel.FdStream | None = None
    stdout: trio.lowlevel.FdStream | None = None
    stderr: trio.lowlevel.FdStream | None = None

    def close(self) -> None:
        """Give the descriptors back. May be called again."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()


@dataclass(frozen=True, slots=True)
class Clearance:
    """What it took to end a tree."""

    ended: int = 0
    forced: bool = False
    survivors: tuple[int, ...] = ()


@dataclass(slots=True)
class Handover:
    """How a running command passes to another owner.

    Once ``asked`` is set, ``take`` is called with it, without any wait between: from there on it is the other's to
    clear and to release. It may raise; then the command is ended here.
    """

    take: Callable[[Entry, Streams], None]
    asked: trio.Event = field(default_factory=trio.Event)


class ProcessSupervisor:
    """Starts and ends all child processes of one server. Nothing else in the server may start one."""

    def __init__(
        self, owner: OwnerTag, *, kill_grace: float = 0.5, limit_per_session: int = 64, home: Path | None = None
    ) -> None:
        self._owner = owner
        self._home = home
        self._busy = trio.Event()
        self._kill_grace = kill_grace
        self._roster = Roster(owner, limit_per_session)
        self._lost: list[Entry] = []

    def become_subreaper(self) -> bool:
        """Call once, at start-up, where this process belongs to the server alone.

        From then on every child of this process that is in a session of its own is taken for a descendant of a
        supervised command. False where the system cannot do it: then orphans are found by their marks only.
        """
        done = process_tree.become_subreaper()
        if done:
            self._roster.adopt_orphans()
        return done

    def sweep(self) -> list[int]:
        """Call once, at start-up: kill what a dead server of the same home has left running. Returns the pids."""
        killed = kill_left_behind(self._owner, self._home)
        if killed:
            logger.warning("killed %d processes that an earlier server had left running", len(killed))
        return killed

    async def run(self, spec: ProcessSpec, on_output: Callable[[bytes], None]) -> ProcessEnd:
        """Run a command to its end; on return, and on cancel, nothing of it is left.

        `on_output` gets stdout and stderr in order, in chunks, never concurrently; it must not wait. Raises
        `SpawnFailed`, `Overloaded`, `Unsupported` (terminal).
        """
        end = await self.run_or_hand_over(spec, on_output, None)
        assert end is not None
        return end

    async def run_or_hand_over(
        self, spec: ProcessSpec, on_output: Callable[[bytes], None], handover: Handover | None
    ) -> ProcessEnd | None:
        """As `run`; None if the command was handed over while it ran: then it runs on."""
        entry = self.admit(spec, ProcessKind.FOREGROUND)
        taken = False
        try:
            streams = await self.spawn(entry)
            assert streams.stdout is not None
            pump = OutputPump(streams.stdout, on_output)
            timed_out = False
            clearance = Clearance()
            try:
                with trio.move_on_after(math.inf if spec.timeout is None else spec.timeout) as limit, single_error():
                    await _converse(entry, streams, pump, handover)
                    if handover is not None and handover.asked.is_set() and entry.child_is_unreaped():
                        handover.take(entry, streams)
                        taken = True
                timed_out = limit.cancelled_caught
            finally:
                if not taken:
                    clearance = await self.clear(entry, streams, pump)  # noqa: ASYNC102 (shielded and bounded inside)
            if taken:
                return None
            assert entry.process is not None
            code, number = exit_status(entry.process.returncode)
            leftovers = 0 if timed_out else clearance.ended
            return ProcessEnd(code, number, timed_out, clearance.forced, leftovers, clearance.survivors)
        finally:
            if not taken:
                self.release(entry)

    async def keep_journal(self) -> None:
        """Write down what runs below the server, as long as anything does, for the server that comes after a kill."""
        if self._home is None:
            return
        journal = ProcessJournal(self._home, self._owner)
        try:
            while True:
                await self._busy.wait()
                pause = _JOURNAL_SOON
                while self._roster.entries():
                    pause = (
                        _JOURNAL_SOON if journal.note(self._roster.descendants()) else min(pause * 1.5, _JOURNAL_LATE)
                    )
                    await trio.sleep(pause)
                self._busy = trio.Event()
        finally:
            journal.remove()

    def live(self) -> list[LiveProcess]:
        """What is supervised now, for the live tree."""
        return self._roster.live()

    def pids_of(self, process_id: str) -> list[int]:
        """Every running pid of one supervised command (`LiveProcess.process_id`)."""
        for entry in self._roster.entries():
            if entry.process_id == process_id:
                return sorted(self._roster.members(entry))
        return []

    def pids_of_node(self, node_id: str) -> list[int]:
        """Every running pid of the commands that were started for this node of the live tree."""
        return sorted(
            pid
            for entry in self._roster.entries()
            if entry.spec.node_id == node_id
            for pid in self._roster.members(entry)
        )

    def resize(self, session_id: str, size: TerminalSize) -> None:
        """Change the size of every terminal of this session's commands; their programs are told."""
        for entry in self._roster.entries():
            if entry.spec.session_id == session_id and entry.terminal is not None and entry.process is not None:
                resize(entry.terminal, size)

    async def stop_background(self, *, session_id: str | None = None, turn_id: str | None = None) -> int:
        """End the background processes of a session or a turn (of all, without either). Returns how many.

        They end in their own tasks, also if the caller is cancelled.
        """
        chosen = [
            entry
            for entry in self._roster.entries()
            if entry.kind is ProcessKind.BACKGROUND
            and session_id in (None, entry.spec.session_id)
            and turn_id in (None, entry.spec.turn_id)
        ]
        for entry in chosen:
            if entry.stop is not None:
                entry.stop()
        for entry in chosen:
            await entry.gone.wait()
        return len(chosen)

    # -- for background_process.py and piped_process.py ---------------------------------------------------

    def admit(self, spec: ProcessSpec, kind: ProcessKind) -> Entry:
        """Reserve a place; `release` must follow. Raises `Overloaded`."""
        entry = self._roster.admit(spec, kind)
        self._busy.set()
        return entry

    async def spawn(self, entry: Entry, *, separate_stderr: bool = False) -> Streams:
        """Start the command of this entry; `clear` must follow. A cancel falls before the start or after it."""
        spec = entry.spec
        environment = {TAG_VARIABLE: entry.tag} | {k: v for k, v in spec.env.items() if k != TAG_VARIABLE}
        streams = Streams()
        argv, stdin, stdout, stderr = spec.argv, subprocess.PIPE, subprocess.PIPE, subprocess.STDOUT
        child_end: int | None = None
        try:
            if spec.terminal is not None:
                argv = under_terminal(argv)
                terminal = open_terminal(spec.terminal)
                streams.stdin = streams.stdout = entry.terminal = terminal.stream
                stdin = stdout = child_end = terminal.child_end
            elif spec.stdin is Stdin.NULL:
                stdin = subprocess.DEVNULL
            if separate_stderr:
                stderr = subprocess.PIPE
            # Trio starts the process in a thread that a cancel does not abandon: once started, we hold it.
            process = await trio.lowlevel.open_process(
                list(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                cwd=spec.cwd,
                start_new_session=spec.terminal is None,
            )
        except (OSError, ValueError) as error:
            streams.close()
            raise spawn_failure(spec, error) from error
        except BaseException:
            streams.close()
            raise
        finally:
            if child_end is not None:
                os.close(child_end)
        self._roster.started(entry, process)
        for name in ("stdin", "stdout", "stderr"):
            if getattr(process, name) is not None:
                setattr(streams, name, getattr(process, name))
        return streams

    async def clear(self, entry: Entry, streams: Streams, pump: OutputPump | None = None) -> Clearance:
        """End everything of this command, then hand over its last output and close its streams. Shielded, bounded."""
        grace = self._kill_grace if entry.spec.kill_grace is None else max(0.0, entry.spec.kill_grace)
        entry.ending = True
        try:
            members = self._roster.members(entry)
            if pump is not None:
                pump.hold()
            if not members:
                clearance = Clearance()
            else:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + grace + 2 * HARD_LIMIT):
                    clearance = await self._end_while_reading(entry, members, grace, pump)
                # A machine that stood still may have used up the time before anything was killed.
                if left := self._roster.members(entry):
                    clearance = await self._kill_late(entry, left)
            self._roster.reap()
            self._retry_lost()
            if clearance.survivors:
                self._lost.append(entry)
                logger.error("%s: processes %s cannot be killed", entry.spec.label, clearance.survivors)
            if pump is not None:
                pump.release()
            return clearance
        finally:
            entry.terminal = None
            streams.close()

    def release(self, entry: Entry) -> None:
        """Give the place back, unless something of the command could not be killed and must be remembered."""
        if entry in self._lost:
            entry.gone.set()
        else:
            self._roster.forget(entry)

    def members(self, entry: Entry) -> dict[int, ProcessStat]:
        """Every running process of this command."""
        return self._roster.members(entry)

    # -- ending a tree --------------------------------------------------------------------------------------

    async def _end_while_reading(
        self, entry: Entry, members: dict[int, ProcessStat], grace: float, pump: OutputPump | None
    ) -> Clearance:
        # Read on meanwhile: a child that says goodbye into a full pipe would use up the whole grace.
        clearance = Clearance()
        async with trio.open_nursery() as nursery:
            if pump is not None:
                nursery.start_soon(pump.run, name=f"last output of {entry.spec.label}")
            clearance = await self._end_members(entry, members, grace)
            if pump is not None and not clearance.survivors:
                await pump.wait_end(DRAIN)
            nursery.cancel_scope.cancel()
        return clearance

    async def _end_members(self, entry: Entry, members: dict[int, ProcessStat], grace: float) -> Clearance:
        polite_until = trio.current_time() + grace
        # A shell that was asked before it had started its first program starts it all the same, and waits for it.
        just_begun = trio.current_time() - entry.started_at < JUST_BEGUN
        last_moment = polite_until + HARD_LIMIT
        asked: set[tuple[int, int]] = set()
        first = {(pid, stat.start) for pid, stat in members.items()}
        seen: set[tuple[int, int]] = set()
        forced = False
        delay = _FIRST_LOOK
        while members and (now := trio.current_time()) < last_moment:
            seen |= {(pid, stat.start) for pid, stat in members.items()}
            if now < polite_until:
                _ask_to_end(entry, members, asked, everyone=just_begun)
                await _exit_or(entry, min(delay, polite_until - now))
            else:
                delay = delay if forced else _FIRST_LOOK
                forced = True
                _signal(entry, members, signal.SIGKILL)
                await _exit_or(entry, delay)
            delay = min(delay * 1.5, _SLOWEST_LOOK)
            members = self._roster.members(entry)
            # The kernel's lists of children can miss a process that is changing its parent at that very moment, which
            # one that forks and dies does all the time.
            for _ in range(_DOUBTS if seen != first else 0):
                if members:
                    break
                await trio.sleep(_FIRST_LOOK)
                members = self._roster.members(entry)
        return Clearance(len(seen), forced, tuple(sorted(members)))

    async def _kill_late(self, entry: Entry, members: dict[int, ProcessStat]) -> Clearance:
        """The signal comes before the first wait: however late it is, it is sent."""
        _signal(entry, members, signal.SIGKILL)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2 * HARD_LIMIT):
            return await self._end_members(entry, members, 0.0)
        return Clearance(len(members), True, tuple(sorted(self._roster.members(entry))))

    def _retry_lost(self) -> None:
        for entry in list(self._lost):
            members = self._roster.members(entry)
            _signal(entry, members, signal.SIGKILL)
            if not members:
                self._lost.remove(entry)
                self._roster.forget(entry)


def find_left_behind(owner: OwnerTag, home: Path | None) -> list[int]:
    """What dead servers of the home have left running."""
    known = {} if home is None else recorded(home, owner)
    return process_tree.find_left_behind(owner, known)


def kill_left_behind(owner: OwnerTag, home: Path | None) -> list[int]:
    """Kill it. Returns the pids."""
    unclean = home is not None and has_dead(home, owner)
    killed = process_tree.kill_left_behind(owner, {} if home is None else recorded(home, owner), unclean=unclean)
    if home is not None:
        forget_dead(home, owner)
    return killed


async def _exit_or(entry: Entry, seconds: float) -> None:
    """Wait a moment, but not beyond the end of the direct child: mostly it is the last of its tree."""
    process = entry.process
    with trio.move_on_after(seconds):
        if process is not None and process.returncode is None:
            await process.wait()
        else:
            await trio.sleep(seconds)


def _ask_to_end(entry: Entry, members: dict[int, ProcessStat], asked: set[tuple[int, int]], *, everyone: bool) -> None:
    """Ask each process once. One that appears later below a living member is that member's own way of cleaning up,
    and is left alone unless ``everyone`` is to be asked."""
    chosen = {
        pid: stat
        for pid, stat in members.items()
        if not asked or ((pid, stat.start) not in asked and (everyone or stat.parent not in members))
    }
    whole_group = not asked
    asked |= {(pid, stat.start) for pid, stat in chosen.items()}
    for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process sees the request only when it goes on
        _signal(entry, chosen, number, whole_group=whole_group)


def _signal_group(group: int, number: signal.Signals) -> bool:
    """False where that is not allowed: then each member is to be tried."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        # The request to end is sent once, a kill again and again; what survives that is told as an error.
        level = logging.WARNING if number == signal.SIGTERM else logging.DEBUG
        logger.log(level, "the process group %d may not be sent %s", group, number.name)
        return False
    return True


def _signal(entry: Entry, members: dict[int, ProcessStat], number: signal.Signals, *, whole_group: bool = True) -> None:
    """Signal the group as a whole (no member can slip through by forking), and each member outside it."""
    group = entry.pid if whole_group else None
    # A group is signalled only if a process of ours was just seen in it: a pid may have a new owner.
    if group is not None and any(stat.group == group == stat.session for stat in members.values()):
        group = group if _signal_group(group, number) else None
    else:
        group = None
    for stat in members.values():
        # Look again: it may have left the group just before the group was signalled.
        now = process_tree.read_stat(stat.pid) if group is not None and stat.group == group else stat
        if now is not None and now.start == stat.start and (group is None or now.group != group):
            process_tree.send_signal(stat, number)


async def _converse(entry: Entry, streams: Streams, pump: OutputPump, handover: Handover | None) -> None:
    """Feed the input, carry the output, until the direct child has ended and the pipe had its moment to drain.

    Or until the command is asked for; what it has said by then has been carried."""
    assert entry.process is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump.run, name=f"output of {entry.spec.label}")
        if isinstance(entry.spec.stdin, bytes) and streams.stdin is not None:
            close = entry.spec.terminal is None
            nursery.start_soon(feed, streams.stdin, entry.spec.stdin, close, name=f"input of {entry.spec.label}")
        if handover is None:
            await entry.process.wait()
        else:
            nursery.start_soon(_when_ended, entry.process, handover.asked, name=f"end of {entry.spec.label}")
            await handover.asked.wait()
        # Not until the last holder has closed it: that may be a server which the command has left running.
        await pump.wait_end(DRAIN)
        nursery.cancel_scope.cancel()


async def _when_ended(process: trio.Process, told: trio.Event) -> None:
    await process.wait()
    told.set()


async def feed(stream: trio.lowlevel.FdStream, data: bytes, close: bool) -> None:
    """Write all of `data`; a child that does not read its input to the end is no error."""
    with contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(data)
    if close:
        stream.close()
