"""The ports of the agent core: what the loop needs from outside, and what adapters must offer.

Contracts, so that the loop, the providers, the tools, the store and the tree can be written and tested without each
other. Models and the turn stand here, tools in ``ports_tools``, the store in ``ports_store``; everybody imports from
here. Nothing here waits or does I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Literal, Protocol, TypeVar

from hermes.agent.ports_store import (
    LeaseOwner,
    RewindResult,
    StoredSession,
    TranscriptStore,
    TurnBegun,
    TurnFinished,
)
from hermes.agent.ports_tools import (
    BackgroundProcesses,
    BackgroundProcessInfo,
    ParallelClass,
    ProcessOutcome,
    ProcessRequest,
    SessionMemory,
    Tool,
    ToolContext,
    ToolFailure,
    ToolFlags,
    ToolOutput,
    ToolSet,
    ToolSpec,
)
from hermes.events import SessionEvent
from hermes.messages import Content, Row, ToolCall, ToolResult
from hermes.outcomes import Usage
from hermes.records import dataclass

__all__ = [
    "AsyncTool",
    "BackgroundProcessInfo",
    "BackgroundProcesses",
    "DeltaKind",
    "DeltaSink",
    "IdSource",
    "LeaseOwner",
    "ModelFinished",
    "ModelGateway",
    "ModelRequest",
    "ParallelClass",
    "PlannedCall",
    "ProcessOutcome",
    "ProcessRequest",
    "Provider",
    "Redirected",
    "ResolvedModel",
    "RewindResult",
    "SessionMemory",
    "StoredSession",
    "Tool",
    "ToolContext",
    "ToolFailure",
    "ToolFlags",
    "ToolOutput",
    "ToolSet",
    "ToolSpec",
    "TranscriptStore",
    "TurnBegun",
    "TurnFinished",
    "TurnPort",
    "WallClock",
]

T = TypeVar("T")

# --- model providers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettledRows:
    """The front of a request that was sent before and will be sent again: its first ``count`` messages.

    ``kept`` is for the wire formats, which keep there what they have made of it, and compare: a rewind changes its end.
    """

    count: int
    kept: dict[Any, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model: the wire copy, already cleaned (agent-core §1.4).

    ``messages`` are rows without system rows; ``system`` is the pinned prompt split in its stable tier and the rest, so
    that cache markers can be placed. ``request_id`` is ``<turn_id>:api:<n>``. ``session_key`` feeds cache keys.
    ``message_tokens`` and ``tool_tokens`` are estimates for messages and tools where they are known already.
    """

    request_id: str
    model: str
    messages: tuple[Row, ...]
    system: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    temperature: float | None = None
    tool_choice: Literal["auto", "none", "required"] = "auto"
    session_key: str = ""
    stream: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    message_tokens: int | None = field(default=None, compare=False, repr=False)
    tool_tokens: int | None = field(default=None, compare=False, repr=False)
    settled: SettledRows | None = field(default=None, compare=False, repr=False)


class DeltaKind(Enum):
    TEXT = "text"
    REASONING = "reasoning"
    TOOL_NAME = "tool_name"
    """A call's name became complete while its arguments still stream; ``text`` is the name."""


DeltaSink = Callable[[DeltaKind, str], None]
"""Called by the provider for each delta, synchronously, in order. Must not raise."""


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """What one model call gave, whole. ``text`` and ``reasoning`` are the joins of all deltas.

    ``tool_calls`` are as the model wrote them: ids may be empty, arguments may be broken JSON. ``finish_reason`` is
    normalised to ``stop``, ``length``, ``tool_calls``, ``content_filter`` or None (the stream closed without one).
    ``refusal`` is refusal text of a separate field. ``served_model`` is what the endpoint says it used.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning_details: Sequence[Any] | None = None
    replay_items: Sequence[Any] | None = None
    served_model: str | None = None
    response_id: str | None = None
    incomplete: bool = False
    """The endpoint itself calls the answer incomplete (Responses API)."""


class Provider(Protocol):
    """A model endpoint.

    Contract: ``call`` sends one request, feeds ``on_delta`` while the answer streams, and returns when it is complete.
    Raises ``ProviderError`` (classified) and nothing else for failures of the endpoint. A cancelled call closes its
    connection before it unwinds. A connection that drops in mid-stream raises ``ProviderError`` with class ``timeout``
    or ``stream_dropped``; what ``on_delta`` received stays valid. It may bound its own waits; it may not spawn.
    """

    name: str
    base_url: str

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model together with the provider that serves it and what is known about it."""

    model: str
    provider: str
    base_url: str = ""
    api_mode: str = "chat_completions"
    context_length: int = 128_000
    max_output_tokens: int | None = None
    vision: bool = True
    input_price: float | None = None
    output_price: float | None = None
    cache_read_price: float | None = None
    route_source: str = "global"
    demo: bool = False
    warning: str = ""
    """What the user should know before it is used: its server gives it too small a window."""


