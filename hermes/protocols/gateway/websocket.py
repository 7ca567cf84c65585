"""The gateway on a WebSocket: a client must show who it is (gateway §1.3.2 to §1.3.4), then it is served as others are.

Apart from ``surface.py``, so that a stdio host never loads the WebSocket library. A connection comes and goes; its
sessions stay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.channels.websocket import WebSocketRequest
from hermes.protocols.gateway.admission import AdmissionConfig, Refused, Tickets, admit
from hermes.protocols.gateway.ready import new_epoch
from hermes.protocols.gateway.server import GatewayServer
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class WebSocketEndpoint:
    """The handler for the listener's ``/api/ws``, and the tickets that an HTTP route mints for browsers."""

    handle: Callable[[WebSocketRequest], Awaitable[None]]
    tickets: Tickets


def websocket_handler(tree: ServerTree, admission: AdmissionConfig, *, epoch: str | None = None) -> WebSocketEndpoint:
    """What ``http_listener`` mounts at ``/api/ws``."""
    server = GatewayServer(tree, epoch or new_epoch())
    tickets = Tickets()
    numbers = count(1)

    async def handle(request: WebSocketRequest) -> None:
        verdict = admit(request, admission, tickets)
        if isinstance(verdict, Refused):
            await request.refuse(verdict.code, verdict.reason)
            return
        # Half of the methods' cost at the start of a server that mostly serves HTTP: for its first WebSocket client.
        from hermes.protocols.gateway.surface import serve_channel

        dashboard = server.settings.dashboard
        pings = None if admission.is_loopback or not dashboard.ws_ping_interval else dashboard.ws_ping_interval
        channel = await request.accept(
            name=f"ws{next(numbers)}",
            subprotocol=verdict.subprotocol,
            write_deadline=server.settings.limits.write_deadline,
            ping_interval=pings,
            ping_timeout=dashboard.ws_ping_timeout,
        )
        await serve_channel(server, channel, is_websocket=True)

    return WebSocketEndpoint(handle, tickets)
