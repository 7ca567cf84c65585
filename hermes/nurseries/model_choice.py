"""Switching the model of a session by what a user wrote, wherever it was written (gateway §8.8).

The line is understood by ``agent/model_switch.py``; here it takes effect: on the session, stored with it; on the next
turn only; or on the configuration. A switch that fails changes nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal

from hermes.agent.model_switch import ModelCommand, ModelSwitch, parse_model_command, resolve_switch
from hermes.errors import HermesError, InvalidValue, ProviderNotConfigured
from hermes.nurseries.model_names import ModelChoices, ModelLister, world_of
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.nurseries.session_changes import set_model, set_reasoning_effort
from hermes.nurseries.turn_settings import ONCE
from hermes.records import dataclass

Scope = Literal["once", "session", "global"]


@dataclass(frozen=True, slots=True)
class Switched:
    """``confirm`` is a question: nothing has been changed yet. ``deferred``: holds from the next turn on."""

    model: str
    provider: str
    scope: Scope
    warning: str | None = None
    confirm: str | None = None
    deferred: bool = False
    reasoning: str | None = None

    @property
    def sentence(self) -> str:
        where = {"once": "next turn only", "session": "this session", "global": "this session and the configuration"}
        return f"model: {self.model} ({self.provider}), {where[self.scope]}"


async def switch(session: Session, line: str, *, confirmed: bool = False) -> Switched:
    """Do what ``/model <line>`` means. Raises ``InvalidValue`` (with near names), ``ProviderNotConfigured``."""
    command = parse_model_command(line)
    await _look(session, command)
    choice = resolve_switch(command, world_of(session.services, session))
    if not choice.success:
        data = {"candidates": list(choice.candidates)} if choice.candidates else None
        raise InvalidValue(choice.error_message or "this model cannot be used", data=data)
    scope: Scope = "once" if choice.once else "global" if choice.persisted else "session"
    if choice.confirm_message and not confirmed:
        return Switched(choice.new_model, choice.target_provider, scope, choice.warning_message, choice.confirm_message)
    deferred = session.slot.taken
    await _apply(session, choice, scope)
    return Switched(
        choice.new_model,
        choice.target_provider,
        scope,
        choice.warning_message,
        deferred=deferred,
        reasoning=choice.reasoning,
    )


async def _look(session: Session, command: ModelCommand) -> None:
    """Ask an endpoint what it serves, if the user wants that or has named no model of it; silence changes nothing."""
    models = session.services.models
    if isinstance(models, ModelLister) and (command.refresh or (command.provider and not command.target)):
        provider = command.provider or session.info().provider
        if models.lists_models(provider):
            with contextlib.suppress(HermesError):
                await models.served_models(provider, refresh=command.refresh)


async def _apply(session: Session, choice: ModelSwitch, scope: Scope) -> None:
    models = session.services.models
    try:
        if scope == "once":
            resolved = await models.resolve(choice.new_model, choice.target_provider)
            models.provider_for(resolved)
            session.memory.extras[ONCE] = (resolved.model, resolved.provider, choice.reasoning)
            return
        await set_model(session, choice.new_model, choice.target_provider, global_=scope == "global")
    except ProviderNotConfigured as error:
        raise InvalidValue(error.message) from None
    if choice.reasoning is not None:
        await set_reasoning_effort(session, choice.reasoning)


async def picker(
    services: Services, session: Session | None, *, refresh: bool, include_unconfigured: bool, explicit_only: bool
) -> dict[str, Any]:
    """The payload of ``model.options``."""
    info = session.info() if session is not None else None
    model = (info.model or None) if info is not None else None
    provider = (info.provider or None) if info is not None else None
    if isinstance(services.models, ModelChoices):
        return await services.models.options(
            model=model,
            provider=provider,
            refresh=refresh,
            include_unconfigured=include_unconfigured,
            explicit_only=explicit_only,
        )
    resolved = await services.models.resolve(model, provider)
    row = {"slug": resolved.provider, "name": resolved.provider, "models": [resolved.model], "is_current": True}
    return {"model": resolved.model, "provider": resolved.provider, "providers": [row]}
