"""One HTTP request and its answer, as the handlers see them: no web framework, no sockets.

``Api`` is what every handler shares, ``Call`` one request, ``Reply`` its answer, ``Route`` a line of the route table.
Bodies are JSON whatever their content type says.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from pydantic import BaseModel

from hermes.nurseries.artifacts import Artifacts
from hermes.nurseries.browser_broker import BrowserBroker
from hermes.nurseries.loop_watch import LoopWatch
from hermes.nurseries.run import Run
from hermes.nurseries.runs import RunRegistry
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.services import Services
from hermes.outcomes import CancelReason, Cause, TurnRecord
from hermes.protocols.channels.listener_counts import ListenerCounts
from hermes.protocols.error_table import HttpError, HttpRefusal
from hermes.protocols.http.conversations import ConversationOrder
from hermes.protocols.wire.json_codec import NotJson, decode, encode
from hermes.records import dataclass
from hermes.settings import ApiServerSettings, Settings

if TYPE_CHECKING:
    from hermes.protocols.http.metrics import Metrics

TRUE_WORDS = frozenset({"true", "1", "yes", "on"})
FALSE_WORDS = frozenset({"false", "0", "no", "off", ""})
MAX_LABEL = 256
MAX_WHY: Final = 200
MAX_DIGITS: Final = 18
LARGEST: Final[int] = 10**18
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How the HTTP surface is set up. ``cwd`` is where sessions made over HTTP work."""

    key: str
    host: str = "127.0.0.1"
    port: int = 8642
    cwd: str = "."
    version: str = "0"
    profile: str = "default"


@dataclass(frozen=True, slots=True)
class Ended:
    """What an answer is made of: kept of a run with a key, so that a retry gets the same truth."""

    run_id: str
    session_id: str
    record: TurnRecord
    reasoning: str


@dataclass(slots=True)
class Api:
    """Everything the handlers share."""

    tree: ServerTree
    options: HttpOptions
    runs: RunRegistry
    metrics: Metrics
    mint_ticket: Callable[[], str] | None = None
    """Makes a ticket for the gateway's WebSocket, where there is one."""
    routes: tuple[Route, ...] = ()
    principal: str = ""
    counts: Callable[[], ListenerCounts] = ListenerCounts
    """What the listener has counted."""
    loop: LoopWatch = field(default_factory=LoopWatch)
    unstored: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)
    """Responses that were not to be stored, by id, for the retry of a request with a key: in memory, the newest."""
    ended: OrderedDict[str, Ended] = field(default_factory=OrderedDict)
    """Runs with a key that have ended, by id: in memory, the newest."""
    conversations: ConversationOrder = field(default_factory=ConversationOrder)

    @property
    def services(self) -> Services:
        return self.tree.services

    @property
    def browsers(self) -> BrowserBroker:
        return self.tree.browsers

    @property
    def artifacts(self) -> Artifacts:
        return self.tree.artifacts

    @property
    def settings(self) -> Settings:
        settings: Settings = self.services.settings()
        return settings

    @property
    def server(self) -> ApiServerSettings:
        return self.settings.gateway.api_server

    @property
    def model_id(self) -> str:
        """The id that stands for "whatever this server is configured to run"."""
        if self.server.model_name:
            return self.server.model_name
        return "hermes-agent" if self.options.profile == "default" else self.options.profile


def principal_of(profile: str, key: str) -> str:
    """The caller's identity: one key per profile (api-server §7.1)."""
    digest = hashlib.sha256(f"{profile}\0{key}".encode()).hexdigest()
    return f"principal:{profile}:{digest[:32]}"


class ByteStream(Protocol):
    """A body that is written piece by piece; ``next`` gives None at its end."""

    async def next(self) -> bytes | None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Reply:
    """An answer. ``body`` is complete, or a stream."""

    status: int
    body: bytes | ByteStream
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = JSON_TYPE


