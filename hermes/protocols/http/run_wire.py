"""Runs on the wire: events, terminal event and status object (api-server §4.4, §4.5, §4.9). Pure translation.

The three flags ``completed``, ``partial`` and ``interrupted`` and the cause are on every terminal event and status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hermes.events import (
    ClientRequestClosed,
    ClientRequestOpened,
    InterimText,
    ReasoningAvailable,
    SessionEvent,
    SteerAccepted,
    SubagentProgress,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from hermes.messages import Answered, Question, TimedOut
from hermes.nurseries.client_requests import ClientRequest
from hermes.nurseries.run import Run, RunWire
from hermes.outcomes import RunStatus, TurnRecord, Usage
from hermes.protocols.wire.json_codec import encode

PREVIEW_CHARS: Final = 5 * 100
SUBAGENT_EVENTS: Final = frozenset({"start", "complete"})
SUBAGENT_KEYS: Final = (
    *("preview", "goal", "task_count", "task_index", "subagent_id", "child_session_id", "delegation_id", "parent_id"),
    *("depth", "model", "tool_count", "status", "summary", "duration_seconds", "input_tokens", "output_tokens"),
    *("reasoning_tokens", "api_calls", "cost_usd", "files_read", "files_written", "output_tail", "cause"),
)
CHOICE_WORDS: Final = {"approve": "once", "approved": "once", "allow": "once"}

Redact = Callable[[str], str]


def is_hidden_tool(name: str) -> bool:
    return name.startswith("_")


def preview(text: str, redact: Redact) -> str:
    """Secrets are removed first, then it is cut."""
    return redact(text)[:PREVIEW_CHARS]


def run_event(event: SessionEvent, redact: Redact, *, interim: bool = True) -> tuple[str, dict[str, Any]] | None:
    """The run event for a domain event, or None for what runs do not show."""
    match event:
        case TextDelta(text=text):
            return "message.delta", {"delta": text}
        case InterimText(text=text, already_streamed=streamed) if interim:
            return "message.interim", {"text": text, "already_streamed": streamed}
        case ReasoningAvailable(text=text):
            return "reasoning.available", {"text": preview(text, redact)}
        case ToolStarted(name=name) if not is_hidden_tool(name):
            members = {"tool": name, "preview": preview(event.context, redact), "tool_call_id": event.call_id}
            return "tool.started", {**members, "node_id": event.node_id}
        case ToolEnded(name=name, result=result) if not is_hidden_tool(name):
            return "tool.completed", {
                "tool": name,
                "duration": round(event.duration_s, 3),
                "error": result.is_error,
                "preview": preview(result.summary or result.content, redact),
                "tool_call_id": event.call_id,
                "status": result.status,
            }
        case SubagentProgress(kind=kind, payload=payload) if kind in SUBAGENT_EVENTS:
            return f"subagent.{kind}", {key: _redacted(payload[key], redact) for key in SUBAGENT_KEYS if key in payload}
        case SteerAccepted():
            return "run.steered", {"accepted": True}
        case ClientRequestOpened(question=question):
            return _opened(event.request_id, event.approval_id, question)
        case ClientRequestClosed():
            return _closed(event)
        case _:
            return None


def finished_tool(event: ToolEnded, redact: Redact) -> dict[str, Any]:
    """A call that has ended, as the status of a run without a whole answer shows it."""
    return {
        "tool": event.name,
        "tool_call_id": event.call_id,
        "status": event.result.status,
        "error": event.result.is_error,
        "result": preview(event.result.content, redact),
    }


def _redacted(value: Any, redact: Redact) -> Any:
    return redact(value) if isinstance(value, str) else value


def _opened(request_id: str, approval_id: str | None, question: Question) -> tuple[str, dict[str, Any]] | None:
    if question.method == "approval":
        return "approval.request", approval_request(question, approval_id or request_id)
    if question.method == "clarify":
        return "clarify.request", {**question.params, "request_id": request_id}
    return None


def _closed(event: ClientRequestClosed) -> tuple[str, dict[str, Any]] | None:
    if event.method not in ("approval", "clarify"):
        return None
    request_id = event.approval_id or event.request_id
    match event.answer:
        case Answered(value=value) if event.method == "approval":
            return "approval.responded", {"choice": value.get("choice"), "request_id": request_id, "resolved": 1}
        case Answered():
            return "clarify.responded", {"request_id": request_id, "resolved": 1}
        case TimedOut():
            outcome = "timed_out"
        case _:
            outcome = "withdrawn"
    # Nobody answered: no answer is not consent.
    members: dict[str, Any] = {"request_id": request_id, "resolved": 0, "outcome": outcome}
    if event.method == "approval":
        members["choice"] = "deny"
    return f"{event.method}.responded", members


def approval_request(question: Question, request_id: str) -> dict[str, Any]:
    """The payload of ``approval.request`` (api-server §4.7.1)."""
    params = dict(question.params)
    if not params.get("smart_denied"):
        params.pop("smart_denied", None)
    return {**params, "request_id": request_id, "choices": list(question.choices)}


def approval_of(request: ClientRequest) -> dict[str, Any]:
    return approval_request(request.question, request.approval_id or request.request_id)


# --- the end ---------------------------------------------------------------------------------------------------------


def usage_members(usage: Usage) -> dict[str, int]:
    """``input_tokens`` is the whole prompt, as everywhere on HTTP; the cache's share is named beside it."""
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


