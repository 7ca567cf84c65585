"""A provider's side of a connection, byte by byte: the test says what is sent, and sees when the peer has gone."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


class Peer:
    """One accepted connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._received = b""

    async def request(self) -> bytes | None:
        """One whole request; None if the client has closed."""
        while b"\r\n\r\n" not in self._received:
            if not await self._more():
                return None
        head, _, rest = self._received.partition(b"\r\n\r\n")
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ),
            0,
        )
        while len(rest) < length:
            if not await self._more():
                return None
            rest = self._received.partition(b"\r\n\r\n")[2]
        self._received = rest[length:]
        return head + b"\r\n\r\n" + rest[:length]

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def gone(self) -> None:
        """Wait until the client has closed, by whichever way."""
        try:
            while await self._stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            return

    async def _more(self) -> bool:
        try:
            data = await self._stream.receive_some(65536)
        except trio.BrokenResourceError:
            return False
        self._received += bytes(data)
        return bool(data)


class RawProvider:
    """Where it listens and how many connections it has seen."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def raw_provider(
    handle: Callable[[Peer, int], Awaitable[None]], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawProvider]:
    """``handle`` gets each connection and its number, from 1; when it returns, the connection is closed."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    provider = RawProvider(listeners[0].socket.getsockname()[1])

    async def serve(socket: trio.SocketStream) -> None:
        provider.connections += 1
        number = provider.connections
        stream: trio.abc.Stream = socket
        if tls is not None:
            stream = trio.SSLStream(socket, tls, server_side=True, https_compatible=True)
        try:
            await handle(Peer(stream), number)
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(socket)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield provider
        nursery.cancel_scope.cancel()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
