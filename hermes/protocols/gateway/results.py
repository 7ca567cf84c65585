"""Results of the methods that every conversation needs: live sessions, prompts, control (gateway §3, §4, §7).

Results are the contract, which tests hold every answer against; a server that runs never loads them. Handlers build
plain JSON objects, so that a long transcript is not walked twice, and name their model (``contract.result_of``).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from hermes.protocols.gateway.result_rows import DroppedPrompt, ReplayedEvent, Row, StoppedNode, TreeNode
from hermes.protocols.gateway.schemas_shapes import (
    InflightTurn,
    PendingApproval,
    QueuedPrompt,
    SessionLiveInfo,
    TodoState,
    TranscriptMessage,
    Usage,
)
from hermes.protocols.rpc.method_table import Result

Json = Any


class OpenResult(Result):
    """A result that may carry more than what is declared."""

    model_config = ConfigDict(extra="allow")


class PingResult(Result):
    pong: bool


class GatewayPingResult(Result):
    ok: bool


class GatewayCapabilitiesResult(Result):
    per_session_exclusive_submit: bool


class ClientCapabilitiesResult(Result):
    server_requests: list[str]
    declines_not_shown: bool


class OpenRequestEntry(Row):
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
    owner: str | None = None


class SessionActiveItem(Row):
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


class SessionCloseResult(Result):
    closed: bool
    messages: list[str]


class SessionEventsSinceResult(Result):
    events: list[ReplayedEvent]
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


class TerminalResizeResult(Result):
    cols: int


class SessionCreateResult(Result):
    session_id: str
    stored_session_id: str
    message_count: int
    messages: list[TranscriptMessage]
    info: SessionLiveInfo


class SessionListRow(Row):
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


class SessionHistoryResult(Result):
    count: int
    messages: list[TranscriptMessage]


class SessionStatusResult(Result):
    output: str


class SessionUsageResult(Usage):
    pass


class SessionTitleResult(Result):
    title: str | None
    session_key: str | None = None
    pending: bool | None = None


class PromptSubmitResult(Result):
    status: Literal["streaming", "queued", "steered", "redirected"]
    queue_position: int | None = None
    user_row_id: int | None = None
    survivor_user_row_ids: list[int | None] | None = None
    survivor_row_id_map: dict[str, int | None] | None = None


class SessionInterruptResult(Result):
    status: Literal["interrupted", "not_interrupted", "idle"]
    settled: bool | None = None
    stopped: list[StoppedNode] | None = None
    dropped_prompts: list[DroppedPrompt] | None = None
    pending_steer: str | None = None
    interrupted: bool | None = None


class SessionSteerResult(Result):
    status: Literal["queued", "redirected", "rejected"]
    text: str


class ApprovalRespondResult(Result):
    resolved: int


class ApprovalReceivedResult(Result):
    acknowledged: bool


class ApprovalPendingResult(Result):
    approvals: list[PendingApproval]


class ClarifyLockResult(Result):
    status: Literal["ok", "expired"]
    remaining: list[str] | None = None


class StatusResult(Result):
    status: Literal["ok", "expired"]


class ScopeCancelResult(Result):
    cancelled: bool
    node_id: str


class TreeGetResult(Result):
    version: int
    tree: TreeNode


class TreeSubscribeResult(Result):
    subscribed: bool
    version: int
