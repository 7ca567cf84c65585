"""A streamable HTTP server for tools by hand, in the loop of the test: honest, or as it is told for the next call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
SAID = {"content": [{"type": "text", "text": "said"}]}


class HostileHttp:
    """One server by hand. ``behaviour`` says what becomes of the next ``tools/call``; then it is honest again."""

    def __init__(self) -> None:
        self.behaviour = ""
        self.port = 0
        self.methods: list[str] = []

    async def serve(self, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        await trio.serve_listeners(self._answer, [listener], task_status=task_status)

    async def _answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                head, body = await _request(stream)
                await self._respond(stream, head, body)
            except (trio.BrokenResourceError, ValueError):
                return

    async def _respond(self, stream: trio.SocketStream, head: str, body: bytes) -> None:
        if not head.startswith("POST"):
            await stream.send_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        message = json.loads(body)
        method = message.get("method", "")
        self.methods.append(method)
        if method == "tools/call" and self.behaviour:
            behaviour, self.behaviour = self.behaviour, ""
            await self._misbehave(stream, behaviour, message["id"])
            return
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": message.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            },
            "tools/list": {"tools": TOOLS},
            "tools/call": SAID,
        }
        if "id" not in message:
            await stream.send_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        await _send_json(stream, {"jsonrpc": "2.0", "id": message["id"], "result": results.get(method, {})})

    async def _misbehave(self, stream: trio.SocketStream, behaviour: str, request_id: Any) -> None:
        events = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        right = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": SAID}).encode()
        match behaviour:
            case "no answer at all":
                return
            case "no end":
                await stream.send_all(events)
                await stream.receive_some()
            case "stream that ends":
                await stream.send_all(events)
            case "half an event":
                await stream.send_all(events + b"event: message\ndata: " + right[:20])
            case "garbage":
                await stream.send_all(events + b"data: {not json}\n\n" * 3)
            case "cut body":
                await stream.send_all(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
                )
            case "error":
                await stream.send_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            case "forgotten session":
                await stream.send_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def _request(stream: trio.SocketStream) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = await stream.receive_some()
        if not chunk:
            raise ValueError("closed")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    wanted = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < wanted:
        body += await stream.receive_some()
    return head.decode(), body


async def _send_json(stream: trio.SocketStream, value: Any) -> None:
    body = json.dumps(value).encode()
    await stream.send_all(JSON_HEAD % len(body) + body)


@asynccontextmanager
async def hostile_http() -> AsyncIterator[HostileHttp]:
    server = HostileHttp()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server
        nursery.cancel_scope.cancel()
