"""Domain events as gateway events (gateway §6): one pure function per kind, and the frames around them.

``translate`` is an exhaustive match, so the type checker lists what must decide when an event is added, including "this
surface does not show it". Questions are not here: they are requests (``client_requests.py``), except their withdrawal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hermes import events as ev
from hermes.agent.tool_display import inline_diff
from hermes.messages import Answered, ClientAnswer, TimedOut, Withdrawn
from hermes.outcomes import Cancelled, Completed, Failed, TurnRecord
from hermes.protocols.gateway.shapes import live_info, usage_wire
from hermes.protocols.wire.json_codec import encode
from hermes.records import dataclass

KEPT_TOOLS: Final = frozenset({"write_file", "patch", "clarify", "delegate_task"})
"""Shown even with ``display.tool_progress: off``."""

CANCEL_WORDS: Final = frozenset({"timeout", "interrupted", "resolved", "session_closed", "shutdown"})
ERROR_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Shown:
    """What the configuration lets hosts see."""

    reasoning: bool = True
    interim: bool = True
    tools: str = "all"
    diffs: bool = True


@dataclass(frozen=True, slots=True)
class WireEvent:
    """One gateway event; ``payload`` None means that there is no such member (``message.start``)."""

    type: str
    payload: Mapping[str, Any] | None = None


def translate(event: ev.SessionEvent, shown: Shown) -> WireEvent | None:
    """The gateway's form of a session event, or None if this surface does not show it."""
    match event:
        case ev.TurnStarted():
            return WireEvent("message.start")
        case ev.TextDelta(text=text):
            return WireEvent("message.delta", {"text": text})
        case ev.ReasoningDelta(text=text):
            return WireEvent("reasoning.delta", {"text": text}) if shown.reasoning else None
        case ev.ReasoningAvailable(text=text):
            return WireEvent("reasoning.available", {"text": text}) if shown.reasoning else None
        case ev.ThinkingStatus(text=text):
            return WireEvent("thinking.delta", {"text": text})
        case ev.InterimText():
            return interim(event, shown)
        case ev.ToolGenerating(name=name):
            return WireEvent("tool.generating", {"name": name}) if _tool_shown(event, shown) else None
        case ev.ToolStarted():
            return tool_start(event, shown)
        case ev.ToolEnded():
            return tool_complete(event, shown)
        case ev.ToolOutputRisk():
            return tool_output_risk(event)
        case ev.TodoUpdated(todos=todos, revision=revision):
            return WireEvent("todo.updated", {"todos": [dict(item) for item in todos], "revision": revision})
        case ev.TurnEnded(record=record):
            return WireEvent("message.complete", message_complete(record, shown))
        case ev.TurnRefused(message=message, code=code) | ev.SessionFailed(message=message, code=code):
            return error_event(message, code)
        case ev.UsageUpdated(soon=True):
            return None
        case ev.UsageUpdated():
            spent = event.session_usage or event.usage
            usage = usage_wire(spent, context_used=event.context_used, context_max=event.context_max)
            return WireEvent("session.usage", {"usage": usage})
        case ev.StatusUpdate(kind=kind, text=text):
            return WireEvent("status.update", {"kind": kind, "text": text})
        case ev.ClientRequestClosed():
            return request_cancel(event)
        case _:
            return _translate_side_event(event)


SideEvent = (
    ev.SubagentProgress
    | ev.ProcessOutput
    | ev.ProcessEnded
    | ev.BackgroundEnded
    | ev.SessionInfoChanged
    | ev.SessionTitled
    | ev.HistoryLoading
    | ev.Notice
    | ev.ToolProgress
    | ev.SteerAccepted
    | ev.SteerDelivered
    | ev.RedirectApplied
    | ev.TurnStopping
    | ev.HistoryRewound
    | ev.HistoryCompressed
    | ev.CommandsChanged
    | ev.BrowserAsked
    | ev.ClientRequestOpened
    | ev.SessionClosed
)


