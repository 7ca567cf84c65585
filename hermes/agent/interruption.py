"""How a history is closed when a turn stops early, and how one is repaired that a crash left open.

Pure functions over rows. The grammar they restore is agent-core §1.3: every call has one result, every turn has one
closing assistant row. What was done is never claimed as undone, and nothing pending is ever run again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hermes.agent.progress import LoopPhase
from hermes.messages import Disposition, Row, ToolCall
from hermes.outcomes import SYSTEM_ISSUERS, CancelReason, Cause

NOTHING_DONE = "The turn was stopped before anything was done."
SOME_DONE = "The turn was stopped; some actions may have been done."
_NEVER_STARTED = "this call was skipped: the turn was stopped before it started"
_STARTED = "the turn was stopped while this call was running; its effect is not known"
_LOST = "the server stopped while this call was running; its outcome is not known and it was not run again"


def closing_rows(
    rows: Sequence[Row],
    partial_text: str,
    partial_reasoning: str,
    phase: LoopPhase,
    reason: CancelReason,
    now: float,
    *,
    started: Collection[str] = (),
) -> tuple[list[Row], str]:
    """Rows that end a cancelled turn behind ``rows``, and its exit reason (agent-core §1.16).

    ``started`` are the ids of calls that had begun when the turn was stopped and have no result row yet: their effect
    is unknown, that of the others is none.
    """
    stored = missing_results(rows, now, started=started)
    if partial_text.strip():
        stored.append(_partial_row(partial_text, partial_reasoning, reason, now))
    else:
        closing = _closing_row((*rows, *stored), phase, reason, now)
        if closing is not None:
            stored.append(closing)
    return stored, exit_reason(phase, reason)


def exit_reason(phase: LoopPhase, reason: CancelReason) -> str:
    issuer = SYSTEM_ISSUERS.get(reason.cause)
    if issuer is not None:
        return f"interrupted_by_system({issuer})"
    if phase in (LoopPhase.WAITING_FIRST_DELTA, LoopPhase.STREAMING):
        return "interrupted_during_api_call"
    return "interrupted_by_user"


def missing_results(rows: Sequence[Row], now: float, *, started: Collection[str] = (), lost: bool = False) -> list[Row]:
    """Result rows for the calls of the last round that have none. ``lost``: a crash, so nothing is known of any."""
    found: list[Row] = []
    for call in unanswered_calls(rows):
        unknown = lost or call.id in started
        text = _LOST if lost else _STARTED if unknown else _NEVER_STARTED
        found.append(synthetic_result(call, text, "unknown" if unknown else "none", now))
    return found


def unanswered_calls(rows: Sequence[Row]) -> list[ToolCall]:
    """Calls of the last assistant row with calls that have no result row yet."""
    answered: set[str] = set()
    for row in reversed(rows):
        if row.role == "tool" and row.tool_call_id is not None:
            answered.add(row.tool_call_id)
        elif row.role == "assistant":
            return [call for call in row.tool_calls if call.id not in answered]
    return []


def synthetic_result(call: ToolCall, text: str, disposition: Disposition, now: float) -> Row:
    content = json.dumps({"error": text, "interrupted": True})
    return Row("tool", content, now, tool_call_id=call.id, tool_name=call.name, effect_disposition=disposition)


def failure_row(
    rows: Sequence[Row], error: str, surface: Mapping[str, Any], now: float, *, left_out: bool = False
) -> Row | None:
    """The row that closes a failed turn, or None if the history ends with an assistant row already.

    ``left_out``: the model is not told (after a context overflow the next request begins by making room).
    """
    if not rows or rows[-1].role == "assistant":
        return None
    done = _did_something(rows)
    text = f"The turn failed{'; some actions may have been done' if done else ' before anything was done'}: {error}"
    metadata: dict[str, Any] = {"error": error, "error_surface": dict(surface)}
    if left_out:
        metadata["left_out_of_context"] = True
    note = f"[This turn failed and has no answer. {'Some actions may have been' if done else 'Nothing was'} done.]"
    return Row("assistant", text, now, api_content=note, display_kind="failed_turn", display_metadata=metadata)


def repair_rows(rows: Sequence[Row], now: float) -> list[Row]:
    """Rows to append to a loaded history that a crash left open; empty if it is whole (TL-6)."""
    if not rows or (rows[-1].role == "assistant" and not rows[-1].tool_calls):
        return []
    repaired = missing_results(rows, now, lost=True)
    done = _did_something((*rows, *repaired))
    text = "The server stopped during this turn; " + (
        "some actions may have been done." if done else "nothing was done."
    )
    surface = {"layer": "server", "code": "server_restart", "retryable": True}
    repaired.append(
        Row(
            "assistant",
            text,
            now,
            api_content=f"[{text}]",
            display_kind="failed_turn",
            display_metadata={"error": text, "error_surface": surface, "interrupted": True},
        )
    )
    return repaired


def _partial_row(text: str, reasoning: str, reason: CancelReason, now: float) -> Row:
    api_content = f"{text}\n\n[{_who(reason)}]" if reason.text else None
    return Row(
        "assistant",
        text,
        now,
        reasoning=reasoning or None,
        api_content=api_content,
        display_metadata=_metadata(reason),
    )


def _closing_row(rows: Sequence[Row], phase: LoopPhase, reason: CancelReason, now: float) -> Row | None:
    if not rows or rows[-1].role == "assistant":
        return None
    done = _did_something(rows)
    text = SOME_DONE if done else NOTHING_DONE
    if reason.text:
        text = f"{text} Reason: {reason.text}"
    surface = {"layer": "turn", "code": reason.cause.value, "retryable": True}
    return Row(
        "assistant",
        text,
        now,
        api_content=f"[{_who(reason)} {SOME_DONE if done else NOTHING_DONE}]",
        display_kind="hidden" if phase is LoopPhase.TOOLS else "failed_turn",
        display_metadata={**_metadata(reason), "error": text, "error_surface": surface},
    )


def _metadata(reason: CancelReason) -> dict[str, Any]:
    return {"interrupted": True, "cause": reason.cause.value, "reason": reason.text}


def _who(reason: CancelReason) -> str:
    if reason.cause is Cause.RUN_STOP:
        who = "The program that runs this conversation stopped this turn"
    elif reason.cause in SYSTEM_ISSUERS:
        who = f"The server stopped this turn ({reason.cause.value})"
    else:
        who = "The user stopped this turn"
    return f"{who}: {reason.text}." if reason.text else f"{who}."


def _did_something(rows: Sequence[Row]) -> bool:
    """True if a tool of the last turn ran, or may have run."""
    for row in reversed(rows):
        if row.role == "tool" and row.effect_disposition != "none":
            return True
        if row.role == "user" and begins_turn(row):
            return False
    return False


def begins_turn(row: Row) -> bool:
    """False for user rows inside a turn: steers, notices, corrections, the summary of a compression."""
    inside = row.display_kind in ("steer", "internal_notification")
    return not (inside or row.compacted_summary or (row.display_metadata or {}).get("redirect"))
