"""Transcript rows as table columns, and back.

Text content is stored as it is. Content made of parts is JSON behind a sentinel prefix; a text that happens to begin
with the sentinel is stored the same way, so every content comes back as it went in. Text that is not valid Unicode
(lone surrogates) cannot be stored by SQLite: such characters become ``?``, and the row that is handed back says so too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from hermes.messages import Content, ContentPart, ImagePart, Row, TextPart, ToolCall, content_text

SENTINEL = "\x01json:"
SENTINEL_LENGTH = len(SENTINEL)

# The order is that of Row's fields, so that a record can be handed to its constructor positionally.
ROW_COLUMNS = (
    "role, content, timestamp, id, tool_calls, tool_call_id, tool_name, effect_disposition, reasoning, "
    "reasoning_content, reasoning_details, replay_items, finish_reason, api_content, display_kind, display_metadata, "
    "token_count, platform_message_id, compacted_summary"
)
READ_COLUMNS = f"{ROW_COLUMNS}, compacted"
INSERT_ROW = (
    f"INSERT INTO messages (session_key, position, search_text, {ROW_COLUMNS}) VALUES ({', '.join(['?'] * 22)})"
)
ID_INDEX = 3
PREVIEW_CHARS = 120

Record = tuple[Any, ...]


def to_json(value: Any) -> str:
    """JSON text of a value; what JSON does not know becomes its ``str``."""
    try:
        return orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # Lone surrogates and integers beyond 64 bits.
        return json.dumps(value, ensure_ascii=False, default=plain)


def plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def from_json(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


def scrub(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def scrubbed(values: Record) -> Record | None:
    """The record without unencodable characters, or None if there are none (the usual case)."""
    try:
        for value in values:
            if type(value) is str and not value.isascii():
                value.encode()
    except UnicodeEncodeError:
        return tuple(scrub(value) if isinstance(value, str) else value for value in values)
    return None


# --- content ---------------------------------------------------------------------------------------------------------


def encode_content(content: Content) -> str | None:
    if isinstance(content, str):
        return SENTINEL + to_json(content) if content.startswith(SENTINEL) else content
    if content is None:
        return None
    return SENTINEL + to_json([encode_part(part) for part in content])


def encode_part(part: ContentPart) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(mime_type=mime_type, data=data, url=url):
            return {"type": "image", "mime_type": mime_type, "data": data, "url": url}


def decode_content(text: str) -> Content:
    """The content behind a sentinel."""
    value = orjson.loads(text[SENTINEL_LENGTH:])
    if isinstance(value, str):
        return value
    return tuple(
        TextPart(part["text"])
        if part["type"] == "text"
        else ImagePart(part["mime_type"], part.get("data"), part.get("url"))
        for part in value
    )


# --- tool calls ------------------------------------------------------------------------------------------------------


def encode_calls(calls: tuple[ToolCall, ...]) -> str:
    return to_json(
        [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "call_id": call.call_id,
                "response_item_id": call.response_item_id,
            }
            for call in calls
        ]
    )


def decode_calls(text: str) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(call["id"], call["name"], call["arguments"], call["call_id"], call["response_item_id"])
        for call in orjson.loads(text)
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def encode_row(row: Row) -> tuple[Record, Row]:
    """``(search_text, *columns in the order of ROW_COLUMNS)`` with the id left None, and the row as it will be read."""
    content = encode_content(row.content)
    record: Record = (
        content_text(row.content) if content is not row.content else None,
        row.role,
        content,
        row.timestamp,
        None,
        encode_calls(row.tool_calls) if row.tool_calls else None,
        row.tool_call_id,
        row.tool_name,
        row.effect_disposition,
        row.reasoning,
        row.reasoning_content,
        None if row.reasoning_details is None else to_json(row.reasoning_details),
        None if row.replay_items is None else to_json(row.replay_items),
        row.finish_reason,
        encode_content(row.api_content),
        row.display_kind,
        None if row.display_metadata is None else to_json(row.display_metadata),
        row.token_count,
        row.platform_message_id,
        int(row.compacted_summary),
    )
    clean = scrubbed(record)
    if clean is None:
        return record, row
    return clean, decode_rows([(*clean[1:], 0)])[0]


def decode_rows(records: Iterable[Record]) -> tuple[Row, ...]:
    """Rows from records in the order of READ_COLUMNS. The hot path of a resume: nothing is parsed that is NULL."""
    sentinel, length = SENTINEL, SENTINEL_LENGTH
    loads = orjson.loads
    return tuple(
        [
            Row(
                role,
                decode_content(content) if content is not None and content[:length] == sentinel else content,
                timestamp,
                row_id,
                () if calls is None else decode_calls(calls),
                call_id,
                tool_name,
                disposition,
                reasoning,
                reasoning_content,
                None if details is None else loads(details),
                None if replay is None else loads(replay),
                finish,
                decode_content(api) if api is not None and api[:length] == sentinel else api,
                kind,
                None if metadata is None else loads(metadata),
                tokens,
                platform_id,
                summary == 1,
                compacted == 1,
            )
            for (
                role,
                content,
                timestamp,
                row_id,
                calls,
                call_id,
                tool_name,
                disposition,
                reasoning,
                reasoning_content,
                details,
                replay,
                finish,
                api,
                kind,
                metadata,
                tokens,
                platform_id,
                summary,
                compacted,
            ) in records
        ]
    )


def preview_of(row: Row) -> str:
    """The beginning of a prompt on one line, for lists."""
    return " ".join(row.text[: PREVIEW_CHARS * 4].split())[:PREVIEW_CHARS]
