"""A streaming HTTP request on a bare socket: the test decides when and how the connection ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio


class StreamingAnswer:
    """The head is read; lines of the body come one by one. Chunked bodies only, as our server sends them."""

    def __init__(self, stream: trio.SocketStream, status: int, headers: dict[str, str], rest: bytes) -> None:
        self.stream = stream
        self.status = status
        self.headers = headers
        self._raw = rest
        self._body = b""
        self._over = False

    async def line(self) -> str | None:
        """The next line of the body without its end, or None at the end of the body."""
        while b"\n" not in self._body:
            if self._over or not await self._more():
                return None
        line, _, self._body = self._body.partition(b"\n")
        return line.rstrip(b"\r").decode()

    async def data(self) -> dict[str, Any] | None:
        """The next ``data:`` line that holds JSON, or None at the end."""
        while (line := await self.line()) is not None:
            if line.startswith("data: {"):
                value: dict[str, Any] = json.loads(line[6:])
                return value
        return None

    async def _more(self) -> bool:
        while True:
            size_line, found, rest = self._raw.partition(b"\r\n")
            if found and len(rest) >= (size := int(size_line, 16)) + 2:
                self._body += rest[:size]
                self._raw = rest[size + 2 :]
                self._over = size == 0
                return size > 0
            chunk = await self.stream.receive_some()
            if not chunk:
                return False
            self._raw += chunk


@asynccontextmanager
async def streaming(
    port: int, method: str, path: str, *, headers: Mapping[str, str], body: Any = None
) -> AsyncIterator[StreamingAnswer]:
    """Send one request; the connection is closed (FIN) when the block is left."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(content)}"]
        lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items())]
        await stream.send_all("\r\n".join([*lines, "", ""]).encode() + content)
        received = b""
        while b"\r\n\r\n" not in received:
            chunk = await stream.receive_some()
            if not chunk:
                raise AssertionError("the connection ended before the answer")
            received += chunk
        head, _, rest = received.partition(b"\r\n\r\n")
        status_line, *fields = head.decode("latin-1").split("\r\n")
        pairs = (field.partition(":") for field in fields)
        yield StreamingAnswer(
            stream, int(status_line.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}, rest
        )
