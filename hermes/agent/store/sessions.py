"""Session rows: create, read, change, list, delete, and unique titles. Functions of a connection, each inside a
transaction of the caller.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from hermes.agent.ports import StoredSession
from hermes.agent.store.leases import check_not_held
from hermes.agent.store.records import forget_session
from hermes.agent.store.rows import from_json, scrub, to_json
from hermes.errors import StoredSessionNotFound, TitleTaken
from hermes.outcomes import Usage
from hermes.patterns import lazy_pattern

MAX_TITLE_CHARS = 100
BRANCH_MARK = "_branched_from"
CHILD_SOURCES = ("subagent",)
INTERNAL_SOURCES = ("kanban", "tool", "oneshot")

# A title of a lower rank never replaces one of a higher rank.
TITLE_RANKS: Mapping[str | None, int] = {"derived": 0, "llm": 1, "user": 2, None: 2}
NUMBERED_TITLE = lazy_pattern(r"^(.*?) #\d+$", re.DOTALL)

USAGE_FIELDS = tuple(field.name for field in fields(Usage))
PLAIN_FIELDS = tuple(field.name for field in fields(StoredSession) if field.name not in ("usage", "system_prompt"))
COLUMNS = ", ".join(PLAIN_FIELDS + USAGE_FIELDS)
SELECT_WHOLE = (
    f"SELECT {COLUMNS}, (SELECT text FROM system_prompts AS p WHERE p.hash = s.system_prompt_hash) FROM sessions AS s"
)
SELECT_LISTED = f"SELECT {COLUMNS}, NULL FROM sessions AS s"

FIELDS = frozenset(field.name for field in fields(StoredSession))
JSON_FIELDS = frozenset({"model_config", "tool_names", "interrupted_turn"})
FLAG_FIELDS = frozenset({"hidden", "archived", "pinned", "unread"})


def decode_session(record: tuple[Any, ...]) -> StoredSession:
    values: dict[str, Any] = dict(zip(PLAIN_FIELDS, record, strict=False))
    usage: dict[str, Any] = dict(zip(USAGE_FIELDS, record[len(PLAIN_FIELDS) :], strict=False))
    usage["estimated"] = bool(usage["estimated"])
    for name in JSON_FIELDS:
        values[name] = from_json(values[name])
    for name in FLAG_FIELDS:
        values[name] = bool(values[name])
    if values["tool_names"] is not None:
        values["tool_names"] = tuple(values["tool_names"])
    return StoredSession(**values, usage=Usage(**usage), system_prompt=record[-1])


# --- read ------------------------------------------------------------------------------------------------------------


def get_session(connection: sqlite3.Connection, key: str) -> StoredSession | None:
    record = connection.execute(f"{SELECT_WHOLE} WHERE key = ?", (key,)).fetchone()
    return None if record is None else decode_session(record)


def find_by_title(connection: sqlite3.Connection, title: str) -> StoredSession | None:
    """The session of this exact title; an archived one only if no other has it."""
    record = connection.execute(
        f"{SELECT_WHOLE} WHERE title = ? ORDER BY archived, last_activity_at DESC LIMIT 1", (title,)
    ).fetchone()
    return None if record is None else decode_session(record)


def require_session(connection: sqlite3.Connection, key: str) -> StoredSession:
    session = get_session(connection, key)
    if session is None:
        raise StoredSessionNotFound
    return session


def list_sessions(
    connection: sqlite3.Connection,
    *,
    limit: int,
    offset: int,
    include_hidden: bool,
    include_archived: bool,
    include_children: bool,
    equal: Mapping[str, str | None],
    empty_of: str | None = None,
    seen_by: str | None = None,
) -> list[StoredSession]:
    """Newest activity first; ``equal`` holds columns that must have a value (None: any). Without system prompts."""
    conditions = ["(message_count > 0 OR principal = ?)"]
    values: list[Any] = [empty_of]
    if seen_by is not None:
        conditions.append("(principal IS NULL OR principal = ?)")
        values.append(seen_by)
    if not include_hidden:
        conditions.append("hidden = 0")
    if not include_archived:
        conditions.append("archived = 0")
    if not include_children:
        # A branch has a parent too, and is a conversation of its own.
        conditions.append(f"(parent_key IS NULL OR json_extract(model_config, '$.{BRANCH_MARK}') IS NOT NULL)")
        excluded = [source for source in CHILD_SOURCES + INTERNAL_SOURCES if source != equal.get("source")]
        conditions.append(f"source NOT IN ({', '.join('?' * len(excluded))})")
        values += excluded
    for column, value in equal.items():
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    records = connection.execute(
        f"{SELECT_LISTED} WHERE {' AND '.join(conditions)} ORDER BY last_activity_at DESC, key DESC LIMIT ? OFFSET ?",
        (*values, limit, offset),
    )
    return [decode_session(record) for record in records]


# --- write -----------------------------------------------------------------------------------------------------------


def create_session(connection: sqlite3.Connection, session: StoredSession) -> bool:
    """Insert if absent. False: the key was there. A taken title raises ``TitleTaken``, or gets a number if derived."""
    if connection.execute("SELECT 1 FROM sessions WHERE key = ?", (session.key,)).fetchone() is not None:
        return False
    if session.title is not None and not session.archived:
        session = replace(
            session, title=free_title(connection, session.title, session.title_source, own_key=session.key)
        )
    values = {field: getattr(session, field) for field in FIELDS}
    values["last_activity_at"] = session.last_activity_at or session.started_at
    columns = encode_changes(connection, values)
    connection.execute(
        f"INSERT INTO sessions ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        tuple(columns.values()),
    )
    return True


def update_session(connection: sqlite3.Connection, key: str, changes: Mapping[str, Any]) -> None:
    unknown = changes.keys() - (FIELDS - {"key"})
    if unknown:
        raise TypeError(f"not columns of a session: {', '.join(sorted(unknown))}")
    stored = require_session(connection, key)
    changes = settle_title(connection, stored, dict(changes))
    columns = encode_changes(connection, changes)
    if not columns:
        return
    old_prompt = prompt_hash(connection, key) if "system_prompt_hash" in columns else None
    assignments = ", ".join(f"{column} = ?" for column in columns)
    connection.execute(f"UPDATE sessions SET {assignments} WHERE key = ?", (*columns.values(), key))
    drop_unused_prompt(connection, old_prompt)


def delete_session(connection: sqlite3.Connection, key: str, *, host: str, now: float) -> None:
    """Delete it with its rows and all records about it. Children stay, without a parent. Raises
    ``SessionOwnedElsewhere`` while a turn runs."""
    require_session(connection, key)
    check_not_held(connection, key, host=host, now=now)
    old_prompt = prompt_hash(connection, key)
    connection.execute("UPDATE sessions SET parent_key = NULL WHERE parent_key = ?", (key,))
    connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
    forget_session(connection, key)
    drop_unused_prompt(connection, old_prompt)


def encode_changes(connection: sqlite3.Connection, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``StoredSession`` as columns."""
    columns: dict[str, Any] = {}
    for field, value in changes.items():
        if field == "usage":
            columns |= usage_columns(value)
        elif field == "system_prompt":
            columns["system_prompt_hash"] = store_prompt(connection, value)
        elif field in JSON_FIELDS:
            columns[field] = None if value is None else scrub(to_json(value))
        elif field in FLAG_FIELDS:
            columns[field] = int(value)
        else:
            columns[field] = scrub(value) if isinstance(value, str) else value
    return columns


