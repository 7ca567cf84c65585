"""Servers on this machine or network: how they are recognised, and what they can be asked without a key.

All questions are bounded by a deadline and answered with nothing on failure: a server that is down must not stop a turn
from failing with its own, better message.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final, TypeGuard
from urllib.parse import urlsplit

import orjson
import trio

from hermes.agent.providers.http_stream import HttpClient, HttpRequest, Timeouts
from hermes.agent.providers.wire_format import Endpoint
from hermes.errors import ProviderError
from hermes.records import dataclass

PROBE_SECONDS: Final = 5.0
SMALL_WINDOW: Final = 64_000
_MAX_LIST: Final = 8 * 1024 * 1024
_LOCAL_NAMES: Final = ("localhost", "host.docker.internal", "host.containers.internal", "gateway.docker.internal")
_LOCAL_ENDINGS: Final = (".localhost", ".local", ".lan", ".internal", ".home.arpa")
_WINDOW_KEYS: Final = (
    "max_model_len",
    "context_length",
    "max_context_length",
    "loaded_context_length",
    "context_window",
    "n_ctx",
)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One entry of a model list. ``context`` is None if the server does not tell."""

    id: str
    context: int | None = None
    loaded: bool | None = None
    warning: str = ""
    """What the user should change about it."""


def is_local_host(host: str) -> bool:
    """Loopback, private and link-local addresses, and names that only a local network resolves."""
    name = host.strip("[]").lower()
    if name in _LOCAL_NAMES or name.endswith(_LOCAL_ENDINGS):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return "." not in name and bool(name)
    return address.is_loopback or address.is_private or address.is_link_local


def is_local_url(url: str) -> bool:
    return is_local_host(urlsplit(url).hostname or "")


async def list_models(
    client: HttpClient, base_url: str, headers: list[tuple[str, str]], *, seconds: float = PROBE_SECONDS
) -> tuple[ServedModel, ...]:
    """``GET {base}/models``. Raises ``ProviderError``."""
    answer = await _get(client, f"{base_url.rstrip('/')}/models", headers, seconds)
    entries = answer.get("data") if isinstance(answer, Mapping) else answer
    if entries is None and isinstance(answer, Mapping):
        entries = answer.get("models")
    models = [_served(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple(model for model in models if model is not None)


async def probe(client: HttpClient, endpoint: Endpoint, model: str, *, seconds: float = PROBE_SECONDS) -> ServedModel:
    """Ask a local server for the window of a model: LM Studio, llama.cpp, then Ollama; all in ``seconds``.

    The window is None if none of them answers.
    """
    parts = urlsplit(endpoint.base_url)
    root = f"{parts.scheme}://{parts.netloc}"
    found = ServedModel(model)
    with trio.move_on_after(seconds):
        for path, read in (("/api/v0/models", _lmstudio_window), ("/props", _llamacpp_window)):
            window = read(await _ask(client, root + path, seconds), model)
            if window:
                return ServedModel(model, window)
        shown = await _ask(client, f"{root}/api/show", seconds, {"model": model})
        if isinstance(shown, Mapping) and isinstance(shown.get("model_info"), Mapping):
            found = ollama_model(model, shown, await _ask(client, f"{root}/api/ps", seconds), endpoint.extra_body)
    return found


def ollama_model(model: str, shown: Mapping[str, Any], running: Any, extra_body: Mapping[str, Any]) -> ServedModel:
    """The window that Ollama really gives a model, which may be a small part of what the model could have.

    ``shown`` and ``running`` are its answers to ``/api/show`` and ``/api/ps``.
    """
    able = next(
        (value for key, value in shown["model_info"].items() if key.endswith(".context_length") and _is_size(value)),
        None,
    )
    options = extra_body.get("options")
    given = options.get("num_ctx") if isinstance(options, Mapping) else None
    entries = running.get("models") if isinstance(running, Mapping) else None
    loaded = [
        entry.get("context_length")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, Mapping) and model in (entry.get("name"), entry.get("model"))
    ]
    own = re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.MULTILINE)
    sizes = (given, *loaded, int(own[1]) if own else None)
    window = next((size for size in sizes if _is_size(size)), None)
    if window is not None and able is not None:
        window = min(window, able)
    warning = ""
    if not _is_size(given) and (window is None or (window < (able or window + 1) and window < SMALL_WINDOW)):
        size = "an unknown window, often 4096 tokens" if window is None else f"a window of {window} tokens"
        possible = f" of the {able} it can have" if able else ""
        warning = (
            f"Ollama gives {model} {size}{possible}: what does not fit is cut off silently. Set extra_body "
            "{options: {num_ctx: 65536}} for this provider, or OLLAMA_CONTEXT_LENGTH for the server."
        )
    return ServedModel(model, window or able, warning=warning)


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


async def _ask(client: HttpClient, url: str, seconds: float, body: Mapping[str, Any] | None = None) -> Any:
    """The answer, or None: a server that does not know the question is another kind of server."""
    try:
        return await _get(client, url, [], seconds, body)
    except ProviderError:
        return None


async def _get(
    client: HttpClient,
    url: str,
    headers: list[tuple[str, str]],
    seconds: float,
    body: Mapping[str, Any] | None = None,
) -> Any:
    timeouts = Timeouts(connect=seconds, first_byte=seconds, idle=seconds, total=seconds)
    headers = [("Accept", "application/json"), *headers]
    request = HttpRequest("GET", url, headers)
    if body is not None:
        request = HttpRequest("POST", url, [*headers, ("Content-Type", "application/json")], orjson.dumps(body))
    response = await client.open(request, timeouts)
    with response:
        data = await response.read(_MAX_LIST)
    if response.status != 200:
        error_class = "auth" if response.status in (401, 403) else "server_error"
        raise ProviderError(
            f"the model list answered with status {response.status}", error_class=error_class, status=response.status
        )
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ProviderError("the model list is not JSON", error_class="format_error") from error


def _served(entry: Any) -> ServedModel | None:
    if isinstance(entry, str):
        return ServedModel(entry)
    if not isinstance(entry, Mapping):
        return None
    named = (entry.get(key) for key in ("id", "name", "model"))
    name = next((value for value in named if isinstance(value, str) and value), None)
    state = entry.get("state")
    return ServedModel(name, _window(entry), None if state is None else state == "loaded") if name else None


def _window(entry: Mapping[str, Any]) -> int | None:
    sources: list[Any] = [entry, entry.get("meta"), entry.get("top_provider")]
    for source in sources:
        for key in _WINDOW_KEYS:
            value = source.get(key) if isinstance(source, Mapping) else None
            if _is_size(value):
                return value
    return None


def _lmstudio_window(answer: Any, model: str) -> int | None:
    for entry in answer.get("data") or () if isinstance(answer, Mapping) else ():
        if isinstance(entry, Mapping) and entry.get("id") == model:
            loaded = entry.get("loaded_context_length")
            return loaded if _is_size(loaded) else _window(entry)
    return None


def _llamacpp_window(answer: Any, model: str) -> int | None:
    settings = answer.get("default_generation_settings") if isinstance(answer, Mapping) else None
    return _window(settings) if isinstance(settings, Mapping) else None