def _translate_side_event(event: SideEvent) -> WireEvent | None:
    """Subagents, processes, side agents and the session itself."""
    match event:
        case ev.SubagentProgress(kind=kind, payload=payload):
            return WireEvent(f"subagent.{kind}", dict(payload))
        case ev.ProcessOutput(process_id=process_id, chunk=chunk):
            return WireEvent("agent.terminal.output", {"process_id": process_id, "chunk": chunk})
        case ev.ProcessEnded(process_id=process_id):
            return WireEvent("terminal.close", {"process_id": process_id})
        case ev.BackgroundEnded():
            return background_complete(event)
        case ev.SessionInfoChanged(info=info):
            return WireEvent("session.info", live_info(info))
        case ev.SessionTitled(session_key=key, title=title):
            return WireEvent("session.title", {"session_id": key, "title": title})
        case ev.HistoryLoading(status=status, message_count=count):
            known = {} if count is None else {"message_count": count}
            return WireEvent("session.resume_progress", {"phase": "history", "status": status, **known})
        case ev.Notice():
            return notification(event)
        case ev.ToolProgress(call_id=call_id, name=name, preview=preview):
            # Only for clients that have asked for it (``client.capabilities``).
            return WireEvent("tool.progress", {"tool_id": call_id, "name": name, "preview": preview})
        case ev.SteerAccepted(text=text):
            # These three, too.
            return WireEvent("message.steer", {"text": text, "status": "accepted"})
        case ev.SteerDelivered(text=text, tool_call_id=call_id):
            behind = {} if call_id is None else {"tool_id": call_id}
            return WireEvent("message.steer", {"text": text, "status": "delivered"} | behind)
        case ev.BrowserAsked(kind=kind, payload=payload):
            # Only for the connection that controls that browser.
            return WireEvent(f"browser.controller.{kind}", dict(payload))
        case ev.RedirectApplied(text=text):
            return WireEvent("message.steer", {"text": text, "status": "redirected"})
        case (
            ev.TurnStopping()
            | ev.HistoryRewound()
            | ev.HistoryCompressed()
            | ev.CommandsChanged()
            | ev.ClientRequestOpened()
            | ev.SessionClosed()
        ):
            return None


def translate_server(event: ev.ServerEvent) -> WireEvent | None:
    """The gateway's form of an event for everybody (§6.6)."""
    match event:
        case ev.SessionsChanged():
            return WireEvent("sessions.changed", {})
        case ev.SessionReclaimed(runtime_id=runtime_id, session_key=key, reason=reason):
            return WireEvent(
                "session.reclaimed", {"session_id": runtime_id, "stored_session_id": key, "reason": reason}
            )
        case ev.ApprovalsCancelled(runtime_id=runtime_id, session_key=key, reason=reason, request_ids=ids):
            return WireEvent(
                "approval.cancelled",
                {
                    "session_id": runtime_id,
                    "stored_session_id": key,
                    "reason": reason,
                    "cancelled_count": len(ids),
                    "request_ids": list(ids),
                },
            )
        case ev.SkinChanged(skin=skin):
            return WireEvent("skin.changed", dict(skin))
        case ev.ConfigChanged() | ev.ServerDraining():
            return None


# --- one function per event that needs more than a line --------------------------------------------------------------


def interim(event: ev.InterimText, shown: Shown) -> WireEvent | None:
    if not shown.interim:
        return None
    return WireEvent("message.interim", {"text": event.text, "already_streamed": event.already_streamed})


def _tool_shown(
    event: ev.ToolGenerating | ev.ToolStarted | ev.ToolEnded, shown: Shown, *, failed: bool = False
) -> bool:
    """``display.tool_progress`` (§6.2): with ``new`` a tool is shown where another one was before it."""
    if failed or event.name in KEPT_TOOLS:
        return True
    return shown.tools != "off" and not (shown.tools == "new" and event.repeats)


def tool_start(event: ev.ToolStarted, shown: Shown) -> WireEvent | None:
    if not _tool_shown(event, shown):
        return None
    payload: dict[str, Any] = {
        "tool_id": event.call_id,
        "name": event.name,
        "context": event.context,
        "args": dict(event.args),
    }
    if event.node_id:
        payload["node_id"] = event.node_id
    if shown.tools == "verbose":
        payload["args_text"] = json.dumps(dict(event.args), ensure_ascii=False, indent=2, default=str)
    return WireEvent("tool.start", payload)


def tool_complete(event: ev.ToolEnded, shown: Shown) -> WireEvent | None:
    result = event.result
    if not _tool_shown(event, shown, failed=result.is_error):
        return None
    value = decoded(result.content)
    payload: dict[str, Any] = {
        "tool_id": event.call_id,
        "name": event.name,
        "args": dict(event.args),
        "duration_s": round(event.duration_s, 3),
        "result": value,
    }
    if result.summary:
        payload["summary"] = result.summary
    if result.is_error:
        payload["error"] = error_text(value, result.content, result.summary)
    if result.diffs and shown.diffs:
        payload["inline_diff"] = "".join(map(_coloured, inline_diff(result.diffs).split("\n")))
    if shown.tools == "verbose":
        payload["result_text"] = result.content
    details = result.details or {}
    if isinstance(details.get("todos"), (list, tuple)):
        payload["todos"] = list(details["todos"])
        payload["revision"] = details.get("revision", 0)
    return WireEvent("tool.complete", payload)


def decoded(content: str) -> Any:
    """A tool's result as the JSON value it is, or as text."""
    if content[:1] not in ("{", "["):
        return content
    try:
        return json.loads(content)
    except ValueError:
        return content


def error_text(value: Any, content: str, summary: str | None) -> str:
    """One line for people: what the tool calls its error, else its summary where the result is data."""
    if isinstance(value, str):
        return content[:ERROR_CHARS]
    found = value.get("error") if isinstance(value, dict) else None
    return str(found or summary or content[:ERROR_CHARS])


def _coloured(line: str) -> str:
    colour = {"+": "32", "-": "31", "@": "36"}.get(line[:1])
    return f"\x1b[{colour}m{line}\x1b[0m\n" if colour else f"{line}\n"


