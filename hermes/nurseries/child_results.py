"""What a child's end means: the result that the model reads, the payload of its events, the notice of a delegation.

Pure (agent-core §7.2, gateway §6.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hermes.agent.tool_arguments import fit
from hermes.errors import HermesError
from hermes.messages import Prompt, Row
from hermes.nurseries.children import Child
from hermes.nurseries.containment import Crash
from hermes.outcomes import Cancelled, CancelReason, Cause, Completed, Failed, TurnRecord

Spill = Callable[[str, str], str | None]

DEADLINES = frozenset({Cause.DEADLINE})
NOTICE_CHARS = 8_000
GOAL_CHARS = 1_000
UNKNOWN_FAILURE = "the child agent failed because of an error in the server; its log has the details"


def payload(child: Child, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The shared payload of ``subagent.*``; what is not known is left out."""
    shape: dict[str, Any] = {
        "goal": shown_goal(child.goal),
        "task_count": child.count,
        "task_index": child.index,
        "subagent_id": child.subagent_id,
        "parent_id": child.parent_id,
        "child_session_id": child.session_key,
        "delegation_id": child.delegation_id,
        "depth": child.depth,
        "model": child.model or None,
        "tool_count": child.tool_count,
        "status": child.status,
        **facts,
    }
    return {name: value for name, value in shape.items() if value is not None}


def shown_goal(goal: str) -> str:
    """A goal as it is told again and again: a long one by its beginning."""
    return goal if len(goal) <= GOAL_CHARS else f"{goal[: GOAL_CHARS - 1]}…"


def child_result(
    child: Child, rows: Sequence[Row], crash: Crash | None, *, max_chars: int, spill: Spill | None
) -> dict[str, Any]:
    """One entry of ``results``."""
    record = child.record
    status, error, failure = _status(record, crash)
    text = (record.text if record is not None else None) or ""
    summary, truncated = _fitted(text, child.subagent_id, max_chars, spill)
    result: dict[str, Any] = {
        "task_index": child.index,
        "subagent_id": child.subagent_id,
        "status": status,
        "summary": summary,
        "api_calls": record.api_calls if record is not None else 0,
        "duration_seconds": round(max(0.0, (child.ended_at or 0.0) - (child.started_at or child.ended_at or 0.0)), 3),
        "model": child.model,
        "exit_reason": record.exit_reason if record is not None else status,
        "truncated": truncated,
        "tokens": {
            "input": record.usage.input_tokens if record is not None else 0,
            "output": record.usage.output_tokens if record is not None else 0,
        },
        "tool_trace": tool_trace(rows),
    }
    optional = {
        "cost_usd": record.usage.cost_usd if record is not None else None,
        "error": error,
        "failure_reason": failure,
        "missed_steer": record.pending_steer if record is not None else None,
        "group": child.task.get("group"),
    }
    result.update((name, value) for name, value in optional.items() if value is not None)
    schema = child.task.get("output_schema")
    if isinstance(schema, Mapping) and status == "completed":
        problem = schema_problem(text, schema)
        result["schema_valid"] = problem is None
        if problem is not None:
            result["schema_errors"] = [problem]
    return result


def _status(record: TurnRecord | None, crash: Crash | None) -> tuple[str, str | None, str | None]:
    if crash is not None:
        return "failed", crash.error.message if isinstance(crash.error, HermesError) else UNKNOWN_FAILURE, "crashed"
    if record is None:
        return "interrupted", "stopped before it began", None
    match record.outcome:
        case Completed():
            return "completed", None, None
        case Cancelled(reason=reason) if reason.cause in DEADLINES:
            return "timeout", reason.text or "the time for this task was over", None
        case Cancelled(reason=reason):
            return "interrupted", f"stopped ({reason})", None
        case Failed(error=error, failure_reason=failure):
            return "failed", error, failure


def _fitted(text: str, name: str, limit: int, spill: Spill | None) -> tuple[str, bool]:
    if len(text) <= limit:
        return text, False
    path = spill(name, text) if spill is not None else None
    where = f"; the whole text is in {path}" if path is not None else ""
    return f"{text[:limit]}\n[cut after {limit} of {len(text)} characters{where}]", True


def tool_trace(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The tools a child used, with status and size, without content."""
    return [
        {
            "tool": row.tool_name,
            "status": _tool_status(row),
            "size": len(row.text),
        }
        for row in rows
        if row.role == "tool"
    ]


def _tool_status(row: Row) -> str:
    told = row.display_metadata or {}
    if row.effect_disposition is not None:
        return "stopped"
    if told.get("blocked"):
        return "blocked"
    return "error" if told.get("failed") else "ok"


def schema_problem(text: str, schema: Mapping[str, Any]) -> str | None:
    """Why an answer does not fit the wanted schema (its outermost level), or None."""
    body = text.strip()
    if body.startswith("```"):
        body = body.strip("`").removeprefix("json").strip()
    try:
        value = json.loads(body)
    except ValueError as error:
        return f"no JSON: {error}"
    if not isinstance(value, dict):
        return "not a JSON object"
    try:
        return fit(value, schema).problem
    except (TypeError, ValueError, AttributeError) as error:
        # A model has written the schema.
        return f"the schema cannot be used: {error}"


def notice_prompt(delegation_id: str, children: Sequence[Child], stopped: CancelReason | None = None) -> Prompt:
    """The results of a background delegation as a turn (agent-core §7.5). ``stopped``: what ended it as a whole."""
    done = sum(child.status == "completed" for child in children)
    ended = "finished" if stopped is None else f"was stopped ({stopped})"
    head = f"[delegation {delegation_id} {ended}: {done} of {len(children)} completed]"
    parts = [head]
    for child in children:
        result = child.result or {}
        told = result.get("summary") or result.get("error") or ""
        parts.append(f"{child.subagent_id} ({child.status}): {shown_goal(child.goal)}\n{told[:NOTICE_CHARS]}")
    title = children[0].goal[:60] if len(children) == 1 else f"{len(children)} tasks"
    return Prompt(
        content=head,
        api_content="\n\n".join(parts),
        source="delegation",
        display_kind="async_delegation_complete",
        display_metadata={
            "display_text": f"{title}: {done} of {len(children)} completed",
            "delegation_id": delegation_id,
            "subagent_ids": [child.subagent_id for child in children],
        },
    )


def lost_prompt(delegation_id: str) -> Prompt:
    """The notice of a background delegation whose process is gone."""
    head = (
        f"[delegation {delegation_id} was lost: the session or the server that it ran in has ended; nothing of it is "
        "running]"
    )
    return Prompt(
        content=head,
        source="delegation",
        display_kind="async_delegation_complete",
        display_metadata={"display_text": "a background delegation was lost", "delegation_id": delegation_id},
    )
