"""Many clients on one session, some of which never read: nobody pays for them, and they recover without a loss.

A seeded sample of 60 clients with 6 that stall; ``PROOF=1`` runs 200 with 20.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from hermes.events import StatusUpdate, TextDelta
from hermes.nurseries.session import Session
from hermes.protocols.gateway.server import GatewayServer
from hermes.protocols.gateway.surface import serve_channel
from tests.support.core import make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected, gateway_server
from tests.support.memory_channel import MemoryChannel

CLIENTS, STALLED = (200, 20) if os.environ.get("PROOF") else (60, 6)
PIECES, NOTES = 400, 1500
SPREAD, NOTICED = (3.0 if os.environ.get("PROOF") else 30.0), 0.010
"""How much later than at a client that is alone the last hundredth of many clients may have a piece: at most three
times, ten times as wide where other things run beside; delays that nobody notices count as this many seconds.
Seconds of this process alone, which does all the work: what else the machine does is left out."""


class TimedChannel(MemoryChannel):
    """Notes when each frame arrived; writes nothing while it stalls. Frames stay bytes: reading them is the test's."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.arrived_at: list[float] = []
        self.stalls = False

    async def run_writer(self) -> None:
        while batch := await self._outbox.next_batch(256, 1 << 20):
            if self.stalls:
                await trio.sleep_forever()
            self.raw += batch
            self.arrived_at += [time.process_time()] * len(batch)


@asynccontextmanager
async def watcher(server: GatewayServer, name: str, session_id: str) -> AsyncIterator[TimedChannel]:
    channel = TimedChannel(name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve_channel(server, channel, is_websocket=True))
        activate = {"session_id": session_id, "omit_messages": True}
        channel.say({"jsonrpc": "2.0", "id": "a", "method": "session.activate", "params": activate})
        while not any(b'"id":"a"' in frame for frame in channel.raw):
            await trio.sleep(0.001)
        yield channel
        nursery.cancel_scope.cancel()


def delays(channel: TimedChannel, sent_at: list[float]) -> list[float]:
    """Seconds from each piece's event to its arrival; merged pieces arrive with the last of them."""
    found: list[float] = []
    for raw, at in zip(channel.raw, channel.arrived_at, strict=True):
        if b'"type":"message.delta"' in raw:
            pieces = raw.count(b"piece")
            found += [at - sent for sent in sent_at[len(found) : len(found) + pieces]]
    return found


def hundredth(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99) - 1]


async def stream(session: Session) -> list[float]:
    """Pieces at the pace of a model, each a wake-up of its own; returns when each was sent."""
    sent_at = []
    for _ in range(PIECES):
        sent_at.append(time.process_time())
        session.emit(TextDelta("t", "piece "))
        await trio.sleep(0.02)
    await trio.sleep(0.1)
    return sent_at