def tool_output_risk(event: ev.ToolOutputRisk) -> WireEvent:
    return WireEvent(
        "tool.output_risk",
        {
            "tool_id": event.call_id,
            "name": event.name,
            "risk": event.risk,
            "findings": list(event.findings),
            "redacted": False,
        },
    )


def error_event(message: str, code: str | None) -> WireEvent:
    return WireEvent("error", {"message": message} if code is None else {"message": message, "code": code})


def message_complete(record: TurnRecord, shown: Shown) -> dict[str, Any]:
    """The payload of ``message.complete`` (§6.1), with cause and reason of a stop (decisions, "one end")."""
    used = record.last_prompt_tokens or None
    payload: dict[str, Any] = {
        "text": record.text,
        "status": "complete",
        "usage": usage_wire(
            record.session_usage, model=record.model, context_used=used, context_max=record.context_length
        ),
        "turn_exit_reason": record.exit_reason,
        "persisted_turn": _persisted(record),
    }
    match record.outcome:
        case Completed():
            pass
        case Cancelled(reason=reason):
            payload.update(status="interrupted", cause=reason.cause.value, reason=reason.text)
        case Failed() as failed:
            payload.update(_failure(record, failed))
    if record.partial:
        payload["partial"] = True
    if record.pending_steer is not None:
        payload["pending_steer"] = record.pending_steer
    if record.last_reasoning and shown.reasoning:
        payload["reasoning"] = record.last_reasoning
    if record.warning:
        payload["warning"] = record.warning
    if record.response_previewed:
        payload["response_previewed"] = True
    return payload


def _persisted(record: TurnRecord) -> dict[str, Any]:
    persisted: dict[str, Any] = {"row_ids": list(record.row_ids), "complete": record.completed}
    if record.user_row_id is not None:
        persisted["user_row_id"] = record.user_row_id
    if record.final_row_id is not None:
        persisted["final_assistant_row_id"] = record.final_row_id
    return persisted


def _failure(record: TurnRecord, failed: Failed) -> dict[str, Any]:
    layer = "provider" if record.exit_reason.startswith("provider_error") else "turn"
    surface: dict[str, Any] = {"layer": layer, "code": failed.failure_reason, "retryable": failed.retryable}
    for name, value in (("provider", record.provider), ("model", record.model), ("resets_at", failed.resets_at)):
        if value:
            surface[name] = value
    return {
        "status": "error",
        "text": failed.text or failed.error,
        "error": failed.error,
        "recoverable": failed.retryable,
        "failure_reason": failed.failure_reason,
        "error_surface": surface,
    }


def request_cancel(event: ev.ClientRequestClosed) -> WireEvent:
    """A question is closed: hosts clear the prompt with this id (§7.8)."""
    return WireEvent(
        "request.cancel", {"id": event.request_id, "method": event.method, "reason": cancel_word(event.answer)}
    )


def cancel_word(answer: ClientAnswer) -> str:
    match answer:
        case TimedOut():
            return "timeout"
        case Withdrawn(reason=reason):
            return reason if reason in CANCEL_WORDS else "resolved"
        case Answered():
            return "resolved"
        case _:
            # Nobody can show it (declined, unsupported): withdrawn without a choice.
            return "session_closed"


def background_complete(event: ev.BackgroundEnded) -> WireEvent:
    payload: dict[str, Any] = {"task_id": event.task_id, "text": event.text}
    if event.question is not None:
        payload["question"] = event.question
    return WireEvent(f"{event.kind}.complete", payload)


def notification(event: ev.Notice) -> WireEvent | None:
    if event.text is None:
        return WireEvent("notification.clear", {"key": event.key or ""})
    payload: dict[str, Any] = {"text": event.text, "level": event.level, "kind": event.kind}
    if event.key is not None:
        payload["key"] = event.key
    if event.ttl_ms is not None:
        payload["ttl_ms"] = event.ttl_ms
    return WireEvent("notification.show", payload)


# --- frames ----------------------------------------------------------------------------------------------------------


def event_params(
    wire: WireEvent, session_id: str | None, seq: int | None = None, turn_id: str | None = None
) -> dict[str, Any]:
    """The ``params`` of an event frame (§1.4): what ``session.events.since`` gives back."""
    params: dict[str, Any] = {"type": wire.type}
    if session_id is not None:
        params["session_id"] = session_id
    if wire.payload is not None:
        params["payload"] = wire.payload
    if seq is not None:
        params["seq"] = seq
    if turn_id is not None:
        params["turn_id"] = turn_id
    return params


def event_frame(wire: WireEvent, session_id: str | None, seq: int | None = None, turn_id: str | None = None) -> bytes:
    return encode({"jsonrpc": "2.0", "method": "event", "params": event_params(wire, session_id, seq, turn_id)})


def turn_of(event: ev.SessionEvent) -> str | None:
    """The turn that this event belongs to, if it belongs to one."""
    turn_id: str | None = getattr(event, "turn_id", None)
    return turn_id
