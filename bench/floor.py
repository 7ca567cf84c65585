"""The least that a Trio program can do to answer the benchmarks' clients: no agent, no store, no checks.

It reads the model's chunks, encodes each as an event, runs a command with ``bash -c`` and cancels with cancel scopes.
What Hermes costs is told in multiples of this, measured in the same run, so that figures of different machines and of
busy hours can be compared.

    python floor.py gateway | acp            on standard input and output
    python floor.py serve PORT               HTTP and WebSocket
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio

Frame = dict[str, Any]
Send = Callable[[Frame], Awaitable[None]]

HOST, PORT = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:1/v1").split("/")[2].split(":")
encode = json.JSONEncoder(separators=(",", ":")).encode


async def ask(messages: list[Frame], on_text: Callable[[str], Awaitable[None]]) -> list[Frame]:
    """One streamed request; returns the tool calls."""
    body = encode({"model": "bench", "stream": True, "messages": messages}).encode()
    calls: list[Frame] = []
    async with await trio.open_tcp_stream(HOST, int(PORT)) as stream:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        await stream.send_all(head.encode() + body)
        rest = b""
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                # Chunk sizes and empty lines stand between the events; only the events are of interest.
                if not line.startswith(b"data: "):
                    continue
                if line.startswith(b"data: [DONE]"):
                    return calls
                choices = json.loads(line[6:])["choices"]
                delta = choices[0]["delta"] if choices else {}
                if delta.get("content"):
                    await on_text(delta["content"])
                calls += delta.get("tool_calls", [])
    return calls


Write = Callable[[bytes], Awaitable[None]]
FOLLOWERS: dict[str, list[Write]] = {}
"""Who gets the events of a session besides the client that made it."""


class Gateway:
    """The gateway's methods that the clients use, for one peer. ``write`` puts out a frame that has its bytes."""

    def __init__(self, send: Send, write: Write, nursery: trio.Nursery) -> None:
        self._send = send
        self._write = write
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}
        self._rows: dict[str, list[Frame]] = {}

    async def event(self, kind: str, session: str, payload: Frame) -> None:
        params = {"type": kind, "session_id": session, "payload": payload}
        frame = {"jsonrpc": "2.0", "method": "event", "params": params}
        await self._send(frame)
        if followers := FOLLOWERS.get(session):
            data = websocket_frame(frame)
            for write in followers:
                await write(data)

    async def take(self, frame: Frame) -> None:
        params, result = frame["params"], {}
        match frame["method"]:
            case "session.create":
                result = {"session_id": f"s{len(self._rows)}"}
                self._rows[result["session_id"]] = []
            case "session.activate":
                FOLLOWERS.setdefault(params["session_id"], []).append(self._write)
            case "prompt.submit":
                self._nursery.start_soon(self._turn, params["session_id"], params["text"])
                result = {"status": "streaming"}
            case "session.interrupt":
                self._scopes[params["session_id"]].cancel()
        await self._send({"jsonrpc": "2.0", "id": frame["id"], "result": result})

    async def _turn(self, session: str, text: str) -> None:
        rows = self._rows[session]
        rows.append({"role": "user", "content": text})

        async def on_text(piece: str) -> None:
            await self.event("message.delta", session, {"text": piece})

        await self.event("message.start", session, {})
        with trio.CancelScope() as scope:
            self._scopes[session] = scope
            while calls := await ask(rows, on_text):
                rows.append({"role": "assistant", "content": None, "tool_calls": calls})
                for call in calls:
                    await self.event("tool.start", session, {"name": "terminal"})
                    command = json.loads(call["function"]["arguments"])["command"]
                    if command.startswith("rm -rf"):
                        await self._send({"jsonrpc": "2.0", "id": "srq-1", "method": "approval", "params": {}})
                        await trio.sleep_forever()
                    done = await trio.run_process(
                        ["bash", "-c", command],
                        capture_stdout=True,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        deliver_cancel=kill_group,
                    )
                    output = done.stdout.decode()
                    rows.append({"role": "tool", "tool_call_id": call["id"], "content": output})
                    await self.event("tool.complete", session, {"result": output})
            rows.append({"role": "assistant", "content": "done"})
        status = "interrupted" if scope.cancelled_caught else "complete"
        await self.event("message.complete", session, {"status": status})


async def kill_group(process: trio.Process) -> None:
    os.killpg(process.pid, signal.SIGKILL)


async def gateway() -> None:
    source, sink = trio.lowlevel.FdStream(0), trio.lowlevel.FdStream(1)
    lock = trio.Lock()

    async def send(frame: Frame) -> None:
        async with lock:
            await sink.send_all(encode(frame).encode() + b"\n")

    async with trio.open_nursery() as nursery:
        peer = Gateway(send, sink.send_all, nursery)
        await peer.event("gateway.ready", "", {})
        rest = b""
        async for data in source:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await peer.take(json.loads(line))
        nursery.cancel_scope.cancel()


async def acp() -> None:
    source, sink = trio.lowlevel.FdStream(0), trio.lowlevel.FdStream(1)
    rest = b""
    async for data in source:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            result = {"protocolVersion": 1, "agentCapabilities": {}}
            await sink.send_all(
                encode({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": result}).encode() + b"\n"
            )


# --- HTTP and WebSocket ----------------------------------------------------------------------------------------------


async def serve(port: int) -> None:
    await trio.serve_tcp(connection, port, host="127.0.0.1")


async def connection(stream: trio.SocketStream) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some()
        if not more:
            return
        data += more
    head, data = data.split(b"\r\n\r\n", 1)
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    if b"Sec-WebSocket-Key" in fields:
        await websocket(stream, fields[b"Sec-WebSocket-Key"])
    elif head.startswith(b"GET"):
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    else:
        while len(data) < int(fields[b"Content-Length"]):
            data += await stream.receive_some()
        await chat(stream, json.loads(data))


async def chat(stream: trio.SocketStream, body: Frame) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")

    async def on_text(piece: str) -> None:
        chunk = {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": piece}}]}
        await stream.send_all(f"data: {encode(chunk)}\n\n".encode())

    await ask(body["messages"], on_text)
    await stream.send_all(b"data: [DONE]\n\n")
    await stream.aclose()


def websocket_frame(frame: Frame) -> bytes:
    data = encode(frame).encode()
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
    return b"\x81" + size + data


async def websocket(stream: trio.SocketStream, key: bytes) -> None:
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    await stream.send_all(head + accept + b"\r\n\r\n")
    lock = trio.Lock()

    async def write(data: bytes) -> None:
        async with lock:
            # A client that has gone or does not read costs no more than a try.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.move_on_after(1):
                await stream.send_all(data)

    async def send(frame: Frame) -> None:
        await write(websocket_frame(frame))

    async with trio.open_nursery() as nursery:
        peer = Gateway(send, write, nursery)
        await peer.event("gateway.ready", "", {})
        data = b""
        async for more in stream:
            data += more
            while len(data) > 8:
                size, start = data[1] & 0x7F, 6
                if size == 126:
                    size, start = int.from_bytes(data[2:4], "big"), 8
                if len(data) < start + size:
                    break
                # The clients mask with zeros.
                await peer.take(json.loads(data[start : start + size]))
                data = data[start + size :]
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gateway"]:
            trio.run(gateway)
        case ["acp"]:
            trio.run(acp)
        case ["serve", given]:
            trio.run(serve, int(given))
