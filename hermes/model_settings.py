"""From the configuration's words to what the provider registry takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.agent.providers.registry import CustomProvider, FallbackSpec, ModelSettings
from hermes.agent.providers.wire_format import Deadlines
from hermes.config import LoadedSettings
from hermes.settings import Settings


def model_settings(loaded: LoadedSettings) -> ModelSettings:
    """``model.*``; ``OPENAI_BASE_URL`` makes a custom endpoint of an OpenAI key (agent-core §2.3)."""
    model = loaded.settings.model
    auxiliary = loaded.settings.auxiliary.title
    base_url = model.base_url
    api_key = model.api_key
    if not base_url and not model.provider and loaded.credentials.get("OPENAI_BASE_URL"):
        base_url = loaded.credentials["OPENAI_BASE_URL"]
        api_key = api_key or loaded.credentials.get("OPENAI_API_KEY", "")
    return ModelSettings(
        default=model.default or None,
        provider=model.provider or None,
        base_url=base_url or None,
        api_key=api_key or None,
        api_mode=model.api_mode or None,
        context_length=model.context_length,
        max_output_tokens=model.max_tokens,
        auxiliary_model=auxiliary.model or None,
        auxiliary_provider=auxiliary.provider if auxiliary.provider not in ("", "auto") else None,
        cache_ttl=loaded.settings.prompt_caching.cache_ttl,
        aliases=_aliases(loaded.settings.model_aliases),
        deadlines=deadlines(loaded.settings),
    )


def _aliases(given: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    rows = {name: target if isinstance(target, Mapping) else {"model": target} for name, target in given.items()}
    found = {name.lower(): (_text(row, "model"), _text(row, "provider")) for name, row in rows.items()}
    return {name: (model, provider) for name, (model, provider) in found.items() if model}


def deadlines(settings: Settings) -> Deadlines:
    """``timeouts.provider.*`` and ``agent.local_stream_stale_timeout``."""
    given = settings.timeouts.provider
    return Deadlines(
        connect=given.connect,
        request=given.request,
        stream=given.stream_stale or given.stream_read,
        call=given.call_stale,
        local=settings.agent.local_stream_stale_timeout,
    )


def custom_providers(loaded: LoadedSettings) -> tuple[CustomProvider, ...]:
    """``providers`` (by name) and ``custom_providers`` (as a list)."""
    settings = loaded.settings
    rows = [{"name": name, **row} for name, row in settings.providers.items()]
    rows += [dict(row) for row in settings.custom_providers if row.get("name")]
    return tuple(_custom(row) for row in rows if _address(row))


def fallback_specs(loaded: LoadedSettings) -> tuple[FallbackSpec, ...]:
    """``fallback_providers``, in order; entries that name no model are left out."""
    found = []
    for row in loaded.settings.fallback_providers:
        if isinstance(row, Mapping) and row.get("provider") and row.get("model"):
            found.append(
                FallbackSpec(
                    str(row["provider"]),
                    str(row["model"]),
                    _text(row, "base_url"),
                    _text(row, "api_key"),
                    _text(row, "key_env"),
                )
            )
    return tuple(found)


_OWN = ("base_url", "api_key", "key_env")


def route_specs(loaded: LoadedSettings) -> dict[str, FallbackSpec]:
    """``gateway.api_server.model_routes`` that bring an endpoint or a key of their own, by alias."""
    return {
        alias: FallbackSpec(
            _text(row, "provider") or "",
            str(row["model"]),
            _text(row, "base_url"),
            _text(row, "api_key"),
            _text(row, "key_env"),
        )
        for alias, row in loaded.settings.gateway.api_server.model_routes.items()
        if isinstance(row, Mapping)
        and row.get("model")
        and any(row.get(key) for key in ("base_url", "api_key", "key_env"))
    }


def _custom(row: Mapping[str, Any]) -> CustomProvider:
    models = row.get("models")
    windows: dict[str, int | None] = {}
    if isinstance(models, Mapping):
        for name, facts in models.items():
            window = facts.get("context_length") if isinstance(facts, Mapping) else facts
            windows[str(name)] = window if isinstance(window, int) else None
    elif isinstance(models, (list, tuple)):
        windows = {str(name): None for name in models}
    length = row.get("context_length")
    return CustomProvider(
        name=str(row["name"]),
        base_url=_address(row) or "",
        api_key=_text(row, "api_key"),
        key_env=_text(row, "key_env"),
        key_cmd=_command(row),
        api_mode=_text(row, "api_mode") or _text(row, "transport"),
        default_model=_text(row, "default_model") or _text(row, "model"),
        models=windows,
        context_length=length if isinstance(length, int) else None,
        extra_headers=dict(row.get("extra_headers") or {}),
        extra_body=dict(row.get("extra_body") or {}),
        request_timeout=_seconds(row, "request_timeout_seconds"),
        stale_timeout=_seconds(row, "stale_timeout_seconds"),
    )


def _command(row: Mapping[str, Any]) -> tuple[str, ...]:
    """``key_cmd``: a line for the shell, or the words of a command."""
    given = row.get("key_cmd")
    if isinstance(given, list | tuple):
        return tuple(str(word) for word in given)
    return ("/bin/sh", "-c", str(given)) if given else ()


def _address(row: Mapping[str, Any]) -> str | None:
    return _text(row, "base_url") or _text(row, "api") or _text(row, "url")


def _seconds(row: Mapping[str, Any], key: str) -> float | None:
    value = row.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _text(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    return str(value) if value else None
