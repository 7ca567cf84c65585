"""What a person may do to a session's history between turns: branch, undo, take a cut back, save it to a file.

A compression takes rows out of the context, not out of the conversation: what is shown, counted and copied is the
*transcript*, in which the compacted rows stand in their old places (CC-5).

An undo holds the turn slot and the turn lease, so that it and a prompt can never both be let in. A branch only reads,
so it is allowed while a turn runs; what that turn has said so far is not copied. The other verbs of a session stand in
``session_compression``, ``session_changes`` and ``session_numbers``; surfaces find all of them here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from hermes.agent.history import (
    branch_rows,
    closing_after_cut,
    is_shown,
    resolve_undo,
    survivor_ids,
)
from hermes.agent.ports import RewindResult, StoredSession
from hermes.agent.prompt import stored_form
from hermes.config_file import write_atomically
from hermes.errors import InvalidValue, NothingToBranch, NothingToUndo, Overloaded
from hermes.events import HistoryRewound
from hermes.messages import RewindIntent, Row
from hermes.nurseries import turn_start
from hermes.nurseries.held_work import start_held
from hermes.nurseries.session_changes import (
    ModelChange,
    set_cwd,
    set_mode,
    set_model,
    set_personality,
    set_reasoning_effort,
    set_yolo,
)
from hermes.nurseries.session_compression import CompressResult, CompressSummary, compress
from hermes.nurseries.session_numbers import ContextBreakdown, ContextCategory, SessionNumbers, context_breakdown, usage
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.session import Session
    from hermes.nurseries.session_registry import SessionRegistry

__all__ = [
    "CompressResult",
    "CompressSummary",
    "ContextBreakdown",
    "ContextCategory",
    "ModelChange",
    "SessionNumbers",
    "UndoResult",
    "branch",
    "branch_stored",
    "compress",
    "context_breakdown",
    "has_compacted",
    "save",
    "set_cwd",
    "set_mode",
    "set_model",
    "set_personality",
    "set_reasoning_effort",
    "set_yolo",
    "settled_rows",
    "settled_transcript",
    "transcript",
    "undo",
    "undo_rewind",
    "usage",
]

MAX_SAVED_BYTES = 64 * 1024 * 1024


def settled_rows(session: Session) -> tuple[Row, ...]:
    """The rows of turns that have ended."""
    turn = session.slot.turn
    if turn is None or turn.user_row is None:
        return tuple(session.rows)
    return tuple(session.rows[: session.rows_before_turn])


def has_compacted(session: Session) -> bool:
    """Whether the transcript holds more than memory does."""
    return any(row.compacted_summary for row in session.rows)


async def transcript(session: Session) -> tuple[Row, ...]:
    """Everything that was said, the running turn included. Returns in the same breath in which this is true, so what
    the caller does next without waiting fits it."""
    while has_compacted(session):
        version = session.history_version
        stored = await session.services.store.load_transcript(session.key)
        if version == session.history_version:
            return _with_memory(session, stored)
    return tuple(session.rows)


async def settled_transcript(session: Session) -> tuple[Row, ...]:
    """The same of the turns that have ended."""
    return settled(session, await transcript(session))


def settled(session: Session, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """A transcript up to where the running turn begins."""
    turn = session.slot.turn
    if turn is None or turn.user_row is None:
        return rows
    own = {row.row_id for row in session.rows[session.rows_before_turn :]} | {turn.user_row.row_id}
    return rows[: next((index for index, row in enumerate(rows) if row.row_id in own), len(rows))]


def _with_memory(session: Session, stored: Sequence[Row]) -> tuple[Row, ...]:
    """Compacted rows are in the store only, active ones are as memory has them: it may be a row ahead or behind."""
    active = {row.row_id for row in session.rows}
    known = {row.row_id for row in stored}
    old = [row for row in stored if row.compacted or row.row_id in active]
    return (*old, *(row for row in session.rows if row.row_id not in known))


# --- branch ----------------------------------------------------------------------------------------------------------


async def branch(
    registry: SessionRegistry,
    session: Session,
    *,
    name: str | None = None,
    count: int | None = None,
    row_ids: Sequence[int] | None = None,
    whole: bool = False,
) -> Session:
    """A new live session with a copy of the settled history; the parent is not changed.

    ``count``: only the first so many visible messages (with the results that belong to them); ``row_ids``: exactly
    these rows; ``whole``: everything. Raises ``NothingToBranch``, ``TitleTaken``, ``Overloaded``, the store's errors.
    """
    rows = await settled_transcript(session)
    chosen = row_ids if row_ids is not None else [row.row_id for row in _first(rows, None if whole else count)]
    ids = [row_id for row_id in chosen if row_id is not None]
    if not session.is_stored or not ids:
        raise NothingToBranch
    made = await _branch(registry, session.stored, ids, name=name, cwd=session.memory.cwd)
    made.resolved = session.resolved
    made.system_message = session.system_message
    if session.pinned_prompt is not None and not any(session.key in tier for tier in session.pinned_prompt):
        made.pinned_prompt = session.pinned_prompt
    return made


async def branch_stored(
    registry: SessionRegistry, key: str, *, name: str | None = None, count: int | None = None, whole: bool = False
) -> Session:
    """The same from a stored session. Raises ``StoredSessionNotFound`` besides."""
    live = registry.by_key(key)
    if live is not None:
        return await branch(registry, live, name=name, count=count, whole=whole)
    stored = await registry.find_stored(key)
    rows = await registry.services.store.load_transcript(stored.key)
    ids = [row.row_id for row in _first(rows, None if whole else count) if row.row_id is not None]
    if not ids:
        raise NothingToBranch
    return await _branch(registry, stored, ids, name=name, cwd=stored.cwd)


async def _branch(
    registry: SessionRegistry, parent: StoredSession, row_ids: Sequence[int], *, name: str | None, cwd: str | None
) -> Session:
    services = registry.services
    now = services.clock()
    new = StoredSession(
        key=services.ids("session"),
        source=parent.source,
        title=name or None,
        title_source="user" if name else None,
        cwd=cwd,
        parent_key=parent.key,
        started_at=now,
        last_activity_at=now,
        principal=parent.principal,
    )
    stored, rows = await services.store.branch(parent.key, new, row_ids=row_ids)
    session = registry.adopt(stored, rows)
    session.stored_changed()
    return session


def _first(rows: Sequence[Row], count: int | None) -> Sequence[Row]:
    if count is None or count <= 0:
        return rows
    shown = [row for row in rows if is_shown(row) and row.row_id is not None]
    if count >= len(shown):
        return rows
    return branch_rows(rows, shown[count - 1].row_id)


# --- undo ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UndoResult:
    """``text`` is the user's text that was taken back, for the editor; ``survivors`` as after a rewind."""

    removed_rows: tuple[Row, ...]
    survivors: tuple[int | None, ...]
    text: str

    @property
    def removed(self) -> int:
        return len(self.removed_rows)


