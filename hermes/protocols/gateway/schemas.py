"""Parameters and results of the session, live, prompt and control methods, named after the methods (gateway §3 to §7).

Undeclared parameters are refused (§1.6 row 8). Values whose meaning a handler has to judge (truncation targets,
content) are ``Any`` here. Results are the contract that tests hold every answer against; handlers build plain JSON
objects, so that a long transcript is not walked twice.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from hermes.protocols.gateway.schemas_shapes import (
    InflightTurn,
    PendingApproval,
    QueuedPrompt,
    SessionLiveInfo,
    TodoState,
    TranscriptMessage,
    Usage,
)
from hermes.protocols.rpc.method_table import Result, StrictParams

Json = Any


def _known_profile(name: str | None) -> str | None:
    if name not in (None, "", "default"):
        raise ValueError("unknown profile")
    return name


Key = Annotated[str | None, Field(min_length=1, max_length=200)]


class GatewayParams(StrictParams):
    """What every method tolerates."""

    profile: Annotated[str | None, AfterValidator(_known_profile)] = None


class OpenResult(Result):
    """A result that may carry more than what is declared."""

    model_config = ConfigDict(extra="allow")


class KeyedParams(GatewayParams):
    """Of methods that change something: a repeat under the same key gets the first answer (``keyed.py``)."""

    request_key: Key = None
    idempotency_key: Key = None


class EmptyParams(GatewayParams):
    pass


class EmptyKeyedParams(KeyedParams):
    pass


class SessionParams(GatewayParams):
    session_id: str


class KeyedSessionParams(KeyedParams):
    session_id: str


class OptionalSessionParams(GatewayParams):
    session_id: str | None = None


Reason = Annotated[str | None, Field(max_length=200)]


# --- live (methods_live.py) ------------------------------------------------------------------------------------------


class PingResult(Result):
    pong: bool


class GatewayPingResult(Result):
    ok: bool


class GatewayCapabilitiesResult(Result):
    per_session_exclusive_submit: bool


class ClientCapabilitiesParams(GatewayParams):
    server_requests: bool | None = None
    legacy_requests: bool | None = None
    tool_progress: bool | None = None
    steers: bool | None = None


class ClientCapabilitiesResult(Result):
    server_requests: list[str]
    declines_not_shown: bool


class OpenRequestEntry(Result):
    id: str
    method: str
    params: dict[str, Json]
    interrupted: bool | None = None


class SessionSnapshot(OpenResult):
    """What ``session.activate`` and ``session.resume`` give (§3.6)."""

    session_id: str
    session_key: str
    message_count: int
    messages: list[TranscriptMessage]
    messages_omitted: bool
    info: SessionLiveInfo
    running: bool
    turn_started_at: float | None
    started_at: float
    status: str
    inflight: InflightTurn | None
    open_requests: list[OpenRequestEntry]
    stored_session_id: str | None = None
    resumed: str | None = None
    queued: QueuedPrompt | None = None
    pending_approval: PendingApproval | None = None
    todo_state: TodoState | None = None
    hydrating: bool | None = None


class SessionActivateParams(SessionParams):
    cols: int | None = None
    omit_messages: bool = False


class SessionActiveListParams(GatewayParams):
    current_session_id: str | None = None


class SessionActiveItem(Result):
    id: str
    session_key: str
    current: bool
    status: Literal["starting", "idle", "working", "waiting", "streaming", "resuming"]
    model: str
    title: str
    preview: str
    message_count: int
    started_at: float
    last_active: float


class SessionActiveListResult(Result):
    sessions: list[SessionActiveItem]


class SessionCloseParams(KeyedSessionParams):
    reason: Reason = None


class SessionCloseResult(Result):
    closed: bool
    messages: list[str]


class SessionEventsSinceParams(SessionParams):
    last_seen: Annotated[int, Field(strict=True)] = 0


class SessionEventsSinceResult(Result):
    events: list[dict[str, Json]]
    latest_seq: int
    truncated: bool
    count: int
    epoch: str
    open_requests: list[OpenRequestEntry]


class SessionEventsStatsResult(Result):
    sessions: int
    events: int
    bytes: int
    max_per_session: int
    max_bytes_per_session: int
    max_bytes_process: int


class TerminalResizeParams(SessionParams):
    cols: Annotated[int | None, Field(ge=1, le=10_000)] = None
    rows: Annotated[int | None, Field(ge=1, le=10_000)] = None


class TerminalResizeResult(Result):
    cols: int


# --- sessions (methods_session.py) -----------------------------------------------------------------------------------


class SeedMessage(GatewayParams):
    model_config = ConfigDict(extra="ignore")

    role: Literal["user", "assistant", "system"]
    content: str | None = None
    text: str | None = None
    display_kind: str | None = None


class SessionCreateParams(KeyedParams):
    cols: int | None = None
    source: str = "tui"
    cwd: str | None = None
    cwd_explicit: bool = False
    messages: list[SeedMessage] | None = None
    parent_session_id: str | None = None
    title: str | None = None
    model: str | None = None
    provider: str | None = None
    reasoning_effort: str | None = None
    fast: bool | None = None
    service_tier: str | None = None
    close_on_disconnect: bool = False
    hidden: bool = False
    follow_profile_config: bool = False
    room_plumbing: bool | None = None


class SessionCreateResult(Result):
    session_id: str
    stored_session_id: str
    message_count: int
    messages: list[TranscriptMessage]
    info: SessionLiveInfo


class SessionListParams(GatewayParams):
    title: str | None = None
    limit: int = Field(200, ge=1, le=10_000)
    include_hidden: bool = False


class SessionListRow(Result):
    id: str
    title: str | None
    preview: str
    started_at: float
    message_count: int
    source: str
    resolved_id: str | None = None
    live_message_count: int | None = None
    lineage_root_id: str | None = Field(None, alias="_lineage_root_id")


class SessionListResult(Result):
    sessions: list[SessionListRow]


class SessionMostRecentResult(Result):
    session_id: str | None
    title: str | None = None
    started_at: float | None = None
    source: str | None = None


class SessionResumeParams(GatewayParams):
    session_id: str
    cols: int | None = None
    source: str | None = None
    lazy: bool = False
    defer_history: bool = False
    omit_messages: bool = False
    eager_build: bool = False
    close_on_disconnect: bool = False
    inline_images: bool = True


class SessionHistoryResult(Result):
    count: int
    messages: list[TranscriptMessage]


class SessionStatusResult(Result):
    output: str


class SessionUsageResult(Usage):
    pass


class SessionTitleParams(KeyedSessionParams):
    title: str | None = None


class SessionTitleResult(Result):
    title: str | None
    session_key: str | None = None
    pending: bool | None = None


# --- prompts (methods_prompt.py) -------------------------------------------------------------------------------------


class PromptSubmitParams(KeyedSessionParams):
    text: Json = None
    display_kind: str | None = None
    interrupted: bool | None = None
    queued: bool = False
    surface: str | None = None
    voice_context: Annotated[str | None, Field(max_length=6000)] = None
    voice_turn: bool | None = None
    title_preview: Annotated[str | None, Field(max_length=1000)] = None
    client_message_id: Annotated[str | None, Field(max_length=200)] = None
    truncate_before_user_ordinal: Json = None
    truncate_before_row_id: Json = None
    truncate_before_message_id: Json = None
    confirm_truncate: Json = None
    confirm_empty_truncate: Json = None
    confirm_deep_truncate: Json = None
    rebind_survivor_row_ids: list[int] | None = None
    deadline_s: Annotated[float | None, Field(gt=0)] = None
    max_iterations: Annotated[int | None, Field(gt=0)] = None
    max_tokens_total: Annotated[int | None, Field(gt=0)] = None
    max_cost_usd: Annotated[float | None, Field(gt=0)] = None


class PromptSubmitResult(Result):
    status: Literal["streaming", "queued", "steered", "redirected"]
    user_row_id: int | None = None
    survivor_user_row_ids: list[int | None] | None = None
    survivor_row_id_map: dict[str, int | None] | None = None


# --- control (methods_control.py) ------------------------------------------------------------------------------------


class SessionInterruptParams(KeyedSessionParams):
    expected_hosted_task_id: str | None = None
    reason: Reason = None


class SessionInterruptResult(Result):
    status: Literal["interrupted", "not_interrupted", "idle"]
    settled: bool | None = None
    stopped: list[dict[str, Json]] | None = None
    dropped_prompts: list[dict[str, Json]] | None = None
    pending_steer: str | None = None
    interrupted: bool | None = None


class SessionTextParams(KeyedParams):
    """``text`` is judged before the session (§4.5)."""

    text: str
    session_id: str


class SessionSteerResult(Result):
    status: Literal["queued", "redirected", "rejected"]
    text: str


class ApprovalRespondParams(KeyedParams):
    session_id: str | None = None
    choice: Json = "deny"
    all: bool = False
    request_id: str | None = None


class ApprovalRespondResult(Result):
    resolved: int


class ApprovalReceivedParams(SessionParams):
    request_id: str


class ApprovalReceivedResult(Result):
    acknowledged: bool


class ApprovalPendingResult(Result):
    approvals: list[PendingApproval]


class ClarifyLockParams(KeyedParams):
    request_id: str
    question_id: str
    answer: Json = None


class ClarifyLockResult(Result):
    status: Literal["ok", "expired"]
    remaining: list[str] | None = None


class RequestAnswerParams(KeyedParams):
    id: str
    result: dict[str, Json]


class StatusResult(Result):
    status: Literal["ok", "expired"]


class ClarifyRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    answer: str = ""


class SudoRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    password: str = ""


class SecretRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    value: str = ""


class TerminalReadRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    text: str = ""


class ScopeCancelParams(KeyedParams):
    node_id: str
    reason: Reason = None


class ScopeCancelResult(Result):
    cancelled: bool
    node_id: str


class TreeGetParams(GatewayParams):
    node_id: str | None = None


class TreeGetResult(Result):
    version: int
    tree: dict[str, Json]


class TreeSubscribeParams(GatewayParams):
    subscribed: bool = True


class TreeSubscribeResult(Result):
    subscribed: bool
    version: int
