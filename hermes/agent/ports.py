"""The ports of the agent core: what the loop needs from outside, and what adapters must offer.

Contracts, in one place, so that the loop, the providers, the tools, the store and the tree can be written and tested
without each other. Nothing here waits or does I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Protocol

from hermes.events import SessionEvent
from hermes.messages import (
    ClientAnswer,
    FileDiff,
    ImagePart,
    Question,
    RewindIntent,
    Row,
    ToolCall,
    ToolResult,
)
from hermes.outcomes import Usage

# --- model providers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it: name, description, JSON schema of the parameters."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model: the wire copy, already cleaned (agent-core §1.4).

    ``messages`` are rows without system rows; ``system`` is the pinned prompt split in its stable tier and the rest, so
    that cache markers can be placed. ``request_id`` is ``<turn_id>:api:<n>``. ``session_key`` feeds cache keys.
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


class ModelGateway(Protocol):
    """Finds the provider for a model.

    Contract: ``provider_for`` does no network and raises ``ProviderNotConfigured`` or ``ModelNotServed``; ``resolve``
    may ask a custom endpoint for its first model and is bounded by its own deadline.
    """

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel: ...

    def provider_for(self, resolved: ResolvedModel) -> Provider: ...

    def fallbacks(self) -> Sequence[ResolvedModel]: ...

    def auxiliary(self, current: ResolvedModel) -> ResolvedModel: ...


# --- tools -----------------------------------------------------------------------------------------------------------


class ParallelClass(Enum):
    FREE = "free"
    PATH_READ = "path_read"
    PATH_WRITE = "path_write"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class ToolFlags:
    parallel: ParallelClass = ParallelClass.BARRIER
    interactive: bool = False
    read_only: bool = False
    edits_files: bool = False
    untrusted_output: bool = False
    result_limit: int | None = 100_000
    """Characters of one result in the conversation; None: the tool limits itself."""
    toolset: str = "core"
    kind: Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"] = "other"
    """How an editor renders the call (ACP tool kind)."""


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """A child process a tool wants. ``timeout`` seconds or None; ``env`` is complete, nothing is inherited."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float | None = None
    kill_grace: float | None = None
    stdin: bytes | None = None
    max_output_bytes: int = 400_000
    """Output kept in memory: head and tail; what lies between is counted and dropped."""
    pty: bool = False
    columns: int = 80
    rows: int = 24


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a foreground process ended. ``exit_code`` is None if it was ended by a timeout or a cancel.

    ``output`` is head + tail with stdout and stderr in order; ``dropped_bytes`` lies between at ``head_bytes``.
    """

    exit_code: int | None
    output: bytes
    dropped_bytes: int = 0
    head_bytes: int = 0
    timed_out: bool = False
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BackgroundProcessInfo:
    process_id: str
    command: str
    cwd: str
    pid: int | None
    started_at: float
    status: Literal["running", "exited", "killed", "lost"]
    exit_code: int | None = None
    output_preview: str = ""
    ended_at: float | None = None
    notify: bool = False


class BackgroundProcesses(Protocol):
    """The background processes of one session (agent-core §3.3). Unknown ids raise ``ProcessNotFound``."""

    async def start(self, request: ProcessRequest, *, command: str, notify: bool = False) -> BackgroundProcessInfo: ...

    def list(self) -> Sequence[BackgroundProcessInfo]: ...

    def get(self, process_id: str) -> BackgroundProcessInfo: ...

    def read_new(self, process_id: str) -> str:
        """Output since the last call of this method for this process."""
        ...

    def log(self, process_id: str) -> str:
        """All retained output (the newest 200 000 characters)."""
        ...

    async def wait(self, process_id: str, timeout: float) -> BackgroundProcessInfo: ...

    async def kill(self, process_id: str) -> BackgroundProcessInfo: ...

    async def write(self, process_id: str, data: bytes) -> None: ...

    async def close_stdin(self, process_id: str) -> None: ...


class SessionMemory(Protocol):
    """What tools remember for one session. A plain attribute bag with a lifetime, never shared between sessions."""

    cwd: str
    env: dict[str, str]
    todos: list[dict[str, Any]]
    todo_revision: int
    file_reads: dict[str, Any]
    grants: set[str]
    """Approval pattern keys allowed for this session."""
    yolo: bool
    sudo_password: str | None
    denials_in_a_row: int
    extras: dict[str, Any]


class ToolContext(Protocol):
    """What one tool call may use. Everything that waits is cancelled with the call; a tool needs no code for that."""

    call_id: str
    turn_id: str
    session_key: str
    memory: SessionMemory
    settings: Any
    """``hermes.config.Settings`` at the start of the turn."""
    home: Path
    unattended: bool
    allow_clarify: bool
    source: str
    depth: int
    processes: BackgroundProcesses
    store: TranscriptStore

    def emit(self, event: SessionEvent) -> None: ...

    def progress(self, preview: str) -> None:
        """Show the newest output of the running call. Never waits; bursts are merged."""
        ...

    async def ask(self, question: Question) -> ClientAnswer:
        """Ask a human. Returns at once with ``NoClient`` where nobody can answer. Raises only ``Cancelled``."""
        ...

    async def run_process(self, request: ProcessRequest, on_output: Callable[[bytes], None]) -> ProcessOutcome:
        """Run a child to its end; the whole tree is gone when this returns or is cancelled.

        Raises ``OSError`` if it could not be started."""
        ...

    async def delegate(self, tasks: Sequence[Mapping[str, Any]], *, background: bool) -> Mapping[str, Any]:
        """Run child agents (agent-core §7); their nodes lie below this call."""
        ...

    async def ask_model(self, system: str, user: str, *, max_tokens: int, timeout: float) -> str:
        """One question to the auxiliary model, no tools. Raises ``ProviderError``."""
        ...

    async def client_tool(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A capability of the attached client (its file system, terminal, browser), or None if it offers none."""
        ...

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        ...


