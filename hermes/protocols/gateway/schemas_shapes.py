"""Shapes that results and events share: what a session has used, its facts, its messages (gateway §10.5)."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from hermes.protocols.gateway.result_rows import TodoItem
from hermes.protocols.rpc.method_table import Result

Json = Any


class OpenShape(Result):
    """May carry more than what is declared."""

    model_config = ConfigDict(extra="allow")


class Usage(OpenShape):
    """Everything is 0 before the first call; what is not known is left out (§3.9)."""

    model: str | None = None
    input: int
    output: int
    reasoning: int
    prompt: int
    completion: int
    total: int
    calls: int
    compressions: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_hit_pct: int | None = None
    context_used: int | None = None
    context_max: int | None = None
    context_percent: int | None = None
    context_source: str | None = None
    context_estimated: bool | None = None
    active_subagents: int | None = None
    cost_usd: float | None = None
    cost_status: str | None = None


class McpServerStatus(OpenShape):
    name: str
    status: str
    tool_count: int | None = None
    error: str | None = None
    notice: str | None = None


class SessionLiveInfo(OpenShape):
    """The facts of a session (§6.4). ``version`` is there when the agent is ready."""

    model: str
    tools: dict[str, list[str]]
    skills: dict[str, list[str]]
    cwd: str
    branch: str | None = None
    project: dict[str, Json] | None = None
    desktop_contract: int
    profile_name: str
    provider: str | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    fast: bool | None = None
    yolo: bool | None = None
    approval_mode: str | None = None
    terminal_backend: str | None = None
    personality: str | None = None
    running: bool | None = None
    turn_started_at: float | None = None
    title: str | None = None
    stored_session_id: str | None = None
    version: str | None = None
    usage: Usage | None = None
    mcp_servers: list[McpServerStatus] | None = None
    credential_warning: str | None = None
    lazy: bool | None = None


class TranscriptMessage(OpenShape):
    """One message of the visible conversation (§3.10); tool rows have no ``row_id``."""

    role: str
    text: str | None = None
    content: Json = None
    timestamp: float | None = None
    row_id: int | None = None
    reasoning: str | None = None
    compacted: bool | None = None
    """A compression has replaced it by a summary: it is shown, and no rewind can name it."""
    display_kind: str | None = None
    display_metadata: dict[str, Json] | None = None
    name: str | None = None
    context: str | None = None
    tool_call_id: str | None = None
    args: dict[str, Json] | None = None


class InflightTurn(OpenShape):
    """The running turn so far, or the failed one until the next begins (§4.9)."""

    user: str
    content: list[dict[str, Json]] | None = None
    """The prompt in parts, when it came with pictures: as in the messages, where it stands once the turn is over."""
    assistant: str
    streaming: bool
    corrections: list[str] | None = None
    correction_offsets: list[int] | None = None
    error: str | None = None
    status: str | None = None
    recoverable: bool | None = None
    error_surface: dict[str, Json] | None = None
    display_kind: str | None = None
    display_metadata: dict[str, Json] | None = None


class QueuedPrompt(Result):
    user: str


class TodoState(Result):
    todos: list[TodoItem]
    revision: int


class PendingApproval(OpenShape):
    """The oldest open approval, as a host shows it."""

    request_id: str | None = None
    command: str | None = None
    description: str | None = None
    choices: list[str] | None = None
