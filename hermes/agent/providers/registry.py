"""Which provider serves a model: settings and keys in, a ready ``Provider`` out (``ModelGateway``).

Owns the choice of the endpoint, the rule that a key travels to its own host only, and one ``HttpProvider`` per
endpoint. The rows of the known providers are data in ``provider_rows.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from hermes.agent.model_catalog import check_served, default_model, model_facts, native_spelling
from hermes.agent.model_switch import ModelWorld
from hermes.agent.ports import Provider, ResolvedModel
from hermes.agent.provider_rows import (
    API_MODE_SPELLINGS,
    CUSTOM_ALIASES,
    DEMO,
    NONE,
    PROVIDER_ROWS,
    ProviderRow,
    find_row,
    row_for_host,
    slug,
)
from hermes.agent.providers import menu
from hermes.agent.providers.command_keys import CommandKeys
from hermes.agent.providers.demo import DEMO_MODEL, DemoProvider, demo_model
from hermes.agent.providers.http_provider import FORMATS, HttpProvider
from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.local_model import LOCAL, LocalModelHost, LocalProvider, resolved_local
from hermes.agent.providers.local_servers import ServedModel, is_local_url
from hermes.agent.providers.model_lists import ModelLists
from hermes.agent.providers.model_records import CustomProvider as CustomProvider
from hermes.agent.providers.model_records import FallbackSpec as FallbackSpec
from hermes.agent.providers.model_records import ModelSettings as ModelSettings
from hermes.agent.providers.wire_format import Endpoint
from hermes.errors import InvalidValue, ProviderNotConfigured

Credentials = Mapping[str, str]
"""Variables by name, from the environment and the home's ``.env``; nothing else is read."""

PLACEHOLDER_KEY: Final = "no-key-required"
_AUTO: Final = ("", "auto")
ROUTE: Final = "route:"


