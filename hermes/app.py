"""The composition root: settings → services → tree → surfaces. The only file that knows everyone.

Each ``run_…`` owns one process: it opens the store, sweeps what a dead server left, runs the tree until it is stopped,
and returns the exit code. Surfaces are imported by the function that serves them, so that a stdio host never loads the
web stack.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from hermes.agent.store.sqlite import SqliteStore
from hermes.composition import build_services
from hermes.config import LoadedSettings
from hermes.errors import StoreUnavailable
from hermes.launch import AcpOptions, GatewayOptions, ServeOptions
from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.channels.stdio import StdioChannel, StdioDescriptors, claim_stdio, open_stdio_streams

log = logging.getLogger(__name__)

DATABASE = "sessions.db"
EXIT_CANNOT_START = 1

StdioSurface = Callable[[ServerTree, StdioChannel], Awaitable[None]]


async def open_store(home: Path) -> SqliteStore:
    """The home's own database. Raises ``StoreUnavailable`` with a message for people."""
    return await SqliteStore.open(home / DATABASE)


async def start_tree(loaded: LoadedSettings) -> ServerTree:
    """Everything but the surfaces: the store is open, leftovers of a dead server are gone."""
    services = build_services(loaded, await open_store(loaded.home))
    services.supervisor.become_subreaper()
    services.supervisor.sweep()
    return ServerTree(services)


def run_gateway(loaded: LoadedSettings, options: GatewayOptions) -> int:
    """Serve gateway JSON-RPC on standard input and output."""
    claimed = claim_stdio()
    from hermes.protocols.gateway.surface import serve_stdio

    async def surface(tree: ServerTree, channel: StdioChannel) -> None:
        await serve_stdio(tree, channel, legacy_requests=options.legacy_requests)

    return trio.run(_serve_stdio, loaded, claimed, surface)


def run_acp(loaded: LoadedSettings, options: AcpOptions) -> int:
    """Serve the Agent Client Protocol on standard input and output."""
    claimed = claim_stdio()
    from hermes.protocols.acp.surface import serve_stdio

    async def surface(tree: ServerTree, channel: StdioChannel) -> None:
        await serve_stdio(tree, channel)

    return trio.run(_serve_stdio, loaded, claimed, surface)


async def _serve_stdio(loaded: LoadedSettings, claimed: StdioDescriptors, surface: StdioSurface) -> int:
    try:
        tree = await start_tree(loaded)
    except StoreUnavailable as error:
        return _cannot_start(error.message)
    reader, writer = open_stdio_streams(claimed)
    limits = loaded.settings.limits
    channel = StdioChannel(reader, writer, max_line=limits.max_frame_bytes, flush_within=limits.flush_grace)

    async def serve() -> None:
        await surface(tree, channel)

    return await tree.run([("stdio", serve)])


def run_serve(loaded: LoadedSettings, options: ServeOptions) -> int:
    """Serve HTTP, SSE and WebSocket on one port."""
    from hermes.serve import serve

    return trio.run(serve, loaded, options)


def _cannot_start(message: str) -> int:
    log.error("%s", message)
    sys.stderr.write(f"hermes: {message}\n")
    return EXIT_CANNOT_START
