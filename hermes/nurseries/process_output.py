"""The output of a child: a pump that carries it from the pipe, and a bounded buffer that keeps the end of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import trio

_CHUNK = 1 << 16
_LARGEST_PIPE = 1 << 20
_HELD_WHILE_ENDING = 1 << 18


class OutputPump:
    """Carries the bytes of one stream to a sink, chunk by chunk; keeps nothing.

    While the process is being ended the pump holds what comes (bounded) instead of calling the sink: a sink
    that raises must not get between us and the kill. `release()` hands it over.

    A sink that takes long per byte says how much it takes at once (`step`): others get their turn in between.
    """

    def __init__(self, stream: trio.lowlevel.FdStream, sink: Callable[[bytes], None], *, step: int = _CHUNK) -> None:
        self._stream = stream
        self._sink = sink
        self._step = step
        self._rest = b""
        self._held = bytearray()
        self._holding = False
        self._at_end = trio.Event()

    @property
    def at_end(self) -> bool:
        """True when every holder of the other end has closed it."""
        return self._at_end.is_set()

    async def run(self) -> None:
        """Read until the end of the stream."""
        while not self.at_end:
            try:
                chunk = await self._stream.receive_some(_CHUNK)
            except trio.BrokenResourceError:
                chunk = b""  # a pseudo-terminal says EIO when its last user has left
            await self._take_in_steps(chunk)

    async def _take_in_steps(self, chunk: bytes) -> None:
        self._rest = chunk[self._step :]
        self._take(chunk[: self._step])
        while self._rest:
            # A cancel here leaves the rest to `release`.
            await trio.lowlevel.checkpoint()
            piece, self._rest = self._rest[: self._step], self._rest[self._step :]
            if piece:
                self._take(piece)

    async def wait_end(self, within: float) -> None:
        """Wait for the end of the stream, at most `within` seconds."""
        with trio.move_on_after(within):
            await self._at_end.wait()

    def hold(self) -> None:
        """From now on keep the output until `release`."""
        self._holding = True

    def release(self) -> None:
        """Hand over what was held, and what lies in the pipe right now."""
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest)
        self._drain_nowait()
        self._holding = False
        held, self._held = bytes(self._held), bytearray()
        if held:
            self._sink(held)

    def _drain_nowait(self) -> None:
        taken = 0
        # Bounded: somebody may still be writing as fast as we read.
        while not self.at_end and taken < _LARGEST_PIPE:
            try:
                chunk = os.read(self._stream.fileno(), _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            taken += len(chunk)
            self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        if not chunk:
            self._at_end.set()
        elif self._holding:
            self._held += chunk[: max(0, _HELD_WHILE_ENDING - len(self._held))]
        else:
            self._sink(chunk)


class OutputBuffer:
    """The last `limit` bytes of an output, addressed by position since its beginning."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._dropped = 0

    @property
    def total(self) -> int:
        """How many bytes there have been; also the position of the next one."""
        return self._dropped + len(self._kept)

    def append(self, chunk: bytes) -> None:
        """Add output; the oldest beyond the limit is forgotten."""
        self._kept += chunk
        excess = len(self._kept) - self._limit
        if excess > 0:
            del self._kept[:excess]
            self._dropped += excess

    def since(self, position: int) -> tuple[bytes, int]:
        """(what is kept from `position` on, number of bytes after `position` that are forgotten)."""
        lost = max(0, self._dropped - position)
        return bytes(self._kept[max(0, position - self._dropped) :]), lost

    def tail(self, count: int) -> bytes:
        """The last `count` bytes."""
        return bytes(self._kept[max(0, len(self._kept) - count) :])


@contextlib.contextmanager
def single_error() -> Iterator[None]:
    """Undo the group that a nursery puts round one lone error, so that callers can catch what they know.

    Only for nurseries whose other tasks do not fail by themselves, as those round one process.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__  # noqa: ASYNC123 (the lone error, as it was raised)