class Models:
    """``ModelGateway`` over the network. ``configure`` replaces the settings; running calls keep their endpoint."""

    def __init__(
        self,
        settings: ModelSettings,
        credentials: Credentials,
        client: HttpClient,
        *,
        custom: Sequence[CustomProvider] = (),
        fallbacks: Sequence[FallbackSpec] = (),
        routes: Mapping[str, FallbackSpec] | None = None,
        clock: Callable[[], float] = time.time,
        local: LocalModelHost | None = None,
        keys: CommandKeys | None = None,
    ) -> None:
        """``local`` runs the packaged model, ``keys`` the commands that print keys; without one there is none."""
        self._client = client
        self._local = local
        self._clock = clock
        self._providers: dict[Endpoint, HttpProvider] = {}
        self._endpoints: dict[str, Endpoint] = {}
        """By provider, as the settings of the moment have it: each turn asks several times."""
        self._keys = keys or CommandKeys()
        self._lists = ModelLists(client, self._keys)
        self._demo = DemoProvider()
        self.configure(settings, credentials, custom=custom, fallbacks=fallbacks, routes=routes)

    def configure(
        self,
        settings: ModelSettings,
        credentials: Credentials,
        *,
        custom: Sequence[CustomProvider] = (),
        fallbacks: Sequence[FallbackSpec] = (),
        routes: Mapping[str, FallbackSpec] | None = None,
    ) -> None:
        """``routes``: aliases with an endpoint or a key of their own; each is a provider named ``route:<alias>``."""
        self._settings = settings
        self._credentials = {name: value.strip() for name, value in credentials.items() if value and value.strip()}
        self._custom = {slug(provider.name): provider for provider in custom}
        self._fallbacks = tuple(fallbacks)
        self._routes = {f"{ROUTE}{alias}": spec for alias, spec in (routes or {}).items()}
        self._providers.clear()
        self._endpoints.clear()
        self._lists.clear()

    # --- ModelGateway ------------------------------------------------------------------------------------------------

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel:
        """Raises ``ProviderNotConfigured``, ``ModelNotServed``, ``InvalidValue``; ``ProviderError`` if an endpoint has
        to be asked for its model and does not answer."""
        source = "request" if model or provider else "global"
        own, own_provider = self._configured_pair()
        name, wanted = self._split(model, provider)
        if name is None and wanted is None:
            name, wanted = own, own_provider
        elif wanted is None and own is not None:
            # A bare name is meant for the provider a session has anyway; the guard below says if that cannot be.
            wanted = self.default_provider()
        chosen = self.choose_provider(name, wanted)
        if chosen == DEMO:
            return demo_model()
        if chosen == LOCAL:
            return resolved_local(self._local, name, source)
        endpoint = self._endpoint(chosen)
        if name is None:
            name = own if chosen == self.choose_provider(own, own_provider) else None
        name = name or self._default_of(chosen)
        if name is None:
            name = await self._lists.first(endpoint)
        check_served(name, chosen)
        name = native_spelling(chosen, name) or name
        resolved = self._describe(name, endpoint, source)
        if not endpoint.local or self._window_of(name, endpoint) is not None:
            return resolved
        return await self._lists.with_local_window(resolved, endpoint)

    def provider_for(self, resolved: ResolvedModel) -> Provider:
        if resolved.demo or resolved.provider == DEMO:
            return self._demo
        if resolved.provider == LOCAL and self._local is not None:
            return LocalProvider(self._local, self._client, self._settings.deadlines, self._clock)
        spec = next((s for s in self._fallbacks if _is_fallback(s, resolved)), None)
        if spec is None:
            endpoint = self._endpoint(resolved.provider)
        else:
            endpoint = replace(self._fallback_endpoint(spec), deadlines=self._settings.deadlines)
        provider = self._providers.get(endpoint)
        if provider is None:
            provider = HttpProvider(endpoint, self._client, clock=self._clock, keys=self._keys)
            self._providers[endpoint] = provider
        return provider

    def fallbacks(self) -> Sequence[ResolvedModel]:
        """Usable ones only, in order."""
        found: list[ResolvedModel] = []
        for spec in self._fallbacks:
            try:
                found.append(self._describe(spec.model, self._fallback_endpoint(spec), "fallback"))
            except (ProviderNotConfigured, InvalidValue):
                continue
        return tuple(found)

    def auxiliary(self, current: ResolvedModel) -> ResolvedModel:
        """The model for small side questions: as configured, else the provider's small one, else the current one."""
        settings = self._settings
        row = find_row(current.provider)
        model = settings.auxiliary_model or (row.auxiliary_model if row is not None else None)
        provider = settings.auxiliary_provider or current.provider
        if current.demo or model is None:
            return current
        try:
            endpoint = self._endpoint(provider)
            if settings.auxiliary_model is None and row is not None and endpoint.host != row.host:
                # A moved endpoint need not serve the small model of the row.
                return current
            return self._describe(model, endpoint, "auxiliary")
        except (ProviderNotConfigured, InvalidValue):
            return current

    async def aclose(self) -> None:
        """Close the idle connections."""
        await self._client.aclose()

    # --- what is configured ------------------------------------------------------------------------------------------

    def default_provider(self, model: str | None = None) -> str:
        """The provider of a session that names none, but perhaps a model. Raises ``ProviderNotConfigured``."""
        own, provider = self._configured_pair()
        return self.choose_provider(own or model, provider)

    def configured(self) -> bool:
        """A real provider is there; the demonstration does not count."""
        try:
            return self.default_provider() != DEMO
        except (ProviderNotConfigured, InvalidValue):
            return False

    def has_credentials(self, provider: str) -> bool:
        if provider == LOCAL and self.has_local():
            return True
        try:
            self._endpoint(provider)
        except (ProviderNotConfigured, InvalidValue):
            return False
        return True

    def has_local(self) -> bool:
        """``local`` is the packaged model: it is installed, and no endpoint is configured that goes by this name."""
        return self._local is not None and not self._settings.base_url and self._local.model() is not None

    def authenticated_providers(self) -> frozenset[str]:
        known = [
            row.id for row in PROVIDER_ROWS if row.available and any(k in self._credentials for k in row.key_variables)
        ]
        return frozenset((*known, *(custom.id for custom in self._custom.values())))

    async def served_models(self, provider: str, *, refresh: bool = False) -> tuple[ServedModel, ...]:
        """What the endpoint lists, from memory unless ``refresh``. Raises ``ProviderError``."""
        return await self._lists.served(self._endpoint(provider), refresh=refresh)

    def lists_models(self, provider: str) -> bool:
        """Whether it is an endpoint of the user's, whose own list is what it serves."""
        try:
            return self._endpoint(provider).name.startswith("custom") or self._endpoint(provider).local
        except (ProviderNotConfigured, InvalidValue):
            return False

    def known_models(self, provider: str) -> tuple[ServedModel, ...]:
        """What such an endpoint has listed, as far as it was asked."""
        return self._lists.known(self._endpoint(provider)) if self.lists_models(provider) else ()

    @property
    def configuration(self) -> ModelSettings:
        return self._settings

    @property
    def custom(self) -> tuple[CustomProvider, ...]:
        return tuple(self._custom.values())

    async def options(self, **given: Any) -> dict[str, Any]:
        return await menu.options(self, **given)

    def world(self, **given: Any) -> ModelWorld:
        return menu.world(self, **given)

    def choose_provider(self, model: str | None, provider: str | None) -> str:
        """The canonical id: as named, else as configured, else by the keys that are there, else the demonstration."""
        named = provider or (self._settings.provider or "").strip().lower()
        if named and named not in _AUTO:
            return self._canonical(provider or named)
        if self._settings.base_url:
            return "custom"
        usable = [
            row for row in PROVIDER_ROWS if row.available and any(k in self._credentials for k in row.key_variables)
        ]
        if model:
            usable.sort(key=lambda row: _rank(row, model))
        if usable:
            return usable[0].id
        if self._custom:
            return next(iter(self._custom.values())).id
        return DEMO

    # --- inside ------------------------------------------------------------------------------------------------------

    def _configured_pair(self) -> tuple[str | None, str | None]:
        """``model.default`` may name its provider too, where ``model.provider`` does not."""
        provider = (self._settings.provider or "").strip()
        return self._split(self._settings.default, None if provider.lower() in _AUTO else provider)

    def _split(self, model: str | None, provider: str | None) -> tuple[str | None, str | None]:
        """An alias; ``provider:model`` and ``provider::model``; an Ollama tag stays: its left side is no provider."""
        if model is not None and provider is None and model.lower() in self._settings.aliases:
            model, provider = self._settings.aliases[model.lower()]
        if model is None or provider is not None or ":" not in model:
            return model or None, provider or None
        if model.startswith("custom:"):
            _, name, rest = (*model.split(":", 2), "")[:3]
            if rest and slug(name) in self._custom:
                return rest.lstrip(":"), f"custom:{name}"
        left, _, right = model.partition(":")
        if right and (left.lower() in (DEMO, *CUSTOM_ALIASES) or slug(left) in self._custom or find_row(left)):
            return right.lstrip(":"), left
        return model, None

    def _canonical(self, name: str) -> str:
        lowered = name.strip().lower()
        if name in self._routes:
            return name
        if lowered == NONE:
            raise ProviderNotConfigured("the model provider is switched off (model.provider: none)")
        if slug(name) in self._custom:
            return self._custom[slug(name)].id
        if lowered == DEMO:
            return DEMO
        if lowered == LOCAL and not self._settings.base_url:
            return LOCAL
        if lowered in CUSTOM_ALIASES:
            return "custom"
        row = find_row(lowered)
        if row is None:
            raise InvalidValue(f"unknown model provider: {name}")
        if not row.available:
            raise ProviderNotConfigured(f"{row.name} is not supported as a model provider of this server")
        return row.id

    def _endpoint(self, provider: str) -> Endpoint:
        found = self._endpoints.get(provider)
        if found is None:
            found = replace(self._find_endpoint(provider), deadlines=self._settings.deadlines)
            self._endpoints[provider] = found
        return found

    def _find_endpoint(self, provider: str) -> Endpoint:
        chosen = self._canonical(provider)
        if chosen in (DEMO, LOCAL):
            raise ProviderNotConfigured(f"the provider {chosen} has no endpoint of its own")
        if chosen in self._routes:
            return replace(self._fallback_endpoint(self._routes[chosen]), name=chosen)
        if chosen == "custom":
            return self._custom_endpoint()
        if chosen.startswith("custom:"):
            return self._named_endpoint(self._custom[slug(chosen)])
        row = find_row(chosen)
        assert row is not None
        return self._row_endpoint(row)

    def _row_endpoint(self, row: ProviderRow, given_key: str | None = None) -> Endpoint:
        settings = self._settings
        mine = settings.provider is not None and find_row(settings.provider) == row
        moved = self._credentials.get(row.base_url_variable or "")
        base_url = (settings.base_url if mine and settings.base_url else None) or moved or row.base_url
        local = row.local or is_local_url(base_url)
        key = given_key or (settings.api_key if mine else None)
        # A key goes to its own host, or to where its user moved the endpoint together with it.
        if not key and (urlsplit(base_url).hostname == row.host or base_url == moved):
            key = self._first_key(row)
        if not key and not local:
            variables = " or ".join(row.key_variables) or "model.api_key"
            where = (
                "" if urlsplit(base_url).hostname == row.host else f" for {urlsplit(base_url).hostname} (model.api_key)"
            )
            raise ProviderNotConfigured(f"no key for {row.name}: set {variables}{where}")
        return Endpoint(
            name=row.id,
            base_url=base_url,
            api_key=key or PLACEHOLDER_KEY,
            api_mode=_mode(settings.api_mode if mine else None, base_url, row.api_mode),
            local=local,
            stream_usage=row.stream_usage,
            parallel_tools=row.parallel_tools,
            developer_role=row.developer_role,
            max_tokens_field=row.max_tokens_field,
            routed=row.routed,
            echo_reasoning=row.echo_reasoning,
            thinking_switch=row.thinking_switch,
            cache_ttl=settings.cache_ttl,
        )

    def _custom_endpoint(self) -> Endpoint:
        settings = self._settings
        if not settings.base_url:
            raise ProviderNotConfigured("a custom provider needs model.base_url")
        host = _host_of(settings.base_url, "model.base_url")
        row = row_for_host(host)
        key = settings.api_key or (self._first_key(row) if row is not None else None)
        if not key and not is_local_url(settings.base_url):
            raise ProviderNotConfigured(f"no key for {host}: set model.api_key")
        return Endpoint(
            name="custom",
            base_url=settings.base_url,
            api_key=key or PLACEHOLDER_KEY,
            api_mode=_mode(
                settings.api_mode, settings.base_url, row.api_mode if row is not None else "chat_completions"
            ),
            local=is_local_url(settings.base_url),
            routed=row is not None and row.routed,
            cache_ttl=settings.cache_ttl,
        )

    def _named_endpoint(self, custom: CustomProvider) -> Endpoint:
        host = _host_of(custom.base_url, f"the base_url of {custom.name}")
        row = row_for_host(host)
        key = custom.api_key or self._credentials.get(custom.key_env or "")
        command = () if key else custom.key_cmd
        if not command:
            key = key or (self._first_key(row) if row is not None else None)
        local = is_local_url(custom.base_url)
        if not key and not command and not local:
            raise ProviderNotConfigured(f"no key for {custom.name}: set {custom.key_env or 'its api_key'}")
        return Endpoint(
            name=custom.id,
            base_url=custom.base_url,
            api_key=key or PLACEHOLDER_KEY,
            key_cmd=command,
            api_mode=_mode(custom.api_mode, custom.base_url, row.api_mode if row is not None else "chat_completions"),
            local=local,
            headers=tuple(custom.extra_headers.items()),
            extra_body=custom.extra_body,
            routed=row is not None and row.routed,
            cache_ttl=self._settings.cache_ttl,
            total_timeout=custom.request_timeout,
            idle_timeout=custom.stale_timeout,
        )

    def _fallback_endpoint(self, spec: FallbackSpec) -> Endpoint:
        if spec.base_url is None:
            provider = self._canonical(spec.provider) if spec.provider else self.default_provider()
            key = spec.api_key or self._credentials.get(spec.key_env or "")
            row = find_row(provider)
            if key and row is not None:
                # Its own key is enough, whether there is another for this provider or not.
                return self._row_endpoint(row, key)
            return replace(self._endpoint(provider), api_key=key, key_cmd=()) if key else self._endpoint(provider)
        name = spec.provider or urlsplit(spec.base_url).hostname or ""
        return self._named_endpoint(CustomProvider(name, spec.base_url, api_key=spec.api_key, key_env=spec.key_env))

    def _first_key(self, row: ProviderRow) -> str | None:
        return next((self._credentials[name] for name in row.key_variables if name in self._credentials), None)

    def _default_of(self, provider: str) -> str | None:
        custom = self._custom.get(slug(provider)) if provider.startswith("custom:") else None
        if custom is not None:
            return custom.default_model or next(iter(custom.models), None)
        return default_model(provider)

    def _window_of(self, model: str, endpoint: Endpoint) -> int | None:
        custom = self._custom.get(slug(endpoint.name)) if endpoint.name.startswith("custom:") else None
        if custom is not None:
            return custom.models.get(model) or custom.context_length
        return self._settings.context_length if model == self._settings.default or not self._settings.default else None

    def _describe(self, model: str, endpoint: Endpoint, source: str) -> ResolvedModel:
        facts = model_facts(model)
        # The user's own endpoint may show images to any model; a known model without sight stays without.
        vision = facts.vision or endpoint.name.startswith(("custom", ROUTE))
        return ResolvedModel(
            model=model,
            provider=endpoint.name,
            base_url=endpoint.base_url,
            api_mode=endpoint.api_mode,
            context_length=self._window_of(model, endpoint) or facts.context,
            max_output_tokens=self._settings.max_output_tokens,
            vision=vision,
            input_price=facts.input_price,
            output_price=facts.output_price,
            cache_read_price=facts.cache_read_price,
            route_source=source,
        )


