"""Turn leases: one process at a time runs a turn of a session.

A lease names its owner so exactly (host, pid, start time of the process, a nonce) that on the same host a dead owner
can be proven dead; its lease is then free at once. Otherwise a lease ends by release or by expiry. The row stays after
a release, as a memory of who wrote last: when somebody else takes the lease next, ``history_version`` goes up, so that
the process which had the session before sees that its copy of the history may be old.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from hermes.agent.ports import LeaseOwner
from hermes.errors import SessionOwnedElsewhere, StoredSessionNotFound

PROC = Path("/proc")
DEAD_STATES = frozenset("ZXx")

# A released lease: expired since ever.
RELEASED = 0.0

OURS = (
    "WHERE host = ? AND pid = ? AND start_time = ? AND nonce = ? AND expires_at != ? "
    "AND session_key IN (SELECT value FROM json_each(?))"
)


def current_owner(nonce: str) -> LeaseOwner:
    """This process as an owner. ``nonce`` is fresh for each start."""
    pid = os.getpid()
    return LeaseOwner(platform.node(), pid, process_start_time(pid) or 0, nonce)


def process_start_time(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot; None if it is dead, 0 if the system cannot tell."""
    if not PROC.joinpath("self", "stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:
            return 0
        return 0
    try:
        text = PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may contain anything, parentheses too.
    words = text.rpartition(")")[2].split()
    return None if words[0] in DEAD_STATES else int(words[19])


def provably_dead(owner: LeaseOwner, *, host: str) -> bool:
    """True only if the owner ran on this host and is certainly gone (a process that now has its pid is another)."""
    if owner.host != host:
        return False
    started = process_start_time(owner.pid)
    if started is None:
        return True
    return started != 0 and owner.start_time != 0 and started != owner.start_time


def read_lease(connection: sqlite3.Connection, key: str) -> tuple[LeaseOwner, float] | None:
    """The last owner and when its lease ends."""
    record = connection.execute(
        "SELECT host, pid, start_time, nonce, expires_at FROM turn_leases WHERE session_key = ?", (key,)
    ).fetchone()
    return None if record is None else (LeaseOwner(*record[:4]), record[4])


def holder(connection: sqlite3.Connection, key: str, *, host: str, now: float) -> LeaseOwner | None:
    """Who holds the lease."""
    lease = read_lease(connection, key)
    if lease is None or lease[1] <= now or provably_dead(lease[0], host=host):
        return None
    return lease[0]


def check_not_held(connection: sqlite3.Connection, key: str, *, host: str, now: float) -> None:
    """Raise ``SessionOwnedElsewhere`` if somebody holds the lease."""
    lease = read_lease(connection, key)
    if lease is not None and holder(connection, key, host=host, now=now) is not None:
        raise SessionOwnedElsewhere(str(lease[0]), expires_at=lease[1])


def check_not_taken(connection: sqlite3.Connection, key: str, owner: LeaseOwner) -> None:
    """Raise ``SessionOwnedElsewhere`` if somebody else has taken the lease since ``owner`` did.

    One who was slow, or whose clock has jumped, may not know yet; two who write make a history that nobody can read."""
    lease = read_lease(connection, key)
    if lease is not None and lease[0] != owner:
        raise SessionOwnedElsewhere(str(lease[0]), expires_at=lease[1])


def acquire_lease(
    connection: sqlite3.Connection, key: str, owner: LeaseOwner, *, ttl: float, host: str, now: float
) -> int:
    """Take the lease, or keep it if it is ours; returns the session's ``history_version`` from then on."""
    record = connection.execute("SELECT history_version FROM sessions WHERE key = ?", (key,)).fetchone()
    if record is None:
        raise StoredSessionNotFound
    version = int(record[0])
    lease = read_lease(connection, key)
    if lease is not None and lease[0] != owner:
        check_not_held(connection, key, host=host, now=now)
        version += 1
        connection.execute("UPDATE sessions SET history_version = ? WHERE key = ?", (version, key))
    connection.execute(
        "INSERT OR REPLACE INTO turn_leases (session_key, host, pid, start_time, nonce, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (key, owner.host, owner.pid, owner.start_time, owner.nonce, now + ttl),
    )
    return version


def refresh_leases(
    connection: sqlite3.Connection, keys: Sequence[str], owner: LeaseOwner, *, ttl: float, now: float
) -> frozenset[str]:
    """Prolong them; returns those that are still ours, not released and not taken by somebody else. One that merely
    expired is ours, and lives again.

    Two statements for however many: each step of one gives the interpreter away, and a busy loop gives it back late.
    """
    ours = (owner.host, owner.pid, owner.start_time, owner.nonce, RELEASED, json.dumps(list(keys)))
    connection.execute(f"UPDATE turn_leases SET expires_at = ? {OURS}", (now + ttl, *ours))
    (left,) = connection.execute(f"SELECT json_group_array(session_key) FROM turn_leases {OURS}", ours).fetchone()
    return frozenset(json.loads(left))


def release_lease(connection: sqlite3.Connection, key: str, owner: LeaseOwner) -> None:
    """Give it back, if it is ours."""
    connection.execute(
        "UPDATE turn_leases SET expires_at = ? "
        "WHERE session_key = ? AND host = ? AND pid = ? AND start_time = ? AND nonce = ?",
        (RELEASED, key, owner.host, owner.pid, owner.start_time, owner.nonce),
    )
