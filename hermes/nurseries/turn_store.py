"""What a session and its turns write, and what memory learns of it in the same breath: durable before visible.

A turn costs two commits beside its tools: one makes the prompt durable (``turn_start``), and the last rows take along
whatever else is due: what the session has pinned, its title, the end of the lease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes.agent.ports import LeaseOwner
from hermes.agent.stored_views import derive_title
from hermes.messages import Content, Row
from hermes.nurseries.question_log import KIND as QUESTION
from hermes.outcomes import Usage

if TYPE_CHECKING:
    from hermes.nurseries.session import Session
    from hermes.nurseries.turn import Turn

DERIVED = "derived"


async def append(
    session: Session, rows: Sequence[Row], *, usage: Usage | None = None, owner: LeaseOwner | None = None
) -> tuple[Row, ...]:
    """Append rows, with what has been pinned and is not stored yet. ``owner``: who has the turn lease."""
    pins = session.to_pin
    store = session.services.store
    stored = await store.append_rows(session.key, rows, usage=usage, changes=pins or None, owner=owner)
    learn(session, stored, usage, pins)
    return stored


async def finish(session: Session, turn: Turn, rows: Sequence[Row], *, usage: Usage | None = None) -> tuple[Row, ...]:
    """Append the last rows of a turn and release its lease; a session without a title gets one (agent-core §5.7)."""
    pins, changes = session.to_pin, dict(session.to_pin)
    title = title_of(session, turn) if rows or usage is not None or turn.rows_stored else None
    if title is not None:
        changes |= {"title": title, "title_source": DERIVED}
    turn.letting_go = True
    closed = session.question_log.closed()
    try:
        finished = await session.services.store.finish_turn(
            session.key,
            rows,
            owner=session.services.owner,
            usage=usage,
            changes=changes,
            forget=[(QUESTION, request_id) for request_id in closed],
        )
        turn.holds_lease = False
        session.question_log.deleted(closed)
    finally:
        turn.letting_go = False
    learn(session, finished.rows, usage, pins)
    if finished.title is not None:
        session.stored = replace(session.stored, title=finished.title, title_source=DERIVED)
        session.scope.name = turn.new_title = finished.title
    return finished.rows


async def shorten(session: Session, contents: Mapping[int, Content]) -> None:
    """From now on the model reads this of these rows; the store first, then memory, with no wait between."""
    await session.services.store.shorten_rows(session.key, contents, expected_version=session.history_version)
    session.history_version += 1
    session.rows[:] = [
        row if row.row_id is None or row.row_id not in contents else replace(row, api_content=contents[row.row_id])
        for row in session.rows
    ]
    # The model may read a file again whose text it has no longer before it.
    session.memory.file_reads.clear()


def learn(session: Session, stored: Sequence[Row], usage: Usage | None, pins: Mapping[str, Any]) -> None:
    """Memory follows what has just been stored. Synchronous."""
    session.rows.extend(stored)
    if usage is not None:
        session.usage = session.usage.plus(usage)
    if pins:
        session.stored = replace(session.stored, **pins)
        if session.to_pin is pins:
            session.to_pin = {}
    session.last_active = session.services.clock()


def title_of(session: Session, turn: Turn) -> str | None:
    """The instant title that this turn gives; a given title is never overwritten."""
    if turn.started_at is None or session.stored.title is not None or turn.prompt.display_kind is not None:
        return None
    return derive_title(turn.prompt.title_text or turn.prompt.text) or None
