"""The rows of a session: append, load, cut and restore, compress, branch. Functions of a connection, each inside a
transaction of the caller.

Rows are ordered by ``(position, id)``. A new row's position is its id; only the summary of a compression gets a
position between others, so nothing is ever inserted a second time and ids last. A row is *active* (part of the
context), *compacted* (replaced by a summary; still shown and searchable) or *cut* (archived by a rewind, remembers
which; a compacted row can be cut as well). The *transcript* is what is active or compacted and not cut.

What the model reads of a row (``api_content``) can be shortened later; what people read is never changed.

``history_version`` goes up with every change that is not an append by the session's owner: rewind, undo, compression,
and the first turn of another process (see ``leases.py``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes.agent.interruption import begins_turn
from hermes.agent.ports import RewindResult, StoredSession
from hermes.agent.rewind_target import OutlineRow, resolve_cut, survivor_ids
from hermes.agent.store.rows import INSERT_ROW, READ_COLUMNS, ROW_COLUMNS, Record, decode_rows, preview_of
from hermes.agent.store.sessions import BRANCH_MARK, create_session, next_title, require_session
from hermes.errors import Conflict, NothingToBranch, NothingToUndo, SessionExists, StaleRewindTarget
from hermes.messages import RewindIntent, Row
from hermes.outcomes import Usage

Encoded = Sequence[tuple[Record, Row]]
"""Rows from ``encode_row``: what to store, and the row as it will be read."""

# Left to itself, SQLite reads the rows in order and the inactive ones with them.
ACTIVE_ROWS = f"SELECT {READ_COLUMNS} FROM messages INDEXED BY messages_active WHERE session_key = ? AND active = 1"
IN_TRANSCRIPT = "cut_id IS NULL AND (active = 1 OR (compacted = 1 AND compacted_summary = 0))"
TRANSCRIPT = f"SELECT {READ_COLUMNS} FROM messages WHERE session_key = ? AND {IN_TRANSCRIPT}"
IN_ORDER = "ORDER BY position, id"

# --- read ------------------------------------------------------------------------------------------------------------


def load_rows(connection: sqlite3.Connection, key: str, *, limit: int | None = None) -> tuple[Row, ...]:
    """The active rows in order; with a limit, the newest ones."""
    if limit is None:
        return decode_rows(connection.execute(f"{ACTIVE_ROWS} {IN_ORDER}", (key,)))
    records = connection.execute(f"{ACTIVE_ROWS} ORDER BY position DESC, id DESC LIMIT ?", (key, limit)).fetchall()
    records.reverse()
    return decode_rows(records)


def load_transcript(connection: sqlite3.Connection, key: str, *, limit: int) -> tuple[Row, ...]:
    """The whole conversation: the active rows, with the compacted ones in their old places; the newest ones."""
    records = connection.execute(f"{TRANSCRIPT} ORDER BY position DESC, id DESC LIMIT ?", (key, limit)).fetchall()
    records.reverse()
    return decode_rows(records)


def load_compacted_prompts(connection: sqlite3.Connection, key: str, *, limit: int) -> tuple[Row, ...]:
    """The prompts with a client's id that a summary stands for; the newest ones."""
    records = connection.execute(
        f"SELECT {READ_COLUMNS} FROM messages INDEXED BY messages_prompts WHERE session_key = ? AND role = 'user' "
        "AND compacted = 1 AND compacted_summary = 0 AND cut_id IS NULL AND platform_message_id IS NOT NULL "
        "ORDER BY position DESC, id DESC LIMIT ?",
        (key, limit),
    ).fetchall()
    records.reverse()
    return decode_rows(records)


def outline(connection: sqlite3.Connection, key: str) -> list[OutlineRow]:
    """The transcript, as far as choosing rows needs it."""
    records = connection.execute(
        "SELECT id, position, role, display_kind, platform_message_id, compacted_summary, compacted FROM messages "
        f"WHERE session_key = ? AND {IN_TRANSCRIPT} {IN_ORDER}",
        (key,),
    )
    return [
        OutlineRow(row_id, position, role, kind, message_id, bool(summary), bool(compacted))
        for row_id, position, role, kind, message_id, summary, compacted in records
    ]


