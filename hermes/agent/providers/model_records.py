"""What the configuration says about models and endpoints, as the registry takes it. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from hermes.agent.provider_rows import slug
from hermes.agent.providers.wire_format import Deadlines
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """``model.*`` of the configuration. ``provider`` None or ``auto``: chosen by the keys that are there."""

    default: str | None = None
    provider: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    api_mode: str | None = None
    context_length: int | None = None
    max_output_tokens: int | None = None
    auxiliary_model: str | None = None
    auxiliary_provider: str | None = None
    cache_ttl: str = "5m"
    aliases: Mapping[str, tuple[str, str | None]] = field(default_factory=dict, hash=False)
    """The user's short names: model and, if it is said, provider."""
    deadlines: Deadlines = Deadlines()


@dataclass(frozen=True, slots=True)
class CustomProvider:
    """A provider the user defined under a name."""

    name: str
    base_url: str
    api_key: str | None = None
    key_env: str | None = None
    key_cmd: tuple[str, ...] = ()
    """Prints the key, where neither of the two above gives one."""
    api_mode: str | None = None
    default_model: str | None = None
    models: Mapping[str, int | None] = field(default_factory=dict)
    """Declared models with their windows, if given."""
    context_length: int | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    request_timeout: float | None = None
    stale_timeout: float | None = None

    @property
    def id(self) -> str:
        return f"custom:{slug(self.name)}"


@dataclass(frozen=True, slots=True)
class FallbackSpec:
    provider: str
    model: str
    base_url: str | None = None
    api_key: str | None = None
    key_env: str | None = None
