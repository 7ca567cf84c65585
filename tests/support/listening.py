"""A running listener for tests, and small applications to put behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from hermes.protocols.channels.http_listener import HttpListener, ListenerLimits, listening_port, open_listeners
from hermes.protocols.channels.websocket import WebSocketRequest

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Running:
    """The listener, its address, and the scope of its tree."""

    def __init__(self, listener: HttpListener, port: int) -> None:
        self.listener = listener
        self.port = port
        self.drain = trio.Event()
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._clients: list[trio.SocketStream] = []

    async def connect(self) -> trio.SocketStream:
        """A client's connection, closed at the end of the block."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self._clients.append(stream)
        return stream

    def close_clients(self) -> None:
        for stream in self._clients:
            stream.socket.close()

    async def get(self, stream: trio.SocketStream, path: str) -> bytes:
        """One GET on a kept-alive connection; the answer must have a Content-Length."""
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return await read_answer(stream)


@asynccontextmanager
async def listening(
    app: Asgi,
    *,
    websockets: Mapping[str, Callable[[WebSocketRequest], Awaitable[None]]] | None = None,
    limits: ListenerLimits | None = None,
) -> AsyncIterator[Running]:
    """The whole server, cancelled at the end of the block."""
    limits = limits or ListenerLimits()
    listeners = await open_listeners("127.0.0.1", 0, limits)
    running = Running(HttpListener(app, websockets=websockets, limits=limits), listening_port(listeners))

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        with running.scope:
            await running.listener.serve(listeners, drain=running.drain, task_status=task_status)
        running.ended.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: serve(task_status))
            try:
                yield running
            finally:
                running.close_clients()
            running.scope.cancel()
            await running.ended.wait()


async def read_answer(stream: trio.SocketStream) -> bytes:
    """One answer: head, and as much body as it declares. What was read before the connection closed, if it did."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = bytes(await stream.receive_some())
        if not part:
            return data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        part = bytes(await stream.receive_some())
        if not part:
            break
        body += part
    return head + b"\r\n\r\n" + body


async def small_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers ``/flood`` with an endless stream, ``/idle`` with one that stays silent, ``/crash`` not at all, and
    everything else with its path. Has no lifespan."""
    if scope["type"] != "http" or scope["path"] == "/crash":
        raise RuntimeError("not served")
    path = scope["path"].encode()
    streaming = path in (b"/flood", b"/idle")
    headers = [] if streaming else [(b"content-length", str(len(path)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if path == b"/idle":
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await trio.sleep_forever()
    while path == b"/flood":
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    await send({"type": "http.response.body", "body": path, "more_body": False})
