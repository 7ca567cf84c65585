"""Every event of the gateway with its payload (gateway §6, §10.3, §10.4): the contract that tests hold each frame to.

The frames themselves are built in ``events.py`` and ``client_requests.py``, as plain JSON; nothing is validated on the
way out.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from hermes.protocols.gateway.result_rows import TodoItem, TreeNode
from hermes.protocols.gateway.schemas_shapes import OpenShape, SessionLiveInfo, Usage
from hermes.protocols.rpc.method_table import Result
from hermes.records import dataclass

Json = Any


class Payload(Result):
    model_config = ConfigDict(extra="forbid")


class EmptyPayload(Payload):
    pass


class GatewayReady(Payload):
    skin: dict[str, Json]
    change_events: bool
    replay_epoch: str
    heartbeat: bool | None = None


class TextPayload(Payload):
    text: str


class MessageInterim(Payload):
    text: str
    already_streamed: bool


class PersistedTurn(Payload):
    row_ids: list[int]
    complete: bool
    user_row_id: int | None = None
    final_assistant_row_id: int | None = None


class ErrorSurface(Payload):
    layer: str
    code: str
    retryable: bool
    provider: str | None = None
    model: str | None = None
    resets_at: Json = None


class MessageComplete(Payload):
    text: str | None
    status: Literal["complete", "error", "interrupted"]
    usage: Usage
    turn_exit_reason: str
    persisted_turn: PersistedTurn
    cause: str | None = None
    reason: str | None = None
    pending_steer: str | None = None
    partial: bool | None = None
    reasoning: str | None = None
    warning: str | None = None
    response_previewed: bool | None = None
    error: str | None = None
    recoverable: bool | None = None
    failure_reason: str | None = None
    error_surface: ErrorSurface | None = None


class ErrorPayload(Payload):
    message: str
    code: str | None = None


class ToolGenerating(Payload):
    name: str


class ToolStart(Payload):
    tool_id: str
    name: str
    context: str
    args: dict[str, Json]
    node_id: str | None = None
    args_text: str | None = None


class MessageSteer(Payload):
    text: str
    status: Literal["accepted", "delivered", "redirected"]
    tool_id: str | None = None


class ToolProgress(Payload):
    tool_id: str
    name: str
    preview: str


class ToolComplete(Payload):
    tool_id: str
    name: str
    args: dict[str, Json]
    duration_s: float
    result: Json
    summary: str | None = None
    error: str | None = None
    inline_diff: str | None = None
    result_text: str | None = None
    todos: list[Json] | None = None
    revision: int | None = None


class ToolOutputRisk(Payload):
    tool_id: str
    name: str
    risk: str
    findings: list[str]
    redacted: bool


class TodoUpdated(Payload):
    todos: list[TodoItem]
    revision: int


class SubagentOutput(Payload):
    tool: str
    preview: str
    is_error: bool


class SubagentPayload(OpenShape):
    goal: str
    task_count: int
    task_index: int
    subagent_id: str | None = None
    parent_id: str | None = None
    child_session_id: str | None = None
    delegation_id: str | None = None
    depth: int | None = None
    model: str | None = None
    tool_count: int | None = None
    toolsets: list[str] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    api_calls: int | None = None
    files_read: list[str] | None = None
    files_written: list[str] | None = None
    output_tail: list[SubagentOutput] | None = None
    tool_name: str | None = None
    tool_preview: str | None = None
    text: str | None = None
    status: Literal["queued", "running", "completed", "failed", "error", "timeout", "interrupted"] | None = None
    summary: str | None = None
    duration_seconds: float | None = None
    cause: str | None = None
    """Of a child that was stopped: who stopped it; ``parent`` when it went with its parent."""


class AgentTerminalOutput(Payload):
    process_id: str
    chunk: str


class TerminalClose(Payload):
    process_id: str


class SideAnswer(Payload):
    task_id: str
    text: str
    question: str | None = None


class SessionTitled(Payload):
    """``session_id`` is the stored id."""

    session_id: str
    title: str


class SessionUsed(Payload):
    usage: Usage


class StatusUpdate(Payload):
    kind: str
    text: str


class ResumeProgress(Payload):
    phase: str
    status: Literal["loading", "complete", "failed"]
    message_count: int | None = None
    message: str | None = None


class NotificationShow(Payload):
    text: str
    level: str
    kind: str
    key: str | None = None
    ttl_ms: int | None = None


class NotificationClear(Payload):
    key: str


class RequestCancel(Payload):
    id: str
    method: str
    reason: Literal["timeout", "interrupted", "resolved", "session_closed", "shutdown"]


class TreeChanged(Payload):
    version: int
    tree: TreeNode


class BrowserCommand(Payload):
    command_id: str
    action: str
    arguments: dict[str, Json]
    controller_id: str | None = None
    browser_profile_id: str | None = None
    tool_call_id: str | None = None


class BrowserCancel(Payload):
    command_id: str
    tool_call_id: str | None = None


class SessionReclaimed(Payload):
    session_id: str
    stored_session_id: str
    reason: str


class ApprovalCancelled(Payload):
    session_id: str
    stored_session_id: str
    reason: str
    cancelled_count: int
    request_ids: list[str]


class ApprovalRequest(Payload):
    request_id: str | None
    command: str
    description: str
    pattern_key: str
    pattern_keys: list[str]
    allow_permanent: bool
    choices: list[str]
    smart_denied: bool | None = None


class ClarifyRequest(Payload):
    request_id: str
    question: str
    choices: list[str] | None


class OlderRequest(Payload):
    request_id: str


class SecretRequest(Payload):
    request_id: str
    env_var: str
    prompt: str
    metadata: Json = None


class TerminalReadRequest(Payload):
    request_id: str
    start: int | None = None
    count: int | None = None


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventSpec:
    """One event. ``payload`` None: there is no such member. ``scope``: of a session, for everybody, or of the older
    dialect."""

    name: str
    payload: type[BaseModel] | None
    text: str
    scope: Literal["session", "everybody", "older"] = "session"


EVENTS: Final[tuple[EventSpec, ...]] = (
    EventSpec("gateway.ready", GatewayReady, "First frame of every connection.", "everybody"),
    EventSpec("message.start", None, "A turn begins; its prompt is stored."),
    EventSpec("message.delta", TextPayload, "Answer text; deltas can be joined."),
    EventSpec("reasoning.delta", TextPayload, "Reasoning as it comes."),
    EventSpec("reasoning.available", TextPayload, "The whole reasoning of one model call."),
    EventSpec("thinking.delta", TextPayload, "Status text while waiting; replaces the former one."),
    EventSpec("message.interim", MessageInterim, "Text that came before tool calls."),
    EventSpec("message.complete", MessageComplete, "The one end of a turn."),
    EventSpec("message.steer", MessageSteer, "Said to the running turn, by anybody; for clients that asked for it."),
    EventSpec("error", ErrorPayload, "A turn that never began, or a session that cannot be made ready."),
    EventSpec("tool.generating", ToolGenerating, "The model writes a call."),
    EventSpec("tool.start", ToolStart, "A call begins; node_id is for scope.cancel."),
    EventSpec("tool.progress", ToolProgress, "Newest output of a running call, for clients that asked for it."),
    EventSpec("tool.complete", ToolComplete, "The one end of a call."),
    EventSpec("tool.output_risk", ToolOutputRisk, "A result that looks like an injection."),
    EventSpec("todo.updated", TodoUpdated, "The whole to-do list."),
    EventSpec("subagent.spawn_requested", SubagentPayload, "A child agent is asked for."),
    EventSpec("subagent.start", SubagentPayload, "A child agent begins."),
    EventSpec("subagent.thinking", SubagentPayload, "A child agent waits for its model."),
    EventSpec("subagent.tool", SubagentPayload, "A child agent uses a tool."),
    EventSpec("subagent.progress", SubagentPayload, "News of a child agent."),
    EventSpec("subagent.complete", SubagentPayload, "The one end of a child agent."),
    EventSpec("agent.terminal.output", AgentTerminalOutput, "Output of a background process."),
    EventSpec("terminal.close", TerminalClose, "A background process has ended."),
    EventSpec("background.complete", SideAnswer, "Answer of a background prompt."),
    EventSpec("btw.complete", SideAnswer, "Answer of a side question."),
    EventSpec("session.info", SessionLiveInfo, "The facts of a session have changed."),
    EventSpec("session.title", SessionTitled, "A title was derived."),
    EventSpec("session.usage", SessionUsed, "What the session has used, while a turn runs."),
    EventSpec("session.resume_progress", ResumeProgress, "A deferred history."),
    EventSpec("status.update", StatusUpdate, "Retries, compression, fallbacks."),
    EventSpec("notification.show", NotificationShow, "A notice."),
    EventSpec("notification.clear", NotificationClear, "A notice is over."),
    EventSpec("request.cancel", RequestCancel, "A question is settled: clear the prompt with this id."),
    EventSpec("browser.controller.command", BrowserCommand, "The agent wants the registered browser to act."),
    EventSpec("browser.controller.cancel", BrowserCancel, "Nobody waits for that command any more."),
    EventSpec("tree.changed", TreeChanged, "The live tree, for its subscribers.", "everybody"),
    EventSpec("sessions.changed", EmptyPayload, "The list of stored sessions is different: refetch.", "everybody"),
    EventSpec("session.reclaimed", SessionReclaimed, "A session nobody watched was closed.", "everybody"),
    EventSpec("approval.cancelled", ApprovalCancelled, "Approvals were withdrawn.", "everybody"),
    EventSpec("skin.changed", OpenShape, "The skin is another one.", "everybody"),
    EventSpec("approval.request", ApprovalRequest, "Answered with approval.respond.", "older"),
    EventSpec("clarify.request", ClarifyRequest, "Answered with clarify.respond.", "older"),
    EventSpec("sudo.request", OlderRequest, "Answered with sudo.respond.", "older"),
    EventSpec("sudo.expire", OlderRequest, "Nobody waits for that password any more.", "older"),
    EventSpec("secret.request", SecretRequest, "Answered with secret.respond.", "older"),
    EventSpec("secret.expire", OlderRequest, "Nobody waits for that secret any more.", "older"),
    EventSpec("terminal.read.request", TerminalReadRequest, "Answered with terminal.read.respond.", "older"),
)
