"""What somebody without the key, and a client with bad manners, can do to a real server: nothing that lasts."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from tests.support.server_process import HttpServer, http_server, server_process

pytestmark = pytest.mark.e2e
LIMIT = 60
DEPTHS = (129, 300, 600, 1000, 100_000)
PASSING_PATHS = ("/health", "/", "/openapi.json")


async def exchange(port: int, data: bytes) -> bytes:
    """Everything that is answered until the server closes."""
    received = b""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        try:
            await stream.send_all(data)
            async for chunk in stream:
                received += chunk
        except trio.BrokenResourceError:
            return received
    return received


def request(server: HttpServer, line: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *headers, "", ""]).encode() + body


def handshake(server: HttpServer, path: str, *headers: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}")
    return request(server, f"GET {path}", *upgrade, *headers)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_connections_that_ask_for_nothing_are_closed_whatever_was_answered_before(tmp_path: Path) -> None:
    """Or anybody who can connect holds every connection there may be."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server, trio.open_nursery() as nursery:
            for path in PASSING_PATHS:
                whole = request(server, f"GET {path}")
                nursery.start_soon(exchange, server.port, whole)
                # The next request begins and never ends.
                nursery.start_soon(exchange, server.port, whole + b"GET / HT")
            nursery.start_soon(exchange, server.port, request(server, "GET /v1/models"))
            nursery.start_soon(exchange, server.port, preface)


async def test_a_body_with_two_lengths_is_refused_and_what_follows_is_no_request(tmp_path: Path) -> None:
    smuggled = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    lengths = (f"Content-Length: {len(smuggled)}", "Transfer-Encoding: chunked")
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server:
            for order in (lengths, lengths[::-1]):
                for key in (f"Authorization: Bearer {server.key}", "X-Nothing: 1"):
                    answer = await exchange(server.port, request(server, "POST /v1/runs", key, *order, body=smuggled))
                    assert status(answer) == 400, answer
                    assert answer.count(b"HTTP/1.1 ") == 1, answer


async def test_a_handshake_where_no_websocket_is_needs_the_key_like_any_request(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server:
            key = f"Authorization: Bearer {server.key}"
            foreign = "Origin: https://evil.example"
            assert status(await exchange(server.port, handshake(server, "/v1/models"))) == 401
            assert status(await exchange(server.port, handshake(server, "/nowhere"))) == 401
            assert status(await exchange(server.port, handshake(server, "/nowhere", key))) == 404
            assert status(await exchange(server.port, handshake(server, "/v1/models", key, foreign))) == 403
            shown = await exchange(server.port, handshake(server, "/v1/models", key))
            assert (status(shown), json.loads(shown.partition(b"\r\n\r\n")[2])["object"]) == (200, "list")
            assert "Traceback" not in server.stderr and "Error in ASGI" not in server.stderr


async def test_a_websocket_that_is_refused_takes_no_endless_message(tmp_path: Path) -> None:
    """Nor a little of it for each connection that there may be."""
    endless = b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(4)
    piece = bytes(256 * 1024)
    taken = 0
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server:
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            async with stream:
                await stream.send_all(handshake(server, "/api/ws?token=wrong") + endless)
                with pytest.raises(trio.BrokenResourceError):
                    while True:
                        await stream.send_all(piece)
                        taken += len(piece)
    # What the kernel holds for both ends, and what was read at once.
    assert taken < 32 * 1024 * 1024


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", '{"input": "x", "metadata": %s}'),
        ("/v1/responses", '{"input": "hi", "metadata": {"a": %s}}'),
        ("/v1/responses", '{"input": [{"type": "function_call", "name": "x", "call_id": "1", "arguments": %s}, "x"]}'),
        ("/v1/chat/completions", '{"messages": [{"role": "user", "content": %s}]}'),
        ("/api/sessions", '{"title": %s}'),
    ],
)
async def test_json_that_is_nested_too_deeply_is_refused_before_anything_is_done(
    path: str, body: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server, client_of(server) as client:
            for depth in DEPTHS:
                answer = await client.post(path, content=(body % nested(depth)).encode())
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json"), answer.text
            assert (await client.get("/api/sessions")).json()["data"] == []
            assert "Traceback" not in server.stderr


@pytest.mark.parametrize("command", ["gateway", "acp"])
async def test_a_frame_that_is_nested_too_deeply_is_a_parse_error_and_the_connection_lives(
    command: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with server_process(tmp_path / "home", command) as server:
            # What checks the traffic of an editor reads these no better than anybody.
            server.traffic = None
            for depth in DEPTHS:
                for text in ('{"jsonrpc":"2.0","id":%s,"method":"ping"}', '{"jsonrpc":"2.0","id":1,"params":{"a":%s}}'):
                    at = len(server.frames)
                    await server.send_bytes((text % nested(depth)).encode() + b"\n")
                    frame = await server.frame(lambda frame: "error" in frame, after=at)
                    assert (frame["id"], frame["error"]["code"]) == (None, -32700)
            answer = await server.request("initialize", {"protocolVersion": 1})
            assert "Traceback" not in server.stderr
            assert ("result" in answer) == (command == "acp")


async def test_what_a_client_writes_begins_no_line_of_the_log_and_drives_no_terminal(tmp_path: Path) -> None:
    forged = "2026-01-01T00:00:00.000Z CRITICAL forged"
    path = f"/v1/%0d%0a{forged.replace(' ', '%20')}%1b]0;x%07%c2%9b31m%e2%80%a8{forged.replace(' ', '%20')}"
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server, client_of(server) as client:
            close = ("Connection: close", f"User-Agent: \x1b]0;x\x07 {forged}")
            assert status(await exchange(server.port, request(server, f"GET {path}", *close))) in (400, 401)
            assert status(await exchange(server.port, request(server, f"GET {path}", "Connection: close"))) == 401
            session = {b"X-Hermes-Session-Key": "key \N{LINE SEPARATOR} of mine".encode()}
            body = {"messages": [{"role": "user", "content": "x"}]}
            await client.post("/v1/chat/completions", json=body, headers=session)
            await server.wait_until(lambda: "turn ended" in server.stderr, "the end of the turn")
            assert "forged" in server.stderr
            assert not [line for line in server.stderr.splitlines() if line.startswith(forged)]
            assert all(char == "\n" or char.isprintable() for char in server.stderr)


async def test_a_session_is_deleted_with_its_own_files_alone_however_it_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with http_server(home) as server, client_of(server) as client:
            kept = [
                home / folder / name for folder in ("attachments", "spawn-trees") for name in ("another", "default")
            ]
            for folder in kept:
                folder.mkdir(parents=True)
            for name in (".", "..", "...", ".x", "_", "default", "an:other", "another.", "%2e"):
                made = await client.post("/api/sessions", json={"id": name})
                if made.status_code == 201:
                    assert (await client.delete(f"/api/sessions/{quoted(name)}")).status_code == 200, name
                assert all(folder.is_dir() for folder in kept), name
            assert (home / "server.key").is_file()


def quoted(name: str) -> str:
    return "".join(f"%{byte:02x}" for byte in name.encode())


def client_of(server: HttpServer) -> httpx2.AsyncClient:
    headers: dict[str, Any] = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers=headers, timeout=LIMIT)
