"""What endpoints say that they serve: asked when it is needed, remembered until the configuration changes."""

from __future__ import annotations

from dataclasses import replace

from hermes.agent.ports import ResolvedModel
from hermes.agent.providers.command_keys import CommandKeys
from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.local_servers import ServedModel, list_models, probe
from hermes.agent.providers.wire_format import Endpoint
from hermes.errors import ProviderError, ProviderNotConfigured


class ModelLists:
    """The lists of all endpoints, and the windows that local servers give their models."""

    def __init__(self, client: HttpClient, keys: CommandKeys) -> None:
        self._client = client
        self._keys = keys
        self._lists: dict[Endpoint, tuple[ServedModel, ...]] = {}
        self._windows: dict[tuple[Endpoint, str], ServedModel] = {}

    def clear(self) -> None:
        self._lists.clear()
        self._windows.clear()

    async def served(self, endpoint: Endpoint, *, refresh: bool = False) -> tuple[ServedModel, ...]:
        """What the endpoint lists, from memory unless ``refresh``. Raises ``ProviderError``."""
        if refresh:
            self._lists.pop(endpoint, None)
        if endpoint not in self._lists:
            self._lists[endpoint] = await self._ask(endpoint)
        return self._lists[endpoint]

    def known(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        """What it listed when it was asked last; nothing is asked now."""
        return self._lists.get(endpoint, ())

    async def first(self, endpoint: Endpoint) -> str:
        """The model of an endpoint for which none is configured. Raises ``ProviderNotConfigured``."""
        try:
            served = await self.served(endpoint)
        except ProviderError as error:
            raise ProviderNotConfigured(
                f"no model is configured and {endpoint.host} could not be asked: {error.message}; set model.default"
            ) from error
        loaded = [model for model in served if model.loaded] or list(served)
        if not loaded:
            raise ProviderNotConfigured(f"no model is configured and {endpoint.host} lists none; set model.default")
        return loaded[0].id

    async def with_local_window(self, resolved: ResolvedModel, endpoint: Endpoint) -> ResolvedModel:
        """A local server knows its own window best; it is asked once, whether it answers or not."""
        key = (endpoint, resolved.model)
        if key not in self._windows:
            self._windows[key] = await self._ask_window(resolved.model, endpoint)
        known = self._windows[key]
        return replace(resolved, context_length=known.context or resolved.context_length, warning=known.warning)

    async def _ask_window(self, model: str, endpoint: Endpoint) -> ServedModel:
        try:
            served = await self.served(endpoint)
        except ProviderError:
            return ServedModel(model)
        listed = next((entry for entry in served if entry.id == model and entry.context), None)
        return listed or await probe(self._client, endpoint, model)

    async def _ask(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        command = endpoint.key_cmd
        if not command:
            return await list_models(self._client, endpoint.base_url, _headers(endpoint, endpoint.api_key))
        key = await self._keys.key(command, endpoint.name)
        try:
            return await list_models(self._client, endpoint.base_url, _headers(endpoint, key))
        except ProviderError as error:
            if error.status != 401:
                raise
        self._keys.refused(command, key)
        key = await self._keys.key(command, endpoint.name)
        return await list_models(self._client, endpoint.base_url, _headers(endpoint, key))


def _headers(endpoint: Endpoint, key: str | None) -> list[tuple[str, str]]:
    headers = [*endpoint.headers]
    if key and endpoint.api_mode == "anthropic_messages":
        headers += [("x-api-key", key), ("anthropic-version", "2023-06-01")]
    elif key:
        headers.append(("Authorization", f"Bearer {key}"))
    return headers
