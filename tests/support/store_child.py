"""A process that uses a store until it is killed: ``python -m tests.support.store_child write|lease PATH``.

``write`` runs several sessions of appends and rewinds at once and writes a line for each operation that was
acknowledged; what a session holds after k operations is ``texts_after(k)``. ``lease`` takes a turn lease and waits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from hermes.agent.ports import StoredSession
from hermes.agent.store.leases import current_owner
from hermes.agent.store.sqlite import SqliteStore
from hermes.messages import RewindIntent, Row

SESSIONS = 4


def texts_after(operations: int) -> list[str]:
    """The model: every third operation rewinds the last turn, the others append one."""
    texts: list[str] = []
    for number in range(operations):
        if number % 3 == 2:
            del texts[-2:]
        texts += [f"ask {number}", f"answer {number}"]
    return texts


def turn(number: int) -> list[Row]:
    return [Row("user", f"ask {number}", 1.0), Row("assistant", f"answer {number}", 1.0)]


async def write_session(store: SqliteStore, key: str) -> None:
    await store.create_session(StoredSession(key))
    number = 0
    while True:
        if number % 3 == 2:
            prompts = [row for row in await store.load_rows(key) if row.is_user_prompt]
            await store.rewind(key, RewindIntent(row_id=prompts[-1].row_id, confirm_empty=True), turn(number))
        else:
            await store.append_rows(key, turn(number))
        number += 1
        # One system call, so that a killed process leaves no half line that could be mistaken for a whole one.
        os.write(1, f"{key} {number}\n".encode())


async def write(path: Path, prefix: str) -> None:
    store = await SqliteStore.open(path)
    async with trio.open_nursery() as nursery:
        for number in range(SESSIONS):
            nursery.start_soon(write_session, store, f"{prefix}-{number}")


async def lease(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.acquire_lease("s", current_owner("child"), ttl=3600)
    os.write(1, b"held\n")
    await trio.sleep_forever()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        trio.run(write, Path(sys.argv[2]), sys.argv[3])
    else:
        trio.run(lease, Path(sys.argv[2]))
