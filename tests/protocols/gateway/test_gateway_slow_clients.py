"""A client that does not read: what is merged for it, when it is cut off, and that nobody else notices."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from hermes.events import StatusUpdate, TextDelta
from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.gateway.server import GatewayServer
from hermes.protocols.gateway.surface import serve_channel
from tests.support.core import make_services, running_tree, say
from tests.support.gateway_host import EPOCH, GatewayHost, connected
from tests.support.memory_channel import MemoryChannel


class StallingChannel(MemoryChannel):
    """Writes only while ``reads`` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reading = trio.Event()
        self.reading.set()

    async def run_writer(self) -> None:
        while batch := await self._outbox.next_batch(16, 1 << 20):
            await self.reading.wait()
            await self._deliver(batch)

    async def _deliver(self, batch: list[bytes]) -> None:
        self.sent += [json.loads(frame) for frame in batch]
        self._arrived.set()
        self._arrived = trio.Event()
        await trio.lowlevel.checkpoint()

    def stall(self) -> None:
        self.reading = trio.Event()


@asynccontextmanager
async def slow_client(tree: ServerTree) -> AsyncIterator[tuple[StallingChannel, GatewayHost]]:
    channel = StallingChannel("slow")
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await serve_channel(GatewayServer(tree, EPOCH), channel, is_websocket=True)

        nursery.start_soon(serve)
        host = GatewayHost(channel)
        await host.event("gateway.ready")
        yield channel, host
        channel.hang_up()


async def test_deltas_are_merged_behind_a_client_that_reads_late(autojump_clock: Any) -> None:
    words = [f"w{number} " for number in range(3000)]
    services, _ = make_services(say(*words, pause=0.01))
    async with running_tree(services) as tree, slow_client(tree) as (channel, host), connected(tree) as other:
        session_id = (await host.call("session.create"))["session_id"]
        await other.call("session.activate", session_id=session_id)
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        channel.stall()
        done = await other.event("message.complete")
        channel.reading.set()
        late = await host.event("message.complete")
        assert late["payload"] == done["payload"]
        deltas = [frame for frame in host.frames if frame.get("params", {}).get("type") == "message.delta"]
        assert "".join(frame["params"]["payload"]["text"] for frame in deltas) == "".join(words)
        assert len(deltas) < 600
        numbers = [frame["params"]["seq"] for frame in host.frames if "seq" in frame.get("params", {})]
        assert numbers == sorted(set(numbers))


async def test_a_burst_that_comes_in_no_time_is_kept_for_a_client_that_pauses(autojump_clock: Any) -> None:
    """Twenty times what the log holds, without a moment in which a timer could fire."""
    services, _ = make_services(say("done", pause=60))
    async with running_tree(services) as tree, slow_client(tree) as (channel, host):
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        channel.stall()
        session = tree.registry.get(session_id)
        observers = len(session.log.observers)
        while len(session.log.observers) == observers:
            session.emit(StatusUpdate(None, "status", "x" * 10_000))
            await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        for number in range(10_000):
            session.emit(TextDelta("t", f"{number} "))
        assert trio.current_time() == before
        channel.reading.set()
        await host.event("message.complete")
        assert len(session.log.observers) == observers, "it still listens, though the client reads"
        told = [frame["params"] for frame in host.frames if "seq" in frame.get("params", {})]
        spoken = "".join(one["payload"]["text"] for one in told if one["type"] == "message.delta")
        assert spoken.startswith("".join(f"{number} " for number in range(10_000)))


async def test_a_client_that_never_reads_is_cut_off_and_nobody_else_notices(autojump_clock: Any) -> None:
    services, _ = make_services(say("done", pause=60))
    async with running_tree(services) as tree, slow_client(tree) as (channel, host), connected(tree) as other:
        session_id = (await host.call("session.create"))["session_id"]
        await other.call("session.activate", session_id=session_id)
        await other.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.start")
        channel.stall()
        session = tree.registry.get(session_id)
        for number in range(3000):
            session.emit(StatusUpdate(None, "status", f"step {number}"))
            if number % 50 == 0:
                await trio.sleep(0.1)
        await other.event("message.complete")
        channel.reading.set()
        await trio.sleep(10)
        assert channel.closed_with is not None and channel.closed_with[0] == 1011
        assert [attachment.name for attachment in session.requests.attached] == ["host"]
        steps = [f for f in other.frames if f.get("params", {}).get("type") == "status.update"]
        assert len(steps) == 3000
