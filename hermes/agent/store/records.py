"""Small durable things beside the transcript: meta values, JSON documents by kind, and the numbered frames of a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.agent.store.rows import from_json


def get_meta(connection: sqlite3.Connection, key: str) -> str | None:
    record = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if record is None else str(record[0])


def set_meta(connection: sqlite3.Connection, key: str, value: str | None) -> None:
    """None removes the value."""
    if value is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


# --- documents -------------------------------------------------------------------------------------------------------


def put_record(connection: sqlite3.Connection, kind: str, record_id: str, text: str, *, owner: str, now: float) -> None:
    connection.execute(
        "INSERT INTO records (kind, id, owner, value, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (kind, id) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at, "
        "owner = CASE excluded.owner WHEN '' THEN owner ELSE excluded.owner END",
        (kind, record_id, owner, text, now, now),
    )


def claim_record(
    connection: sqlite3.Connection, kind: str, record_id: str, text: str, *, owner: str, now: float
) -> Mapping[str, Any] | None:
    """Insert if absent. None: it is ours; otherwise what was there."""
    there = get_record(connection, kind, record_id)
    if there is None:
        put_record(connection, kind, record_id, text, owner=owner, now=now)
    return there


def get_record(connection: sqlite3.Connection, kind: str, record_id: str) -> Mapping[str, Any] | None:
    record = connection.execute("SELECT value FROM records WHERE kind = ? AND id = ?", (kind, record_id)).fetchone()
    if record is None:
        return None
    value: Mapping[str, Any] = from_json(record[0])
    return value


def list_records(
    connection: sqlite3.Connection, kind: str, *, owner: str | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """Oldest first. ``owner`` None: everybody's."""
    records = connection.execute(
        "SELECT id, value FROM records WHERE kind = :kind AND (:owner IS NULL OR owner = :owner) "
        "ORDER BY created_at, rowid",
        {"kind": kind, "owner": owner},
    )
    return [(record_id, from_json(text)) for record_id, text in records]


def delete_record(connection: sqlite3.Connection, kind: str, record_id: str) -> bool:
    """Remove the document and the journal of its id."""
    deleted = connection.execute("DELETE FROM records WHERE kind = ? AND id = ?", (kind, record_id)).rowcount > 0
    if deleted:
        connection.execute("DELETE FROM journal WHERE run_id = ?", (record_id,))
    return deleted


def prune_records(connection: sqlite3.Connection, kind: str, *, older_than: float) -> int:
    """Remove the documents last written before that time, with their journals; returns how many."""
    connection.execute(
        "DELETE FROM journal WHERE run_id IN (SELECT id FROM records WHERE kind = ? AND updated_at < ?)",
        (kind, older_than),
    )
    return connection.execute("DELETE FROM records WHERE kind = ? AND updated_at < ?", (kind, older_than)).rowcount


def forget_session(connection: sqlite3.Connection, key: str) -> None:
    """Remove what is about this session: its open questions, its runs and stored responses with their journals, and
    the names that lead to it or to one of them."""
    named = "CASE WHEN json_valid(value) THEN json_extract(value, ?) END = ?"
    found = connection.execute(
        f"SELECT id FROM records WHERE owner = ? OR {named} OR {named}",
        (key, "$.session_id", key, "$.status.session_id", key),
    ).fetchall()
    for (record_id,) in found:
        connection.execute("DELETE FROM journal WHERE run_id = ?", (record_id,))
        connection.execute(
            f"DELETE FROM records WHERE id = ? OR {named} OR {named}",
            (record_id, "$.run_id", record_id, "$.response_id", record_id),
        )


# --- journals --------------------------------------------------------------------------------------------------------


def append_journal(
    connection: sqlite3.Connection, run_id: str, entries: Sequence[tuple[int, bytes]], *, keep: int
) -> None:
    """Store frames by number. A number written twice holds the newer frame. Numbers rise by one, so that ``keep`` can
    be a distance."""
    connection.executemany(
        "INSERT OR REPLACE INTO journal (run_id, seq, frame) VALUES (?, ?, ?)",
        [(run_id, number, frame) for number, frame in entries],
    )
    connection.execute(
        "DELETE FROM journal WHERE run_id = :run AND seq <= (SELECT max(seq) FROM journal WHERE run_id = :run) - :keep",
        {"run": run_id, "keep": keep},
    )


def read_journal(connection: sqlite3.Connection, run_id: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
    return connection.execute(
        "SELECT seq, frame FROM journal WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?", (run_id, after, limit)
    ).fetchall()
