"""The payload of every model picker: one builder for the gateway method and the HTTP routes.

Pure: what had to be asked over the network is handed in. No secret is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from hermes.agent.model_catalog import curated_models, effort_options, model_facts
from hermes.agent.model_switch import UserProvider
from hermes.agent.provider_rows import PROVIDER_ROWS, ProviderRow, find_row, slug
from hermes.records import dataclass

FEATURED_PER_VENDOR = 5


@dataclass(frozen=True, slots=True)
class PickerState:
    """``probed`` are the models endpoints have listed, by provider id; an endpoint that failed is not in it.

    ``custom_url`` is the base URL of the bare custom provider, None if there is none.
    """

    model: str
    provider: str
    authenticated: frozenset[str] = frozenset()
    user_providers: tuple[UserProvider, ...] = ()
    custom_url: str | None = None
    probed: Mapping[str, Sequence[str]] = field(default_factory=dict)


def providers_to_probe(state: PickerState, *, refresh: bool) -> tuple[str, ...]:
    """A normal open asks only the current custom endpoint; a refresh asks all saved ones and the current provider."""
    custom = [user.id for user in state.user_providers]
    if state.custom_url is not None:
        custom.append("custom")
    if refresh:
        row = find_row(state.provider)
        return (*custom, *((row.id,) if row is not None and row.id in state.authenticated else ()))
    return tuple(name for name in custom if name == state.provider)


def model_options(
    state: PickerState, *, include_unconfigured: bool = False, explicit_only: bool = False
) -> dict[str, Any]:
    """``{model, provider, providers}``. ``explicit_only`` leaves out providers that only a key in the air made usable,
    which here means everything but the user's own and the current one."""
    rows: list[dict[str, Any]] = []
    owned = {model for user in state.user_providers for model in user.models}
    for row in PROVIDER_ROWS:
        current = row.id == state.provider
        usable = row.id in state.authenticated or (row.local and current)
        if not row.available and not current:
            continue
        if usable and (current or not explicit_only):
            rows.append(_provider_row(row, state, owned))
        elif current or (include_unconfigured and not explicit_only):
            rows.append(_skeleton(row, current=current))
    if state.custom_url is not None or state.provider == "custom":
        rows.append(_bare_custom(state))
    rows += [_user_row(user, state) for user in state.user_providers]
    if state.provider == "demo":
        rows.append(_demo_row())
    return {"model": state.model, "provider": state.provider, "providers": rows}


def _provider_row(row: ProviderRow, state: PickerState, owned: set[str]) -> dict[str, Any]:
    probed = state.probed.get(row.id, ())
    models = list(dict.fromkeys((*curated_models(row.id), *probed)))
    current = row.id == state.provider
    if row.aggregator:
        models = [model for model in models if model not in owned]
    if current and state.model and state.model not in models:
        models.insert(0, state.model)
    return {
        "slug": row.id,
        "name": row.name,
        "is_current": current,
        "is_user_defined": False,
        "models": models,
        "total_models": len(models),
        "source": "local-runtime" if row.local else "built-in",
        "authenticated": True,
        "auth_type": row.auth,
        "aliases": [row.id, *row.aliases],
        "featured_models": featured(models) if row.aggregator else [],
        "capabilities": {model: capabilities(model) for model in models},
        "pricing": {model: price for model in models if (price := pricing(model)) is not None},
    }


def _skeleton(row: ProviderRow, *, current: bool) -> dict[str, Any]:
    keys = row.key_variables
    if not row.available:
        warning = f"{row.name} is not supported by this server"
    elif row.local:
        warning = f"start the server at {row.base_url}"
    else:
        warning = f"set {' or '.join(keys)} to use {row.name}"
    return {
        "slug": row.id,
        "name": row.name,
        "is_current": current,
        "is_user_defined": False,
        "models": [],
        "total_models": 0,
        "source": "configured-current" if current else "canonical",
        "authenticated": False,
        "auth_type": row.auth,
        "key_env": keys[0] if keys else None,
        "warning": warning,
        "aliases": [row.id, *row.aliases],
        "featured_models": [],
        "capabilities": {},
        "pricing": {},
    }


def _user_row(user: UserProvider, state: PickerState) -> dict[str, Any]:
    current = slug(user.id) == slug(state.provider)
    listed = (*((state.model,) if current and state.model else ()), *user.models, *state.probed.get(user.id, ()))
    return _own_row(
        user.id, user.name, user.base_url, list(dict.fromkeys(listed)), [user.id, user.name], current, "user-config"
    )


def _bare_custom(state: PickerState) -> dict[str, Any]:
    current = state.provider == "custom"
    listed = (*((state.model,) if current and state.model else ()), *state.probed.get("custom", ()))
    models = list(dict.fromkeys(listed))
    return _own_row("custom", "Custom endpoint", state.custom_url or "", models, ["custom"], current, "model-config")


def _own_row(
    row_id: str, name: str, url: str, models: list[str], aliases: list[str], current: bool, source: str
) -> dict[str, Any]:
    return {
        "slug": row_id,
        "name": name,
        "is_current": current,
        "is_user_defined": True,
        "models": models,
        "total_models": len(models),
        "source": source,
        "api_url": url,
        "native_catalog_empty": not models,
        "authenticated": True,
        "aliases": aliases,
        "featured_models": [],
        "capabilities": {model: capabilities(model) for model in models},
        "pricing": {},
    }


def _demo_row() -> dict[str, Any]:
    row = _own_row("demo", "Demonstration", "", ["demo"], ["demo"], True, "virtual")
    row["is_user_defined"] = False
    del row["api_url"]
    return row


def featured(models: Sequence[str]) -> list[str]:
    """The first few of each vendor; lists stand newest first."""
    seen: dict[str, int] = {}
    chosen: list[str] = []
    for model in models:
        vendor = model.split("/", 1)[0] if "/" in model else ""
        seen[vendor] = seen.get(vendor, 0) + 1
        if seen[vendor] <= FEATURED_PER_VENDOR:
            chosen.append(model)
    return chosen


def capabilities(model: str) -> dict[str, Any]:
    """``reasoning`` is true where the catalogue is silent."""
    facts = model_facts(model)
    efforts = effort_options(model)
    known: dict[str, Any] = {"fast": False, "reasoning": facts.reasons or facts.efforts is None}
    if known["reasoning"]:
        known["can_disable_reasoning"] = "none" in efforts
    return known


def pricing(model: str) -> dict[str, Any] | None:
    """Strings per million tokens; None if the price is not known."""
    facts = model_facts(model)
    if facts.input_price is None or facts.output_price is None:
        return None
    return {
        "input": f"{facts.input_price:g}",
        "output": f"{facts.output_price:g}",
        "cache": "" if facts.cache_read_price is None else f"{facts.cache_read_price:g}",
        "free": facts.input_price == 0 and facts.output_price == 0,
    }
