"""Who gets in, what a server does at its limits, and the first packet of a WebSocket."""

from __future__ import annotations

import base64
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import http_driver
from tests.support.server_process import HttpServer, free_port, http_server, http_status, server_process

pytestmark = pytest.mark.e2e
LIMIT = 25
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


@pytest.mark.fault("B-177")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("end", ["client", "server"])
async def test_a_flood_that_nobody_read_does_not_hold_up_the_end_of_its_connection(end: str, tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server:
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            async with stream:
                await stream.send_all(handshake(server.port, f"?token={server.key}"))
                ping = text_frame({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}})
                # The answers are not read; so the server stops reading at some point, and sending waits.
                with trio.move_on_after(0.5):
                    await stream.send_all(ping * 10_000)
                if end == "server":
                    with trio.fail_after(20):
                        assert await server.stop() == 0
            if end == "client":
                assert await http_status(server.port, "/health") == 200
                with trio.fail_after(20):
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
