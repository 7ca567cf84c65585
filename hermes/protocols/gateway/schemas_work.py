"""Parameters and results of history changes, side work, subagents, archives, attachments (gateway §3, §4.7, §9)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hermes.protocols.gateway.schemas import (
    GatewayParams,
    KeyedParams,
    KeyedSessionParams,
    OpenResult,
    Reason,
    SessionParams,
)
from hermes.protocols.gateway.schemas_shapes import SessionLiveInfo, TranscriptMessage, Usage
from hermes.protocols.rpc.method_table import Result

Json = Any

# --- history (methods_history.py) ------------------------------------------------------------------------------------


class SessionBranchParams(KeyedSessionParams):
    name: str | None = None
    count: int | None = None


class SessionBranchWholeParams(KeyedSessionParams):
    name: str | None = None


class SessionBranchStoredParams(KeyedParams):
    parent_session_id: str
    cols: int | None = None
    source: str | None = None
    cwd: str | None = None


class SessionBranchResult(Result):
    session_id: str
    stored_session_id: str
    title: str
    parent: str
    message_count: int
    info: SessionLiveInfo
    messages: list[TranscriptMessage] | None = None
    messages_omitted: bool | None = None


class SessionUndoParams(KeyedSessionParams):
    intent: Literal["retry", "undo"] | None = None
    count: Annotated[int, Field(ge=1, le=1000)] = 1


class SessionUndoResult(Result):
    removed: int
    text: str
    survivor_user_row_ids: list[int | None]


class SessionUndoRewindResult(Result):
    message_count: int
    messages: list[TranscriptMessage]
    survivor_user_row_ids: list[int | None]


class SessionCompressParams(KeyedSessionParams):
    focus_topic: str | None = None


class SessionCompressResult(OpenResult):
    status: str | None = None
    removed: int | None = None
    before_messages: int | None = None
    after_messages: int | None = None
    before_tokens: int | None = None
    after_tokens: int | None = None
    summary: dict[str, Json] | None = None
    usage: Usage | None = None
    info: SessionLiveInfo | None = None
    messages: list[TranscriptMessage] | None = None
    compressed: bool | None = None
    lock_held: bool | None = None
    message: str | None = None


class SessionSaveResult(Result):
    file: str


class SessionDeleteResult(Result):
    deleted: str


class SessionArchiveParams(KeyedParams):
    session_id: str | None = None
    session_key: str | None = None
    archived: bool = True


class SessionArchiveResult(Result):
    archived: bool
    session_key: str


class SessionSetHiddenParams(KeyedSessionParams):
    hidden: bool


class SessionSetHiddenResult(Result):
    hidden: bool
    session_key: str


class SessionCwdSetParams(KeyedSessionParams):
    cwd: str


class LiveInfoResult(SessionLiveInfo):
    pass


class SessionContextBreakdownResult(Result):
    categories: list[dict[str, Json]]
    context_max: int
    context_percent: int
    context_used: int
    estimated_total: int
    context_estimated: bool
    context_source: str
    model: str


# --- side agents, processes (methods_work.py) ------------------------------------------------------------------------


class PromptBackgroundParams(KeyedSessionParams):
    text: str


class PromptBackgroundResult(Result):
    task_id: str


class ProcessStopParams(KeyedParams):
    session_id: str | None = None


class ProcessStopResult(Result):
    killed: int


class ProcessEntry(Result):
    session_id: str
    command: str
    cwd: str
    pid: int | None
    started_at: str
    uptime_seconds: int
    status: str
    output_preview: str
    session_scoped: bool
    notify_on_complete: bool
    exit_code: int | None
    exited_at: float | None


class ProcessListResult(Result):
    processes: list[ProcessEntry]


class ProcessKillParams(KeyedSessionParams):
    process_id: str


class ProcessKillResult(OpenResult):
    status: Literal["killed", "already_exited", "not_found", "error"]


class AgentProcessRow(Result):
    session_id: str
    command: str
    status: str
    uptime: int


class AgentsListResult(Result):
    processes: list[AgentProcessRow]


class SubagentRow(Result):
    subagent_id: str
    parent_id: str | None
    depth: int
    goal: str
    delegation_id: str
    model: str
    started_at: float | None
    status: str
    tool_count: int
    last_tool: str | None = None
    accepting_steer: bool | None = None
    owner_agent_session_id: str | None = None


class DelegationStatusResult(Result):
    active: list[SubagentRow]
    paused: bool
    max_spawn_depth: int
    max_concurrent_children: int


class DelegationPauseParams(KeyedParams):
    paused: bool = True


class DelegationPauseResult(Result):
    paused: bool


class SubagentListResult(Result):
    subagents: list[SubagentRow]
    delegations: list[dict[str, Json]]


class SubagentInterruptParams(KeyedParams):
    subagent_id: str
    session_id: str | None = None
    reason: Reason = None


class SubagentInterruptResult(Result):
    found: bool
    subagent_id: str


class SubagentSteerParams(KeyedParams):
    text: str
    session_id: str
    subagent_id: str


class SubagentSteerResult(Result):
    status: Literal["queued", "rejected"]
    subagent_id: str
    text: str


class SubagentTailParams(SessionParams):
    subagent_id: str


class SubagentTailResult(Result):
    subagent_id: str
    available: bool
    text: str
    truncated: bool


class SpawnTreeSaveParams(KeyedParams):
    subagents: list[dict[str, Json]]
    session_id: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    label: str | None = None


class SpawnTreeSaveResult(Result):
    path: str
    session_id: str


class SpawnTreeListParams(GatewayParams):
    session_id: str | None = None
    cross_session: bool = False
    limit: int = Field(50, ge=1, le=1000)


class SpawnTreeListResult(Result):
    entries: list[dict[str, Json]]


class SpawnTreeLoadParams(GatewayParams):
    path: str


class SpawnTreeLoadResult(OpenResult):
    subagents: list[dict[str, Json]]


# --- attachments (methods_attach.py) ---------------------------------------------------------------------------------


class PathParams(KeyedSessionParams):
    path: str


class ImageAttachBytesParams(KeyedSessionParams):
    content_base64: str | None = None
    data: str | None = None
    filename: str | None = None
    ext: str | None = None


class ImageAttachResult(Result):
    model_config = ConfigDict(extra="ignore")

    attached: bool
    path: str | None = None
    count: int | None = None
    remainder: str | None = None
    text: str | None = None
    name: str | None = None
    width: int | None = None
    height: int | None = None
    token_estimate: int | None = None
    bytes: int | None = None
    message: str | None = None


class ImageDetachResult(Result):
    detached: bool
    count: int


class FileAttachParams(KeyedSessionParams):
    path: str | None = None
    data_url: str | None = None
    name: str | None = None


class FileAttachResult(Result):
    attached: bool
    name: str
    path: str
    ref_path: str
    ref_text: str
    uploaded: bool


class InputDetectDropParams(KeyedSessionParams):
    text: str = ""


class InputDetectDropResult(Result):
    matched: bool
    is_image: bool | None = None
    path: str | None = None
    count: int | None = None
    text: str | None = None
    name: str | None = None
    width: int | None = None
    height: int | None = None
    token_estimate: int | None = None


class PasteCollapseParams(KeyedParams):
    text: str


class PasteCollapseResult(Result):
    placeholder: str
    path: str
    lines: int
