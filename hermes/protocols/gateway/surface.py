"""The gateway surface: the method table, and how one client is served, on standard input and output or elsewhere.

A stdio connection is the process's owner: when its input ends, so does the server. WebSocket clients come through
``websocket.py``.
"""

from __future__ import annotations

from typing import Final

from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.channels.message_channel import MessageChannel
from hermes.protocols.error_table import gateway_error, gateway_params_error
from hermes.protocols.gateway import methods_control, methods_live, methods_prompt, methods_session
from hermes.protocols.gateway.announcements import announce
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.events import WireEvent, event_frame
from hermes.protocols.gateway.keyed import adapted
from hermes.protocols.gateway.ready import new_epoch, ready_payload
from hermes.protocols.gateway.server import GatewayServer
from hermes.protocols.rpc.dispatcher import Dialect, RpcConnection
from hermes.protocols.rpc.method_table import MethodTable
from hermes.protocols.wire.jsonrpc import INTERNAL_ERROR, SERVER_ERROR, ErrorObject

ANSWERS_WITHIN: Final = 2.0
"""Seconds that open requests get to be answered after the client has ended its input."""

ALWAYS: Final = frozenset(
    {
        "approval.respond",
        "clarify.lock",
        "clarify.respond",
        "client.capabilities",
        "gateway.ping",
        "ping",
        "request.answer",
        "scope.cancel",
        "secret.respond",
        "session.close",
        "session.interrupt",
        "session.steer",
        "subagent.interrupt",
        "sudo.respond",
        "terminal.read.respond",
    }
)
"""Taken however many requests of the connection wait: what stops, what answers, what asks whether anybody is there."""

STOPS: Final = frozenset({"session.close", "session.interrupt"})
"""What of their session was read before them and has not begun does not begin after them either."""

FAMILIES: Final[tuple[MethodTable[GatewayClient], ...]] = (
    methods_live.methods,
    methods_session.methods,
    methods_prompt.methods,
    methods_control.methods,
)
"""What every conversation needs. The other families have most of the methods, and each start would pay for them."""


def other_families() -> tuple[MethodTable[GatewayClient], ...]:
    from hermes.protocols.gateway.families import OTHER_FAMILIES

    return OTHER_FAMILIES


STDIO_TABLE: Final[MethodTable[GatewayClient]] = MethodTable.combined(*FAMILIES, more=other_families, adapt=adapted)
WEBSOCKET_TABLE: Final[MethodTable[GatewayClient]] = MethodTable.combined(
    *FAMILIES, methods_live.websocket_methods, more=other_families, adapt=adapted
)


def dialect(*, is_websocket: bool) -> Dialect:
    """What is peculiar to this protocol: its numbers, and that calls without an id are answered too (§1.6)."""
    crash_code = INTERNAL_ERROR if is_websocket else SERVER_ERROR

    def map_error(error: Exception, method: str) -> ErrorObject:
        return gateway_error(error, method, crash_code=crash_code)

    return Dialect(
        map_error=map_error,
        map_params_error=gateway_params_error,
        answers_notifications=True,
        always=ALWAYS,
        holds=True,
        stops=STOPS,
    )


async def serve_stdio(
    tree: ServerTree, channel: MessageChannel, *, legacy_requests: bool, epoch: str | None = None, greeted: bool = False
) -> None:
    """Serve the host on standard input and output until its input ends or the server stops.

    Parameters: ``greeted``, the host has had its ready frame already (``ready.greet_early``), with this ``epoch``.
    """
    server = GatewayServer(tree, epoch or new_epoch(), legacy_requests=legacy_requests)
    await serve_channel(server, channel, is_websocket=False, greeted=greeted)


async def serve_channel(
    server: GatewayServer, channel: MessageChannel, *, is_websocket: bool, greeted: bool = False
) -> None:
    """Serve one client to its end."""
    limits = server.settings.limits
    connection: RpcConnection[GatewayClient] = RpcConnection(
        channel,
        WEBSOCKET_TABLE if is_websocket else STDIO_TABLE,
        dialect(is_websocket=is_websocket),
        max_requests=limits.max_requests,
        farewell_within=limits.flush_grace + 1.0,
    )
    client = GatewayClient(server, connection, is_websocket=is_websocket)

    def greet() -> None:
        if not greeted:
            client.send_event(event_frame(ready_event(server, is_websocket=is_websocket), None))
        connection.start_companion(lambda: announce(client), name=f"{channel.name} announcements")
        connection.start_companion(lambda: end_with_server(client), name=f"{channel.name} server end")

    try:
        await connection.run(client, on_open=greet, on_hang_up=lambda: connection.answered(ANSWERS_WITHIN))
    finally:
        client.browsers.connection_lost()


def ready_event(server: GatewayServer, *, is_websocket: bool) -> WireEvent:
    """The first frame of every connection (§1.5)."""
    return WireEvent("gateway.ready", ready_payload(server.epoch, skin=server.skin, is_websocket=is_websocket))


async def end_with_server(client: GatewayClient) -> None:
    """When every session has ended: put out what they said last, then hang up."""
    await client.server.tree.sessions_ended.wait()
    client.catch_up_all()
    client.connection.close(1001, "the server is shutting down")
