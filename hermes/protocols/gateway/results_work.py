"""Results of history changes, side work, subagents, archives, attachments (gateway §3, §4.7, §9)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from hermes.protocols.gateway.result_rows import (
    CompressionSummary,
    ContextCategory,
    FailedDelegation,
    Row,
    SpawnTreeEntry,
)
from hermes.protocols.gateway.results import OpenResult
from hermes.protocols.gateway.schemas_shapes import SessionLiveInfo, TranscriptMessage, Usage
from hermes.protocols.rpc.method_table import Result

Json = Any


class SessionBranchResult(Result):
    session_id: str
    stored_session_id: str
    title: str
    parent: str
    message_count: int
    info: SessionLiveInfo
    messages: list[TranscriptMessage] | None = None
    messages_omitted: bool | None = None


class SessionUndoResult(Result):
    removed: int
    text: str
    survivor_user_row_ids: list[int | None]


class SessionUndoRewindResult(Result):
    message_count: int
    messages: list[TranscriptMessage]
    survivor_user_row_ids: list[int | None]


class SessionCompressResult(OpenResult):
    status: str | None = None
    removed: int | None = None
    before_messages: int | None = None
    after_messages: int | None = None
    before_tokens: int | None = None
    after_tokens: int | None = None
    summary: CompressionSummary | None = None
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


class SessionArchiveResult(Result):
    archived: bool
    session_key: str


class SessionSetHiddenResult(Result):
    hidden: bool
    session_key: str


class LiveInfoResult(SessionLiveInfo):
    pass


class SessionContextBreakdownResult(Result):
    categories: list[ContextCategory]
    context_max: int
    context_percent: int
    context_used: int
    estimated_total: int
    context_estimated: bool
    context_source: str
    model: str


class PromptBackgroundResult(Result):
    task_id: str


class ProcessStopResult(Result):
    killed: int


class ProcessEntry(Row):
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


class ProcessKillResult(OpenResult):
    status: Literal["killed", "already_exited", "not_found", "error"]


class AgentProcessRow(Row):
    session_id: str
    command: str
    status: str
    uptime: int


class AgentsListResult(Result):
    processes: list[AgentProcessRow]


class SubagentRow(Row):
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


class DelegationPauseResult(Result):
    paused: bool


class SubagentListResult(Result):
    subagents: list[SubagentRow]
    delegations: list[FailedDelegation]


class SubagentInterruptResult(Result):
    found: bool
    subagent_id: str


class SubagentSteerResult(Result):
    status: Literal["queued", "rejected"]
    subagent_id: str
    text: str


class SubagentTailResult(Result):
    subagent_id: str
    available: bool
    text: str
    truncated: bool


class SpawnTreeSaveResult(Result):
    path: str
    session_id: str


class SpawnTreeListResult(Result):
    entries: list[SpawnTreeEntry]


class SpawnTreeLoadResult(OpenResult):
    subagents: list[dict[str, Json]]


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


class FileAttachResult(Result):
    attached: bool
    name: str
    path: str
    ref_path: str
    ref_text: str
    uploaded: bool


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


class PasteCollapseResult(Result):
    placeholder: str
    path: str
    lines: int
