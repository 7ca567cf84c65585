"""What a turn writes at its two ends, each in one transaction: a turn costs two commits beside its tools.

The first makes the prompt durable: the session row if there is none yet, the lease, the rows. The last makes the answer
durable and lets go: the rows with their spending, what the session pinned, the title, the lease. Functions of a
connection, each inside a transaction of the caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.agent.ports import LeaseOwner, StoredSession, TurnBegun, TurnFinished
from hermes.agent.store.history import Encoded, append_rows
from hermes.agent.store.leases import acquire_lease, check_not_taken, release_lease
from hermes.agent.store.records import delete_record
from hermes.agent.store.sessions import create_session, update_session
from hermes.outcomes import Usage


def begin_turn(
    connection: sqlite3.Connection,
    key: str,
    encoded: Encoded,
    *,
    owner: LeaseOwner,
    ttl: float,
    host: str,
    now: float,
    expected_version: int,
    new_session: StoredSession | None,
) -> TurnBegun:
    """Take the lease, and store the rows if the history is the one that they were written for."""
    if new_session is not None:
        create_session(connection, new_session)
    version = acquire_lease(connection, key, owner, ttl=ttl, host=host, now=now)
    if version != expected_version:
        return TurnBegun(version, None)
    return TurnBegun(version, append_rows(connection, key, encoded) if encoded else ())


def store_rows(
    connection: sqlite3.Connection,
    key: str,
    encoded: Encoded,
    *,
    usage: Usage | None = None,
    changes: Mapping[str, Any] | None = None,
    owner: LeaseOwner | None = None,
) -> TurnFinished:
    """Append rows and change columns of the session; the title is told as it was stored. ``owner``: as one who holds
    the lease, not if somebody else has taken it."""
    if owner is not None:
        check_not_taken(connection, key, owner)
    rows = append_rows(connection, key, encoded, usage=usage)
    if not changes:
        return TurnFinished(rows, None)
    update_session(connection, key, changes)
    if "title" not in changes:
        return TurnFinished(rows, None)
    title, source = connection.execute("SELECT title, title_source FROM sessions WHERE key = ?", (key,)).fetchone()
    return TurnFinished(rows, title if source == changes.get("title_source") else None)


def finish_turn(
    connection: sqlite3.Connection,
    key: str,
    encoded: Encoded,
    *,
    owner: LeaseOwner,
    usage: Usage | None = None,
    changes: Mapping[str, Any] | None = None,
    forget: Sequence[tuple[str, str]] = (),
) -> TurnFinished:
    """The last rows of a turn, the end of its lease, and of the records (kind, id) that it leaves nothing behind of."""
    finished = store_rows(connection, key, encoded, usage=usage, changes=changes, owner=owner)
    for kind, record_id in forget:
        delete_record(connection, kind, record_id)
    release_lease(connection, key, owner)
    return finished
