"""Who gets in, what a server does at its limits, and the first packet of a WebSocket."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import socket
import struct
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import http_driver
from tests.support.server_process import (
    HttpServer,
    free_port,
    http_server,
    http_status,
    open_descriptors,
    server_process,
)

pytestmark = pytest.mark.e2e
LIMIT = 60
NEVER = Reply.of({"text": ["Hello ", "there "]}, {"wait_for": "never"})


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def handshake(port: int, query: str, origin: str | None = None) -> bytes:
    lines = [
        f"GET /api/ws{query} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        "Sec-WebSocket-Version: 13",
        *([f"Origin: {origin}"] if origin else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def text_frame(frame: Any) -> bytes:
    """A masked text frame; the mask is zero."""
    data = json.dumps(frame).encode()
    assert len(data) < 126
    return bytes([0x81, 0x80 | len(data), 0, 0, 0, 0]) + data


async def greeted(server: HttpServer, query: str, origin: str | None) -> bool:
    """Whether a client of this page with this query gets the greeting of the gateway."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        await stream.send_all(handshake(server.port, query, origin))
        received = b""
        while b"gateway.ready" not in received:
            chunk = await stream.receive_some()
            # A close frame after the handshake is a refusal too.
            body = (received + chunk).partition(b"\r\n\r\n")[2]
            if not chunk or body[:1] == b"\x88":
                return False
            received += chunk
        return True


@pytest.mark.fault("B-167")
async def test_a_page_from_elsewhere_or_without_the_key_does_not_drive_the_agent(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server:
            key = f"?token={server.key}"
            for origin in ("https://evil.example", "null", None, f"http://127.0.0.1:{server.port}"):
                assert not await greeted(server, "", origin), origin
                assert not await greeted(server, "?token=wrong", origin), origin
            assert not await greeted(server, key, "https://evil.example")
            # A desktop's own page has no origin; it has the key.
            assert await greeted(server, key, "null")
            assert await greeted(server, key, None)
            assert await greeted(server, key, f"http://127.0.0.1:{server.port}")


@pytest.mark.fault("B-169")
async def test_a_server_for_the_network_is_never_open_without_a_key(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        port = free_port()
        async with server_process(tmp_path / "home", "serve", "--host", "0.0.0.0", "--port", str(port)) as server:
            while not server.output_ended and await http_status(port, "/health") != 200:
                await trio.sleep(0.02)
            if not server.output_ended:
                for path in ("/v1/models", "/api/runs", "/api/sessions"):
                    assert await http_status(port, path) == 401
                key = (tmp_path / "home" / "server.key").read_text().strip()
                assert len(key) >= 32 and key not in server.stderr
            else:
                assert await server.exit_code() != 0


@pytest.mark.fault("B-183")
async def test_a_frame_in_the_packet_of_the_handshake_is_served(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server:
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            async with stream:
                first = {"jsonrpc": "2.0", "id": 41, "method": "ping", "params": {}}
                await stream.send_all(handshake(server.port, f"?token={server.key}") + text_frame(first))
                received = b""
                while b'"id":41' not in received.replace(b" ", b""):
                    chunk = await stream.receive_some()
                    assert chunk, received
                    received += chunk


CLOSE = bytes([0x88, 0x82, 0, 0, 0, 0]) + (1000).to_bytes(2, "big")


async def metric(server: HttpServer, name: str) -> float:
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=20) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[-1])


@pytest.mark.fault("B-177")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("end", ["says goodbye and reads", "says goodbye and never reads", "is cut off", "server"])
async def test_a_flood_that_nobody_read_does_not_hold_up_the_end_of_its_connection(end: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("limits: {write_deadline: 2}\n")
    ping = text_frame({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}})
    with trio.fail_after(90):
        async with http_server(home) as server:
            before, held = await metric(server, "hermes_connections"), open_descriptors(server.pid)
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            async with stream, trio.open_nursery() as nursery:
                await stream.send_all(handshake(server.port, f"?token={server.key}"))

                async def flood() -> None:
                    # The answers are not read; so the server stops reading at some point, and this waits.
                    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        await stream.send_all(ping * 10_000 + CLOSE)

                nursery.start_soon(flood)
                while await metric(server, "hermes_connections") <= before:
                    await trio.sleep(0.01)
                if end == "server":
                    assert await server.stop() == 0
                elif end == "is cut off":
                    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    await trio.aclose_forcefully(stream)
                elif end == "says goodbye and reads":
                    heard = b""
                    with contextlib.suppress(trio.BrokenResourceError):
                        while data := await stream.receive_some():
                            heard = (heard + data)[-1000:]
                    assert b"\x88" in heard, "the goodbye was not returned"
                if end != "server":
                    # Nothing of the connection is left: neither its task nor its descriptor.
                    while await metric(server, "hermes_connections") > before:
                        await trio.sleep(0.05)
                    while open_descriptors(server.pid) > held + 1:
                        await trio.sleep(0.05)
            if end != "server":
                assert await http_status(server.port, "/health") == 200
                assert await server.stop() == 0


@pytest.mark.fault("B-142")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_out_of_descriptors_keeps_its_turns_and_recovers(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(NEVER, Reply.of({"text": "next"}))) as provider:
            async with http_server(tmp_path / "home", environ=environment(provider)) as server:
                async with http_driver("gateway websocket", server) as driver:
                    await driver.start("one")
                    await provider.wait_chunks(1, 2)
                    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (256, 256))
                    crowd = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(300)]
                    # The control calls of the client that is there still work, and its turn lives.
                    await driver.stop()
                    assert (await driver.terminal())["status"] == "interrupted"
                    for stream in crowd:
                        await trio.aclose_forcefully(stream)
                    while await http_status(server.port, "/health") != 200:
                        await trio.sleep(0.02)
                    await driver.start("two")
                    assert (await driver.terminal())["status"] == "complete"
