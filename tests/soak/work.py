"""Clients that use a server up: turns, connections that are dropped, tools that are cancelled."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from hermes.nurseries.heap import EVERY
from hermes.testing import FakeProvider, Reply, Script
from tests.protocols.http.test_http_disconnect import reset
from tests.soak.measure import Holding, look, settled
from tests.support.drivers import SocketGateway, http_driver
from tests.support.server_process import HttpServer, http_server
from tests.support.sse_client import streaming

CLIENTS = 6
PER_SESSION = 25
"""Turns after which a client closes its session and makes another: a conversation of its own grows, that is no leak."""
KEPT = {"limits": {"replay_sessions": 8, "run_retention": 5}}
"""What is kept of ended sessions and runs for readers that come late: little, so that the first half fills it."""
SLEEP = {"tool_call": {"name": "terminal", "arguments": {"command": "sleep 7461 & sleep 7462"}}}
ECHO = {"tool_call": {"name": "terminal", "arguments": {"command": "echo done"}}}


@dataclass(frozen=True)
class Counts:
    turns: int = 10_000
    connections: int = 2_000
    tools: int = 500

    def share(self, part: float) -> Counts:
        return Counts(
            max(1, int(self.turns * part)), max(1, int(self.connections * part)), max(1, int(self.tools * part))
        )


@dataclass(frozen=True)
class Result:
    counts: Counts
    seed: int
    seconds: float
    first: Holding
    last: Holding


def script() -> Script:
    replies = [
        Reply.of({"text": "It is done."}, when={"last_role": "tool"}),
        Reply.of(SLEEP, when={"last_user_contains": "<nap>"}),
        Reply.of(ECHO, when={"last_user_contains": "<tool>"}),
        Reply.of({"text": [f"word {number} " for number in range(30)]}, when={"last_role": "user"}),
    ]
    return Script(replies=replies, when_used_up="echo", strict=True)


async def soak(
    home: Path, counts: Counts, seed: int, *, memory: bool = True, tell: Callable[[str], None] = lambda text: None
) -> Result:
    """Half of the work, to fill what a server rightly keeps, then the other half: the difference is what leaks.

    ``memory``: of it, too, which takes the time until freed memory is given back."""
    home.mkdir(mode=0o700, parents=True)
    (home / "config.yaml").write_text(json.dumps(KEPT))
    async with FakeProvider(script()) as provider:
        environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}
        async with http_server(home, environ=environ) as server:
            dice = random.Random(seed)
            for tenth in range(5):
                await _work(server, provider, counts.share(0.1), dice)
                tell(f"after {tenth + 1}/10: {await look(server)}")
            # Both looks are behind a moment in which it gives freed memory back.
            await trio.sleep(EVERY + 5 if memory else 1)
            first = await look(server)
            tell(f"at half time: {first}")
            began = trio.current_time()
            for tenth in range(5, 10):
                await _work(server, provider, counts.share(0.1), dice)
                tell(f"after {tenth + 1}/10: {await look(server)}")
            seconds = trio.current_time() - began
            last = await settled(server, first, memory=memory)
            assert "Traceback" not in server.stderr, server.stderr[-4000:]
            return Result(counts, seed, seconds, first, last)


async def _work(server: HttpServer, provider: FakeProvider, counts: Counts, dice: random.Random) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(_talk, server, counts.turns // CLIENTS + 1, number)
        nursery.start_soon(_times, counts.connections, _come_and_go, server, dice)
        nursery.start_soon(_cancel_tools, server, counts.tools)
    provider.requests.clear()


async def _times(count: int, act: Callable[[HttpServer, random.Random], Awaitable[None]], *args: Any) -> None:
    for _ in range(count):
        await act(*args)


async def _talk(server: HttpServer, turns: int, number: int) -> None:
    """Turn after turn, every tenth with a tool; now and then a new session."""
    async with http_driver("gateway websocket", server) as driver:
        assert isinstance(driver, SocketGateway)
        for turn in range(turns):
            await driver.start(f"{number}.{turn} {'<tool>' if turn % 10 == 9 else ''}")
            assert (await driver.terminal())["status"] == "complete"
            driver.frames.clear()
            if turn % PER_SESSION == PER_SESSION - 1:
                await _close(driver)
        await _close(driver)


async def _close(driver: SocketGateway) -> None:
    if driver.session_id:
        await driver.call("session.close", {"session_id": driver.session_id})
    driver.session_id = ""
    driver.frames.clear()


async def _come_and_go(server: HttpServer, dice: random.Random) -> None:
    """A WebSocket, a stream or nothing but a connection, ended one way or the other."""
    kind = dice.choice(["websocket", "stream", "nothing", "half a request"])
    if kind == "websocket":
        async with http_driver("gateway websocket", server) as driver:
            assert isinstance(driver, SocketGateway)
            await driver.call("ping", {})
            if dice.random() < 0.5:
                reset(driver._socket._stream)  # type: ignore[arg-type]
    elif kind == "stream":
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        headers = {"Authorization": f"Bearer {server.key}"}
        async with streaming(server.port, "POST", "/v1/chat/completions", headers=headers, body=body) as answer:
            assert answer.status == 200
            for _ in range(dice.randrange(6)):
                await answer.line()
            if dice.random() < 0.5:
                reset(answer.stream)
    else:
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        if kind == "half a request":
            await stream.send_all(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Le")
        if dice.random() < 0.5:
            reset(stream)
        else:
            await stream.aclose()


async def _cancel_tools(server: HttpServer, count: int) -> None:
    async with http_driver("gateway websocket", server) as driver:
        assert isinstance(driver, SocketGateway)
        for number in range(count):
            await driver.start("<nap>")
            await driver.wait_for_tool()
            await driver.stop()
            assert (await driver.terminal())["status"] == "interrupted"
            driver.frames.clear()
            if number % PER_SESSION == PER_SESSION - 1:
                await _close(driver)
        await _close(driver)
