"""A child that is spoken to over its standard streams: a tool server with a protocol on stdin and stdout.

Its stderr is read all the time, so that it can never block on it, and given to the caller line by line.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from hermes.nurseries.process_output import OutputPump, single_error
from hermes.nurseries.process_spec import ProcessKind, ProcessSpec, Stdin, exit_status
from hermes.nurseries.processes import ProcessSupervisor

logger = logging.getLogger(__name__)

_LONGEST_LINE = 4096
_LINES_KEPT = 20
_EOF_GRACE = 0.5


class PipedProcess:
    """The running child. `stdin` and `stdout` are plain Trio streams; they are closed with the context."""

    def __init__(
        self, process: trio.Process, stdin: trio.lowlevel.FdStream, stdout: trio.lowlevel.FdStream, lines: StderrLines
    ) -> None:
        self.pid = process.pid
        self.stdin = stdin
        self.stdout = stdout
        self._process = process
        self._lines = lines

    @property
    def exit_code(self) -> int | None:
        """As a shell shows it; None while it runs."""
        return exit_status(self._process.returncode)[0]

    @property
    def stderr_tail(self) -> str:
        """The last lines it wrote to stderr, for an error message."""
        return self._lines.tail

    async def wait(self) -> int:
        """Wait for its end."""
        code = exit_status(await self._process.wait())[0]
        assert code is not None
        return code


@asynccontextmanager
async def open_piped(
    supervisor: ProcessSupervisor,
    spec: ProcessSpec,
    on_stderr_line: Callable[[str], None] | None = None,
    *,
    on_stderr: Callable[[bytes], None] | None = None,
    eof_grace: float = _EOF_GRACE,
) -> AsyncIterator[PipedProcess]:
    """Run the command while the context is open; afterwards nothing of it is left.

    `on_stderr` takes what it writes there as it comes, instead of lines.

    At the end its input is closed. After a normal end of the context it has `eof_grace` seconds to leave by
    itself; after a cancel it is asked to stop at once. Raises `SpawnFailed`, `Overloaded`.
    """
    spec = dataclasses.replace(spec, stdin=Stdin.PIPE, terminal=None)
    lines = StderrLines(on_stderr_line or _log_line(spec.label))
    entry = supervisor.admit(spec, ProcessKind.PIPED)
    try:
        streams = await supervisor.spawn(entry, separate_stderr=True)
        assert entry.process and streams.stdin and streams.stdout and streams.stderr
        pump = OutputPump(streams.stderr, on_stderr or lines.take)
        try:
            with single_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pump.run, name=f"stderr of {spec.label}")
                    yield PipedProcess(entry.process, streams.stdin, streams.stdout, lines)
                    streams.stdin.close()
                    with trio.move_on_after(eof_grace):
                        await entry.process.wait()
                    nursery.cancel_scope.cancel()
        finally:
            streams.stdin.close()
            await supervisor.clear(entry, streams, pump)  # noqa: ASYNC102 (shielded and bounded inside)
            lines.finish()
    finally:
        supervisor.release(entry)


class StderrLines:
    """Cuts bytes into lines of bounded length, and remembers the last few."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._open = bytearray()
        self._last: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def tail(self) -> str:
        """The last lines, joined."""
        return "\n".join([*self._last, *([_text(self._open)] if self._open else [])])

    def take(self, chunk: bytes) -> None:
        """Add bytes; whole lines are told. What a line has beyond its limit is dropped."""
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._extend(piece)
            self.finish()
        self._extend(rest)

    def finish(self) -> None:
        """Tell the line that is open, if there is one."""
        if self._open:
            line, self._open = _text(self._open), bytearray()
            self._last.append(line)
            self._on_line(line)

    def _extend(self, piece: bytes) -> None:
        self._open += piece[: max(0, _LONGEST_LINE - len(self._open))]


def _text(line: bytearray) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r")


def _log_line(label: str) -> Callable[[str], None]:
    return lambda line: logger.debug("%s: %s", label, line)
