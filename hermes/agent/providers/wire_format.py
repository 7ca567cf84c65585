"""What the three wire formats share: the endpoint they speak to, the shape of a parser, and small pure conversions.

Everything here is sans-I/O. ``http_provider.py`` drives a format over a connection.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import orjson

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest
from hermes.agent.providers.error_reports import payload_error
from hermes.errors import ProviderError
from hermes.messages import Content, ImagePart, Row, TextPart
from hermes.records import dataclass

SETTLED: Final = 0.02
"""Seconds a finished stream may still need for the end of its framing, so that its connection can be used again."""
FINISHING: Final = 5.0
"""Seconds to wait for usage and the end marker once a finish reason has arrived."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that any endpoint may take. ``stream`` and ``call`` are of silence, with and without streaming; ``call``
    None: by the size of the request. ``local``: of silence, for models on a private address."""

    connect: float = 30.0
    request: float = 1800.0
    stream: float | None = None
    call: float | None = None
    local: float = 900.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model endpoint as configured: where, with which key, and which habits it has."""

    name: str
    base_url: str
    api_key: str | None = None
    key_cmd: tuple[str, ...] = ()
    """A command that prints the key; ``api_key`` does not count then."""
    api_mode: str = "chat_completions"
    local: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=dict, hash=False)
    bearer: bool = False
    """Send the key as a bearer token where the wire format has a header of its own."""
    stream_usage: bool = True
    parallel_tools: bool = False
    developer_role: bool = False
    max_tokens_field: str = "max_tokens"
    routed: bool = False
    """OpenRouter dialect: ``reasoning`` object, ``reasoning_details`` replayed, cache markers for Claude models."""
    echo_reasoning: bool = False
    """Assistant rows with calls must carry their ``reasoning_content``."""
    thinking_switch: bool = False
    """Thinking is switched by a ``thinking`` object instead of an effort."""
    cache_ttl: str = "5m"
    total_timeout: float | None = None
    idle_timeout: float | None = None
    deadlines: Deadlines = Deadlines()

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    def issuer(self, model: str) -> str:
        """Who signs or encrypts reasoning: it is replayed to nobody else."""
        vendor = model.split("/", 1)[0] if self.routed and "/" in model else ""
        return f"{self.host}/{vendor}" if vendor else self.host


class StreamParser(Protocol):
    """One answer being read.

    Contract: ``event`` takes one payload of the stream and returns None, or the seconds after which nothing more is
    needed; ``whole`` takes a complete JSON answer instead. Both raise ``ProviderError`` for an error object. ``finish``
    is called once, when the stream has ended by itself; ``ended`` is whether the answer is complete.
    """

    ended: bool

    def event(self, data: bytes) -> float | None: ...

    def whole(self, answer: Mapping[str, Any]) -> None: ...

    def finish(self) -> ModelFinished: ...


class WireFormat(Protocol):
    """A request in, a body out; and the parser for its answer. ``without`` names fields the endpoint has refused."""

    def url(self, endpoint: Endpoint) -> str: ...

    def headers(self, request: ModelRequest, endpoint: Endpoint) -> list[tuple[str, str]]: ...

    def body(self, request: ModelRequest, endpoint: Endpoint, without: frozenset[str]) -> dict[str, Any]: ...

    def parser(self, request: ModelRequest, endpoint: Endpoint, on_delta: DeltaSink) -> StreamParser: ...


class ErrorContext:
    """Makes the errors a parser raises."""

    def __init__(self, endpoint: Endpoint, request: ModelRequest, now: float = 0.0) -> None:
        self._provider = endpoint.name
        self._model = request.model
        self._now = now

    def from_payload(self, payload: Any) -> ProviderError:
        return payload_error(payload, provider=self._provider, model=self._model, now=self._now)

    def decode(self, data: bytes) -> dict[str, Any] | None:
        """A JSON object, or None for what is not one (keep-alives written as data). Raises for a broken object."""
        if not data.lstrip().startswith((b"{", b"[{")):
            return None
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ProviderError(
                f"{self._provider} sent an unreadable event",
                error_class="stream_dropped",
                provider=self._provider,
                model=self._model,
            ) from error
        if isinstance(value, list):
            value = value[0]
        return value if isinstance(value, dict) else None


