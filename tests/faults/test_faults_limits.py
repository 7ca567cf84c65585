"""A server at its limits: out of descriptors, beside a client that never reads, beside tools that compute."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import trio

from hermes.testing import Reply
from tests.faults.test_faults_doors import handshake, text_frame
from tests.support.drivers import GatewayDriver, http_driver
from tests.support.fault_play import calls, playing, say, stream, terminal
from tests.support.plugins import install_plugin
from tests.support.proof import PROOF, times
from tests.support.server_process import COMMAND, HttpServer, http_status

pytestmark = [
    pytest.mark.e2e,
    # The client library leaves its socket to the collector when the server closes first.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
PROMISED = 0.1
"""Seconds: the answer to anybody else, and one round of the loop."""
BOUND = PROMISED if PROOF else 10 * PROMISED
"""Ten times the promise for machines that are busy with others."""


# --- descriptors ------------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow_command(tmp_path: Path) -> Path:
    """``hermes`` that may hold 256 descriptors, whatever it asks for."""
    path = tmp_path / "hermes-narrow"
    path.write_text(f'#!/bin/sh\nulimit -n 256\nexec {COMMAND} "$@"\n')
    path.chmod(0o755)
    return path


async def first_line(port: int) -> bytes:
    stream_ = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream_:
        await stream_.send_all(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return (await stream_.receive_some()).split(b"\r\n")[0]


@pytest.mark.fault("B-142")
async def test_three_hundred_clients_of_a_server_with_256_descriptors_cost_its_turns_and_calls_nothing(
    tmp_path: Path, narrow_command: Path
) -> None:
    halves = Reply.of({"text": ["first ", "half, "]}, {"wait_for": "crowd"}, {"text": ["second ", "half"]})
    work = (halves, stream("a"), say("next"))
    async with playing(tmp_path / "home", *work, surface="gateway websocket", command=narrow_command, limit=90) as (
        driver,
        provider,
    ):
        server = cast(HttpServer, driver.server)
        async with http_driver("gateway websocket", server) as other:
            second = cast(GatewayDriver, other)
            await driver.start("one")
            await second.start("two")
            await provider.wait_chunks(1, 2)
            await provider.wait_chunks(2, 1)
            crowd = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(300)]
            await server.wait_until(lambda: "cannot accept a connection" in server.stderr, "the line in the log")
            # Whoever comes now is told so, in words of HTTP, and not left waiting.
            assert b" 503 " in await first_line(server.port)
            assert b" 503 " in await crowd[-1].receive_some()
            # Control calls are answered, the turns that were there go on, to their end and to a stop.
            assert await driver.call("gateway.ping", {}) == {"ok": True}
            assert (await driver.call("session.active_list", {}))["sessions"]
            provider.release("crowd")
            assert (await driver.terminal())["text"] == "first half, second half"
            await second.stop()
            assert (await second.terminal())["status"] == "interrupted"
            for stream_ in crowd:
                await trio.aclose_forcefully(stream_)
            while await http_status(server.port, "/health") != 200:
                await trio.sleep(0.02)
            await driver.start("three")
            assert (await driver.terminal())["text"] == "next"


# --- one that does not read -------------------------------------------------------------------------------------------


@asynccontextmanager
async def deaf(driver: GatewayDriver) -> AsyncIterator[None]:
    """A client of the driver's session that has little room and reads nothing after the greeting."""
    server = cast(HttpServer, driver.server)
    raw = trio.socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await raw.connect(("127.0.0.1", server.port))
    stream_ = trio.SocketStream(raw)
    try:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "session.activate", "params": {"session_id": driver.session_id}}
        await stream_.send_all(handshake(server.port, f"?token={server.key}") + text_frame(ask))
        received = b""
        while b"gateway.ready" not in received:
            received += await stream_.receive_some()
        yield
    finally:
        await trio.aclose_forcefully(stream_)


