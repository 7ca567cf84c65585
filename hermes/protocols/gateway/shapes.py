"""Wire shapes shared by methods and events: usage, session facts, messages, snapshots. Pure (gateway §3, §6.4).

Each function takes what the core knows and gives a JSON object; nothing here looks anything up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hermes import __version__
from hermes.agent.history import is_shown, is_visible
from hermes.agent.redaction import redact
from hermes.agent.tool_display import tool_preview
from hermes.events import SessionInfo
from hermes.messages import ImagePart, Row, TextPart, ToolCall
from hermes.nurseries.session import Session
from hermes.outcomes import Usage

DESKTOP_CONTRACT: Final = 8
PROMPT_SOURCE: Final = "gateway"
"""``Prompt.source`` of what a gateway client submits itself."""
PREVIEW_CHARS: Final = 160
CONTEXT_CHARS: Final = 80
FILE_TOOLS: Final = frozenset({"write_file", "patch", "skill_manage"})


def usage_wire(
    usage: Usage, *, model: str = "", context_used: int | None = None, context_max: int | None = None
) -> dict[str, Any]:
    """``Usage`` of §3.9: everything 0 before the first call, optional keys only where something is known."""
    shape: dict[str, Any] = {"model": model} if model else {}
    shape |= {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
        "prompt": usage.prompt_tokens,
        "completion": usage.output_tokens,
        "total": usage.total_tokens,
        "calls": usage.calls,
    }
    if usage.cache_read_tokens:
        shape["cache_read"] = usage.cache_read_tokens
        shape["cache_hit_pct"] = round(100 * usage.cache_read_tokens / max(usage.prompt_tokens, 1))
    if usage.cache_write_tokens:
        shape["cache_write"] = usage.cache_write_tokens
    if usage.cost_usd is not None:
        shape["cost_usd"] = round(usage.cost_usd, 6)
        shape["cost_status"] = "estimated" if usage.estimated else "known"
    if context_used:
        shape["context_used"] = context_used
        if context_max:
            shape["context_max"] = context_max
            shape["context_percent"] = min(100, round(100 * context_used / context_max))
            shape["context_source"] = "provider"
            shape["context_estimated"] = usage.estimated
    return shape


def live_info(info: SessionInfo) -> dict[str, Any]:
    """``SessionLiveInfo`` of §6.4. ``version`` is what hosts take as "the agent is ready"."""
    shape: dict[str, Any] = {
        "model": info.model,
        "provider": info.provider,
        "tools": {name: list(tools) for name, tools in info.tools.items()},
        "skills": {name: list(skills) for name, skills in info.skills.items()},
        "cwd": info.cwd,
        "branch": info.branch,
        "project": None,
        "yolo": info.yolo,
        "approval_mode": info.approval_mode,
        "terminal_backend": "local",
        "running": info.running,
        "turn_started_at": info.turn_started_at,
        "stored_session_id": info.session_key,
        "desktop_contract": DESKTOP_CONTRACT,
        "profile_name": "default",
        "mcp_servers": [dict(server) for server in info.mcp_servers],
        "usage": usage_wire(info.usage, model=info.model, context_used=info.context_used, context_max=info.context_max),
    }
    for name, value in (
        ("title", info.title),
        ("reasoning_effort", info.reasoning_effort),
        ("service_tier", info.service_tier),
        ("fast", None if info.service_tier is None else info.service_tier == "fast"),
        ("personality", info.personality),
        ("credential_warning", info.credential_warning),
    ):
        if value is not None:
            shape[name] = value
    if info.lazy:
        shape["lazy"] = True
    else:
        shape["version"] = __version__
    return shape


# --- messages (§3.10) ------------------------------------------------------------------------------------------------


def messages_wire(rows: Iterable[Row], *, inline_images: bool = True) -> list[dict[str, Any]]:
    """The visible conversation, tool results with the arguments of their calls."""
    calls: dict[str, ToolCall] = {}
    shown: list[dict[str, Any]] = []
    for row in rows:
        for call in row.tool_calls:
            calls[call.id] = call
        if is_shown(row):
            shown.append(_message(row, calls, inline_images))
    return shown


def _message(row: Row, calls: Mapping[str, ToolCall], inline_images: bool) -> dict[str, Any]:
    if row.role == "tool":
        return _tool_message(row, calls)
    message: dict[str, Any] = {"role": row.role, "text": row.text}
    if isinstance(row.content, tuple):
        message["content"] = [_part(part, inline_images) for part in row.content]
    if row.timestamp:
        message["timestamp"] = row.timestamp
    if row.row_id is not None:
        message["row_id"] = row.row_id
    if row.reasoning:
        message["reasoning"] = row.reasoning
    if row.display_kind is not None:
        message["display_kind"] = row.display_kind
    if row.display_metadata and (row.role == "user" or row.display_metadata.get("interrupted")):
        # Of a stopped turn: by whom and why.
        message["display_metadata"] = dict(row.display_metadata)
    if row.compacted:
        message["compacted"] = True
    return message


def _tool_message(row: Row, calls: Mapping[str, ToolCall]) -> dict[str, Any]:
    name = row.tool_name or ""
    call = calls.get(row.tool_call_id or "")
    args = arguments_of(call)
    message: dict[str, Any] = {
        "role": "tool",
        "name": name,
        "context": tool_preview(name, args)[:CONTEXT_CHARS],
        "tool_call_id": row.tool_call_id,
        "args": {key: redact(value) if isinstance(value, str) else value for key, value in args.items()},
    }
    if name in FILE_TOOLS:
        message["content"] = row.text
    if row.compacted:
        message["compacted"] = True
    return message


def arguments_of(call: ToolCall | None) -> dict[str, Any]:
    """The arguments of a stored call; what is no JSON object counts as none."""
    try:
        value = json.loads(call.arguments) if call is not None else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _part(part: TextPart | ImagePart, inline_images: bool) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if not inline_images:
        return {"type": "text", "text": "[image]"}
    url = part.url or f"data:{part.mime_type};base64,{part.data or ''}"
    return {"type": "image_url", "image_url": {"url": url}}


# --- snapshots (§3.6) ------------------------------------------------------------------------------------------------


def snapshot(session: Session, rows: Iterable[Row] | None, *, inline_images: bool = True) -> dict[str, Any]:
    """Everything a client needs to draw a live session, as it is at this very moment.

    ``rows``: the settled transcript, or None to leave the messages out. What the running turn has said is in
    ``inflight``, never in both (§3.10).
    """
    messages = [] if rows is None else messages_wire(rows, inline_images=inline_images)
    turn = session.slot.turn
    shape: dict[str, Any] = {
        "session_id": session.runtime_id,
        "session_key": session.key,
        "stored_session_id": session.key,
        "info": live_info(session.info()),
        "message_count": len(session.rows),
        "messages": messages,
        "messages_omitted": rows is None,
        "running": turn is not None,
        "turn_started_at": turn.started_at if turn is not None else None,
        "status": live_status(session),
        "started_at": session.created_at,
        "inflight": inflight(session, inline_images=inline_images),
        "open_requests": open_requests(session),
    }
    queued = session.slot.queued
    if queued:
        shape["queued"] = {"user": queued[0].prompt.text}
    approvals = session.requests.open_requests(method="approval")
    if approvals:
        shape["pending_approval"] = {"request_id": approvals[0].approval_id, **approvals[0].params()}
    if session.memory.todo_revision or session.memory.todos:
        shape["todo_state"] = {"todos": list(session.memory.todos), "revision": session.memory.todo_revision}
    return shape


def inflight(session: Session, *, inline_images: bool = True) -> dict[str, Any] | None:
    """The running or the retained failed turn (§4.9). The origin is told only of turns that the server started.

    The prompt of a running turn is in no ``messages`` yet, so its pictures are here, in parts as they are there.
    """
    shape = session.inflight()
    turn = session.slot.turn
    if shape is None or turn is None:
        return shape
    if turn.prompt.source == PROMPT_SOURCE:
        shape.pop("display_kind", None)
        shape.pop("display_metadata", None)
    if isinstance(turn.prompt.content, tuple):
        shape["content"] = [_part(part, inline_images) for part in turn.prompt.content]
    return shape


def live_status(session: Session) -> str:
    """``streaming`` while an answer is being written, else as the session says (§3.5)."""
    status = session.status
    return "streaming" if status == "working" and session.slot.turn is not None else status


def open_requests(session: Session) -> list[dict[str, Any]]:
    """Unanswered questions in issue order (§7.5)."""
    return [
        {**entry, "params": {"session_id": session.runtime_id, **entry["params"]}}
        for entry in session.requests.entries()
    ]


def preview(session: Session) -> str:
    """The prompt in flight, or the last text (§3.5)."""
    turn = session.slot.turn
    if turn is not None and turn.prompt.text:
        return _line(turn.prompt.text)
    for row in reversed(session.rows):
        if row.role in ("user", "assistant") and is_visible(row) and row.text.strip():
            return _line(row.text)
    return ""


def _line(text: str) -> str:
    return " ".join(text.split())[:PREVIEW_CHARS]