def outline_of_prompts(connection: sqlite3.Connection, key: str) -> list[OutlineRow]:
    """The same of the user rows alone, which stand in an index, and the first row that the model or a tool has written:
    all that choosing the target of a rewind needs."""
    records = connection.execute(
        "SELECT id, position, display_kind, platform_message_id, compacted_summary, compacted FROM messages "
        f"INDEXED BY messages_prompts WHERE session_key = ? AND role = 'user' AND {IN_TRANSCRIPT} {IN_ORDER}",
        (key,),
    )
    found = [
        OutlineRow(row_id, position, "user", kind, message_id, summary == 1, compacted == 1)
        for row_id, position, kind, message_id, summary, compacted in records
    ]
    answer = connection.execute(
        "SELECT id, position, role, compacted FROM messages INDEXED BY messages_order WHERE session_key = ? "
        f"AND role != 'user' AND {IN_TRANSCRIPT} {IN_ORDER} LIMIT 1",
        (key,),
    ).fetchone()
    if answer is not None:
        row_id, position, role, compacted = answer
        place = next((i for i, row in enumerate(found) if (row.position, row.row_id) > (position, row_id)), len(found))
        found.insert(place, OutlineRow(row_id, position, role, None, None, False, compacted == 1))
    return found


# --- append ----------------------------------------------------------------------------------------------------------


def append_rows(
    connection: sqlite3.Connection, key: str, encoded: Encoded, *, usage: Usage | None = None
) -> tuple[Row, ...]:
    """Store rows behind the last one, and count them, in one go."""
    count_rows(connection, key, [row for _record, row in encoded], usage)
    return insert_rows(connection, key, encoded)


def insert_rows(
    connection: sqlite3.Connection, key: str, encoded: Encoded, positions: Sequence[float] | None = None
) -> tuple[Row, ...]:
    """Number and insert. Ids can be chosen here because the transaction is the only writer; they are never reused."""
    first = next_row_id(connection)
    connection.executemany(
        INSERT_ROW,
        [
            (key, positions[index] if positions else first + index, *record[:4], first + index, *record[5:])
            for index, (record, _row) in enumerate(encoded)
        ],
    )
    return tuple(row.with_id(first + index) for index, (_record, row) in enumerate(encoded))


def next_row_id(connection: sqlite3.Connection) -> int:
    record = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
    return 1 if record is None else int(record[0]) + 1


def count_rows(connection: sqlite3.Connection, key: str, rows: Sequence[Row], usage: Usage | None) -> None:
    """Add rows and usage to the session's counters. The preview is the first prompt and set once.

    Raises ``StoredSessionNotFound``."""
    spent = usage or Usage()
    changed = connection.execute(
        "UPDATE sessions SET message_count = message_count + ?, tool_call_count = tool_call_count + ?, "
        "last_activity_at = max(last_activity_at, ?), preview = CASE preview WHEN '' THEN ? ELSE preview END, "
        "input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, "
        "cache_read_tokens = cache_read_tokens + ?, cache_write_tokens = cache_write_tokens + ?, "
        "reasoning_tokens = reasoning_tokens + ?, calls = calls + ?, "
        "cost_usd = coalesce(coalesce(cost_usd, 0) + ?, cost_usd), "
        "estimated = max(estimated, ?) WHERE key = ?",
        (
            len(rows),
            sum(len(row.tool_calls) for row in rows),
            max((row.timestamp for row in rows), default=0.0),
            first_preview(rows),
            spent.input_tokens,
            spent.output_tokens,
            spent.cache_read_tokens,
            spent.cache_write_tokens,
            spent.reasoning_tokens,
            spent.calls,
            spent.cost_usd,
            int(spent.estimated),
            key,
        ),
    ).rowcount
    if not changed:
        require_session(connection, key)


def first_preview(rows: Iterable[Row]) -> str:
    return next((preview_of(row) for row in rows if row.is_user_prompt), "")


def recount(connection: sqlite3.Connection, key: str, counter: str | None = None, *, gone: int | None = None) -> int:
    """After rows left or came back: message count and preview anew, ``history_version`` up; returns the version.

    ``counter`` names a further column to count up. ``gone``: how many messages left, where that is all.
    """
    record = connection.execute(
        f"{ACTIVE_ROWS} AND role = 'user' AND (display_kind IS NULL OR display_kind = 'skill_invocation') "
        f"AND compacted_summary = 0 {IN_ORDER} LIMIT 1",
        (key,),
    ).fetchone()
    preview = "" if record is None else first_preview(decode_rows([record]))
    extra = f", {counter} = {counter} + 1" if counter else ""
    whole = "(SELECT count(*) FROM messages INDEXED BY messages_active WHERE session_key = :key AND active = 1)"
    count = whole if gone is None else "message_count - :gone"
    connection.execute(
        "UPDATE sessions SET history_version = history_version + 1, preview = :preview, "
        f"message_count = {count}{extra} WHERE key = :key",
        {"key": key, "gone": gone, "preview": preview},
    )
    return int(connection.execute("SELECT history_version FROM sessions WHERE key = ?", (key,)).fetchone()[0])