async def latencies(client: GatewayDriver, until: Any) -> list[float]:
    """How long each of many calls took, made until the condition holds."""
    found: list[float] = []
    while not until():
        began = trio.current_time()
        assert (await client.call("gateway.ping", {}))["ok"] is True
        found.append(trio.current_time() - began)
        await trio.sleep(0.01)
    return sorted(found)


@pytest.mark.fault("B-144")
async def test_beside_a_client_that_never_reads_everybody_else_is_answered_in_time(tmp_path: Path) -> None:
    # Much that never repeats itself, which would be cut; the end tells all of it in one message below 1 MiB.
    text = [f"{number}:{random.Random(number).randbytes(2000).hex()} " for number in range(200)]
    spoken = [step for piece in text for step in ({"text": [piece]}, {"delay": 0.01})]
    config = {"limits": {"write_deadline": 1}}
    work = (say("ready"), Reply.of({"wait_for": "go"}, *spoken))
    async with playing(tmp_path / "home", *work, surface="gateway websocket", config=config, limit=120) as (
        driver,
        provider,
    ):
        server = cast(HttpServer, driver.server)
        await driver.start("one")
        await driver.terminal()
        async with deaf(driver), http_driver("gateway websocket", server) as healthy:
            await driver.start("two")
            await provider.wait_for_request(2)
            provider.release("go")
            gave_up = ("has read nothing for", "does not read; closed")
            told = await latencies(cast(GatewayDriver, healthy), lambda: any(one in server.stderr for one in gave_up))
            # The turn, and who reads it, were not held up.
            end = await driver.terminal()
            assert end["status"] == "complete" and end["text"].split() == "".join(text).split()
        assert told[int(len(told) * 0.99) - 1] < BOUND, told[-5:]


# --- tools that compute -----------------------------------------------------------------------------------------------


BUSY_PLUGIN = """
import os, time, trio
from hermes.agent.ports import ToolFlags, ToolSpec

class Busy:
    spec = ToolSpec("busy", "computes in a thread of the server", {"type": "object", "properties": {}})
    flags = ToolFlags(toolset="shell")

    async def run(self, ctx, arguments):
        return await trio.to_thread.run_sync(compute)

def compute():
    end, number = time.monotonic() + float(os.environ["BUSY_SECONDS"]), 0
    while time.monotonic() < end:
        number += 1
    return "x" * 10_000_000

def tool(services):
    return Busy()
"""


@pytest.mark.fault("B-150")
@pytest.mark.parametrize("where", ["a process", "a thread of the server"])
async def test_a_tool_that_computes_and_returns_much_delays_neither_loop_nor_heartbeats(
    where: str, tmp_path: Path
) -> None:
    seconds = times(30, 2)
    environ = install_plugin(tmp_path / "plugins", "busy", BUSY_PLUGIN) | {"BUSY_SECONDS": str(seconds)}
    code = f"import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass\nprint('x' * 10**7)"
    (tmp_path / "burn.py").write_text(code)
    work = terminal(f"python3 {tmp_path / 'burn.py'}") if where == "a process" else calls(("busy", {}))
    async with playing(
        tmp_path / "home", work, say("done"), surface="gateway websocket", environ=environ, limit=90 + seconds
    ) as (driver, provider):
        server = cast(HttpServer, driver.server)
        await driver.start("go")
        await driver.wait_for_tool()
        headers = {"Authorization": f"Bearer {server.key}"}
        async with (
            httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=20) as client,
            http_driver("gateway websocket", server) as other,
        ):
            await client.get("/metrics")
            told = await latencies(
                cast(GatewayDriver, other),
                lambda: any(one.get("params", {}).get("type") == "message.complete" for one in driver.frames),
            )
            lines = (await client.get("/metrics")).text.splitlines()
        assert (await driver.terminal())["status"] == "complete"
        lag = float(next(one for one in lines if one.startswith("hermes_loop_longest_round_seconds")).split()[-1])
        assert lag < BOUND and told[int(len(told) * 0.99) - 1] < BOUND, (lag, told[-5:])
        assert len(provider.requests[-1].body["messages"][-1]["content"]) < 200_000
