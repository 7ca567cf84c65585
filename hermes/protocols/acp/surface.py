"""The agent over one pair of pipes: ``serve_stdio`` runs until the client is gone or the server stops."""

from __future__ import annotations

from typing import Final

import trio

from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.acp import methods, methods_options, methods_sessions
from hermes.protocols.acp.context import AcpContext, McpStarter
from hermes.protocols.channels.message_channel import MessageChannel
from hermes.protocols.error_table import acp_error, acp_params_error
from hermes.protocols.rpc.dispatcher import Dialect, RpcConnection
from hermes.protocols.rpc.method_table import MethodTable

DIALECT: Final = Dialect(
    map_error=acp_error, map_params_error=acp_params_error, always=frozenset({"session/cancel", "session/close"})
)
METHODS: Final[MethodTable[AcpContext]] = MethodTable.combined(
    methods.TABLE, methods_sessions.TABLE, methods_options.TABLE
)

HANG_UP_WITHIN: Final = 3.0
"""Seconds that turns get to end, and their prompts to be answered, after the client has closed its side."""
LAST_ANSWERS_WITHIN: Final = 1.0
"""Seconds for what was asked right before the client closed its side: it may still read the answers."""
LAST_UPDATES_WITHIN: Final = 0.3
FAREWELL_WITHIN: Final = 2.0
"""Seconds that a client which has closed its side, and does not read, may hold up the end."""


async def serve_stdio(tree: ServerTree, channel: MessageChannel, *, start_mcp: McpStarter | None = None) -> None:
    """Serve one client. Its sessions end with it; returns when the last frame is out.

    Parameters: ``start_mcp``, connects the MCP servers a client names for a session.
    """
    settings = tree.services.settings()
    ctx = AcpContext(tree, start_mcp=start_mcp)
    connection = RpcConnection(
        channel, METHODS, DIALECT, max_requests=settings.limits.max_requests, farewell_within=FAREWELL_WITHIN
    )
    ctx.connected(connection)

    async def leave_with_the_server() -> None:
        await tree.sessions_ended.wait()
        await _last_updates(ctx, LAST_UPDATES_WITHIN)
        connection.close(reason="the server has stopped")

    async def hang_up() -> None:
        sessions = ctx.close_all("the client has closed its side")
        with trio.move_on_after(HANG_UP_WITHIN):
            for session in sessions:
                await session.wait_closed()
        await connection.answered(LAST_ANSWERS_WITHIN)
        await _last_updates(ctx, LAST_UPDATES_WITHIN)

    def opened() -> None:
        connection.start_companion(leave_with_the_server, name="end of the server")

    await connection.run(ctx, on_open=opened, on_hang_up=hang_up)


async def _last_updates(ctx: AcpContext, within: float) -> None:
    """Let the pumps pass on what the sessions have said at their end."""
    with trio.move_on_after(within):
        for view in list(ctx.views.values()):
            if view.started:
                await view.ended.wait()
