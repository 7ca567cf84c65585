"""A small client of the gateway protocol over a WebSocket, for commands that talk to a running server.

One reader: ``receive`` gives what comes; ``call`` sends a request and reads until its answer, handing everything else
to ``on_frame``. Nothing here knows the server's inside: it speaks the protocol as any host would.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import click
import trio_websocket

from hermes.cli.gateway_link import CallFailed, Frame, LinkLost
from hermes.cli.running_server import OTHER_KEY

UNAUTHORIZED = 4401
MAX_FRAME = 384 * 1024 * 1024


class GatewayConnection:
    """One connection. Use inside ``connected``."""

    def __init__(self, socket: trio_websocket.WebSocketConnection) -> None:
        self._socket = socket
        self._last_id = 0

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Raises ``LinkLost``."""
        try:
            await self._socket.send_message(json.dumps({"jsonrpc": "2.0", **frame}))
        except trio_websocket.ConnectionClosed as error:
            raise LinkLost(self.why_lost()) from error

    async def receive(self) -> Frame | None:
        """The next frame; None when the server has closed the connection."""
        try:
            frame: Frame = json.loads(await self._socket.get_message())
        except trio_websocket.ConnectionClosed:
            return None
        return frame

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        on_frame: Callable[[Frame], None] = lambda _: None,
    ) -> Any:
        """The result; raises ``CallFailed``."""
        self._last_id += 1
        await self.send({"id": self._last_id, "method": method, "params": dict(params or {})})
        while (frame := await self.receive()) is not None:
            if frame.get("id") == self._last_id and "method" not in frame:
                if "error" in frame:
                    raise CallFailed(method, frame["error"])
                return frame["result"]
            on_frame(frame)
        raise LinkLost(self.why_lost())

    def why_lost(self) -> str:
        closed = self._socket.closed
        why = f": {closed.reason or closed.name} ({closed.code})" if closed is not None else ""
        hint = OTHER_KEY if closed is not None and closed.code == UNAUTHORIZED else ""
        return f"the server closed the connection{why}{hint}"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[GatewayConnection]:
    """Connect, or say in words why not."""
    shown = url.partition("?")[0]
    if not _is_websocket(url):
        raise click.ClickException(
            f"{shown!r} is no address of a gateway; one looks like ws://host:port/api/ws?token=…"
        )
    try:
        async with trio_websocket.open_websocket_url(url, max_message_size=MAX_FRAME) as socket:
            yield GatewayConnection(socket)
    except (OSError, trio_websocket.HandshakeError) as error:
        why = str(error) or str(error.__cause__ or error.__context__ or type(error).__name__)
        raise click.ClickException(f"cannot connect to {shown}: {why}. Is `hermes serve` running?") from error


def _is_websocket(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