# --- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A list that is JSON already: elements with their commas, the first ``size`` bytes of ``front``, and the rest.

    A conversation may be megabytes long, so it is copied once only, where the body is put together.
    """

    head: bytes
    front: bytearray
    size: int
    tail: bytes
    """Ends the list."""

    def inside(self, before: bytes, after: bytes) -> bytes:
        with memoryview(self.front) as front, front[: self.size] as known:
            return b"".join((before, b"[", self.head, known, self.tail, after))


def dump_body(body: Mapping[str, Any]) -> bytes:
    """Always the same bytes for the same request. Lone surrogates, which JSON cannot hold, are replaced.

    A ``WrittenList`` may stand in it as the last value.
    """
    last = list(body)[-1] if body else ""
    written = body.get(last)
    if isinstance(written, WrittenList):
        others = _dump({name: value for name, value in body.items() if name != last})
        comma = b"," if len(body) > 1 else b""
        return written.inside(others[:-1] + comma + orjson.dumps(last) + b":", b"}")
    return _dump(body)


def _dump(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body, default=_plain)
    except TypeError:
        return orjson.dumps(_clean(body), default=_plain)


def dump_list(messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The same for a part of a body."""
    try:
        return orjson.dumps(messages, default=_plain)
    except TypeError:
        return orjson.dumps(_clean(messages), default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    return value


REMEMBERED_ARGUMENTS = 300
"""Characters up to which the form of a call's arguments is remembered: all of them are sent again at each request."""


def canonical_arguments(text: str) -> str:
    """Sorted keys, compact; ``{}`` for what is not a JSON object, so that every server accepts the replay."""
    return _remembered(text) if len(text) <= REMEMBERED_ARGUMENTS else _canonical(text)


def _canonical(text: str) -> str:
    value = arguments_object(text)
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


_remembered = lru_cache(maxsize=4096)(_canonical)


def arguments_object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(text)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def wire_content(row: Row) -> Content:
    """What the model reads of a row."""
    return row.content if row.api_content is None else row.api_content


def parts_of(content: Content) -> tuple[TextPart | ImagePart, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return content or ()


def image_url(part: ImagePart) -> str:
    return part.url if part.data is None and part.url else f"data:{part.mime_type};base64,{part.data or ''}"


def replay_of(row: Row, issuer: str, *, signed: bool) -> list[Any]:
    """Opaque items of a row that this issuer made and may get back.

    ``signed`` thinking is taken out of a request by clearing ``reasoning_details``, encrypted items by clearing
    ``replay_items``: the loop repairs a refused request that way.
    """
    if signed and row.reasoning_details is None:
        return []
    for entry in row.replay_items or ():
        if isinstance(entry, Mapping) and entry.get("issuer") == issuer:
            items = entry.get("items")
            return list(items) if isinstance(items, list | tuple) else []
    return []


def replay_entry(issuer: str, items: Sequence[Any]) -> list[dict[str, Any]] | None:
    return [{"issuer": issuer, "items": list(items)}] if items else None


_INSIDE_A_CYCLE: Final = ("steer", "internal_notification")


def active_cycle_start(rows: Sequence[Row]) -> int:
    """Index behind the last user prompt: from there on the tool cycle is open. Steers and notices do not end it."""
    for index in range(len(rows) - 1, -1, -1):
        if rows[index].role == "user" and rows[index].display_kind not in _INSIDE_A_CYCLE:
            return index + 1
    return 0


# --- answers ---------------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Text of a content that may be a string, a part, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text_of(part) for part in value)
    if isinstance(value, Mapping) and value.get("type") in (None, "text", "output_text"):
        return text_of(value.get("text") or "")
    return ""


def count(mapping: Any, *path: str) -> int:
    """A token count at a path, 0 if it is missing or nonsense."""
    for key in path:
        mapping = mapping.get(key) if isinstance(mapping, Mapping) else None
    return int(mapping) if isinstance(mapping, int | float) and mapping > 0 else 0


def made_up_call_id(request_id: str, position: int) -> str:
    """The same id whenever the same request is answered with a call without one."""
    return f"call_{hashlib.sha256(request_id.encode('utf-8', 'replace')).hexdigest()[:10]}_{position}"
