"""The loop in this very process: what a delta costs from the socket to one subscriber, and what sessions weigh.

``python bench/bench_loop.py [--chunks 3000] [--idle 2000] [--streaming 100]``. The measure is a plain httpx2 reader of
the same stream in the same run, which splits lines and decodes each event; times are this process's own CPU. Compare
ratios.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import trio
from clients import Model, resident_bytes
from report import record

from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.registry import Models, ModelSettings
from hermes.agent.store.memory import MemoryStore
from hermes.config import with_setting
from hermes.events import TextDelta
from hermes.messages import Prompt
from hermes.nurseries.server_tree import ServerTree, open_tree
from hermes.nurseries.session import Session
from hermes.settings import Settings
from hermes.testing import ScriptedModel
from hermes.testing.scripted_server import scripted_services

GOAL_CPU, GOAL_IDLE_KIB = 1.6, 30.0
REPETITIONS = 5


@asynccontextmanager
async def tree_with(model: Model) -> AsyncIterator[ServerTree]:
    client = HttpClient()
    roomy = with_setting(with_setting(Settings(), "limits.max_sessions", 100_000), "limits.replay_sessions", 100_000)
    services = scripted_services(ScriptedModel([]), (), roomy, MemoryStore(now=time.time), Path("."))
    settings = ModelSettings(default="bench", provider="custom", base_url=model.url, context_length=1_000_000)
    async with open_tree(replace(services, models=Models(settings, {}, client))) as tree:
        yield tree
    await client.aclose()


async def plain(url: str, text: str) -> int:
    """The least that reads this stream: lines, JSON, the text of each delta."""
    body = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": text}]}
    said = 0
    async with (
        httpx2.AsyncClient(timeout=60) as client,
        client.stream("POST", f"{url}/chat/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    said += len(choice["delta"].get("content") or "") > 0
    return said


async def watched_turn(session: Session, text: str) -> int:
    """One turn with one subscriber, which looks at each event."""
    subscription = session.log.subscribe(session.log.latest_seq)
    submission = session.submit_nowait(Prompt(text))
    deltas, ended = 0, False
    while not ended:
        for entry in await subscription.next():
            deltas += type(entry.event) is TextDelta
            ended = ended or type(entry.event).__name__ == "TurnEnded"
    assert (await submission.wait_turn()) is not None
    return deltas


async def cpu_of(action: Callable[[], Awaitable[object]]) -> float:
    before = time.process_time()
    await action()
    return time.process_time() - before


async def measure_deltas(model: Model, tree: ServerTree, chunks: int) -> None:
    session = tree.registry.create(source="bench", cwd="/")
    text = f"burst {chunks}"
    pairs = []
    for _ in range(REPETITIONS + 1):
        least = await cpu_of(lambda: plain(model.url, text))
        ours = await cpu_of(lambda: watched_turn(session, text))
        pairs.append((least / chunks * 1e6, ours / chunks * 1e6))
    pairs = pairs[1:]
    least, ours = (min(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(two / one for one, two in pairs)
    figures = f"plain reader {least:.2f} us, loop and subscriber {ours:.2f} us"
    print(f"CPU per delta: {figures}, ratio {ratio:.2f} (goal <= {GOAL_CPU})")
    record("loop and one subscriber: CPU per delta", "us", ours, least, goal=f"<= {GOAL_CPU} x")


async def measure_many(model: Model, tree: ServerTree, count: int) -> None:
    """So many turns at once, each of 200 deltas with pauses: against as many plain readers."""
    text = "paced 200 2"

    async def together(one: Callable[[], Awaitable[object]]) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)

    sessions = iter([tree.registry.create(source="bench", cwd="/") for _ in range(count)])
    least = await cpu_of(lambda: together(lambda: plain(model.url, text)))
    ours = await cpu_of(lambda: together(lambda: watched_turn(next(sessions), text)))
    each = count * 200
    record(f"{count} turns at once in one process: CPU per delta", "us", ours / each * 1e6, least / each * 1e6)
    figures = f"plain readers {least / each * 1e6:.2f} us, turns {ours / each * 1e6:.2f} us per delta"
    print(f"{count} turns at once: {figures}, ratio {ours / least:.2f}")


async def measure_memory(tree: ServerTree, idle: int, streaming: int) -> None:
    def weight() -> int:
        gc.collect()
        return resident_bytes(os.getpid())

    before = weight()
    sessions = [tree.registry.create(source="bench", cwd="/") for _ in range(idle)]
    await trio.sleep(0.5)
    each = (weight() - before) / idle / 1024
    print(f"memory of an idle session: {each:6.1f} KiB (goal <= {GOAL_IDLE_KIB:g}; {idle} sessions)")
    record("memory of an idle session without clients", "KiB", each, goal=f"<= {GOAL_IDLE_KIB:g}")
    before = weight()
    turns = [await session.submit_nowait(Prompt("paced 4000 20")).wait_turn() for session in sessions[:streaming]]
    await trio.sleep(3)
    more = (weight() - before) / streaming / 1024
    print(f"memory of a streaming session: {more:6.1f} KiB more ({streaming} sessions)")
    record("memory more of one that streams", "KiB", more)
    assert all(turn is not None and not turn.ended.settled for turn in turns)


async def main(chunks: int, idle: int, streaming: int) -> None:
    with Model() as model:
        async with tree_with(model) as tree:
            await measure_deltas(model, tree, chunks)
            await measure_many(model, tree, 100)
            await measure_memory(tree, idle, streaming)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunks", type=int, default=3000)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--streaming", type=int, default=100)
    options = parser.parse_args()
    trio.run(main, options.chunks, options.idle, options.streaming)
