"""Store a session of many messages, to measure resume and listing with: ``python -m hermes.testing.seed 5000``.

Prints the session id. The messages are turns of four rows: a prompt, a call, its result, an answer; every third turn
has no call.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import trio

from hermes.agent.ports import StoredSession
from hermes.agent.store.sqlite import SqliteStore
from hermes.config import home_from_environment
from hermes.messages import Row, ToolCall
from hermes.outcomes import Usage

BATCH = 1000


def seeded_rows(started_at: float) -> Iterator[Row]:
    """An endless conversation, one row a second."""
    clock = started_at
    turn = 0
    while True:
        turn += 1
        rows = [Row("user", f"Question {turn}: what does part {turn % 17} of the project do, and why?", clock)]
        if turn % 3:
            call = ToolCall(f"call_{turn}", "read_file", f'{{"path":"src/part_{turn % 17}.py"}}')
            rows.append(Row("assistant", "I will look.", clock, tool_calls=(call,), finish_reason="tool_calls"))
            rows.append(
                Row("tool", f"def part_{turn % 17}(): ...\n" * 20, clock, tool_call_id=call.id, tool_name=call.name)
            )
        rows.append(Row("assistant", f"Part {turn % 17} does its share. " * 12, clock, finish_reason="stop"))
        for row in rows:
            clock += 1.0
            yield row


async def seed(home: Path, messages: int) -> str:
    """Store a session of exactly that many rows in the database of ``home``; returns its id."""
    started_at = time.time() - messages
    key = time.strftime("%Y%m%d_%H%M%S_") + secrets.token_hex(3)
    async with await SqliteStore.open(home / "sessions.db") as store:
        await store.create_session(StoredSession(key, title=f"Seeded {key}", started_at=started_at, cwd=str(home)))
        rows = seeded_rows(started_at)
        left = messages
        while left > 0:
            batch = list(islice(rows, min(BATCH, left)))
            left -= len(batch)
            await store.append_rows(key, batch, usage=Usage(input_tokens=100, output_tokens=50, calls=1))
    return key


def positive(text: str) -> int:
    """A whole number above 0. Raises ``ValueError``."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hermes.testing.seed", description=__doc__)
    parser.add_argument("messages", type=positive, help="how many messages to store")
    parser.add_argument("--home", type=Path, default=None, help="default: HERMES_HOME, else ~/.hermes")
    arguments = parser.parse_args()
    key = trio.run(seed, arguments.home or home_from_environment(), arguments.messages)
    sys.stdout.write(f"{key}\n")


if __name__ == "__main__":
    main()
