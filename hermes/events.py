"""Every domain event, one frozen dataclass each, and their unions.

``SessionEvent`` is what one session's log carries, in order; ``ServerEvent`` is what the server's own log carries for
everybody. An event says what happened, in the past tense, and holds everything a surface needs to translate it: nothing
is looked up later, so a replay gives the same bytes as the live stream. Events of one turn carry its ``turn_id``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from hermes.messages import ClientAnswer, Question, Row, ToolResult
from hermes.outcomes import TurnRecord, Usage
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The facts of gateway §6.4 ``SessionLiveInfo``, as they were when the event happened."""

    session_key: str
    runtime_id: str
    model: str
    provider: str
    cwd: str
    title: str | None = None
    running: bool = False
    turn_started_at: float | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    approval_mode: str = "manual"
    yolo: bool = False
    mode: str = "default"
    personality: str | None = None
    branch: str | None = None
    tools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    skills: Mapping[str, Sequence[str]] = field(default_factory=dict)
    mcp_servers: Sequence[Mapping[str, Any]] = ()
    usage: Usage = Usage()
    context_used: int | None = None
    context_max: int | None = None
    message_count: int = 0
    source: str = "tui"
    credential_warning: str | None = None
    lazy: bool = False


# --- the text of a turn ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The turn runs: its user row is durable. First event of a turn."""

    turn_id: str
    user_text: str
    user_row_id: int | None
    source: str
    display_kind: str | None = None
    display_metadata: Mapping[str, Any] | None = None
    client_message_id: str | None = None
    prompt_row: Row | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Visible answer text. The first text after tools starts with a blank line, so that deltas can be joined."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingStatus:
    """Status-line text while waiting; replaces the former one, empty clears."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningAvailable:
    """The whole reasoning of one model call."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolGenerating:
    """The model has begun to write a call of this tool. ``repeats``: of the same tool as the one before."""

    turn_id: str
    name: str
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class InterimText:
    """Text that accompanied tool calls, after its row was stored. ``already_streamed``: it also went out as deltas."""

    turn_id: str
    text: str
    already_streamed: bool
    row_id: int | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call begins. ``context`` is a short human summary, ``args`` are redacted, ``repeats``: the call before was
    one of the same tool."""

    turn_id: str
    call_id: str
    name: str
    args: Mapping[str, Any]
    context: str
    node_id: str = ""
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """Output of a tool that still runs (the newest part, not all of it)."""

    turn_id: str
    call_id: str
    name: str
    preview: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """Exactly one per ``ToolStarted``; the result is durable."""

    turn_id: str
    call_id: str
    name: str
    args: Mapping[str, Any]
    result: ToolResult
    duration_s: float
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutputRisk:
    turn_id: str
    call_id: str
    name: str
    risk: str
    findings: Sequence[str]


@dataclass(frozen=True, slots=True)
class TodoUpdated:
    """The whole list: items are ``{id, content, status}``."""

    turn_id: str
    todos: Sequence[Mapping[str, Any]]
    revision: int


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """Retries, compression, fallbacks: shown as it is. ``kind`` as in gateway §6.4 ``status.update``."""

    turn_id: str | None
    kind: str
    text: str
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SteerAccepted:
    """A steer was taken by the running turn; the text is not in the HTTP event."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class SteerDelivered:
    """The model's next request contains the steer."""

    turn_id: str
    text: str
    row_id: int | None
    iteration: int
    tool_call_id: str | None = None
    """The call behind whose result it stands; None behind something else, such as a retried request."""


@dataclass(frozen=True, slots=True)
class RedirectApplied:
    """The model request was cancelled and asked again with the correction."""

    turn_id: str
    text: str
    partial_text: str
    row_id: int | None


@dataclass(frozen=True, slots=True)
class UsageUpdated:
    """``usage`` is what this turn has spent, ``session_usage`` the session's total with it, where known; ``soon``: less
    than a second after the one before that was not."""

    turn_id: str
    usage: Usage
    context_used: int | None = None
    context_max: int | None = None
    session_usage: Usage | None = None
    soon: bool = False


