"""What every transport offers the dispatcher: whole frames in, whole frames out, one writer.

A frame is queued synchronously and written by the one task that runs ``run_writer``, so a cancelled task can never
tear a frame. The queue is the ``Outbox``. It has two marks: above the low one ``wait_room`` waits, which is for
pumps that can wait (events, read from a cursor); above the high one the client is cut off, because it has stopped
reading and what it does not read must not fill our memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from hermes.protocols.wire.ndjson import Line
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """The two marks. A single frame always fits into an empty outbox, whatever its size."""

    room_frames: int = 256
    room_bytes: int = 4 * 1024 * 1024
    max_frames: int = 16 * 1024
    max_bytes: int = 64 * 1024 * 1024


class OutboxFull(Exception):
    """The high mark would be passed."""


class Outbox:
    """Frames that wait for the writer, in order, bounded in number and bytes."""

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._writing = False
        self._closed = False
        self._changed = trio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def has_room(self) -> bool:
        return len(self._frames) < self._limits.room_frames and self._bytes < self._limits.room_bytes

    @property
    def is_flushed(self) -> bool:
        """Nothing is queued and the last write has returned."""
        return not self._frames and not self._writing

    def put_nowait(self, frame: bytes) -> bool:
        """Queue a frame. False when the outbox is closed. Raises OutboxFull at the high mark."""
        if self._closed:
            return False
        is_over = len(self._frames) >= self._limits.max_frames or self._bytes + len(frame) > self._limits.max_bytes
        if self._frames and is_over:
            raise OutboxFull(f"{len(self._frames)} frames, {self._bytes} bytes wait for a client that does not read")
        self._frames.append(frame)
        self._bytes += len(frame)
        self._tell()
        return True

    async def next_batch(self, max_frames: int, max_bytes: int) -> list[bytes]:
        """The frames that have piled up, at least one; [] when the outbox is closed and empty.

        Counts as being written until the next call of ``next_batch``.
        """
        self._writing = False
        self._tell()
        while not self._frames:
            if self._closed:
                return []
            await self._changed.wait()
        batch: list[bytes] = []
        size = 0
        while self._frames and len(batch) < max_frames and (not batch or size + len(self._frames[0]) <= max_bytes):
            frame = self._frames.popleft()
            batch.append(frame)
            size += len(frame)
        self._bytes -= size
        self._writing = True
        self._tell()
        return batch

    def close(self) -> None:
        """Take no more frames. What is queued is still handed to the writer."""
        self._closed = True
        self._tell()

    def discard(self) -> None:
        """Take no more frames and forget those that are queued."""
        self._frames.clear()
        self._bytes = 0
        self.close()

    async def wait_room(self) -> bool:
        """Wait until the outbox is below its low mark. False when it is closed."""
        while not self._closed and not self.has_room:
            await self._changed.wait()
        return not self._closed

    async def wait_flushed(self, within: float) -> bool:
        """Wait until everything queued has been written. False when that took longer than ``within`` seconds."""
        with trio.move_on_after(within):
            while not self.is_flushed:
                await self._changed.wait()
        return self.is_flushed

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class Frames:
    """Frames that go to many clients in one piece. What a transport makes of them is made once, for all of them."""

    __slots__ = ("prepared", "whole")

    def __init__(self, whole: Sequence[bytes]) -> None:
        self.whole = whole
        self.prepared: bytes | None = None


class MessageChannel(Protocol):
    """One client, whatever carries its frames."""

    @property
    def name(self) -> str:
        """For log lines and task names."""

    async def receive(self) -> Line | None:
        """The next frame, or the fault of one that was none; None when the client is gone or was cut off."""

    def send_nowait(self, frame: bytes) -> bool:
        """Queue one frame. False when the client is gone or was cut off, which this call may have done."""

    def send_together_nowait(self, frames: Frames) -> bool:
        """Queue frames that others get too, or write them at once where that waits for nothing. False as above."""

    @property
    def has_room(self) -> bool:
        """Whether queueing is welcome right now."""

    async def wait_room(self) -> bool:
        """Wait until queueing is welcome: for senders that can wait. False when the client is gone."""

    async def run_writer(self) -> None:
        """Write what is queued until the channel is closed or the client is gone. Exactly one task runs this."""

    def companions(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        """Tasks that must run beside reader and writer, by name: keepalive."""

    async def flushed(self, within: float) -> bool:
        """Wait, at most ``within`` seconds, until everything queued has been written. False when it was not."""

    def closing_code(self, code: int, reason: str) -> None:
        """Say what ``aclose`` shall tell the client. Transports without close codes ignore it."""

    async def aclose(self) -> None:
        """Write what is queued, say goodbye, close. Bounded; never raises for a client that is gone."""

    def abort(self) -> None:
        """Close at once, without goodbye. Wakes whoever reads or writes."""
