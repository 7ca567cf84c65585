"""The store: what it adds to plain SQLite, both measured in this run, in this process.

``python bench/bench_store.py [--messages 5000] [--writers 100] [--appends 20] [--repeat 5]``. The floor of each line is
the standard library's sqlite3 on a database of the same schema (rows, indexes, full-text search): what
is compared is the way there. ``bare`` is the same with one table and no index: what a group commit costs by itself.
"""

from __future__ import annotations

import argparse
import queue
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio
from report import record

from hermes.agent.ports import StoredSession
from hermes.agent.store.rows import INSERT_ROW, READ_COLUMNS, encode_row
from hermes.agent.store.sqlite import SqliteStore
from hermes.messages import RewindIntent, Row
from hermes.testing.seed import seed

TEXT = "what a hundred sessions say at once, in a few words each " * 4
BARE = "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_key TEXT, content TEXT)"
COUNT = "UPDATE sessions SET message_count = message_count + 1, last_activity_at = ? WHERE key = ?"


def best_ms(action: Callable[[], float], repeat: int) -> float:
    """The best of so many: everything else is the machine's other work."""
    return min(action() for _ in range(repeat)) * 1000


def timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def tell(name: str, ours: float, floor: float, bare: float | None = None) -> None:
    shown = f"{bare:10.2f} {ours / bare:7.1f} x" if bare else ""
    print(f"{name:44} {ours:10.2f} {floor:10.2f} {ours / floor:7.1f} x {shown}", flush=True)
    record(f"store: {name}", "ms", ours, floor)


# --- many writers ----------------------------------------------------------------------------------------------------


async def our_appends(path: Path, writers: int, appends: int) -> float:
    """Seconds until each of so many tasks has had so many rows committed, one after the other."""
    async with await SqliteStore.open(path) as store:
        keys = [f"s{number}" for number in range(writers)]
        for key in keys:
            await store.create_session(StoredSession(key, started_at=1.0))

        async def write(key: str) -> None:
            for number in range(appends):
                await store.append_rows(key, [Row("user", TEXT, float(number))])

        begin = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(write, key)
        return time.perf_counter() - begin


def plain_appends(path: Path, writers: int, appends: int, *, bare: bool) -> float:
    """The same with a queue and a thread that commits whatever has piled up. ``bare``: into one table without index."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    if bare:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(BARE)
    database.execute("PRAGMA synchronous = NORMAL")
    record, _row = encode_row(Row("user", TEXT, 1.0))
    waiting: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    next_id = 1

    def insert(writer: int) -> None:
        nonlocal next_id
        key = f"s{writer}"
        if bare:
            database.execute("INSERT INTO messages (session_key, content) VALUES (?, ?)", (key, TEXT))
            return
        database.execute(COUNT, (1.0, key))
        database.execute(INSERT_ROW, (key, float(next_id), *record[:4], next_id, *record[5:]))
        next_id += 1

    def work() -> None:
        done = 0
        while done < writers:
            group = [waiting.get()]
            while not waiting.empty():
                group.append(waiting.get())
            database.execute("BEGIN IMMEDIATE")
            for writer, _number in group:
                insert(writer)
            database.execute("COMMIT")
            for writer, number in group:
                if number + 1 < appends:
                    waiting.put((writer, number + 1))
                else:
                    done += 1

    begin = time.perf_counter()
    thread = threading.Thread(target=work)
    thread.start()
    for writer in range(writers):
        waiting.put((writer, 0))
    thread.join()
    taken = time.perf_counter() - begin
    database.close()
    return taken


async def prepare(path: Path, writers: int) -> None:
    async with await SqliteStore.open(path) as store:
        for number in range(writers):
            await store.create_session(StoredSession(f"s{number}", started_at=1.0))


def many_writers(directory: Path, writers: int, appends: int, repeat: int) -> None:
    ours, floor, bare = [], [], []
    for number in range(repeat):
        # Taking turns: a busy moment of the machine hits all of them.
        ours.append(trio.run(our_appends, directory / f"ours-{number}.db", writers, appends))
        path = directory / f"plain-{number}.db"
        trio.run(prepare, path, writers)
        floor.append(plain_appends(path, writers, appends, bare=False))
        bare.append(plain_appends(directory / f"bare-{number}.db", writers, appends, bare=True))
    per_row = 1_000_000 / (writers * appends)
    tell(
        f"append, {writers} writers at once (µs a row)",
        min(ours) * per_row,
        min(floor) * per_row,
        min(bare) * per_row,
    )


# --- one long session ------------------------------------------------------------------------------------------------


def read_plainly(path: Path, key: str) -> int:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = database.execute(
        f"SELECT {READ_COLUMNS} FROM messages WHERE session_key = ? AND active = 1 ORDER BY position, id", (key,)
    ).fetchall()
    database.close()
    return len(rows)


def rewind_plainly(database: sqlite3.Connection, key: str) -> None:
    """Find the last prompt, archive it and what is behind it, insert one row, count."""
    record, _row = encode_row(Row("user", TEXT, 1.0))
    database.execute("BEGIN IMMEDIATE")
    (cut,) = database.execute(
        "SELECT max(id) FROM messages WHERE session_key = ? AND active = 1 AND role = 'user'", (key,)
    ).fetchone()
    database.execute("UPDATE messages SET active = 0, cut_id = 1 WHERE session_key = ? AND id >= ?", (key, cut))
    (last,) = database.execute("SELECT max(id) FROM messages").fetchone()
    database.execute(INSERT_ROW, (key, float(last + 1), *record[:4], last + 1, *record[5:]))
    database.execute(COUNT, (1.0, key))
    database.execute("COMMIT")


async def long_session(directory: Path, messages: int, repeat: int) -> None:
    key = await seed(directory, messages)
    path = directory / "sessions.db"
    floor = best_ms(lambda: timed(lambda: read_plainly(path, key)), repeat)
    async with await SqliteStore.open(path) as store:
        loads: list[float] = []
        for _ in range(repeat):
            begin = time.perf_counter()
            rows = await store.load_transcript(key)
            loads.append((time.perf_counter() - begin) * 1000)
        tell(f"load of {messages} messages", min(loads), floor)
        rewinds: list[float] = []
        target = [row.row_id for row in rows if row.role == "user"][-1]
        for number in range(repeat):
            intent = RewindIntent(row_id=target)
            begin = time.perf_counter()
            result = await store.rewind(key, intent, [Row("user", f"again {number}", 1.0)])
            rewinds.append((time.perf_counter() - begin) * 1000)
            target = result.new_rows[0].row_id
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA synchronous = NORMAL")
    plain = best_ms(lambda: timed(partial(rewind_plainly, database, key)), repeat)
    database.close()
    tell("rewind of its last turn", min(rewinds), plain)
    tell("the same, against reading the session", statistics.median(rewinds), floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--writers", type=int, default=100)
    parser.add_argument("--appends", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'':44} {'ours':>10} {'floor':>10} {'ratio':>9} {'bare':>10} {'ratio':>9}")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        many_writers(directory, arguments.writers, arguments.appends, arguments.repeat)
        trio.run(long_session, directory, arguments.messages, arguments.repeat)


if __name__ == "__main__":
    main()
