"""Requests of the three wire formats, reduced to what the rules of a script look at. Pure, and lenient: what is
malformed is refused by strict mode, not here."""

from __future__ import annotations

from typing import Any

from hermes.testing.script import Conversation
from hermes.testing.wire_frames import Json, WireFormat, to_json


def conversation_of(wire: WireFormat, body: Json, number: int) -> Conversation:
    rows = _rows(wire, body)
    last_user = next((text for role, text in reversed(rows) if role == "user"), "")
    results: list[str] = []
    for role, text in reversed(rows):
        if role == "assistant":
            break
        if role == "tool":
            results.insert(0, text)
    model = body.get("model")
    return Conversation(
        number=number,
        model=model if isinstance(model, str) else "",
        last_role=rows[-1][0] if rows else "",
        last_user=last_user,
        tool_results="\n".join(results),
        characters=len(to_json(body)),
    )


def _rows(wire: WireFormat, body: Json) -> list[tuple[str, str]]:
    """Role and text of each row, tool results as rows of role `tool`."""
    match wire:
        case WireFormat.CHAT:
            return [(str(row.get("role")), text_of(row.get("content"))) for row in _dicts(body.get("messages"))]
        case WireFormat.MESSAGES:
            return [pair for row in _dicts(body.get("messages")) for pair in _anthropic_rows(row)]
        case WireFormat.RESPONSES:
            given = body.get("input")
            return [("user", given)] if isinstance(given, str) else [_item_row(item) for item in _dicts(given)]


def _anthropic_rows(row: Json) -> list[tuple[str, str]]:
    role, content = str(row.get("role")), row.get("content")
    if not isinstance(content, list):
        return [(role, text_of(content))]
    results = [block for block in _dicts(content) if block.get("type") == "tool_result"]
    others = [block for block in content if block not in results]
    rows = [("tool", text_of(block.get("content"))) for block in results]
    return [*rows, (role, text_of(others))] if others or not rows else rows


def _item_row(item: Json) -> tuple[str, str]:
    kind = item.get("type", "message")
    if kind == "message":
        return str(item.get("role")), text_of(item.get("content"))
    if kind == "function_call_output":
        return "tool", text_of(item.get("output"))
    return "assistant", ""


def text_of(content: Any) -> str:
    """The text of a string or of a list of parts; parts without text are left out."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in _dicts(content))
    return "\n".join(text for text in texts if isinstance(text, str))


def _dicts(value: Any) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
