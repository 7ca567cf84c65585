"""The bodies of requests and answers, as documentation: the OpenAPI document is made of these.

Handlers check what they read themselves, with the codes and the leniency that api-server §2 to §5 ask for (unknown
members are ignored, words stand for booleans); these models say the same to people and to code generators.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Open(BaseModel):
    """A body that may have members beyond the named ones."""

    model_config = ConfigDict(extra="allow")


class ErrorDetail(Open):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(BaseModel):
    """Every error of this server."""

    error: ErrorDetail


# --- turns -----------------------------------------------------------------------------------------------------------


class TurnChoices(Open):
    """Which model, for this turn only."""

    model: str | None = Field(
        None, description="An alias, provider:model, or a model id; the server's own id: default."
    )
    provider: str | None = Field(None, description="A provider's slug.")
    model_options: dict[str, Any] | None = Field(None, description="reasoning {enabled, effort}, service_tier, fast.")


class Limits(TurnChoices):
    """Deadlines and budgets of this turn and everything below it."""

    deadline_s: float | None = Field(None, gt=0, description="Seconds until the turn is cancelled.")
    max_iterations: int | None = Field(None, gt=0)
    max_tokens_total: int | None = Field(None, gt=0)
    max_cost_usd: float | None = Field(None, gt=0)


class ChatMessage(Open):
    role: str
    content: str | list[Any] | None = None


class ChatCompletionBody(Limits):
    """OpenAI's body; members that are not named here are accepted and ignored."""

    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool = False
    stream_options: dict[str, Any] | None = Field(None, description="include_usage.")
    hermes_events: bool | None = Field(None, description="false: no named frames in the stream.")


class ChatCompletionAnswer(Open):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]
    hermes: dict[str, Any] | None = Field(None, description="Only on a turn that did not complete: the truth about it.")


class ResponseBody(Limits):
    """OpenAI's body; members that are not named here are accepted and ignored."""

    input: str | list[Any]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    conversation_history: list[ChatMessage] | None = None
    store: bool = True
    stream: bool = False
    truncation: str | None = None
    metadata: dict[str, Any] | None = None


class ResponseAnswer(Open):
    id: str
    object: Literal["response"] = "response"
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
    created_at: int
    model: str
    output: list[dict[str, Any]]
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


class DeletedAnswer(BaseModel):
    id: str
    object: str
    deleted: bool


# --- runs ------------------------------------------------------------------------------------------------------------


class RunBody(Limits):
    """A run outlives its request; send an Idempotency-Key to retry safely."""

    input: str | list[Any]
    session_id: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_history: list[ChatMessage] | None = None
    author: dict[str, Any] | None = None
    clarify: bool = Field(False, description="The agent may ask; answer with POST …/clarify.")


class RunAccepted(BaseModel):
    run_id: str
    status: str
    replayed: bool
    session_id: str | None = None


class RunStatusAnswer(Open):
    object: Literal["hermes.run"] = "hermes.run"
    run_id: str
    status: Literal[
        "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled", "interrupted"
    ]
    created_at: float
    updated_at: float
    session_id: str
    model: str
    last_event: str | None = None
    approval: dict[str, Any] | None = None
    output: str | None = None
    usage: dict[str, int] | None = None
    completed: bool | None = None
    partial: bool | None = None
    interrupted: bool | None = None
    turn_exit_reason: str | None = None
    pending_steer: str | None = None
    cause: str | None = None
    reason: str | None = None
    error: str | None = None
    tools: list[dict[str, Any]] | None = None
    """The calls that had ended, when there is no whole answer."""


class ApprovalBody(Open):
    choice: Literal["once", "session", "always", "deny"]
    request_id: str | None = None
    all: bool = False


class ApprovalAnswer(Open):
    object: str
    run_id: str
    choice: str
    resolved: int


class ClarifyBody(Open):
    answers: dict[str, Any] = Field(description="Answer by question id.")
    request_id: str | None = None


class SteerBody(Open):
    text: str | list[Any]


class ReasonBody(Open):
    reason: str | None = Field(None, max_length=200, description="Your words; they stand in the terminal event.")


# --- sessions --------------------------------------------------------------------------------------------------------


class SessionBody(TurnChoices):
    id: str | None = None
    title: str | None = None
    source: str | None = None
    system_prompt: str | None = None
    require_model_lock: bool = False


class SessionPatch(BaseModel):
    title: str | None = None
    end_reason: str | None = None
    pinned: bool | None = None
    archived: bool | None = None
    hidden: bool | None = None
    unread: bool | None = None


class SessionAnswer(BaseModel):
    object: Literal["hermes.session"] = "hermes.session"
    session: dict[str, Any]


class ListAnswer(Open):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]


class ForkBody(Open):
    id: str | None = None
    title: str | None = None


class SessionChatBody(Limits):
    message: str | list[Any]
    system_message: str | None = None
    require_model_lock: bool = Field(False, description="This model or none: no fallback, no other one.")
    author: dict[str, Any] | None = None


class SessionChatAnswer(Open):
    object: str
    session_id: str
    run_id: str
    message: dict[str, Any]
    usage: dict[str, Any]
    runtime: dict[str, Any]
    completed: bool
    partial: bool
    interrupted: bool
    failed: bool


class ModelLockBody(TurnChoices):
    pass


# --- browser control -------------------------------------------------------------------------------------------------


class ControllerBody(Open):
    protocol_version: Literal[1]
    session_id: str
    controller_id: str
    browser_profile_id: str
    capabilities: list[str]


class TicketAnswer(BaseModel):
    protocol_version: int
    ticket: str
    ticket_expires_in_seconds: float
    ticket_expires_at: float
    ws_path: str
    scope: dict[str, Any]


class AnyObject(Open):
    """An object; its members are described in the reference."""