@dataclass(frozen=True, slots=True)
class TurnStopping:
    """Somebody asked the turn to stop and was the first; it has not ended yet."""

    turn_id: str
    cause: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The last event of a turn, exactly one per ``TurnStarted``."""

    turn_id: str
    record: TurnRecord


@dataclass(frozen=True, slots=True)
class TurnRefused:
    """A turn that was accepted but could not start (not stored, cancelled before it began, no provider).

    Stands instead of the whole block ``TurnStarted`` … ``TurnEnded``.
    """

    turn_id: str
    message: str
    code: str | None
    record: TurnRecord


# --- questions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientRequestOpened:
    """A question is open. ``request_id`` is ``srq-…``; ``approval_id`` the id inside the approval queue."""

    turn_id: str | None
    request_id: str
    question: Question
    approval_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClientRequestClosed:
    turn_id: str | None
    request_id: str
    method: str
    answer: ClientAnswer
    approval_id: str | None = None


# --- subagents, processes, side agents -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubagentProgress:
    """``kind``: spawn_requested, start, thinking, tool, progress, complete; ``payload`` as in gateway §6.3."""

    turn_id: str | None
    kind: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """Output of a background process."""

    process_id: str
    chunk: str


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    process_id: str
    exit_code: int | None
    command: str


@dataclass(frozen=True, slots=True)
class BackgroundEnded:
    """A ``prompt.background`` (``kind`` background) or ``prompt.btw`` (``kind`` btw) has its answer."""

    task_id: str
    kind: str
    text: str
    question: str | None = None


# --- the session itself ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionInfoChanged:
    info: SessionInfo


@dataclass(frozen=True, slots=True)
class SessionTitled:
    session_key: str
    title: str


@dataclass(frozen=True, slots=True)
class HistoryRewound:
    """Rows from the target on are archived; ``survivors`` are the ids of the surviving visible user rows."""

    removed_row_ids: Sequence[int]
    survivors: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class HistoryCompressed:
    before_messages: int
    after_messages: int
    before_tokens: int
    after_tokens: int


@dataclass(frozen=True, slots=True)
class HistoryLoading:
    """A client reads the transcript apart from the snapshot. ``status``: loading, complete or failed."""

    status: str
    message_count: int | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """``kind`` with ``key`` None is a one-time notice; with a key it can be replaced or cleared (text None)."""

    text: str | None
    level: str = "info"
    kind: str = "notice"
    key: str | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CommandsChanged:
    """The list of slash commands (skills, quick commands) may be different now."""


@dataclass(frozen=True, slots=True)
class BrowserAsked:
    """A host's browser is asked to act, or to leave it (``kind``: command or cancel). ``asked`` names the connection
    that it goes to; the controller may have come back on another one."""

    kind: str
    payload: Mapping[str, Any]
    controller_id: str
    asked: str


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session could not be made ready (no credentials …); the next submit tries again."""

    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The last event of a log."""

    reason: str


SessionEvent = (
    TurnStarted
    | TextDelta
    | ReasoningDelta
    | ThinkingStatus
    | ReasoningAvailable
    | ToolGenerating
    | InterimText
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | ToolOutputRisk
    | TodoUpdated
    | StatusUpdate
    | SteerAccepted
    | SteerDelivered
    | RedirectApplied
    | UsageUpdated
    | TurnStopping
    | TurnEnded
    | TurnRefused
    | ClientRequestOpened
    | ClientRequestClosed
    | SubagentProgress
    | ProcessOutput
    | ProcessEnded
    | BackgroundEnded
    | SessionInfoChanged
    | SessionTitled
    | HistoryRewound
    | HistoryCompressed
    | HistoryLoading
    | Notice
    | CommandsChanged
    | BrowserAsked
    | SessionFailed
    | SessionClosed
)


# --- for everybody ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionsChanged:
    """The list of stored sessions is different; refetch."""


@dataclass(frozen=True, slots=True)
class SessionReclaimed:
    runtime_id: str
    session_key: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalsCancelled:
    runtime_id: str
    session_key: str
    reason: str
    request_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class SkinChanged:
    skin: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServerDraining:
    """The server has begun to stop: no new prompts."""


ServerEvent = SessionsChanged | SessionReclaimed | ApprovalsCancelled | ConfigChanged | SkinChanged | ServerDraining


def event_cost(event: SessionEvent | ServerEvent) -> int:
    """A cheap upper estimate of an event's size in bytes, for the bounds of the replay window."""
    match event:
        case TextDelta(text=text) | ReasoningDelta(text=text):
            return 120 + len(text)
        case ToolStarted(args=args):
            return 500 + 2 * sum(len(value) if isinstance(value, str | list) else 8 for value in args.values())
        case ToolEnded(result=result):
            return (
                600 + 2 * len(result.content) + sum(len(d.old_text or "") + len(d.new_text or "") for d in result.diffs)
            )
        case TurnStarted(user_text=text):
            return 400 + 2 * len(text)
        case InterimText(text=text) | ReasoningAvailable(text=text) | ToolProgress(preview=text):
            return 200 + len(text)
        case ProcessOutput(chunk=text):
            return 200 + len(text)
        case TurnEnded(record=record) | TurnRefused(record=record):
            return 1200 + len(record.text or "") + len(record.last_reasoning or "")
        case BrowserAsked(payload=payload):
            return 500 + len(str(payload))
        case _:
            return 500
