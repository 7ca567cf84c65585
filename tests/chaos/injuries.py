"""What is done to servers from outside: a disk that is full or slow, a locked database, signals, clocks, dead tools."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from tests.chaos.lives import KINDS, Life
from tests.support.server_process import children_of, processes_of

if TYPE_CHECKING:
    from tests.chaos.play import Stage

ENDLESS = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


async def all_of_them(one: Stage, dice: random.Random) -> None:
    """One after the other, now and then two at once, until it is quiet."""
    chosen = {name: weight for name, (weight, _) in INJURIES.items() if name not in one.without}
    async with trio.open_nursery() as nursery:
        while not one.quiet.is_set():
            with trio.move_on_after(dice.uniform(0.05, 2.0)):
                await one.quiet.wait()
                return
            name = dice.choices(list(chosen), list(chosen.values()))[0]
            nursery.start_soon(_injure, one, name, dice)


async def _injure(one: Stage, name: str, dice: random.Random) -> None:
    await INJURIES[name][1](one, dice)


def victim(one: Stage, dice: random.Random) -> Life | None:
    alive = [life for kind in KINDS if (life := one.lives.current.get(kind)) is not None and life.alive]
    return dice.choice(alive) if alive else None


async def full_disk(one: Stage, dice: random.Random) -> None:
    """No file of the process may grow beyond what the log of the database has now."""
    life = victim(one, dice)
    if life is None:
        return
    one.store_hurt = True
    with contextlib.suppress(OSError):
        size = max((one.home / "sessions.db-wal").stat().st_size, 4096)
        one.trace.note(life.name, "full disk", detail=f"{size} bytes")
        resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        await trio.sleep(dice.uniform(0.1, 1.5))
        resource.prlimit(life.pid, resource.RLIMIT_FSIZE, ENDLESS)
        one.trace.tell(life.name, "the disk has room again")


async def locked(one: Stage, dice: random.Random) -> None:
    """Another program writes, and does not come to an end."""
    one.store_hurt = True
    seconds = dice.choice([0.2, 1.0, 6.5])
    one.trace.note("injuries", "locked database", detail=f"{seconds} s")
    await _hold_lock(one, seconds)
    one.trace.tell("injuries", "the database is free again")


async def slow_disk(one: Stage, dice: random.Random) -> None:
    """Every write waits a little: the lock is taken again and again."""
    one.store_hurt = True
    one.trace.note("injuries", "slow disk")
    for _ in range(dice.randrange(5, 25)):
        await _hold_lock(one, dice.uniform(0.02, 0.15))
        await trio.sleep(0.02)


async def _hold_lock(one: Stage, seconds: float) -> None:
    database = sqlite3.connect(one.home / "sessions.db", isolation_level=None, timeout=0)
    try:
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute("BEGIN IMMEDIATE")
            await trio.sleep(seconds)
    finally:
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute("ROLLBACK")
        database.close()


async def frozen(one: Stage, dice: random.Random) -> None:
    """The machine does not let it run for a while."""
    if (life := victim(one, dice)) is None:
        return
    one.trace.note(life.name, "freeze")
    with contextlib.suppress(ProcessLookupError):
        life.process.send_signal(signal.SIGSTOP)
        await trio.sleep(dice.uniform(0.05, 1.5))
        life.process.send_signal(signal.SIGCONT)


async def killed(one: Stage, dice: random.Random) -> None:
    if (life := victim(one, dice)) is not None:
        one.trace.note(life.name, "kill -9")
        await one.lives.kill(life)
        await one.lives.ensure(life.kind)


async def stopped(one: Stage, dice: random.Random) -> None:
    if (life := victim(one, dice)) is None or not life.ready:
        return
    if life.kind != "serve" and dice.random() < 0.4:
        one.trace.note(life.name, "end of input")
        await one.lives.hang_up(life)
    else:
        number = dice.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        one.trace.note(life.name, number.name)
        await one.lives.stop(life, number)
    await one.lives.ensure(life.kind)


async def clock(one: Stage, dice: random.Random) -> None:
    """The wall clock jumps, for all processes at once, as an administrator or a wake-up from sleep makes it."""
    if one.lives.clock is not None:
        jump = dice.choice([0, 25, -25, 3600, -3600, 172_800, -172_800])
        one.trace.note("injuries", "clock jump", detail=f"{jump:+} s")
        one.lives.clock.set(jump)


async def dead_tool(one: Stage, dice: random.Random) -> None:
    """Somebody else kills a process that a tool has started."""
    servers = {life.pid for life in one.lives.current.values()}
    life = victim(one, dice)
    if life is None:
        return
    found = [pid for pid, line in children_of(life).items() if pid not in servers and "sleep" in line]
    if found:
        one.trace.note("injuries", "tool killed")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(dice.choice(found), signal.SIGKILL)


def tool_processes(one: Stage) -> dict[int, str]:
    """What runs for the home beside the servers."""
    servers = {life.pid for life in one.lives.current.values()}
    return {pid: line for pid, line in processes_of(one.home).items() if pid not in servers}


Injury = Callable[["Stage", random.Random], Awaitable[None]]
INJURIES: dict[str, tuple[int, Injury]] = {
    "full": (3, full_disk),
    "lock": (3, locked),
    "slow": (2, slow_disk),
    "freeze": (2, frozen),
    "kill": (2, killed),
    "term": (2, stopped),
    "clock": (3, clock),
    "tool": (4, dead_tool),
}
