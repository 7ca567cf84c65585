"""Prompts that a client may send again under its own id: those of the context, and those that a summary stands for.

The answer is given in the breath that reads the request, so nothing is asked of the store then. What a compression
takes out of memory is noted here when it happens, and when such a session is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.agent.ports import TranscriptStore
from hermes.errors import IdempotencyConflict
from hermes.messages import Prompt, Row

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

NOTED = "told_before"
MOST = 2000
COMPARED_CHARS = 4000
"""How much of a noted text is kept: enough to tell another prompt under the same id."""


def stored_before(session: Session, prompt: Prompt) -> int | None:
    """The row of a prompt that this session has had under the same ``client_message_id``, perhaps in another process.

    Raises ``IdempotencyConflict`` when that was another prompt.
    """
    name = prompt.client_message_id
    if name is None:
        return None
    for row in reversed(session.rows):
        if row.role == "user" and row.platform_message_id == name:
            _refuse_another(row.text, prompt.text)
            return row.row_id
    noted: tuple[int, str] | None = _noted(session).get(name)
    if noted is None:
        return None
    row_id, text = noted
    _refuse_another(text, prompt.text, COMPARED_CHARS)
    return row_id


def take_rows(session: Session, rows: Sequence[Row]) -> None:
    """The context after a compression. Without rows the history was put away, and nothing of it is known any more."""
    if rows:
        kept = {row.row_id for row in rows}
        note(session, [row for row in session.rows if row.row_id not in kept])
    else:
        _noted(session).clear()
    session.rows[:] = rows


async def compacted_prompts(store: TranscriptStore, key: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """What a summary among the rows stands for, to be noted."""
    if any(row.compacted_summary for row in rows):
        return await store.load_compacted_prompts(key, limit=MOST)
    return ()


def note(session: Session, rows: Sequence[Row]) -> None:
    noted = _noted(session)
    for row in rows:
        if row.role == "user" and row.platform_message_id is not None and row.row_id is not None:
            noted[row.platform_message_id] = (row.row_id, row.text[:COMPARED_CHARS])
    for name in list(noted)[: max(0, len(noted) - MOST)]:
        del noted[name]


def note_anew(session: Session, rows: Sequence[Row]) -> None:
    """The history has become another one."""
    _noted(session).clear()
    note(session, rows)


def _noted(session: Session) -> dict[str, tuple[int, str]]:
    noted: dict[str, tuple[int, str]] = session.memory.extras.setdefault(NOTED, {})
    return noted


def _refuse_another(had: str, text: str, compared: int | None = None) -> None:
    """``compared``: how much is known of what was had; None is all."""
    # Prompts that waited together became one row, which has the id of the first.
    if had != text[:compared] and not had.startswith(f"{text}\n\n"[:compared]):
        raise IdempotencyConflict
