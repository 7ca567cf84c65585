"""What the name of a model means, wherever it is written: in a ``/model`` line, in a request body, in an editor's menu.

There is one function for all of them (agent-core PR-6), ``resolve_switch``; here it gets the world in which it decides:
what the session runs now, the user's aliases and endpoints, and the providers that have keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from hermes.agent.model_switch import ModelCommand, ModelSwitch, ModelWorld, resolve_switch
from hermes.agent.ports import ResolvedModel
from hermes.errors import InvalidValue
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.settings import Settings


@runtime_checkable
class ModelChoices(Protocol):
    """A model gateway that knows what may be chosen."""

    def world(
        self,
        *,
        model: str | None,
        provider: str | None,
        aliases: Mapping[str, Any],
        persist_by_default: bool,
        context_tokens: int,
        confirm_tokens: int,
    ) -> ModelWorld: ...

    async def options(
        self,
        *,
        model: str | None,
        provider: str | None,
        refresh: bool,
        include_unconfigured: bool,
        explicit_only: bool,
    ) -> dict[str, Any]: ...


@runtime_checkable
class ModelLister(Protocol):
    """A model gateway that can ask an endpoint what it serves."""

    def lists_models(self, provider: str) -> bool: ...

    async def served_models(self, provider: str, *, refresh: bool = False) -> Sequence[Any]: ...


def world_of(services: Services, session: Session | None) -> ModelWorld:
    """Where a switch of this session starts from; without one, where a new session would."""
    settings: Settings = services.settings()
    info = session.info() if session is not None else None
    model, provider = (info.model, info.provider) if info is not None else ("", "")
    if isinstance(services.models, ModelChoices):
        return services.models.world(
            model=model or None,
            provider=provider or None,
            aliases=settings.model_aliases,
            persist_by_default=settings.model.persist_switch_by_default,
            context_tokens=session.last_prompt_tokens if session is not None else 0,
            confirm_tokens=settings.model.switch_context_confirm_tokens,
        )
    provider = provider or services.models.default_provider()
    return ModelWorld(provider, model, authenticated=frozenset({provider}))


def meaning(services: Services, name: str, provider: str | None, session: Session | None = None) -> ModelSwitch | None:
    """What a name means that stands by itself, without flags; None if the gateway does not know what may be chosen."""
    if not isinstance(services.models, ModelChoices):
        return None
    return resolve_switch(ModelCommand(name.strip(), provider or None), world_of(services, session))


async def resolve_named(
    services: Services, name: str, provider: str | None = None, session: Session | None = None
) -> ResolvedModel:
    """The model that a name means, ready to be called.

    Raises ``InvalidValue`` (an ambiguity has its candidates), ``ModelNotServed``, ``ProviderNotConfigured``.
    """
    meant = meaning(services, name, provider, session)
    if meant is not None and meant.success:
        name, provider = meant.new_model, meant.target_provider
    resolved = await services.models.resolve(name, provider)
    services.models.provider_for(resolved)
    if meant is not None and not meant.success and not resolved.demo:
        data = {"candidates": list(meant.candidates)} if meant.candidates else None
        raise InvalidValue(meant.error_message or "this model cannot be used", data=data)
    return resolved