async def undo(session: Session, count: int = 1) -> UndoResult:
    """Take the last ``count`` user texts back, with all that followed. Raises ``SessionBusy``, ``NothingToUndo``,
    ``SessionOwnedElsewhere``, ``WorkStopped`` and the store's errors; then nothing has changed."""
    return await start_held(session, "undo", lambda _node: _undo(session, count)).wait()


async def undo_rewind(session: Session) -> tuple[Row, ...]:
    """Bring the last cut back, while no new turn has been stored after it; returns the transcript. Raises as ``undo``
    does."""
    return await start_held(session, "undo of a rewind", lambda _node: _undo_rewind(session)).wait()


async def _undo(session: Session, count: int) -> UndoResult:
    cut = resolve_undo(await transcript(session), count)
    closing = closing_after_cut(cut.survivors, session.services.clock())
    result = await session.services.store.rewind(
        session.key,
        RewindIntent(row_id=cut.target.row_id, confirm_empty=True),
        [closing] if closing is not None else [],
        expected_version=session.history_version,
    )
    # No wait from here on: memory follows the store in the same breath.
    _take_cut(session, result)
    return UndoResult(result.removed, result.survivors, cut.target.text)


def _take_cut(session: Session, result: RewindResult) -> None:
    removed = {row.row_id for row in result.removed}
    kept = [row for row in session.rows if row.row_id not in removed]
    session.history_version = result.history_version
    gone = tuple(row.row_id for row in result.removed if row.row_id)
    _replace_rows(session, [*kept, *result.new_rows], gone, result.survivors)


async def _undo_rewind(session: Session) -> tuple[Row, ...]:
    if not session.is_stored:
        raise NothingToUndo
    rows = await session.services.store.undo_rewind(session.key)
    alive = {row.row_id for row in rows}
    gone = tuple(row.row_id for row in session.rows if row.row_id is not None and row.row_id not in alive)
    session.history_version += 1
    _replace_rows(session, [row for row in rows if not row.compacted], gone, survivor_ids(rows))
    return rows


def _replace_rows(
    session: Session, rows: Sequence[Row], removed: Sequence[int], survivors: tuple[int | None, ...]
) -> None:
    session.rows[:] = rows
    session.rows_before_turn = len(session.rows)
    session.last_prompt_tokens = 0
    session.retained_failure = None
    turn_start.forget_removed(session)
    session.emit(HistoryRewound(tuple(removed), survivors))
    session.announce_info()
    session.stored_changed()


# --- save ------------------------------------------------------------------------------------------------------------


async def save(session: Session) -> Path:
    """Write the session as one JSON file below the home; returns its path.

    Raises ``Overloaded`` if it is too large, ``InvalidValue`` if it cannot be written.
    """
    rows = await transcript(session)
    stored = session.stored
    now = session.services.clock()
    document = {
        "session_id": session.key,
        "title": stored.title,
        "source": stored.source,
        "model": session.resolved.model if session.resolved else stored.model,
        "provider": session.resolved.provider if session.resolved else stored.provider,
        "cwd": session.memory.cwd,
        "parent_session_id": stored.parent_key,
        "started_at": stored.started_at,
        "saved_at": now,
        "system_prompt": stored_form(session.pinned_prompt) if session.pinned_prompt else stored.system_prompt,
        "usage": asdict(session.usage),
    }
    name = time.strftime("%Y%m%d_%H%M%S", time.localtime(now)) + "_" + re.sub(r"[^\w.-]", "_", session.key) + ".json"
    path = session.services.home / "sessions" / "saved" / name
    try:
        await trio.to_thread.run_sync(_write, path, document, rows)
    except OSError as error:
        raise InvalidValue(f"the session could not be saved: {error.strerror or type(error).__name__}") from None
    return path


def _write(path: Path, document: dict[str, Any], rows: Sequence[Row]) -> None:
    document = {**document, "messages": [_row(row) for row in rows]}
    content = json.dumps(document, ensure_ascii=False, indent=1, default=str).encode("utf-8", "surrogatepass")
    if len(content) > MAX_SAVED_BYTES:
        raise Overloaded(f"the session is larger than {MAX_SAVED_BYTES // (1024 * 1024)} MiB")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, content)


def _row(row: Row) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if value not in (None, (), False)}
