"""Readers of a run's events: many at once, many that come and go, one that reconnects all the time.

Everybody sees the same uncut sequence, and what a reader cost is given back when it has gone. ``PROOF=1`` runs the full
counts.
"""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.protocols.http.test_http_disconnect import reset
from tests.support.core import Reply, call, say
from tests.support.http_surface import KEY, Surface, frames, http_surface
from tests.support.sse_client import streaming

PROOF = os.environ.get("PROOF") == "1"
READERS = 1000 if PROOF else 100
KILLED = 5000 if PROOF else 200
RECONNECTS = 50
SEED = 20_26
AUTH = {"Authorization": f"Bearer {KEY}"}


def talk(words: int, pause: float) -> Reply:
    return say(*[f"{number} " for number in range(words)], pause=pause)


async def start(surface: Surface) -> str:
    run_id: str = (await surface.post("/v1/runs", {"input": "talk"})).json()["run_id"]
    return run_id


async def read_to_end(surface: Surface, run_id: str, into: list[list[dict[str, Any]]]) -> None:
    seen = []
    async with streaming(surface.port, "GET", f"/v1/runs/{run_id}/events", headers=AUTH) as answer:
        while (event := await answer.data()) is not None:
            seen.append(event)
    into.append(seen)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def resident() -> int:
    gc.collect()
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGESIZE")


async def settles(count: Callable[[], int], most: int) -> None:
    with trio.fail_after(20):
        while count() > most:
            await trio.sleep(0.02)


async def test_many_readers_see_the_same_sequence_and_cost_nothing_afterwards() -> None:
    with trio.fail_after(300):
        async with http_surface(talk(200, 0.004), limits=None, within=290) as surface:
            await surface.get("/health")
            before = tasks(), descriptors()
            run_id = await start(surface)
            seen: list[list[dict[str, Any]]] = []
            async with trio.open_nursery() as readers:
                for _ in range(READERS):
                    readers.start_soon(read_to_end, surface, run_id, seen)
            assert len(seen) == READERS
            assert all(one == seen[0] for one in seen)
            assert [event["seq"] for event in seen[0]] == list(range(len(seen[0])))
            assert seen[0][-1]["event"] == "run.completed"
            assert "".join(e["delta"] for e in seen[0] if e["event"] == "message.delta") == seen[0][-1]["output"]
            await settles(tasks, before[0] + 4)
            await settles(descriptors, before[1] + 4)


async def open_and_kill(surface: Surface, run_id: str, dice: random.Random) -> None:
    stream = await surface.raw("GET", f"/v1/runs/{run_id}/events")
    if dice.random() < 0.7:
        await stream.receive_some(1024)
    if dice.random() < 0.5:
        reset(stream)
    else:
        stream.socket.close()


@pytest.mark.fault("B-138")
async def test_readers_that_are_opened_and_killed_leave_nothing_behind() -> None:
    dice = random.Random(SEED)
    with trio.fail_after(600):
        async with http_surface(say("", calls=[call("nap", seconds=3600)]), within=590) as surface:
            run_id = await start(surface)
            for _ in range(20):
                await open_and_kill(surface, run_id, dice)
            await trio.sleep(0.2)
            before = tasks(), descriptors(), resident()
            for _ in range(KILLED // 20):
                async with trio.open_nursery() as batch:
                    for _ in range(20):
                        batch.start_soon(open_and_kill, surface, run_id, dice)
            await settles(tasks, before[0] + 2)
            await settles(descriptors, before[1] + 2)
            grown = resident() - before[2]
            assert grown < 16 * 1024 * 1024, f"{KILLED} readers left {grown / 1e6:.1f} MB"
            assert (await surface.get(f"/v1/runs/{run_id}")).json()["status"] == "running"
            await surface.post(f"/v1/runs/{run_id}/stop")
            assert (await surface.ended(run_id))["status"] == "cancelled"


async def reconnecting(surface: Surface, run_id: str, dice: random.Random, into: list[dict[str, Any]]) -> int:
    """Read, and drop the connection at a random byte again and again; go on behind the last whole event."""
    times = 0
    while True:
        cursor = f"Last-Event-ID: {into[-1]['seq']}\r\n" if into else ""
        stream = await surface.raw("GET", f"/v1/runs/{run_id}/events", headers=cursor)
        patience, received = dice.randrange(300, 3000), b""
        while times >= RECONNECTS or len(received) < patience:
            chunk = await stream.receive_some(patience)
            if not chunk:
                break
            received += chunk
            if b": stream closed" in received:
                break
        ended = b": stream closed" in received
        if ended:
            await stream.aclose()
        else:
            reset(stream)
        body = unchunked(received.partition(b"\r\n\r\n")[2])
        whole = body[: body.rfind(b"\n\n") + 2]
        into.extend(frame.data for frame in frames(whole.decode()))
        if ended:
            return times
        times += 1


def unchunked(raw: bytes) -> bytes:
    """As much of a chunked body as is there."""
    body = b""
    while raw:
        size, found, rest = raw.partition(b"\r\n")
        if not found or not size:
            break
        length = int(size, 16)
        body += rest[:length]
        raw = rest[length + 2 :]
    return body


@pytest.mark.fault("B-096")
async def test_a_reader_that_reconnects_at_random_holds_the_same_uncut_sequence() -> None:
    with trio.fail_after(120):
        async with http_surface(talk(1500, 0.003), within=110) as surface:
            run_id = await start(surface)
            steady: list[list[dict[str, Any]]] = []
            restless: list[dict[str, Any]] = []
            times: list[int] = []

            async def keep_coming_back() -> None:
                times.append(await reconnecting(surface, run_id, random.Random(SEED), restless))

            async with trio.open_nursery() as readers:
                readers.start_soon(read_to_end, surface, run_id, steady)
                readers.start_soon(keep_coming_back)
            assert times[0] >= RECONNECTS
            assert restless == steady[0]
            assert [event["seq"] for event in restless] == list(range(len(restless)))
            after = (await surface.get(f"/v1/runs/{run_id}/events")).text
            assert [frame.data for frame in frames(after)] == restless


async def test_a_slow_reader_holds_nobody_up() -> None:
    """Checklist 17: three readers, one that reads nothing for long."""
    with trio.fail_after(60):
        async with http_surface(talk(400, 0.002), within=50) as surface:
            run_id = await start(surface)
            quick: list[list[dict[str, Any]]] = []
            restless: list[dict[str, Any]] = []
            sleeper = await surface.raw("GET", f"/v1/runs/{run_id}/events")
            async with trio.open_nursery() as readers:
                readers.start_soon(read_to_end, surface, run_id, quick)
                readers.start_soon(reconnecting, surface, run_id, random.Random(SEED), restless)
            received = b""
            while b": stream closed" not in received:
                received += await sleeper.receive_some(65536)
            slow = [frame.data for frame in frames(unchunked(received.partition(b"\r\n\r\n")[2]).decode())]
            assert slow == quick[0] == restless
            assert json.dumps(slow[-1]).count("run.completed") == 1
            await sleeper.aclose()
