"""A command that runs beside the conversation: its output is kept in a bounded buffer, its end is told once.

The owner gives it a task (`await nursery.start(process.supervise)`); it lives as long as that task. Other
processes that the command leaves behind stay with it: they keep the task alive and are ended with it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import trio

from hermes.nurseries.process_output import OutputBuffer, OutputPump
from hermes.nurseries.process_roster import Entry
from hermes.nurseries.process_spec import (
    ProcessEnd,
    ProcessKind,
    ProcessSpec,
    exit_status,
)
from hermes.nurseries.processes import DRAIN, Clearance, ProcessSupervisor, Streams, feed

_END_OF_INPUT = b"\x04"
_TAKEN_AT_ONCE = 1 << 13
"""Bytes: looking for secrets in them takes a few milliseconds at most."""
_QUICKEST_LOOK = 0.01
_LAZIEST_LOOK = 0.5


class BackgroundProcess:
    """One background command. Everything but `supervise`, `wait`, `kill` and `write` returns at once."""

    def __init__(
        self,
        supervisor: ProcessSupervisor,
        spec: ProcessSpec,
        *,
        buffer_bytes: int = 200_000,
        on_output: Callable[[bytes], None] | None = None,
        on_exit: Callable[[BackgroundProcess], None] | None = None,
    ) -> None:
        self.spec = spec
        self.output = OutputBuffer(buffer_bytes)
        self.end: ProcessEnd | None = None
        self._supervisor = supervisor
        self._on_output = on_output
        self._on_exit = on_exit
        self._entry: Entry | None = None
        self._streams = Streams()
        self._scope = trio.CancelScope()
        self._timed_out = False
        self._said = b""
        self._on_said: Callable[[bytes], None] | None = None
        self.killed = False
        """True once the command has been ended from outside before it ended by itself."""
        self._exited = trio.Event()
        self._gone = trio.Event()
        self._writing = trio.Lock()

    @property
    def process_id(self) -> str:
        """Its id in `ProcessSupervisor.live()`; empty before it is started."""
        return self._entry.process_id if self._entry is not None else ""

    @property
    def pid(self) -> int | None:
        """The pid of the command itself, once started."""
        return self._entry.pid if self._entry is not None else None

    @property
    def exit_code(self) -> int | None:
        """As in `ProcessEnd`; None while the command runs."""
        return self.end.exit_code if self.end is not None else None

    @property
    def running(self) -> bool:
        """True until the command itself has ended; what it left behind may run on."""
        return self.end is None

    @property
    def gone(self) -> bool:
        """True when nothing is left, neither of the command nor of what it left behind."""
        return self._gone.is_set()

    @property
    def stopped(self) -> bool:
        """True if somebody asked for its end."""
        return self._scope.cancel_called

    def adopt(self, entry: Entry, streams: Streams, said: bytes, on_said: Callable[[bytes], None]) -> None:
        """Take over a command that runs already; `supervise` must follow, and starts none then.

        ``said`` is its output so far. ``on_said`` gets the beginning of it here, and the rest, which may be long, in
        pieces from `supervise` before anything new is taken.
        """
        self._entry, self._streams = entry, streams
        on_said(said[:_TAKEN_AT_ONCE])
        self._said, self._on_said = said[_TAKEN_AT_ONCE:], on_said
        entry.kind = ProcessKind.BACKGROUND
        if streams.stdin is not None and entry.spec.terminal is None:
            # Its input was given to it whole.
            streams.stdin.close()

    async def supervise(self, task_status: trio.TaskStatus[BackgroundProcess] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the command and stay with it until nothing of it is left. To be run once, in its owner's nursery.

        `SpawnFailed`, `Overloaded` and `Unsupported` come out of `nursery.start`. `on_exit` is called exactly once
        after a successful start, when `end` is known.
        """
        adopted = self._entry
        entry = self._entry = adopted or self._supervisor.admit(self.spec, ProcessKind.BACKGROUND)
        entry.stop = self.stop
        try:
            if adopted is None:
                self._streams = await self._supervisor.spawn(entry)
            streams = self._streams
            assert streams.stdout is not None
            pump = OutputPump(streams.stdout, self._take_output, step=_TAKEN_AT_ONCE)
            clearance = Clearance()
            try:
                if self.spec.first_input and adopted is None:
                    # Short, so that it goes into an empty pipe at once; a child that is already gone tells that itself.
                    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        await self.write(self.spec.first_input)
                task_status.started(self)
                with self._scope:
                    await self._catch_up()
                    await self._attend(entry, pump)
            finally:
                # Asked here, so that an end at the same moment as the stop is still the command's own.
                self.killed = self.end is None and entry.process is not None and entry.process.returncode is None
                try:
                    clearance = await self._supervisor.clear(entry, streams, pump)  # noqa: ASYNC102 (shielded and bounded inside)
                finally:
                    self._settle(entry, clearance)
        finally:
            self._supervisor.release(entry)
            self._gone.set()

    def stop(self) -> None:
        """Ask for the end of the command and of all it left behind. Does not wait."""
        self._scope.cancel()

    async def kill(self) -> bool:
        """End it and wait until nothing is left. False if the command had already ended by itself."""
        had_ended = self.end is not None
        self.stop()
        await self._gone.wait()
        return not had_ended

    async def wait(self) -> ProcessEnd:
        """Wait until the command itself has ended."""
        await self._exited.wait()
        assert self.end is not None
        return self.end

    async def write(self, data: bytes) -> None:
        """Write to its input. Raises `trio.BrokenResourceError` or `trio.ClosedResourceError` if it reads no more."""
        async with self._writing:
            if self._streams.stdin is None:
                raise trio.ClosedResourceError("this process has no input")
            await self._streams.stdin.send_all(data)

    async def close_stdin(self) -> None:
        """Tell it that no more input comes; harmless if it reads no more."""
        async with self._writing:
            if self._streams.stdin is None:
                return
            if self.spec.terminal is None:
                self._streams.stdin.close()
            else:
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._streams.stdin.send_all(_END_OF_INPUT)

    async def _catch_up(self) -> None:
        """What an adopted command has said before: others get their turn between the pieces."""
        while self._on_said is not None and self._said:
            await trio.lowlevel.checkpoint()
            piece, self._said = self._said[:_TAKEN_AT_ONCE], self._said[_TAKEN_AT_ONCE:]
            self._on_said(piece)

    async def _attend(self, entry: Entry, pump: OutputPump) -> None:
        assert entry.process is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump.run, name=f"output of {self.spec.label}")
            if isinstance(self.spec.stdin, bytes) and self._streams.stdin is not None:
                close = self.spec.terminal is None
                nursery.start_soon(
                    feed, self._streams.stdin, self.spec.stdin, close, name=f"input of {self.spec.label}"
                )
            with trio.move_on_after(math.inf if self.spec.timeout is None else self.spec.timeout) as limit:
                await entry.process.wait()
            self._timed_out = limit.cancelled_caught
            if not self._timed_out:
                await pump.wait_end(DRAIN)
                self._settle(entry, Clearance())
                await self._wait_for_leftovers(entry)
                await pump.wait_end(DRAIN)
            nursery.cancel_scope.cancel()

    async def _wait_for_leftovers(self, entry: Entry) -> None:
        delay = _QUICKEST_LOOK
        while self._supervisor.members(entry):
            await trio.sleep(delay)
            delay = min(delay * 1.5, _LAZIEST_LOOK)

    def _take_output(self, chunk: bytes) -> None:
        self.output.append(chunk)
        if self._on_output is not None:
            self._on_output(chunk)

    def _settle(self, entry: Entry, clearance: Clearance) -> None:
        if self.end is not None or entry.process is None:
            return
        code, number = exit_status(entry.process.returncode)
        self.end = ProcessEnd(code, number, self._timed_out, clearance.forced, 0, clearance.survivors)
        self._exited.set()
        if self._on_exit is not None:
            self._on_exit(self)
