"""One HTTP/1.1 connection of the fake provider: h11 for the grammar, a Trio stream for the bytes.

Written on h11 and not on the web stack of the server, because the faults need what a web framework hides: a chunk cut
in half, a socket closed in mid-answer, and the peer's departure noticed while nothing is being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import h11
import trio

READ_SIZE = 65536
MAX_BODY = 512 * 1024 * 1024
"""More than the largest frame that a server takes, so that what it was given can be seen to arrive."""
MAX_READ_AHEAD = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class HttpConnection:
    """Used by one task at a time, except that `wait_peer_gone` may run beside the writing."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_READ_AHEAD)

    async def next_request(self) -> HttpRequest | None:
        """None when the peer has left or does not speak HTTP."""
        try:
            return await self._read_request()
        except (h11.RemoteProtocolError, trio.BrokenResourceError):
            return None

    async def wait_peer_gone(self) -> None:
        """Return when the peer closes its side. What it sends before that is kept for the next request."""
        ahead = 0
        while ahead < MAX_READ_AHEAD:
            try:
                data = await self._stream.receive_some(READ_SIZE)
            except trio.BrokenResourceError:
                return
            if not data:
                return
            self._http.receive_data(data)
            ahead += len(data)

    async def send_head(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        await self._send(h11.Response(status_code=status, headers=list(headers)))

    async def send_body(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def send_half(self, data: bytes) -> None:
        """Half of an encoded piece. Nothing can be sent after it but the end of the connection."""
        encoded = self._http.send(h11.Data(data=data)) or b""
        await self._stream.send_all(encoded[: len(encoded) // 2])

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    def reuse(self) -> bool:
        """Get ready for the next request; False if the connection must close."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def _read_request(self) -> HttpRequest | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            match event:
                case h11.NEED_DATA:
                    await self._receive()
                case h11.Request():
                    head = event
                case h11.Data():
                    body += event.data
                    if len(body) > MAX_BODY:
                        return None
                case h11.EndOfMessage() if head is not None:
                    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
                    return HttpRequest(head.method.decode(), head.target.decode("latin-1"), headers, bytes(body))
                case _:
                    return None

    async def _receive(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        self._http.receive_data(await self._stream.receive_some(READ_SIZE))

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send_all(data)
