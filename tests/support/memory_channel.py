"""A MessageChannel without bytes on a wire: the test is the client."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from hermes.protocols.channels.message_channel import Frames, Outbox, OutboxFull, OutboxLimits
from hermes.protocols.wire.ndjson import Line


class MemoryChannel:
    """What the server sends is collected in ``sent``; what the client says is given with ``say``."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.sent: list[Any] = []
        self.raw: list[bytes] = []
        """The frames of ``sent`` as they were written."""
        self.closed_with: tuple[int, str] | None = None
        self.reads = True
        self._closing = (1000, "")
        self._to_server, self._from_client = trio.open_memory_channel[Line](10_000)
        self._outbox = Outbox(OutboxLimits())
        self._arrived = trio.Event()

    # the client's side

    def say(self, *frames: Any) -> None:
        for frame in frames:
            self._to_server.send_nowait(frame if isinstance(frame, bytes) else json.dumps(frame).encode())

    def say_fault(self, fault: Line) -> None:
        self._to_server.send_nowait(fault)

    def hang_up(self) -> None:
        self._to_server.close()

    async def heard(self, count: int) -> list[Any]:
        """The first ``count`` frames, once they have arrived."""
        while len(self.sent) < count:
            await self._arrived.wait()
        return self.sent[:count]

    # the server's side

    async def receive(self) -> Line | None:
        try:
            return await self._from_client.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            return None

    def send_nowait(self, frame: bytes) -> bool:
        try:
            return self._outbox.put_nowait(frame)
        except OutboxFull:
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
        while batch := await self._outbox.next_batch(256, 1 << 20):
            self.raw += batch
            self.sent += [json.loads(frame) for frame in batch]
            self._arrived.set()
            self._arrived = trio.Event()

    def companions(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        return ()

    async def flushed(self, within: float) -> bool:
        return await self._outbox.wait_flushed(within)

    def closing_code(self, code: int, reason: str) -> None:
        self._closing = (code, reason)

    async def aclose(self) -> None:
        self._outbox.close()
        await self._outbox.wait_flushed(1)
        self.closed_with = self._closing
        self.abort()

    def abort(self) -> None:
        self._outbox.discard()
        self._from_client.close()
