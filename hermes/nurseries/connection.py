"""The tasks of one connection: a reader, a writer, companions, and one task for each inbound request that waits.

Owns their nursery and their order of ending, and knows nothing of frames: reading, writing and the farewell are
functions handed in. The connection ends when the reader ends (the peer has hung up), when the writer ends (the peer
cannot be reached), when ``cancel`` is called, or when a scope around it is cancelled. In each case requests and
companions are cancelled first; then, if there is still someone to write to, the writer gets a bounded, shielded time
to put out what is queued; then it is cancelled. A crash of a request or a companion is logged and ends only itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum

import trio

from hermes.nurseries.containment import Crash, PooledTask, TaskPool, contained, open_task_pool

logger = logging.getLogger(__name__)

MAX_COMPANIONS = 1024
"""Tasks of a connection that serve no request: event pumps, keepalive. A bug's guard, not a setting."""

HURRIED_FAREWELL = 1.0
"""How long a connection may hold up the cancellation of the tree around it."""


class ConnectionEnd(Enum):
    """Why a connection ended."""

    PEER_HUNG_UP = "the peer has hung up"
    PEER_UNREACHABLE = "the peer cannot be written to"
    CLOSED = "closed by this side"


class ConnectionTree:
    """One connection's tasks. ``run`` is called once; the other methods work while it runs.

    Parameters: ``max_requests``, how many inbound requests may wait at a time; ``farewell_within``, how long the
    farewell may take at the end; under a cancellation from outside it gets at most ``HURRIED_FAREWELL``.
    """

    def __init__(self, name: str, *, max_requests: int = 256, farewell_within: float = 6.0) -> None:
        self.name = name
        self._max_requests = max_requests
        self._farewell_within = farewell_within
        self._hurried_within = min(farewell_within, HURRIED_FAREWELL)
        self._requests: TaskPool | None = None
        self._companions: TaskPool | None = None
        self._input_scope = trio.CancelScope()
        self._writer_scope = trio.CancelScope(shield=True)
        self._writer_ended = trio.Event()
        self._closed_here = False

    @property
    def waiting_requests(self) -> int:
        return 0 if self._requests is None else self._requests.count

    @property
    def is_running(self) -> bool:
        return self._companions is not None

    async def run(
        self,
        *,
        read: Callable[[], Awaitable[None]],
        write: Callable[[], Awaitable[None]],
        farewell: Callable[[], Awaitable[None]],
        on_hang_up: Callable[[], Awaitable[None]] | None = None,
    ) -> ConnectionEnd:
        """Run the connection to its end and say why it ended.

        Parameters: ``farewell``, flushes and closes the channel, must cope with a peer that is gone;
        ``on_hang_up``, awaited after the reader has ended by itself and before requests are cancelled: the place
        to stop work whose answers may still be written.
        """
        async with trio.open_nursery() as nursery:
            # Shielded, so that a cancellation from outside finds the writer alive for the farewell.
            nursery.start_soon(self._run_writer, write, name=f"{self.name} writer")
            within = self._hurried_within
            try:
                await self._run_input(read, on_hang_up)
                within = self._farewell_within
            finally:
                unreachable = self._writer_ended.is_set() and not self._closed_here
                if not self._writer_ended.is_set():
                    with trio.move_on_after(within, shield=True):
                        await contained(f"{self.name} farewell", farewell)
                self._writer_scope.cancel(reason="the connection has ended")
        if self._closed_here:
            return ConnectionEnd.CLOSED
        return ConnectionEnd.PEER_UNREACHABLE if unreachable else ConnectionEnd.PEER_HUNG_UP

    def start_request(
        self, fn: Callable[[], Awaitable[None]], *, name: str, on_cancelled: Callable[[], None] | None = None
    ) -> PooledTask:
        """Start the waiting part of a request. Raises PoolFull at ``max_requests``.

        Parameters: ``on_cancelled``, called when the task was ended by its own ``cancel``, not by the connection's.
        """
        return self._running(self._requests).start(fn, name=name, on_cancelled=on_cancelled)

    async def wait_room(self, most: int) -> None:
        """Wait until fewer than ``most`` requests wait."""
        while self._requests is not None and self._requests.count >= most:
            await self._requests.wait_changed()

    async def wait_answered(self, within: float) -> None:
        """Wait until no request waits any more, at most ``within`` seconds."""
        if self._requests is not None:
            with trio.move_on_after(within):
                await self._requests.wait_empty()

    def start_companion(self, fn: Callable[[], Awaitable[None]], *, name: str) -> PooledTask:
        """Start a task that lives at most as long as the connection."""
        return self._running(self._companions).start(fn, name=name)

    def cancel(self, reason: str | None = None) -> None:
        """End the connection: cancel its tasks, flush, close."""
        self._closed_here = True
        self._input_scope.cancel(reason=reason)

    def _running(self, pool: TaskPool | None) -> TaskPool:
        if pool is None:
            raise RuntimeError(f"{self.name} is not running")
        return pool

    async def _run_input(
        self, read: Callable[[], Awaitable[None]], on_hang_up: Callable[[], Awaitable[None]] | None
    ) -> None:
        with self._input_scope:
            async with (
                open_task_pool(f"{self.name} companions", MAX_COMPANIONS) as companions,
                open_task_pool(f"{self.name} requests", self._max_requests) as requests,
            ):
                self._companions, self._requests = companions, requests
                try:
                    outcome = await contained(f"{self.name} reader", read)
                    if on_hang_up is not None and not isinstance(outcome, Crash):
                        await contained(f"{self.name} hang-up", on_hang_up)
                finally:
                    self._companions = self._requests = None

    async def _run_writer(self, write: Callable[[], Awaitable[None]]) -> None:
        with self._writer_scope:
            try:
                await contained(f"{self.name} writer", write)
            finally:
                self._writer_ended.set()
                # Nobody to write to: what still runs for this peer is pointless.
                self._input_scope.cancel(reason="the peer cannot be written to")