@dataclass(slots=True)
class Work:
    """The runs that end with this request, unless they ended before: what a client that went away takes along."""

    runs: list[Run] = field(default_factory=list)

    def client_gone(self) -> None:
        for run in self.runs:
            run.cancel(CancelReason(Cause.CLIENT_DISCONNECT))


@dataclass(slots=True)
class Call:
    """One request. ``work`` is what this request owns."""

    api: Api
    method: str
    route: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Lower-case names."""
    body: bytes
    peer: str
    work: Work
    principal: str

    def json_object(self, *, empty_is_object: bool = False) -> dict[str, Any]:
        """The body, an object. Raises ``HttpRefusal``."""
        if not self.body.strip() and empty_is_object:
            return {}
        try:
            value = decode(self.body)
        except NotJson as error:
            # Also what is JSON and cannot be held: a number that no double is, what is nested without end.
            raise HttpRefusal("invalid_json", f"the body cannot be read as JSON: {error}"[:MAX_WHY]) from None
        if not isinstance(value, dict):
            raise HttpRefusal("invalid_request", "the body must be a JSON object")
        return value

    def label(self, header: str, code: str) -> str | None:
        """A header that names something: at most 256 characters, no control characters. Raises ``HttpRefusal``."""
        value = self.headers.get(header, "").strip()
        if not value:
            return None
        if len(value) > MAX_LABEL or any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise HttpRefusal(code, f"{header} must be at most {MAX_LABEL} characters without control characters")
        return value

    @property
    def is_local(self) -> bool:
        """The peer is on this machine."""
        return self.peer.startswith("127.") or self.peer in ("::1", "::ffff:127.0.0.1")


Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """A line of the route table. ``name`` is its name in the capabilities, if it has one."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handler: Handler
    summary: str
    name: str | None = None
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    streams: bool = False
    public: bool = False
    page: bool = False
    once: bool = False
    """Asking changes something: what is fetched is gone."""

    @property
    def head(self) -> bool:
        """Whether the head alone can be asked for. A stream has none without its work."""
        return self.method == "GET" and not (self.streams or self.once)


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, encode(value), dict(headers or {}))


def error_body(error: HttpError) -> dict[str, Any]:
    """The one error envelope (api-server A.1); all four keys always."""
    envelope: dict[str, Any] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    data = dict(error.data or {})
    if "hermes" in data:
        # The truth about a turn stands under this name wherever it is told.
        envelope["hermes"] = data.pop("hermes")
    if data:
        envelope["data"] = data
    return {"error": envelope}


def error_reply(error: HttpError, redact: Callable[[str], str]) -> Reply:
    body = error_body(error)
    body["error"]["message"] = message = redact(error.message)
    headers = {}
    if "hermes" in body["error"]:
        partial = "true" if body["error"]["hermes"].get("partial") else "false"
        headers = {"X-Hermes-Completed": "false", "X-Hermes-Partial": partial, "X-Hermes-Error": header_text(message)}
    if error.code in ("rate_limit_exceeded", "gateway_draining", "provider_rate_limited", "artifact_rate_limited"):
        headers["Retry-After"] = "1"
    if error.type == "gateway_auth_error":
        headers["WWW-Authenticate"] = "Bearer"
    return Reply(error.status, encode(body), headers)


def boolish(value: Any, *, default: bool = False) -> bool:
    """A JSON boolean, or one of the words that clients send instead."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in TRUE_WORDS:
            return True
        return False if word in FALSE_WORDS else default
    if value is None:
        return default
    return bool(value)


def whole_number(text: str) -> int | None:
    """The number that ASCII digits say; None for anything else. What no store can count to is its largest number."""
    if not text.isascii() or not text.isdigit():
        return None
    return int(text) if len(text) <= MAX_DIGITS else LARGEST


def header_text(text: str, limit: int = 200) -> str:
    """Text that a header can carry: one line of Latin-1 (a raw provider error would end the connection)."""
    line = " ".join(text.split())
    return line.encode("latin-1", "replace").decode("latin-1")[:limit]
