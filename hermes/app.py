"""What the commands run: one function for each server, from settings to an exit code.

Each imports what it serves when it is called, so that a stdio host never loads the web stack, and the peer of one is
greeted while the rest is still being loaded. The tree itself is started in ``start``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.config import LoadedSettings, child_environment
from hermes.early_end import end_at_once_on_signals
from hermes.launch import AcpOptions, GatewayOptions, ServeOptions
from hermes.protocols.channels.descriptors import claim_stdio
from hermes.protocols.gateway.ready import greet_early

if TYPE_CHECKING:
    from hermes.nurseries.server_tree import ServerTree
    from hermes.protocols.channels.stdio import StdioChannel


def run_gateway(loaded: LoadedSettings, options: GatewayOptions) -> int:
    """Serve gateway JSON-RPC on standard input and output."""
    end_at_once_on_signals()
    claimed = claim_stdio()
    epoch = greet_early(claimed.output)
    import trio

    from hermes import start
    from hermes.protocols.gateway.surface import serve_stdio

    async def surface(tree: ServerTree, channel: StdioChannel) -> None:
        await serve_stdio(tree, channel, legacy_requests=options.legacy_requests, epoch=epoch, greeted=True)

    return trio.run(start.serve_stdio, loaded, claimed, surface)


def run_acp(loaded: LoadedSettings, options: AcpOptions) -> int:
    """Serve the Agent Client Protocol on standard input and output."""
    end_at_once_on_signals()
    claimed = claim_stdio()
    import trio

    from hermes import start
    from hermes.nurseries.mcp_servers import editor_servers
    from hermes.protocols.acp.surface import serve_stdio

    async def surface(tree: ServerTree, channel: StdioChannel) -> None:
        services = tree.services
        shared = None if loaded.settings.host.skip_configured_mcp else services.mcp
        start_mcp = editor_servers(services, lambda: child_environment(services.settings()), shared)
        await serve_stdio(tree, channel, start_mcp=start_mcp)

    return trio.run(start.serve_stdio, loaded, claimed, surface)


def run_serve(loaded: LoadedSettings, options: ServeOptions) -> int:
    """Serve HTTP, SSE and WebSocket on one port."""
    end_at_once_on_signals()
    import trio

    from hermes.serve import serve

    return trio.run(serve, loaded, options)
