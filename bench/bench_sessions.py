"""Sessions: what a long one costs to come back to, and a hundred that write at once, against plain SQLite in this run.

``python bench/bench_sessions.py [--messages 5000] [--sessions 100] [--repeat 5]``. Absolute times are of this machine;
compare ratios. The floor of the long one is the same rows through the standard library's sqlite3. The floor of the many
is what their turns write, into the same tables, in groups as large as they come; no model, no server and no client has
a part in it. What the store itself adds to a commit is the figure of ``bench_store.py``.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import trio
from bench_store import plain_appends, prepare
from clients import Model, Stdio, event, now, resident_bytes
from report import record

HERMES = str(Path(sys.executable).with_name("hermes"))
ROWS_PER_TURN = 2


def environment(home: Path, model: Model) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    return kept | {
        "HERMES_HOME": str(home),
        "HOME": str(home),
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "bench-key-0123456789",
        "HERMES_MODEL": "bench",
    }


def median_ms(action: Callable[[], object], repeat: int) -> float:
    taken = []
    for _ in range(repeat):
        begin = now()
        action()
        taken.append(now() - begin)
    return statistics.median(taken) * 1000


def row(name: str, ours: float, floor: float | None, unit: str = "ms") -> None:
    ratio = f"{ours / floor:8.1f} x" if floor else ""
    shown = f"{floor:10.2f}" if floor else " " * 10
    print(f"{name:44} {ours:10.2f} {shown} {unit} {ratio}")
    record(name, unit, ours, floor)


# --- one long session ------------------------------------------------------------------------------------------------


def read_plainly(path: Path, key: str) -> int:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = database.execute(
        "SELECT * FROM messages WHERE session_key = ? AND active = 1 ORDER BY position, id", (key,)
    ).fetchall()
    database.close()
    return len(rows)


def long_session(home: Path, model: Model, messages: int, repeat: int) -> None:
    env = environment(home, model)
    seeding = [sys.executable, "-m", "hermes.testing.seed", str(messages)]
    key = subprocess.run(seeding, env=env, check=True, capture_output=True, text=True).stdout.strip()
    floor = median_ms(lambda: read_plainly(home / "sessions.db", key), repeat)
    server = Stdio([HERMES, "gateway"], env, str(home))
    server.until(event("gateway.ready"))
    server.call("ping", {})
    before = resident_bytes(server.pid)
    runtime = ""

    def resume(omit: bool) -> None:
        nonlocal runtime
        runtime = server.call("session.resume", {"session_id": key, "omit_messages": omit})["session_id"]

    def close() -> None:
        server.call("session.close", {"session_id": runtime})

    taken: dict[bool, list[float]] = {False: [], True: []}
    for omit in (False, True):
        for _ in range(repeat):
            taken[omit].append(median_ms(lambda omit=omit: resume(omit), 1))
            close()
    row(f"resume of {messages} messages", statistics.median(taken[False]), floor)
    row("the same, without the messages", statistics.median(taken[True]), floor)
    resume(True)
    row("history", median_ms(lambda: server.call("session.history", {"session_id": runtime}), repeat), floor)
    row("memory of it", (resident_bytes(server.pid) - before) / 1e6, (home / "sessions.db").stat().st_size / 1e6, "MB")

    last = [
        message["row_id"]
        for message in server.call("session.history", {"session_id": runtime})["messages"]
        if message["role"] == "user"
    ][-1]

    def rewind() -> None:
        nonlocal last
        cut = {"truncate_before_row_id": last, "confirm_truncate": True}
        last = server.call("prompt.submit", {"session_id": runtime, "text": "again", **cut})["user_row_id"]

    times = []
    for _ in range(repeat):
        times.append(median_ms(rewind, 1))
        server.until(event("message.complete", runtime))
    row("rewind of the last turn, to its acceptance", statistics.median(times), floor)
    server.close()


# --- many at once ----------------------------------------------------------------------------------------------------


def store_plainly(path: Path, sessions: int) -> float:
    """Seconds until every one of so many writers has had the rows of a turn committed, one after the other, by plain
    sqlite3 in groups: into the same tables and indexes, without a server, a model or a client."""
    trio.run(prepare, path, sessions)
    return plain_appends(path, sessions, ROWS_PER_TURN, bare=False)


def many_sessions(home: Path, model: Model, sessions: int, repeat: int) -> None:
    floor = statistics.median(
        store_plainly(home.parent / f"floor-{number}.db", sessions) * 1000 for number in range(repeat)
    )
    server = Stdio([HERMES, "gateway"], environment(home, model), str(home))
    server.until(event("gateway.ready"))
    server.call("ping", {})
    before = resident_bytes(server.pid)
    runtimes = [server.call("session.create", {})["session_id"] for _ in range(sessions)]
    accepted, whole = [], []
    for _ in range(repeat):
        begin = now()
        open_, running = (
            {server.send("prompt.submit", {"session_id": one, "text": "x" * 200}) for one in runtimes},
            sessions,
        )
        while running:
            frame = server.read()
            if frame.get("id") in open_:
                open_.discard(frame["id"])
                if not open_:
                    accepted.append((now() - begin) * 1000)
            running -= event("message.complete")(frame)
        whole.append((now() - begin) * 1000)
        server.call("ping", {})
    row(f"{sessions} prompts at once: all durable", statistics.median(accepted), floor)
    row("the same: all turns stored and told", statistics.median(whole), floor)
    row("memory of them", (resident_bytes(server.pid) - before) / 1e6, None, "MB")
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'':44} {'ours':>10} {'floor':>10}")
    with tempfile.TemporaryDirectory() as directory, Model() as model:
        for name, run, size in (
            ("long", long_session, arguments.messages),
            ("many", many_sessions, arguments.sessions),
        ):
            home = Path(directory) / name
            home.mkdir(mode=0o700)
            (home / "config.yaml").write_text(f"limits:\n  max_sessions: {size + 10}\n")
            run(home, model, size, arguments.repeat)


if __name__ == "__main__":
    main()