def _rank(row: ProviderRow, model: str) -> int:
    """Who lists the name comes first; a name without a vendor is the vendor's own before any aggregator's."""
    if native_spelling(row.id, model) is None:
        return 2
    return 1 if row.aggregator and "/" not in model else 0


def _is_fallback(spec: FallbackSpec, resolved: ResolvedModel) -> bool:
    if resolved.route_source != "fallback" or spec.model != resolved.model:
        return False
    return spec.base_url in (None, resolved.base_url)


def _host_of(base_url: str, setting: str) -> str:
    """Raises ``ProviderNotConfigured``, which names the setting, for what is no address of an endpoint."""
    try:
        parts = urlsplit(base_url)
        host = parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        host = None
    if not host:
        raise ProviderNotConfigured(f"{setting} is no address: {base_url}; one begins with https:// or http://")
    return host


def _mode(explicit: str | None, base_url: str, usual: str) -> str:
    if explicit:
        mode = API_MODE_SPELLINGS.get(explicit.strip().lower())
        if mode is None or mode not in FORMATS:
            raise InvalidValue(f"unknown api_mode: {explicit}")
        return mode
    parts = urlsplit(base_url)
    if parts.hostname == "api.anthropic.com" or parts.path.rstrip("/").endswith("/anthropic"):
        return "anthropic_messages"
    return usual


__all__ = ["DEMO_MODEL", "Credentials", "CustomProvider", "FallbackSpec", "ModelSettings", "Models"]
