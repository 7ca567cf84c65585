"""What a client may change of an idle or running session: mode, model, directory; and emptying its history.

Stored with the session first, then true in memory and told, with no wait between. A session that is not stored yet is
changed in memory only; it is stored with the change at its first prompt.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import Any

from hermes.agent.ports import ResolvedModel
from hermes.errors import InvalidValue, ProviderNotConfigured
from hermes.events import HistoryRewound
from hermes.nurseries import turn_start
from hermes.nurseries.held_work import start_held
from hermes.nurseries.model_names import resolve_named
from hermes.nurseries.pinned import forget_prompt
from hermes.nurseries.session import Session

log = logging.getLogger(__name__)

MODES = ("default", "accept_edits", "dont_ask")
EDIT_PERMISSION = "edit_permission"
"""Key in the session's memory that the edit tools read (``approval_gate.approve_edit``)."""


async def change(session: Session, **columns: Any) -> None:
    """Set columns of the session's row, in the store and in memory."""
    if session.is_stored:
        await session.services.store.update_session(session.key, **columns)
    session.stored = replace(session.stored, **columns)


async def set_mode(session: Session, mode: str) -> None:
    """Which edits pass without a question; holds from the next edit on. Raises ``InvalidValue``."""
    if mode not in MODES:
        raise InvalidValue(f"unknown mode {mode}; there are {', '.join(MODES)}")
    config = {**session.stored.model_config, "mode": mode}
    # Before the store is asked: the next edit of a running turn must see it.
    session.memory.extras[EDIT_PERMISSION] = mode
    await change(session, model_config=config)
    session.announce_info()


def restore_mode(session: Session) -> str:
    """Make the stored mode hold for this life of the session."""
    mode = str(session.stored.model_config.get("mode", MODES[0]))
    mode = mode if mode in MODES else MODES[0]
    session.memory.extras[EDIT_PERMISSION] = mode
    return mode


async def switch_model(session: Session, name: str, provider: str | None = None) -> ResolvedModel:
    """Use another model from the next turn on, in this session only.

    ``name`` means what it means in a ``/model`` line. Raises ``SessionBusy``, ``ModelNotServed``, ``InvalidValue``;
    then nothing has changed.
    """
    if session.slot.taken:
        raise session.slot.busy("a turn is running; switch the model when it has ended")
    try:
        resolved = await resolve_named(session.services, name, provider, session)
    except ProviderNotConfigured as error:
        raise InvalidValue(error.message, data={"model": name}) from None
    if session.slot.taken:
        raise session.slot.busy("a turn is running; switch the model when it has ended")
    config = {**session.stored.model_config, turn_start.SWITCH_NOTE: switch_note(resolved)}
    await change(session, model=resolved.model, provider=resolved.provider, model_config=config)
    session.resolved = resolved
    session.announce_info()
    return resolved


def switch_note(resolved: ResolvedModel) -> str:
    """What the next model is told about the change."""
    return f"from here on the model is {resolved.model} ({resolved.provider})"


async def move(session: Session, cwd: str) -> None:
    """The session works in another directory from now on: tools, relative paths, project files."""
    if os.path.normpath(cwd) == os.path.normpath(session.memory.cwd):  # noqa: ASYNC240 (touches no file)
        return
    session.memory.cwd = cwd
    session.memory.file_reads.clear()
    forget_prompt(session)
    await change(session, cwd=cwd)
    session.announce_info()


async def reopen(session: Session) -> None:
    """A session that had ended is in use again."""
    if session.stored.ended_at is not None:
        await change(session, ended_at=None, end_reason=None)


async def empty(session: Session) -> int:
    """Take the whole history out of the conversation; returns how many rows went.

    Raises ``SessionBusy``, ``SessionOwnedElsewhere``, ``WorkStopped`` and the store's errors; then nothing has changed.
    """
    return await start_held(session, "reset", lambda _node: _empty(session)).wait()


async def _empty(session: Session) -> int:
    removed = tuple(row.row_id for row in session.rows if row.row_id is not None)
    if not removed:
        return 0
    await session.replace_with_summary(removed, ())
    # No wait from here on: memory follows the store in the same breath.
    session.rows_before_turn = 0
    session.last_prompt_tokens = 0
    session.retained_failure = None
    turn_start.forget_removed(session)
    session.emit(HistoryRewound(removed, ()))
    session.announce_info()
    session.stored_changed()
    return len(removed)
