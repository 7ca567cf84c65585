"""What a user can choose from: the picker's payload and the world in which ``/model`` is understood.

Asks over the network only what the probing policy allows (gateway §9.8): an ordinary opening asks the current custom
endpoint, a refresh every saved one. An endpoint that does not answer is simply not in the list.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes.agent.model_options import PickerState, model_options, providers_to_probe
from hermes.agent.model_switch import CONFIRM_TOKENS, ModelAlias, ModelWorld, UserProvider
from hermes.agent.provider_rows import DEMO
from hermes.agent.providers.demo import DEMO_MODEL
from hermes.agent.providers.local_model import LOCAL, LOCAL_MODEL, picker_row
from hermes.agent.providers.local_servers import ServedModel
from hermes.errors import HermesError, InvalidValue, ProviderNotConfigured

if TYPE_CHECKING:
    from hermes.agent.providers.registry import CustomProvider, Models

log = logging.getLogger(__name__)


def user_providers(customs: Sequence[CustomProvider]) -> tuple[UserProvider, ...]:
    return tuple(
        UserProvider(
            id=custom.id,
            name=custom.name,
            models=tuple(custom.models),
            default_model=custom.default_model,
            base_url=custom.base_url,
            api_mode=custom.api_mode or "chat_completions",
        )
        for custom in customs
    )


def current(models: Models, model: str | None, provider: str | None) -> tuple[str, str]:
    """The pair a session has, else the configured one, as far as it is known without asking."""
    try:
        chosen = provider or models.default_provider()
    except (ProviderNotConfigured, InvalidValue):
        chosen = ""
    named = {DEMO: DEMO_MODEL, LOCAL: LOCAL_MODEL}
    return model or models.configuration.default or named.get(chosen, ""), chosen


async def options(
    models: Models,
    *,
    model: str | None = None,
    provider: str | None = None,
    refresh: bool = False,
    include_unconfigured: bool = False,
    explicit_only: bool = False,
) -> dict[str, Any]:
    """The payload of every picker."""
    name, chosen = current(models, model, provider)
    state = PickerState(
        model=name,
        provider=chosen,
        authenticated=models.authenticated_providers(),
        user_providers=user_providers(models.custom),
        custom_url=models.configuration.base_url or None,
    )
    probed: dict[str, Sequence[str]] = {}
    for one in providers_to_probe(state, refresh=refresh):
        try:
            probed[one] = [served.id for served in await models.served_models(one, refresh=refresh)]
        except HermesError as error:
            log.info("provider %s lists no models: %s", one, error.message)
    state = PickerState(name, chosen, state.authenticated, state.user_providers, state.custom_url, probed=probed)
    menu = model_options(state, include_unconfigured=include_unconfigured, explicit_only=explicit_only)
    if models.has_local():
        menu["providers"].append(picker_row(current=chosen == LOCAL))
    return menu


def world(
    models: Models,
    *,
    model: str | None,
    provider: str | None,
    aliases: Mapping[str, Any],
    persist_by_default: bool,
    context_tokens: int,
    confirm_tokens: int = CONFIRM_TOKENS,
) -> ModelWorld:
    """Where a switch starts from; does no network."""
    name, chosen = current(models, model, provider)
    listed = {one: models.known_models(one) for one in {chosen, "custom", *(user.id for user in models.custom)}}
    return ModelWorld(
        current_provider=chosen,
        current_model=name,
        aliases={alias: _alias(target) for alias, target in aliases.items()},
        user_providers=(*user_providers(models.custom), *_local(models)),
        authenticated=models.authenticated_providers(),
        defaults={DEMO: DEMO_MODEL},
        live={one: tuple(model.id for model in found) for one, found in listed.items()},
        loaded={one: _loaded(found) for one, found in listed.items()},
        has_default=bool(models.configuration.default),
        persist_by_default=persist_by_default,
        context_tokens=context_tokens,
        confirm_tokens=confirm_tokens,
    )


def _loaded(listed: Sequence[ServedModel]) -> tuple[str, ...]:
    """What a server has in memory; one that does not say so, but has one model only, has that one."""
    loaded = tuple(model.id for model in listed if model.loaded)
    return loaded or (tuple(model.id for model in listed) if len(listed) == 1 else ())


def _local(models: Models) -> tuple[UserProvider, ...]:
    """The packaged model is chosen by its name like an endpoint of the user's."""
    if not models.has_local():
        return ()
    return (UserProvider(id=LOCAL, name=LOCAL, models=(LOCAL_MODEL,), default_model=LOCAL_MODEL),)


def _alias(target: Any) -> ModelAlias:
    if isinstance(target, Mapping):
        provider = target.get("provider")
        return ModelAlias(str(target.get("model", "")), str(provider) if provider else None)
    return ModelAlias(str(target))