# --- rewind and its undo ---------------------------------------------------------------------------------------------


def rewind(
    connection: sqlite3.Connection,
    key: str,
    intent: RewindIntent,
    encoded: Encoded,
    *,
    expected_version: int | None,
) -> RewindResult:
    """Archive the target and all behind it, compacted rows too, and append the new rows; nothing of it happens unless
    all checks pass."""
    session = require_session(connection, key)
    if expected_version is not None and expected_version != session.history_version:
        raise StaleRewindTarget("the history was changed by somebody else; reload it")
    prompts = outline_of_prompts(connection, key)
    index = resolve_cut(prompts, intent)
    target = prompts[index]
    place = (key, target.position, target.row_id)
    removed = decode_rows(connection.execute(f"{TRANSCRIPT} AND (position, id) >= (?, ?) {IN_ORDER}", place))
    own_row_id = next_row_id(connection)
    cut_id = connection.execute(
        "INSERT INTO cuts (session_key, last_row_id, own_row_id) VALUES (?, ?, ?)",
        (key, own_row_id + len(encoded) - 1, own_row_id),
    ).lastrowid
    connection.execute(
        f"UPDATE messages SET active = 0, cut_id = ? WHERE session_key = ? AND {IN_TRANSCRIPT} "
        "AND (position, id) >= (?, ?)",
        (cut_id, *place),
    )
    new_rows = append_rows(connection, key, encoded)
    version = recount(connection, key, "rewind_count", gone=sum(not row.compacted for row in removed))
    survivors = survivor_ids(prompts[:index])
    return RewindResult(removed=removed, survivors=survivors, new_rows=new_rows, history_version=version)


def undo_rewind(connection: sqlite3.Connection, key: str) -> tuple[Row, ...]:
    """Bring the last cut back; the rows of the turn that came with the cut are archived in exchange. Returns the
    transcript.

    Raises ``NothingToUndo`` if there is no cut, if a later turn was stored (steers, corrections and notices of the
    server are part of their turn), or if a compression came after it.
    """
    require_session(connection, key)
    cut = connection.execute(
        "SELECT id, last_row_id, own_row_id FROM cuts WHERE session_key = ? AND open = 1 ORDER BY id DESC LIMIT 1",
        (key,),
    ).fetchone()
    if cut is None:
        raise NothingToUndo
    cut_id, last_row_id, own_row_id = cut
    later = decode_rows(
        connection.execute(f"{ACTIVE_ROWS} AND id > ? AND role = 'user' {IN_ORDER}", (key, last_row_id))
    )
    if any(begins_turn(row) for row in later):
        raise NothingToUndo("a newer turn was stored; the cut can no longer be undone")
    connection.execute(
        "UPDATE messages SET active = 0 WHERE session_key = ? AND active = 1 AND id >= ?", (key, own_row_id)
    )
    connection.execute("UPDATE messages SET active = (compacted = 0), cut_id = NULL WHERE cut_id = ?", (cut_id,))
    connection.execute("UPDATE cuts SET open = 0 WHERE id = ?", (cut_id,))
    recount(connection, key)
    return decode_rows(connection.execute(f"{TRANSCRIPT} {IN_ORDER}", (key,)))


# --- compression -----------------------------------------------------------------------------------------------------


