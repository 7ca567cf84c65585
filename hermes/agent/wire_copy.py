"""The wire copy: stored rows made fit to be sent, without touching what is stored (agent-core §1.4).

Pure and deterministic: the same rows give the same copy, and rows that are appended later leave the front of the copy
as it was. That is what keeps provider caches warm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hermes.agent.streaming import clean_surrogates
from hermes.messages import Content, ContentPart, ImagePart, Row, TextPart, ToolCall
from hermes.records import dataclass

MISSING_RESULT = json.dumps({"error": "the outcome of this call is not known: it was not recorded"})
EMPTY_PROMPT = "[empty message]"
IMAGE_NOTE = "[an image was left out: this model cannot see images]"


@dataclass(frozen=True, slots=True)
class WireOptions:
    """What the endpoint needs. The flags below ``issuer`` are repairs that an error of the provider asked for."""

    vision: bool = True
    issuer: str = ""
    merge_all_roles: bool = False
    strip_images: bool = False
    flatten_tool_content: bool = False
    drop_signed_reasoning: bool = False
    drop_replay_items: bool = False


def wire_copy(rows: Sequence[Row], options: WireOptions) -> tuple[Row, ...]:
    """Rows as they are sent. Calls are answered, roles alternate where they must, nothing private is left.

    ``RowMemory.wire`` gives the same for a conversation that is sent again and again.
    """
    newest_switch = next((row for row in reversed(rows) if is_switch(row)), None)
    clean = [clean for row in rows if is_sent(row, newest_switch) and (clean := clean_row(row, options)) is not None]
    return tuple(alternating(clean, options))


def alternating(rows: Sequence[Row], options: WireOptions) -> Iterator[Row]:
    """Clean rows with every call answered, and neighbours of one role merged."""
    return _merged(_answered(rows), options)


def is_sent(row: Row, newest_switch: Row | None) -> bool:
    """False for system rows, for notices that are none of the model's business, and for all notes of another model but
    the newest."""
    if row.role == "system":
        return False
    return row.display_kind is None or not (_left_out(row) or (is_switch(row) and row is not newest_switch))


def is_switch(row: Row) -> bool:
    return row.display_kind == "model_switch"


def _left_out(row: Row) -> bool:
    """Notices about a failure that the next request repairs by itself stay out of the model's sight."""
    if row.display_kind != "failed_turn" or row.display_metadata is None:
        return False
    return bool(row.display_metadata.get("left_out_of_context"))


def clean_row(row: Row, options: WireOptions) -> Row | None:
    """One row as it is sent; None where nothing is left to send."""
    content = _content(row.content if row.api_content is None else row.api_content, row, options)
    if row.role == "assistant" and not content and not row.tool_calls:
        return None
    if row.role == "user" and not content:
        content = EMPTY_PROMPT
    metadata = row.display_metadata
    foreign = metadata is not None and _issuer(row) not in ("", options.issuer)
    # Written out, not ``replace``: this is done with every row of a transcript at every request.
    return Row(
        role=row.role,
        content=content,
        tool_calls=tuple(map(_canonical_call, row.tool_calls)) if row.tool_calls else (),
        tool_call_id=row.tool_call_id,
        tool_name=row.tool_name,
        reasoning=row.reasoning,
        reasoning_content=row.reasoning_content,
        reasoning_details=None if foreign or options.drop_signed_reasoning else row.reasoning_details,
        replay_items=None if foreign or options.drop_replay_items else row.replay_items,
        finish_reason=row.finish_reason,
        display_kind=row.display_kind,
        display_metadata=None if metadata is None else _kept_metadata(row),
        compacted_summary=row.compacted_summary,
    )


def _issuer(row: Row) -> str:
    """Who signed the opaque items of a row; empty if nobody did."""
    value = (row.display_metadata or {}).get("issuer", "")
    return value if isinstance(value, str) else ""


def _kept_metadata(row: Row) -> dict[str, Any] | None:
    """Only what merging must know."""
    return {"redirect": True} if _is_redirect(row) else None


def _is_redirect(row: Row) -> bool:
    return bool((row.display_metadata or {}).get("redirect"))


def _content(content: Content, row: Row, options: WireOptions) -> Content:
    if content is None:
        return None
    if isinstance(content, str):
        return clean_surrogates(content)
    no_images = options.strip_images or not options.vision or (row.role == "tool" and options.flatten_tool_content)
    parts: list[ContentPart] = []
    for part in content:
        if isinstance(part, TextPart):
            if part.text:
                parts.append(TextPart(clean_surrogates(part.text)))
        elif no_images:
            parts.append(TextPart(IMAGE_NOTE))
        else:
            parts.append(part)
    if not any(isinstance(part, ImagePart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _canonical_call(call: ToolCall) -> ToolCall:
    return replace(call, arguments=canonical_arguments(call.arguments))


def canonical_arguments(text: str) -> str:
    """Sorted keys, compact separators; what cannot be parsed becomes ``{}``. Equal calls have equal bytes."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "{}"
    if not isinstance(value, dict):
        return "{}"
    dumped = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return clean_surrogates(dumped)


def _answered(rows: Sequence[Row]) -> Iterator[Row]:
    """Every call with exactly one result right behind its row, in call order; results without a call are dropped."""
    position = 0
    while position < len(rows):
        row = rows[position]
        position += 1
        if row.role == "tool":
            continue
        yield row
        if not row.tool_calls:
            continue
        results: dict[str, Row] = {}
        while position < len(rows) and rows[position].role == "tool":
            result = rows[position]
            results.setdefault(result.tool_call_id or "", result)
            position += 1
        for call in row.tool_calls:
            yield results.get(call.id) or Row("tool", MISSING_RESULT, tool_call_id=call.id, tool_name=call.name)


def _merged(rows: Iterator[Row], options: WireOptions) -> Iterator[Row]:
    waiting: Row | None = None
    for row in rows:
        if waiting is not None and waiting.role == row.role and _may_merge(waiting, row, options):
            waiting = _join(waiting, row)
            continue
        if waiting is not None:
            yield waiting
        waiting = row
    if waiting is not None:
        yield waiting


def _may_merge(first: Row, second: Row, options: WireOptions) -> bool:
    if first.role == "tool":
        return False
    if first.role == "assistant":
        return not first.tool_calls
    apart = any(row.display_kind == "steer" or _is_redirect(row) for row in (first, second))
    return options.merge_all_roles or not apart


def _join(first: Row, second: Row) -> Row:
    """``second`` behind ``first``; what only one of them has (calls, reasoning) is kept."""
    return replace(
        second,
        content=_join_content(first.content, second.content),
        reasoning=second.reasoning or first.reasoning,
        reasoning_content=second.reasoning_content or first.reasoning_content,
        reasoning_details=second.reasoning_details or first.reasoning_details,
        replay_items=second.replay_items or first.replay_items,
        display_kind=first.display_kind,
    )


def _join_content(first: Content, second: Content) -> Content:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return (*_parts(first), *_parts(second))


def _parts(content: str | tuple[ContentPart, ...]) -> tuple[ContentPart, ...]:
    return (TextPart(content),) if isinstance(content, str) else content
