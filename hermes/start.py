"""From settings to a running tree: the store is opened, what a dead server left is swept, the surfaces are served.

Apart from ``app`` so that a host on standard input and output can be greeted before all this is imported.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Awaitable, Callable

from hermes.agent.store.sqlite import SqliteStore
from hermes.composition import build_services, journal_mode
from hermes.config import LoadedSettings
from hermes.errors import StoreUnavailable
from hermes.nurseries.mcp_servers import tell_sessions
from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.channels.descriptors import StdioDescriptors
from hermes.protocols.channels.stdio import StdioChannel, open_stdio_streams

log = logging.getLogger(__name__)

DATABASE = "sessions.db"
EXIT_CANNOT_START = 1
COLLECTOR = (10_000, 2, 2)
"""What the collector counts while the server works, see ``settle_memory``. With 2,000 instead, a thousand streams had
what their tasks wait in walked through nine times a second, 20 ms each: deltas were late by 70 ms (99 %), now by 3."""

StdioSurface = Callable[[ServerTree, StdioChannel], Awaitable[None]]


async def open_store(loaded: LoadedSettings) -> SqliteStore:
    """The home's own database. Raises ``StoreUnavailable`` with a message for people."""
    return await SqliteStore.open(loaded.home / DATABASE, journal_mode=journal_mode(loaded))


async def start_tree(loaded: LoadedSettings) -> ServerTree:
    """Everything but the surfaces: the store is open, leftovers of a dead server are gone."""
    services = build_services(loaded, await open_store(loaded))
    services.supervisor.become_subreaper()
    services.supervisor.sweep()
    tree = ServerTree(services)
    if services.mcp is not None:
        tell_sessions(services.mcp, tree.registry.live, services.mcp)
    return tree


def settle_memory() -> None:
    """Where the process is ours alone: code and tables live as long as it, the collector need not walk them again.

    A walk is cheap then (4 to 6 ms with 11,000 objects), and what turns leave in circles is looked for more often than
    while the program was being loaded: a server under load held tens of megabytes of it, and freed it 150 ms at a time.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTOR)


async def serve_stdio(loaded: LoadedSettings, claimed: StdioDescriptors, surface: StdioSurface) -> int:
    """Serve one peer on standard input and output; returns the exit code."""
    try:
        tree = await start_tree(loaded)
    except StoreUnavailable as error:
        return cannot_start(error.message, loaded)
    settle_memory()
    reader, writer = open_stdio_streams(claimed)
    limits = loaded.settings.limits
    channel = StdioChannel(reader, writer, max_line=limits.max_frame_bytes, flush_within=limits.flush_grace)

    async def serve() -> None:
        await surface(tree, channel)

    return await tree.run([("stdio", serve)])


def cannot_start(message: str, loaded: LoadedSettings) -> int:
    """Say why, once for each who reads: people on standard error, programs in the log. Returns the exit code."""
    logs = loaded.settings.logging
    if logs.destination == "file" or logs.format == "json":
        log.error("%s", message)
    if logs.destination == "file" or logs.format == "text":
        sys.stderr.write(f"hermes: {message}\n")
    return EXIT_CANNOT_START