async def test_many_clients_with_stalled_ones_cost_the_others_nothing(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"), say("two"))
    async with running_tree(services) as tree, connected(tree) as owner, AsyncExitStack() as stack:
        server = gateway_server(tree)
        session_id = (await owner.call("session.create"))["session_id"]
        session = tree.registry.get(session_id)
        alone = await stack.enter_async_context(watcher(server, "alone", session_id))
        alone_delays = delays(alone, await stream(session))
        channels = [
            await stack.enter_async_context(watcher(server, f"c{number}", session_id)) for number in range(CLIENTS)
        ]
        stalled, healthy = channels[:STALLED], channels[STALLED:]
        for channel in stalled:
            channel.stalls = True
        sent_at = await stream(session)
        for number in range(NOTES):
            session.emit(StatusUpdate(None, "status", f"step {number}"))
            if number % 50 == 0:
                await trio.sleep(0.3)
        await owner.call("prompt.submit", session_id=session_id, text="go")
        done = await owner.event("message.complete")
        await trio.sleep(30)
        assert done["payload"]["status"] == "complete"
        for channel in stalled:
            assert channel.closed_with is not None and channel.closed_with[0] == 1011, channel.name
        many_delays = [delay for channel in healthy for delay in delays(channel, sent_at)]
        assert len(many_delays) == PIECES * len(healthy)
        slowest, basis = hundredth(many_delays), max(hundredth(alone_delays), NOTICED)
        print(f"p99 {slowest * 1000:.1f} ms, alone {hundredth(alone_delays) * 1000:.1f} ms")
        assert slowest <= SPREAD * basis
        for channel in healthy:
            assert channel.closed_with is None
            assert sum(b'"type":"status.update"' in raw and b"step " in raw for raw in channel.raw) == NOTES
            assert b"message.complete" in b"".join(channel.raw[-5:])


async def test_a_client_that_does_not_read_costs_its_mailbox_and_no_more(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, AsyncExitStack() as stack:
        server = gateway_server(tree)
        session = tree.registry.create(source="tui", cwd="/tmp")
        names = [f"s{number}" for number in range(STALLED)]
        channels = [await stack.enter_async_context(watcher(server, name, session.runtime_id)) for name in names]
        for channel in channels:
            channel.stalls = True
        limits = services.settings().limits
        tracemalloc.start()
        try:
            most = 0
            for number in range(4 * (limits.subscriber_buffer + limits.replay_events)):
                session.emit(StatusUpdate(None, "status", f"step {number} " + "x" * 2000))
                if number % 20 == 0:
                    await trio.sleep(0.3)
                    most = max(most, tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        assert all(channel.closed_with is not None for channel in channels)
        # An event may be held as what happened and as the frame of it, in the log and in each mailbox.
        print(f"{most / 1e6:.1f} MB at most")
        assert most < 2 * (limits.replay_bytes + STALLED * limits.subscriber_bytes)


async def test_a_client_that_was_cut_off_recovers_by_replay_without_a_loss(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as owner:
        server = gateway_server(tree)
        session_id = (await owner.call("session.create"))["session_id"]
        session = tree.registry.get(session_id)
        async with watcher(server, "slow", session_id) as slow:
            session.emit(StatusUpdate(None, "status", "step 0"))
            await trio.sleep(1)
            seen = session.log.latest_seq
            slow.stalls = True
            number = 0
            while slow.closed_with is None:
                number += 1
                session.emit(StatusUpdate(None, "status", f"step {number}"))
                await trio.sleep(0.01)
        async with connected(tree, websocket=True, name="again", server=server) as host:
            await _recovers(host, session, session_id, seen, number)


async def _recovers(host: GatewayHost, session: Session, session_id: str, seen: int, last: int) -> None:
    await host.call("session.activate", session_id=session_id)
    missed = await host.call("session.events.since", session_id=session_id, last_seen=seen)
    told = [event["payload"]["text"] for event in missed["events"] if event["type"] == "status.update"]
    if missed["truncated"]:
        # Further behind than the log keeps: what is there is the newest, without a hole.
        assert told == [f"step {number}" for number in range(last - len(told) + 1, last + 1)]
    else:
        assert told == [f"step {number}" for number in range(1, last + 1)]
    session.emit(StatusUpdate(None, "status", "after"))
    assert (await host.event("status.update"))["seq"] == missed["latest_seq"] + 1


async def test_a_hundred_subscribers_cost_little_more_than_one() -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as owner:
        server = gateway_server(tree)
        costs = {}
        for count in (1, 100):
            session_id = (await owner.call("session.create"))["session_id"]
            session = tree.registry.get(session_id)
            async with AsyncExitStack() as stack:
                for number in range(count):
                    await stack.enter_async_context(watcher(server, f"n{count}-{number}", session_id))
                costs[count] = min([await _cost_of_a_delta(session) for _ in range(3)])
        print(f"a delta costs {costs[100] / costs[1]:.1f} times as much for 100 subscribers as for one")
        # The goal is three times (see bench/); a machine that is busy with other things gets ten times that.
        assert costs[100] <= 30 * costs[1], costs


async def _cost_of_a_delta(session: Session) -> float:
    """Processor seconds of this whole process for one burst of deltas, by delta."""
    began = time.process_time()
    for _ in range(50):
        for _ in range(40):
            session.emit(TextDelta("t", "piece "))
        await trio.sleep(0.002)
    return (time.process_time() - began) / 2000
