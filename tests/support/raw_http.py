"""A client that shows the bytes: for tests of what a server really writes and when it closes."""

from __future__ import annotations

import json
from typing import Any

import trio

HELLO = {"model": "fake-model", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


def encode_request(path: str, body: Any = None, *, method: str = "POST") -> bytes:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: fake\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def open_raw(origin: str) -> trio.SocketStream:
    host, _, port = origin.removeprefix("http://").partition(":")
    return await trio.open_tcp_stream(host, int(port))


async def read_to_close(stream: trio.SocketStream) -> bytes:
    """Everything until the peer closes, politely or not."""
    received = b""
    try:
        async for data in stream:
            received += data
    except trio.BrokenResourceError:
        return received
    return received


async def read_until(stream: trio.SocketStream, marker: bytes) -> bytes:
    received = b""
    while marker not in received:
        data = await stream.receive_some()
        if not data:
            raise AssertionError(f"closed before {marker!r}: {received!r}")
        received += data
    return received