class ToolFailure(Exception):
    """Raised by a tool for a failure the model should read. ``content`` is the result text."""

    def __init__(self, content: str, *, status: Literal["error", "blocked"] = "error") -> None:
        self.content = content
        self.status = status
        super().__init__(content)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gives back; the tree makes it a ``ToolResult``."""

    content: str
    is_error: bool = False
    status: Literal["ok", "error", "blocked"] = "ok"
    summary: str | None = None
    diffs: tuple[FileDiff, ...] = ()
    images: tuple[ImagePart, ...] = ()
    details: Mapping[str, Any] | None = None


class Tool(Protocol):
    """A tool.

    Contract: ``run`` returns a result or raises ``ToolFailure``; any other exception becomes an error result.
    ``arguments`` are validated and coerced against ``spec.parameters`` before. ``preview`` gives the short human
    summary of a call; ``paths`` the files it touches (for parallel planning and editors), as the model wrote them.
    """

    spec: ToolSpec
    flags: ToolFlags

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str: ...

    def preview(self, arguments: Mapping[str, Any]) -> str: ...

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]: ...


class ToolSet(Protocol):
    """The tools of one session, in their pinned order."""

    def specs(self) -> tuple[ToolSpec, ...]: ...

    def find(self, name: str) -> Tool | None:
        """The tool of this name or alias (older names, case, separators)."""
        ...

    def names(self) -> Sequence[str]: ...


# --- the store -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session row (agent-core §5.3)."""

    key: str
    source: str = "tui"
    title: str | None = None
    title_source: str | None = None
    model: str | None = None
    provider: str | None = None
    model_config: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    parent_key: str | None = None
    started_at: float = 0.0
    ended_at: float | None = None
    end_reason: str | None = None
    last_activity_at: float = 0.0
    message_count: int = 0
    tool_call_count: int = 0
    usage: Usage = Usage()
    history_version: int = 0
    rewind_count: int = 0
    compression_count: int = 0
    hidden: bool = False
    archived: bool = False
    pinned: bool = False
    system_prompt: str | None = None
    tool_names: tuple[str, ...] | None = None
    user_id: str | None = None
    preview: str = ""
    principal: str | None = None
    interrupted_turn: Mapping[str, Any] | None = None
    """A turn that was running when its process died, or the retained failed turn: ``{user, error, at, …}``."""


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """Who holds a turn lease: host name, pid, process start time (clock ticks), a nonce per process."""

    host: str
    pid: int
    start_time: int
    nonce: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class RewindResult:
    removed: tuple[Row, ...]
    survivors: tuple[int | None, ...]
    new_rows: tuple[Row, ...]
    history_version: int