def replace_with_summary(
    connection: sqlite3.Connection,
    key: str,
    *,
    summarized_ids: Sequence[int],
    encoded: Encoded,
    expected_version: int,
) -> tuple[Row, ...]:
    """Mark the rows compacted and put the summary where the last of them stood. Cuts made before can not be undone.

    With no rows in their place, the transcript is not summarized but put away: nothing of it is shown any more.
    """
    session = require_session(connection, key)
    if expected_version != session.history_version:
        raise Conflict("the history was changed by somebody else; the summary does not fit it any more")
    chosen = set(summarized_ids)
    active = [row for row in outline(connection, key) if not row.compacted]
    places = [index for index, row in enumerate(active) if row.row_id in chosen]
    if not places or len(places) != len(chosen):
        raise Conflict("rows to be summarized are not part of the history any more")
    last = places[-1]
    positions = None
    if last + 1 < len(active):
        low, high = active[last].position, active[last + 1].position
        step = (high - low) / (len(encoded) + 1)
        positions = [low + step * (number + 1) for number in range(len(encoded))]
    connection.executemany(
        "UPDATE messages SET active = 0, compacted = 1 WHERE id = ?", [(row_id,) for row_id in chosen]
    )
    insert_rows(connection, key, encoded, positions)
    if not encoded:
        put_away = connection.execute(
            "INSERT INTO cuts (session_key, last_row_id, own_row_id) VALUES (?, 0, 0)", (key,)
        ).lastrowid
        connection.execute(
            "UPDATE messages SET cut_id = ? WHERE session_key = ? AND compacted = 1 AND cut_id IS NULL", (put_away, key)
        )
    connection.execute("UPDATE cuts SET open = 0 WHERE session_key = ?", (key,))
    recount(connection, key, "compression_count" if encoded else None)
    return load_rows(connection, key)


def shorten_rows(
    connection: sqlite3.Connection, key: str, *, encoded: Sequence[tuple[str | None, int]], expected_version: int
) -> None:
    """Set what the model reads of active rows, given as (content, id): all of them or none."""
    session = require_session(connection, key)
    if expected_version != session.history_version:
        raise Conflict("the history was changed by somebody else; reload it")
    for content, row_id in encoded:
        changed = connection.execute(
            "UPDATE messages SET api_content = ? WHERE id = ? AND session_key = ? AND active = 1",
            (content, row_id, key),
        ).rowcount
        if not changed:
            raise Conflict("rows to be shortened are not part of the history any more")
    connection.execute("UPDATE sessions SET history_version = history_version + 1 WHERE key = ?", (key,))


# --- branch ----------------------------------------------------------------------------------------------------------

COPIED = ROW_COLUMNS.replace(" id,", "")
INHERITED = ("model", "provider", "cwd", "system_prompt", "tool_names", "user_id", "principal")


def branch(
    connection: sqlite3.Connection, key: str, new: StoredSession, *, row_ids: Sequence[int] | None
) -> tuple[StoredSession, tuple[Row, ...]]:
    """Copy the transcript, or these rows of it, into a new session with ids of its own; the parent is not changed.

    Compacted rows stay so beside the summary that stands for them; without it they are the context of the copy.
    What ``new`` leaves open (model, prompt, directory …) comes from the parent, the title from its lineage. Returns the
    active rows.
    """
    parent = require_session(connection, key)
    chosen = set(row_ids) if row_ids is not None else None
    copied = [row for row in outline(connection, key) if chosen is None or row.row_id in chosen]
    if not copied:
        raise NothingToBranch
    if chosen is not None and len(copied) != len(chosen):
        raise Conflict("rows to be copied are not part of the history any more")
    if not create_session(connection, branch_session(connection, parent, new)):
        raise SessionExists
    first = next_row_id(connection)
    summarized = any(row.summary for row in copied)
    connection.executemany(
        f"INSERT INTO messages (id, session_key, position, active, compacted, search_text, {COPIED}) "
        f"SELECT ?, ?, ?, ?, ?, search_text, {COPIED} FROM messages WHERE id = ?",
        [
            (number, new.key, number, int(not compacted), int(compacted), row.row_id)
            for number, row in enumerate(copied, first)
            for compacted in (row.compacted and summarized,)
        ],
    )
    rows = load_rows(connection, new.key)
    count_rows(connection, new.key, rows, None)
    return require_session(connection, new.key), rows


def branch_session(connection: sqlite3.Connection, parent: StoredSession, new: StoredSession) -> StoredSession:
    inherited: dict[str, Any] = {name: getattr(parent, name) for name in INHERITED if getattr(new, name) is None}
    if new.title is None and parent.title is not None:
        inherited |= {"title": next_title(connection, parent.title), "title_source": parent.title_source}
    config: Mapping[str, Any] = new.model_config or parent.model_config
    return replace(
        new, **inherited, parent_key=parent.key, model_config={**config, BRANCH_MARK: parent.key}, message_count=0
    )
