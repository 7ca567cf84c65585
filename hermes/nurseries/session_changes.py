"""What a person may set for one session: model, effort, approvals, directory, mode, personality.

A choice is stored with the session and survives a resume; before the session is stored it is in memory only. Each
change is told as ``session.info``. A change of the model holds from the next turn on, whatever runs now.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import trio

from hermes.agent.ports import ResolvedModel
from hermes.agent_settings import Effort
from hermes.errors import HermesError, InvalidParams, InvalidValue, Unsupported
from hermes.nurseries.pinned import forget_prompt
from hermes.nurseries.places import is_folder
from hermes.nurseries.session_options import change, move, set_mode, switch_note
from hermes.nurseries.turn_start import SWITCH_NOTE
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

EFFORTS: tuple[str, ...] = tuple(level for level in get_args(Effort) if level)

__all__ = [
    "ModelChange",
    "remember",
    "set_cwd",
    "set_mode",
    "set_model",
    "set_personality",
    "set_reasoning_effort",
    "set_yolo",
]


@dataclass(frozen=True, slots=True)
class ModelChange:
    """``deferred``: a turn runs with the former model, and ends with it."""

    resolved: ResolvedModel
    deferred: bool
    persisted: bool


async def remember(session: Session, **choices: Any) -> None:
    """Set choices of the session's ``model_config``; None takes one out. Raises the store's errors; then nothing has
    changed."""
    before = session.stored.model_config
    # In memory first, so that two changes at the same time do not undo each other.
    _set(session, choices)
    if not session.is_stored:
        await trio.lowlevel.checkpoint()
        return
    try:
        await session.services.store.update_session(session.key, model_config=session.stored.model_config)
    except HermesError:
        _set(session, {name: before.get(name) for name in choices})
        raise


def _set(session: Session, choices: dict[str, Any]) -> None:
    config = {**session.stored.model_config, **choices}
    kept = {name: value for name, value in config.items() if value is not None}
    session.stored = replace(session.stored, model_config=kept)


async def set_model(session: Session, model: str | None, provider: str | None, *, global_: bool = False) -> ModelChange:
    """Use another model from the next turn on; ``global_``: also as the configured default.

    The conversation is kept; a note for the model goes into the history with the next prompt. Raises
    ``ModelNotServed``, ``ProviderNotConfigured``, ``Unsupported`` and the store's errors; then nothing has changed.
    """
    services = session.services
    resolved = await services.models.resolve(model, provider)
    services.models.provider_for(resolved)
    if global_:
        if services.config is None:
            raise Unsupported("the configuration of this server cannot be changed")
        await services.config.change("model.default", resolved.model)
        await services.config.change("model.provider", resolved.provider)
    former = session.resolved
    await change(session, model=resolved.model, provider=resolved.provider)
    session.resolved = resolved
    if former is None or (former.model, former.provider) != (resolved.model, resolved.provider):
        await remember(session, **{SWITCH_NOTE: switch_note(resolved)})
    session.announce_info()
    return ModelChange(resolved, deferred=session.slot.turn is not None, persisted=global_)


async def set_reasoning_effort(session: Session, effort: str | None) -> None:
    """None: the configured one again. Raises ``InvalidValue``."""
    if effort is not None and effort not in EFFORTS:
        raise InvalidValue(f"unknown reasoning effort {effort}; there are {', '.join(EFFORTS)}")
    await remember(session, reasoning_effort=effort)
    session.announce_info()


async def set_yolo(session: Session, on: bool) -> None:
    """Ask for no approvals in this session; holds from the next call on."""
    before, session.memory.yolo = session.memory.yolo, on
    try:
        await remember(session, yolo=on)
    except HermesError:
        session.memory.yolo = before
        raise
    session.announce_info()


async def set_cwd(session: Session, cwd: str) -> None:
    """Work in another directory; idle only. Raises ``SessionBusy``, ``InvalidParams`` (none given), ``InvalidValue``
    (no directory)."""
    if not cwd.strip():
        raise InvalidParams("cwd is required")
    path = os.path.normpath(os.path.join(session.memory.cwd, os.path.expanduser(cwd)))  # noqa: ASYNC240 (touches no file)
    if session.slot.taken:
        raise session.slot.busy()
    if not await is_folder(path):
        raise InvalidValue(f"{cwd} is not a directory")
    if session.slot.taken:
        raise session.slot.busy()
    await move(session, path)


async def set_personality(session: Session, name: str | None) -> None:
    """Another voice from the next turn on; None: the usual one."""
    await remember(session, personality=name or None)
    forget_prompt(session)
    session.announce_info()