class TranscriptStore(Protocol):
    """Durable sessions and messages.

    Contract: each async method is one transaction that is not abandoned when the caller is cancelled: it happened whole
    or not at all, and a caller that was cancelled before it was queued has done nothing. Raises ``StoreUnavailable``
    (cause full, locked, read_only, corrupt, io), ``StoredSessionNotFound`` and the rewind conflicts; nothing else.
    """

    async def create_session(self, session: StoredSession) -> None:
        """Insert if absent; an existing key is left alone."""
        ...

    async def get_session(self, key: str) -> StoredSession | None: ...

    async def find_by_title(self, title: str) -> StoredSession | None: ...

    async def update_session(self, key: str, **changes: Any) -> None:
        """Set columns named like the fields of ``StoredSession``. ``title`` conflicts raise ``TitleTaken``."""
        ...

    async def list_sessions(
        self,
        *,
        limit: int = 200,
        offset: int = 0,
        include_hidden: bool = False,
        include_archived: bool = False,
        include_children: bool = False,
        source: str | None = None,
        title: str | None = None,
        cwd: str | None = None,
        principal: str | None = None,
    ) -> Sequence[StoredSession]:
        """Newest activity first. Sessions without messages are left out."""
        ...

    async def load_rows(self, key: str, *, limit: int = 20_000) -> tuple[Row, ...]:
        """The active rows in order."""
        ...

    async def append_rows(self, key: str, rows: Sequence[Row], *, usage: Usage | None = None) -> tuple[Row, ...]:
        """Store rows behind the last one; returns them with ids. ``usage`` is added to the counters in the same
        transaction."""
        ...

    async def rewind(
        self,
        key: str,
        intent: RewindIntent,
        new_rows: Sequence[Row],
        *,
        expected_version: int | None = None,
    ) -> RewindResult:
        """Archive the target and everything behind it and append ``new_rows``, in one transaction (PS-10)."""
        ...

    async def undo_rewind(self, key: str) -> tuple[Row, ...]:
        """Bring the last cut back while nothing newer is stored; returns all active rows. Raises ``NothingToUndo``."""
        ...

    async def replace_with_summary(
        self, key: str, *, summarized_ids: Sequence[int], summary_rows: Sequence[Row], expected_version: int
    ) -> tuple[Row, ...]:
        """Compression (agent-core §6.3): mark the summarized rows compacted, put the summary rows in their place; kept
        rows keep their ids. Returns all active rows."""
        ...

    async def branch(
        self, key: str, new: StoredSession, *, row_ids: Sequence[int] | None = None
    ) -> tuple[StoredSession, tuple[Row, ...]]:
        """Copy active rows (or just those) into a new session with new ids."""
        ...

    async def delete_session(self, key: str) -> None: ...

    async def search(self, query: str, *, limit: int = 20, key: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Full text: ``[{session_key, row_id, role, snippet, timestamp, title}]``."""
        ...

    async def acquire_lease(self, key: str, owner: LeaseOwner, *, ttl: float) -> int:
        """Take the turn lease; returns the stored ``history_version``. Raises ``SessionOwnedElsewhere``; a lease whose
        owner is provably dead or which has expired is taken over."""
        ...

    async def refresh_lease(self, key: str, owner: LeaseOwner, *, ttl: float) -> bool:
        """False: the lease is not ours any more."""
        ...

    async def release_lease(self, key: str, owner: LeaseOwner) -> None: ...

    async def get_meta(self, key: str) -> str | None: ...

    async def set_meta(self, key: str, value: str | None) -> None: ...

    async def put_record(self, kind: str, record_id: str, value: Mapping[str, Any], *, owner: str = "") -> None:
        """Durable JSON documents by kind (runs, responses, open questions, idempotency keys)."""
        ...

    async def get_record(self, kind: str, record_id: str) -> Mapping[str, Any] | None: ...

    async def list_records(self, kind: str, *, owner: str | None = None) -> Sequence[tuple[str, Mapping[str, Any]]]: ...

    async def delete_record(self, kind: str, record_id: str) -> bool: ...

    async def claim_record(
        self, kind: str, record_id: str, value: Mapping[str, Any], *, owner: str = ""
    ) -> Mapping[str, Any] | None:
        """Insert if absent, atomically across processes. None: claimed; otherwise the record that was there."""
        ...

    async def append_journal(self, run_id: str, entries: Sequence[tuple[int, bytes]], *, keep: int = 1000) -> None:
        """Append numbered event frames of a run; the oldest beyond ``keep`` are dropped."""
        ...

    async def read_journal(self, run_id: str, *, after: int, limit: int = 1000) -> Sequence[tuple[int, bytes]]: ...

    async def prune_records(self, kind: str, *, older_than: float) -> int: ...

    async def aclose(self) -> None: ...


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

    async def call_model(
        self, provider: Provider, request: ModelRequest, on_delta: DeltaSink
    ) -> ModelFinished | Redirected:
        """One model call in a scope of its own. Raises ``ProviderError``.

        The port keeps what streamed (``TL-14``): on a cancel the finalizer stores it."""
        ...

    async def run_tools(
        self, segments: Sequence[Sequence[PlannedCall]], finish: Callable[[ToolResult], ToolResult]
    ) -> Sequence[ToolResult]:
        """Run the segments in order, the calls of one segment side by side; store each result (in call order) before
        its completion is announced. ``finish`` is applied to a result, in call order, before it is stored (budgets,
        hints, warnings). Returns results in call order."""
        ...

    async def pause(self, seconds: float, *, why: str) -> None:
        """Wait between tries; ends at once when the turn is cancelled."""
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

    def check_limits(self, usage: Usage, iterations: int) -> None:
        """Called before each model call; cancels the turn with cause ``budget`` when a limit the caller set is
        reached (raises ``Cancelled`` at the next wait)."""
        ...


WallClock = Callable[[], float]
IdSource = Callable[[str], str]
"""``ids("proc")`` gives a fresh id for a kind of thing."""

AsyncTool = Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolOutput | str]]
