"""A start with 10,000 stored sessions in the home, and what they cost who comes back to one, against an empty home.

``python bench/bench_restart.py [--sessions 10000] [--repeat 5]``. The last server of that home was killed in the middle
of turns, so the start finds leases and interrupted turns as after a crash.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import statistics
import sys
from pathlib import Path

import trio
from clients import Stdio, event, now
from report import Program, programs, record

from hermes.agent.ports import StoredSession
from hermes.agent.store.sqlite import SqliteStore
from hermes.testing.seed import seeded_rows

AT_ONCE, MESSAGES = 200, 4
RUNNING = 20
"""Turns that the killed server was in."""


async def seed(home: Path, sessions: int) -> None:
    """So many sessions of a turn each, as many as at once in one commit as the store takes."""
    numbers = iter(range(sessions))

    async def write(store: SqliteStore) -> None:
        for number in numbers:
            rows = seeded_rows(1_700_000_000.0 + number)
            key = f"20260101_000000_{number:06x}"
            await store.create_session(
                StoredSession(key, title=f"Conversation {number}", started_at=1_700_000_000.0 + number, cwd=str(home))
            )
            await store.append_rows(key, [next(rows) for _ in range(MESSAGES)])

    async with await SqliteStore.open(home / "sessions.db") as store, trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(write, store)


def crash(program: Program) -> None:
    """A server of that home that is killed while it works."""
    server = program.stdio()
    server.until(event("gateway.ready"))
    for _ in range(RUNNING):
        session = server.call("session.create", {})["session_id"]
        server.call("prompt.submit", {"session_id": session, "text": "hang"})
    server.process.kill()
    server.process.wait()


def start(program: Program, taken: dict[str, list[float]]) -> None:
    server = program.stdio()
    moment, _ = server.until(event("gateway.ready"))
    taken.setdefault("spawn to ready", []).append((moment - server.spawned) * 1e3)
    server.call("ping", {})
    taken.setdefault("spawn to the first answer", []).append((now() - server.spawned) * 1e3)
    taken.setdefault("list of sessions", []).append(timed(server, "session.list", {}))
    stored = server.call("session.list", {})["sessions"]
    if stored:
        resumed = timed(server, "session.resume", {"session_id": stored[0]["id"]})
        taken.setdefault("resume of the newest", []).append(resumed)
    server.close()


def timed(server: Stdio, method: str, params: dict[str, object]) -> float:
    began = now()
    server.call(method, params)
    return (now() - began) * 1e3


def main(sessions: int, repeat: int) -> int:
    print(f"{'figure':60} {'unit':>5} {'hermes':>9} {'empty':>9} {'ratio':>6}")
    full: dict[str, list[float]] = {}
    empty: dict[str, list[float]] = {}
    with programs() as (one, _), programs() as (other, _):
        trio.run(seed, Path(one.home), sessions)
        for _ in range(repeat):
            crash(one)
            start(one, full)
            start(other, empty)
        with contextlib.closing(sqlite3.connect(Path(one.home) / "sessions.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM sessions").fetchone()
    for name, values in full.items():
        ours, least = statistics.median(values), statistics.median(empty[name]) if name in empty else None
        ratio = f"{ours / least:6.1f}" if least else ""
        title = f"{sessions} stored sessions: {name}"
        print(f"{title:60} {'ms':>5} {ours:9.2f} {f'{least:9.2f}' if least else ' ' * 9} {ratio}")
        record(title, "ms", ours, least, n=len(values), worst=round(max(values), 2))
    if count < sessions:
        print(f"{sessions - count} sessions were lost")
    return int(count < sessions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    sys.exit(main(options.sessions, options.repeat))
