"""What is left when the process dies: every acknowledged operation, whole ones only, and no lease that blocks others.

``PROOF=1`` plays 1,000 rounds instead of 30; ``PROOF_KILLS`` sets another number.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from hermes.agent.ports import StoredSession
from hermes.agent.store.leases import current_owner
from hermes.agent.store.sqlite import SqliteStore
from hermes.errors import SessionOwnedElsewhere
from hermes.messages import Row
from tests.support.store_child import texts_after

ROUNDS = int(os.environ.get("PROOF_KILLS") or (1000 if os.environ.get("PROOF") else 30))


def start(root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.store_child", *arguments], cwd=root, stdout=subprocess.PIPE
    )


def run_until_killed(child: subprocess.Popen[bytes], delay: float) -> dict[str, int]:
    """Kill it some time after its first sign of life; returns the operations acknowledged by session."""
    assert child.stdout is not None
    with child:
        first = child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        lines = (first + child.stdout.read()).decode().split("\n")
    # What follows the last newline is a line that was not finished.
    return {key: int(number) for key, number in (line.split() for line in lines[:-1])}


async def test_after_a_kill_at_any_moment_the_store_opens_and_holds_exactly_what_was_acknowledged(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "home" / "sessions.db"
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    acknowledged: dict[str, int] = {}
    for number in range(ROUNDS):
        child = start(request.config.rootpath, "write", str(path), f"round{number}")
        with trio.fail_after(60):
            ended = await trio.to_thread.run_sync(run_until_killed, child, dice.uniform(0, 0.1))
        assert ended, f"the child did nothing (seed {seed}, round {number})"
        acknowledged |= ended
        async with await SqliteStore.open(path) as store:
            for key, operations in ended.items():
                texts = [row.text for row in await store.load_rows(key)]
                # One more may have been committed whose acknowledgement died with the process.
                assert texts in (texts_after(operations), texts_after(operations + 1)), f"seed {seed}, round {number}"
    async with await SqliteStore.open(path) as store:
        for key, operations in acknowledged.items():
            texts = [row.text for row in await store.load_rows(key)]
            assert texts in (texts_after(operations), texts_after(operations + 1)), f"seed {seed}"


async def test_a_lease_whose_owner_was_killed_is_free_at_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "sessions.db"
    me = current_owner("parent")
    async with await SqliteStore.open(path) as store:
        await store.create_session(StoredSession("s"))
        await store.append_rows("s", [Row("user", "x")])
        with start(request.config.rootpath, "lease", str(path)) as child:
            assert child.stdout is not None
            with trio.fail_after(60):
                assert await trio.to_thread.run_sync(child.stdout.readline) == b"held\n"
            with pytest.raises(SessionOwnedElsewhere):
                await store.acquire_lease("s", me, ttl=10)
            child.kill()
            # Dead, but not collected by its parent yet: a zombie holds nothing.
            with trio.fail_after(60):
                await trio.to_thread.run_sync(lambda: os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT))
            assert await store.acquire_lease("s", me, ttl=10) == 1
            await store.release_lease("s", me)