def flags(record: TurnRecord) -> dict[str, Any]:
    """The truth about a turn's end, the same on every HTTP surface."""
    members: dict[str, Any] = {
        "completed": record.completed,
        "partial": record.partial,
        "interrupted": record.interrupted,
        "failed": record.failed,
    }
    if not record.completed:
        members["turn_exit_reason"] = record.exit_reason
    if record.interrupted:
        members["cause"] = record.cause.value if record.cause is not None else None
        members["reason"] = record.reason_text
    if record.error is not None:
        members["error"] = record.error
    elif record.run_status is RunStatus.INTERRUPTED:
        members["error"] = "the server ended while the run was active"
    if record.pending_steer:
        members["pending_steer"] = record.pending_steer
    return members


def runtime_of(run: Run, record: TurnRecord) -> dict[str, Any]:
    """The pair that really served the turn, and who chose it."""
    runtime: dict[str, Any] = {
        "provider": record.provider,
        "model": record.served_model or record.model,
        "route_source": run.facts.get("route_source", "global"),
    }
    if "requested" in run.facts:
        runtime["requested"] = run.facts["requested"]
    if "model_lock" in run.facts:
        runtime["model_lock"] = run.facts["model_lock"]
    return runtime


def terminal_event(run: Run, record: TurnRecord) -> tuple[str, dict[str, Any]]:
    return f"run.{record.run_status.value}", ending_members(run, record)


def ending_members(run: Run, record: TurnRecord) -> dict[str, Any]:
    """What the terminal event and the terminal status say alike."""
    members = flags(record)
    if record.text:
        members["output"] = record.text
    if record.usage.calls or record.usage.total_tokens:
        # What nobody has counted is left out: a false zero would read as a free turn.
        members["usage"] = usage_members(record.usage)
    if record.provider or record.model:
        members["runtime"] = runtime_of(run, record)
    if record.warning:
        members["warning"] = record.warning
    return members


def run_status(run: Run) -> dict[str, Any]:
    """The status object (api-server §4.4)."""
    record = run.record
    status: dict[str, Any] = {
        "object": "hermes.run",
        "run_id": run.run_id,
        "status": run.status.value,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "session_id": run.session.key,
        "model": run.facts.get("model", ""),
    }
    if run.last_event is not None:
        status["last_event"] = run.last_event
    if run.turn is not None:
        status["turn_id"] = run.turn.turn_id
        status["node_id"] = run.turn.scope.node_id
    if run.shutdown_requested_at is not None:
        status["shutdown_requested_at"] = run.shutdown_requested_at
    if record is not None:
        status.update(ending_members(run, record))
        if run.tools and not record.completed:
            # Without a whole answer this is what the run has done.
            status["tools"] = list(run.tools)
        return status
    approvals = run.open_questions("approval")
    if approvals:
        status["approval"] = approval_of(approvals[0])
    clarifications = run.open_questions("clarify")
    if clarifications:
        status["clarify"] = {**clarifications[0].params(), "request_id": clarifications[0].request_id}
    return status


def run_wire(redact: Redact, interim: Callable[[], bool]) -> RunWire:
    """How this surface puts runs into words."""
    return RunWire(
        event=lambda event: run_event(event, redact, interim=interim()),
        terminal=terminal_event,
        tool=lambda event: finished_tool(event, redact),
        status=run_status,
        encode=encode,
    )