def usage_columns(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in USAGE_FIELDS} | {"estimated": int(usage.estimated)}


# --- system prompts: long, and shared by many sessions ---------------------------------------------------------------


def store_prompt(connection: sqlite3.Connection, text: str | None) -> str | None:
    if text is None:
        return None
    text = scrub(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    connection.execute("INSERT OR IGNORE INTO system_prompts (hash, text) VALUES (?, ?)", (digest, text))
    return digest


def prompt_hash(connection: sqlite3.Connection, key: str) -> str | None:
    record = connection.execute("SELECT system_prompt_hash FROM sessions WHERE key = ?", (key,)).fetchone()
    return None if record is None else record[0]


def drop_unused_prompt(connection: sqlite3.Connection, digest: str | None) -> None:
    if digest is not None:
        connection.execute(
            "DELETE FROM system_prompts WHERE hash = :hash "
            "AND NOT EXISTS (SELECT 1 FROM sessions WHERE system_prompt_hash = :hash)",
            {"hash": digest},
        )


# --- titles ----------------------------------------------------------------------------------------------------------


def settle_title(connection: sqlite3.Connection, stored: StoredSession, changes: dict[str, Any]) -> dict[str, Any]:
    """Apply the rules of titles to a change: the rank of its source, and uniqueness among sessions not archived."""
    source = changes.get("title_source") if "title" in changes else stored.title_source
    outranked = TITLE_RANKS.get(source, 2) < TITLE_RANKS.get(stored.title_source, 2)
    if changes.get("title") is not None and stored.title is not None and outranked:
        changes = {name: value for name, value in changes.items() if name not in ("title", "title_source")}
    title = changes.get("title", stored.title)
    archived = changes.get("archived", stored.archived)
    if title is not None and not archived and (title != stored.title or stored.archived):
        changes["title"] = free_title(connection, title, source, own_key=stored.key)
    return changes


def free_title(connection: sqlite3.Connection, title: str, source: str | None, *, own_key: str) -> str:
    """The title if no other session has it. Else a person's choice raises ``TitleTaken``; ours gets the next number."""
    title = scrub(title)
    taken = connection.execute(
        "SELECT 1 FROM sessions WHERE title = ? AND archived = 0 AND key <> ?", (title, own_key)
    ).fetchone()
    if taken is None:
        return title
    if TITLE_RANKS.get(source, 2) >= TITLE_RANKS["user"]:
        raise TitleTaken
    return next_title(connection, title)


def next_title(connection: sqlite3.Connection, title: str) -> str:
    """The next free member of the title's lineage: ``X`` → ``X #2`` → ``X #3``."""
    numbered = NUMBERED_TITLE.match(title)
    base = (numbered.group(1) if numbered else title)[: MAX_TITLE_CHARS - 8]
    prefix = f"{base} #"
    # '$' follows '#': the range holds exactly the titles with this prefix.
    records = connection.execute(
        "SELECT title FROM sessions WHERE archived = 0 AND title >= ? AND title < ?", (prefix, f"{base} $")
    )
    numbers = [int(number) for (found,) in records if (number := found[len(prefix) :]).isdecimal()]
    return f"{prefix}{max([1, *numbers]) + 1}"
