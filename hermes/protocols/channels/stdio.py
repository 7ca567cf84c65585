"""Standard input and output as a channel of lines.

``claim_stdio`` must run before anything that prints is imported: it moves the protocol's descriptors to private
numbers, so that a stray ``print``, a C library or a child process writes to standard error and reads nothing.
End of input means that the client is gone; so does an output that cannot be written.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import trio

from hermes.protocols.channels.descriptors import StdioDescriptors as StdioDescriptors
from hermes.protocols.channels.descriptors import claim_stdio as claim_stdio
from hermes.protocols.channels.message_channel import Frames, Outbox, OutboxFull, OutboxLimits
from hermes.protocols.channels.pipe_streams import READ_SIZE, PipeReceiveStream, PipeSendStream
from hermes.protocols.wire.ndjson import DEFAULT_MAX_LINE, Line, LineSplitter

logger = logging.getLogger(__name__)

BATCH_FRAMES = 256
BATCH_BYTES = 256 * 1024


def open_stdio_streams(claimed: StdioDescriptors) -> tuple[trio.abc.ReceiveStream, trio.abc.SendStream]:
    """The two descriptors as Trio streams. Call inside ``trio.run``."""
    if os.name != "posix":
        return _ThreadReceiveStream(claimed.input), _ThreadSendStream(claimed.output)
    source = _own_description(claimed.input, os.O_RDONLY)
    # A file is always ready, and so cannot be polled.
    reader = PipeReceiveStream(source) if _can_be_polled(source) else trio.lowlevel.FdStream(source)
    return reader, PipeSendStream(_own_description(claimed.output, os.O_WRONLY))


def _can_be_polled(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


def _own_description(fd: int, flags: int) -> int:
    """A new open file description for a pipe or a terminal, so that non-blocking mode is not seen by those who
    share the old one (the shell's 0, 1 and 2 usually do). Sockets and files keep theirs."""
    mode = os.fstat(fd).st_mode
    if sys.platform != "linux" or not (stat.S_ISFIFO(mode) or os.isatty(fd)):
        return fd
    try:
        # Non-blocking from the start: a pipe whose other end is gone already would block the open for ever.
        own = os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return fd
    os.close(fd)
    return own


class StdioChannel:
    """Frames as lines over two streams. Made for standard input and output, works on any pair.

    Parameters: ``max_line``, the longest line taken, in bytes; ``flush_within``, how long ``aclose`` waits for the
    client to read what is queued.
    """

    def __init__(
        self,
        reader: trio.abc.ReceiveStream,
        writer: trio.abc.SendStream,
        *,
        name: str = "stdio",
        max_line: int = DEFAULT_MAX_LINE,
        limits: OutboxLimits | None = None,
        flush_within: float = 5.0,
    ) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer
        self._flush_within = flush_within
        self._splitter = LineSplitter(max_line)
        self._lines: list[Line] = []
        self._at_end = False
        self._outbox = Outbox(limits or OutboxLimits())
        self._aborted = trio.Event()

    @property
    def name(self) -> str:
        return self._name

    async def receive(self) -> Line | None:
        """The next line. None at the end of input, or when the channel was aborted."""
        if self._lines:
            # A burst of lines must not keep the tasks that it starts from running.
            await trio.lowlevel.checkpoint()
        while not self._lines:
            if self._at_end or self._aborted.is_set():
                return None
            try:
                data = await self._reader.receive_some(READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                data = b""
            # Kept reversed, so that taking the next one is not quadratic.
            if data:
                self._lines = self._splitter.feed(bytes(data))[::-1]
            else:
                self._at_end = True
                self._lines = self._splitter.end()[::-1]
        return self._lines.pop()

    def send_nowait(self, frame: bytes) -> bool:
        try:
            return self._outbox.put_nowait(frame)
        except OutboxFull as full:
            logger.warning("%s: the client is cut off: %s", self._name, full)
            self.abort()
            return False

    def send_together_nowait(self, frames: Frames) -> bool:
        return all(self.send_nowait(frame) for frame in frames.whole)

    @property
    def has_room(self) -> bool:
        return self._outbox.has_room

    async def wait_room(self) -> bool:
        return await self._outbox.wait_room()

    async def run_writer(self) -> None:
        """Write lines, many in one write, until closed or the client is gone. A cancelled write closes the output,
        because what follows half a line would not be a frame."""
        whole = True
        try:
            while batch := await self._outbox.next_batch(BATCH_FRAMES, BATCH_BYTES):
                whole = False
                batch.append(b"")
                await self._writer.send_all(b"\n".join(batch))
                whole = True
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            return
        finally:
            if not whole:
                self.abort()

    def companions(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        return ()

    async def flushed(self, within: float) -> bool:
        return await self._outbox.wait_flushed(within)

    def closing_code(self, code: int, reason: str) -> None:
        """Standard output has no close codes."""

    async def aclose(self) -> None:
        self._outbox.close()
        await self._outbox.wait_flushed(self._flush_within)
        self.abort()

    def abort(self) -> None:
        self._aborted.set()
        self._outbox.discard()
        for stream in (self._reader, self._writer):
            _close_now(stream)


@runtime_checkable
class _ClosesNow(Protocol):
    def close(self) -> None: ...


def _close_now(stream: trio.abc.AsyncResource) -> None:
    # A descriptor's stream closes without waiting, and whoever waits on it gets ClosedResourceError.
    if isinstance(stream, _ClosesNow):
        stream.close()


class _ThreadReceiveStream(trio.abc.ReceiveStream):
    """Reading where descriptors cannot be watched (Windows). A cancelled read leaves its thread waiting, and what
    that thread reads is lost: a connection reads again only as long as it lives."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await trio.to_thread.run_sync(os.read, self._fd, max_bytes or READ_SIZE, abandon_on_cancel=True)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class _ThreadSendStream(trio.abc.SendStream):
    """Writing where descriptors cannot be watched (Windows)."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.to_thread.run_sync(self._write, bytes(data), abandon_on_cancel=True)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