class ModelGateway(Protocol):
    """Finds the provider for a model.

    Contract: ``provider_for`` does no network and raises ``ProviderNotConfigured`` or ``ModelNotServed``; ``resolve``
    may ask a custom endpoint for its first model and is bounded by its own deadline.
    """

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel: ...

    def provider_for(self, resolved: ResolvedModel) -> Provider: ...

    def fallbacks(self) -> Sequence[ResolvedModel]: ...

    def auxiliary(self, current: ResolvedModel) -> ResolvedModel: ...

    def default_provider(self, model: str | None = None) -> str:
        """The provider of a session that names none, but perhaps a model. No network. Raises
        ``ProviderNotConfigured``, ``InvalidValue``."""
        ...

    def has_credentials(self, provider: str) -> bool: ...

    def authenticated_providers(self) -> frozenset[str]: ...


# --- the turn, as the loop sees it -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Redirected:
    """A model call that was cancelled by a redirect: what had streamed, and the correction."""

    text: str
    partial_text: str
    partial_reasoning: str


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A validated call: its tool, or None with the error result that stands for it."""

    call: ToolCall
    tool: Tool | None
    arguments: Mapping[str, Any]
    error: ToolResult | None = None


class TurnPort(Protocol):
    """The tree, as the loop sees it: implemented by ``nurseries.turn.Turn``, faked in tests.

    Contract: methods that wait may raise ``Cancelled`` (the loop lets it pass); ``run_tools`` never raises for a tool.
    A cancelled turn is finalized by the tree, not by the loop: the loop writes straight on.
    """

    turn_id: str
    session_key: str

    @property
    def rows(self) -> Sequence[Row]:
        """The session's active rows, newest last. Always what the store holds."""
        ...

    def emit(self, event: SessionEvent) -> None: ...

    async def store(self, rows: Sequence[Row], *, usage: Usage | None = None) -> tuple[Row, ...]:
        """Append rows, durable when this returns. Raises ``StoreUnavailable``."""
        ...

    async def replace_with_summary(self, summarized_ids: Sequence[int], summary_rows: Sequence[Row]) -> None: ...

    async def shorten_rows(self, contents: Mapping[int, Content]) -> None:
        """From now on the model reads this of the rows with these ids; people go on seeing all of them."""
        ...

    async def call_model(
        self, provider: Provider, request: ModelRequest, on_delta: DeltaSink
    ) -> ModelFinished | Redirected:
        """One model call in a scope of its own. Raises ``ProviderError``.

        The port keeps what streamed (``TL-14``): on a cancel the finalizer stores it."""
        ...

    def cut_answer(self) -> None:
        """End the model call in progress: ``call_model`` returns what has streamed as an answer that was cut off.
        Synchronous; nothing happens if no call is in progress."""
        ...

    async def run_tools(
        self,
        segments: Sequence[Sequence[PlannedCall]],
        finish: Callable[[ToolResult], ToolResult],
        prepare: Callable[[ToolResult], Awaitable[None]] | None = None,
    ) -> Sequence[ToolResult]:
        """Run the segments in order, the calls of one segment side by side; store each result (in call order) before
        its completion is announced. ``finish`` is applied to a result, in call order, before it is stored (budgets,
        hints, warnings), and ``prepare`` before that, which may wait. Returns results in call order."""
        ...

    async def attempt(self, step: Callable[[], Awaitable[T]]) -> T | Exception:
        """What ``step`` returns, or the exception it raised. Cancellation passes through."""
        ...

    async def pause(self, seconds: float, *, why: str) -> None:
        """Wait between tries; ends at once when the turn is cancelled."""
        ...

    def spent(self) -> Usage:
        """By this turn and by everybody that works for it."""
        ...

    def take_steers(self) -> str | None:
        """Pending steer text (several joined by a newline), taken: the caller must deliver it."""
        ...

    def give_back_steers(self, text: str) -> None:
        """Put undelivered steer text back in front."""
        ...

    def has_redirect(self) -> bool: ...

    def begin_closing(self) -> str | None:
        """From now on steers are refused; returns the undelivered text. Synchronous with the loop's last decision
        (TL-29)."""
        ...

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def random(self) -> float: ...

    async def check_limits(self, usage: Usage, iterations: int) -> None:
        """Called before each model call; cancels the turn with cause ``budget`` when a limit the caller set is
        reached, and raises ``Cancelled`` then: a request that is not sent must not be counted."""
        ...


WallClock = Callable[[], float]
IdSource = Callable[[str], str]
"""``ids("proc")`` gives a fresh id for a kind of thing."""

AsyncTool = Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolOutput | str]]
