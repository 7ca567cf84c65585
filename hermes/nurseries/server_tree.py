"""ServerTree: the root of everything: start order, signals, draining, stop order, the printable tree.

The stop order (architecture §4): refuse what is new; cancel every session, so that turns settle and rows are written;
close the logs, so that subscriptions drain and writers flush; cancel the surfaces; close the store. Each step has a
deadline. A second signal ends the process at once.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from hermes.early_end import Echoes
from hermes.events import ServerDraining
from hermes.nurseries.artifacts import Artifacts
from hermes.nurseries.browser_broker import BrowserBroker
from hermes.nurseries.browser_capabilities import may_act
from hermes.nurseries.containment import Crash, contained, running_beside
from hermes.nurseries.heap import collect_in_moderation, keep_heap_small
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.services import Services
from hermes.nurseries.session_registry import SessionRegistry
from hermes.nurseries.settlement import Settlement
from hermes.nurseries.spare_threads import lend_threads
from hermes.outcomes import CancelReason, Cause

if TYPE_CHECKING:
    from hermes.nurseries.mcp_servers import McpServers

log = logging.getLogger(__name__)

EXIT_AT_ONCE = 130
EXIT_CRASHED = 1

FLUSH_AT_MOST = 0.5
"""Seconds that clients get for the last frames at shutdown, whatever the configuration says: an exit is prompt."""

EMBEDDED_STOP_WITHIN = 5.0
"""Seconds that a program which embeds the server waits for its end (EM-4)."""

Surface = Callable[[], Awaitable[None]]
"""A surface runs until it is cancelled, or, on stdio, until its peer is gone."""


class ServerTree:
    """One server. ``run`` returns the exit code when everything below has ended."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.scope = ReasonScope("server", "server", None, tree=services.tree)
        self.scope.on_cancel = self.stop
        self.registry = SessionRegistry(services, self.scope)
        self.started_at = services.clock()
        self._stopping: Settlement[CancelReason] = Settlement()
        self.draining = trio.Event()
        """Set when the server begins to stop: refuse what is new."""
        self.sessions_ended = trio.Event()
        """Set when every session has ended: a surface flushes its writers and returns."""
        self.mcp: McpServers | None = services.mcp
        """The configured MCP servers, where the composition root has some."""
        self.browsers = BrowserBroker(lambda action: may_act(services.settings(), action))
        self.artifacts = Artifacts()
        self._surfaces_ended: Settlement[None] = Settlement()
        self._surface_crashed = False

    def stop(self, reason: CancelReason) -> bool:
        """Begin to stop. True for the first call."""
        return self._stopping.settle(reason)

    @property
    def stopping(self) -> bool:
        return self._stopping.settled

    def snapshot(self) -> dict[str, Any]:
        """The live tree as data: every node with state, age, reason, deadline, pids."""
        return self.scope.snapshot()

    async def run(self, surfaces: Sequence[tuple[str, Surface]], *, signals: bool = True) -> int:
        """Run the surfaces over the sessions until the server is stopped.

        The end of a surface stops the server: a stdio host that has gone takes its process along. The exit code is
        ``EXIT_CRASHED`` if it was a crash that ended it.
        """
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    if signals:
                        # With the signals the whole process is ours.
                        await nursery.start(self._watch_signals)
                        nursery.start_soon(keep_heap_small, name="heap")
                        nursery.start_soon(collect_in_moderation, name="collector")
                        nursery.start_soon(lend_threads, name="spare threads")
                    await nursery.start(self.registry.run)
                    nursery.start_soon(self.services.supervisor.keep_journal, name="process journal")
                    if self.mcp is not None:
                        await nursery.start(self.mcp.run, self.scope)
                    if self.services.local_model is not None:
                        nursery.start_soon(self.services.local_model.run, self.scope, name="local model")
                    surface_scope = trio.CancelScope()
                    nursery.start_soon(self._run_surfaces, surfaces, surface_scope, name="surfaces")
                    reason = await self._stopping.wait()
                    log.info("stopping: %s", reason)
                    await self._stop_in_order(reason, surface_scope)
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(deadline=trio.current_time() + 2, shield=True):
                await self.services.store.aclose()
            if self.services.close_connections is not None:
                with trio.CancelScope(deadline=trio.current_time() + 1, shield=True):
                    await contained("connections to providers", self.services.close_connections)
        return EXIT_CRASHED if self._surface_crashed else 0

    async def _run_surfaces(self, surfaces: Sequence[tuple[str, Surface]], scope: trio.CancelScope) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for name, surface in surfaces:
                    nursery.start_soon(self._run_surface, name, surface, name=name)
        self._surfaces_ended.settle(None)

    async def _run_surface(self, name: str, surface: Surface) -> None:
        node = ReasonScope("surface", name, self.scope)
        with node:
            if isinstance(await contained(f"surface {name}", surface), Crash):
                self._surface_crashed = True
        self.stop(CancelReason(Cause.CLIENT_DISCONNECT if not node.cancelled else Cause.NODE_CANCEL, f"{name} ended"))

    async def _stop_in_order(self, reason: CancelReason, surface_scope: trio.CancelScope) -> None:
        limits = self.services.settings().limits
        self.draining.set()
        self.registry.drain()
        self.services.announce.append(ServerDraining())
        with trio.move_on_after(limits.kill_grace + limits.shutdown_grace) as patience:
            await self.registry.close_all(reason)
        if patience.cancelled_caught:
            log.error("some sessions have not ended in time")
            # Their last rows may wait for a lock of another program, and nothing can cancel that.
            self.services.store.stop_waiting()
        self.services.announce.close()
        self.sessions_ended.set()
        # Surfaces put out what is queued and end by themselves; whoever is stalled is cut off.
        if not await self._surfaces_ended.wait_at_most(min(limits.flush_grace, FLUSH_AT_MOST)):
            surface_scope.cancel()

    async def _watch_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        wanted = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        echoes = Echoes()
        with trio.open_signal_receiver(*wanted) as received:
            task_status.started()
            async for number in received:
                if echoes.is_echo(number, trio.current_time()):
                    continue
                if not self.stop(CancelReason(Cause.SHUTDOWN, signal.Signals(number).name)):
                    # The second one: whoever sends it does not want to wait.
                    os._exit(EXIT_AT_ONCE)


@asynccontextmanager
async def open_tree(services: Services) -> AsyncIterator[ServerTree]:
    """A server without surfaces for the length of the block: for programs that embed it, and for their tests.

    Leaving the block stops the server in order, whatever ended the block.
    """
    tree = ServerTree(services)
    began = trio.Event()

    async def host() -> None:
        began.set()
        await tree.sessions_ended.wait()

    async def live() -> None:
        await tree.run([("host", host)], signals=False)

    def stop() -> None:
        tree.stop(CancelReason(Cause.SHUTDOWN, "the host is done"))

    async with running_beside("embedded server", live, stop=stop, within=EMBEDDED_STOP_WITHIN):
        await began.wait()
        yield tree
