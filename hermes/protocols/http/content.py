"""Messages and content of OpenAI requests, as rows and prompts (api-server §2.3, §3.1). Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from hermes.messages import Content, ContentPart, ImagePart, Row, TextPart, ToolCall, has_images
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.wire.json_codec import encode
from hermes.records import dataclass

MAX_TEXT = 65_536
MAX_PARTS = 1000
MAX_DEPTH = 10
TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text"})
IMAGE_TYPES = frozenset({"image_url", "input_image"})
SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request says: instructions for this turn only, the history before it, and the prompt."""

    system: str | None
    history: tuple[Row, ...]
    prompt: Content
    first_user_text: str = ""


def is_system(role: Any) -> bool:
    """Whatever a client sends as a role: what is no text is no system message."""
    return isinstance(role, str) and role in SYSTEM_ROLES


def content_of(value: Any, param: str, *, text_only: bool = False) -> Content:
    """A message's content. Raises ``HttpRefusal``; with ``text_only``, parts that are no text are skipped."""
    if value is None:
        return None
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if not isinstance(value, list):
        raise HttpRefusal("invalid_content_part", "content must be a string or a list of parts", param=param)
    parts: list[ContentPart] = []
    _take_parts(value, parts, param, text_only, depth=0)
    if any(isinstance(part, ImagePart) for part in parts):
        return tuple(parts)
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _take_parts(values: Sequence[Any], parts: list[ContentPart], param: str, text_only: bool, depth: int) -> None:
    for value in values:
        if len(parts) >= MAX_PARTS:
            return
        if isinstance(value, str):
            parts.append(TextPart(value[:MAX_TEXT]))
        elif isinstance(value, list):
            if depth < MAX_DEPTH:
                _take_parts(value, parts, param, text_only, depth + 1)
        elif isinstance(value, dict):
            part = _part(value, param, text_only)
            if part is not None:
                parts.append(part)


def _part(value: dict[str, Any], param: str, text_only: bool) -> ContentPart | None:
    kind = str(value.get("type", "text" if "text" in value else "")).strip().lower()
    if kind in TEXT_TYPES:
        text = value.get("text")
        return TextPart(text[:MAX_TEXT]) if isinstance(text, str) and text else None
    if text_only:
        return None
    if kind in IMAGE_TYPES:
        return _image(value, param)
    raise HttpRefusal("unsupported_content_type", f"content parts of type {kind!r} are not supported", param=param)


def _image(value: dict[str, Any], param: str) -> ImagePart:
    image = value.get("image_url")
    detail = value.get("detail")
    if isinstance(image, dict):
        detail = image.get("detail", detail)
        image = image.get("url")
    if detail is not None and (not isinstance(detail, str) or not detail.strip()):
        raise HttpRefusal("invalid_content_part", "detail must be a non-empty string", param=param)
    url = image.strip() if isinstance(image, str) else ""
    lowered = url[:64].lower()
    if lowered.startswith(("http://", "https://")):
        return ImagePart("", url=url)
    if lowered.startswith("data:"):
        head, comma, data = url.partition(",")
        mime = head[5:].split(";")[0].strip().lower()
        if not mime.startswith("image/"):
            raise HttpRefusal("unsupported_content_type", "only image data URLs are supported", param=param)
        if comma and data:
            whole = data if ";base64" in head.lower() else base64.b64encode(unquote_to_bytes(data)).decode()
            return ImagePart(mime, data=whole)
    raise HttpRefusal("invalid_image_url", "an image needs an http(s) URL or a data URL", param=param)


def is_empty(content: Content) -> bool:
    if content is None:
        return True
    if isinstance(content, str):
        return not content.strip()
    return not has_images(content) and not any(isinstance(p, TextPart) and p.text.strip() for p in content)


def text_of(content: Content) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


# --- chat completions ------------------------------------------------------------------------------------------------


def chat_conversation(body: dict[str, Any], now: float) -> Conversation:
    """The ``messages`` of a chat completion. Raises ``HttpRefusal``."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise HttpRefusal("missing_messages", "messages must be a non-empty array", param="messages")
    system: list[str] = []
    rows: list[Row] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise HttpRefusal("invalid_request", "each message must be an object", param=f"messages[{index}]")
        role = message.get("role")
        param = f"messages[{index}].content"
        if is_system(role):
            text = text_of(content_of(message.get("content"), param, text_only=True))
            if text:
                system.append(text)
        elif role == "user" or role == "assistant":
            rows.append(Row(role, content_of(message.get("content"), param), now))
    if not rows or is_empty(rows[-1].content):
        raise HttpRefusal("no_user_message", "there is no user message to answer", param="messages")
    first = next((row.text for row in rows if row.role == "user"), rows[0].text)
    history = tuple(row for row in rows[:-1] if not is_empty(row.content))
    return Conversation("\n".join(system) or None, history, rows[-1].content, first)


# --- responses and runs ----------------------------------------------------------------------------------------------


def input_conversation(value: Any, now: float, *, bare_strings: bool = True) -> Conversation:
    """The ``input`` of a response or a run: a string, or items of which the last is the prompt. ``bare_strings``: an
    item may be the text alone."""
    if value is None or value == "":
        raise HttpRefusal("missing_input", "input is required", param="input")
    if isinstance(value, str):
        if not value.strip():
            raise HttpRefusal("no_user_message", "the input is empty", param="input")
        return Conversation(None, (), value[:MAX_TEXT], value)
    if not isinstance(value, list):
        raise HttpRefusal("missing_input", "input must be a string or an array", param="input")
    system: list[str] = []
    rows: list[Row] = []
    for index, item in enumerate(value):
        if isinstance(item, str) and not bare_strings:
            raise HttpRefusal("invalid_request", "each input item must be an object", param=f"input[{index}]")
        _take_item(item, f"input[{index}]", system, rows, now)
    if not rows or rows[-1].role == "tool" or is_empty(rows[-1].content):
        raise HttpRefusal("no_user_message", "there is no user message to answer", param="input")
    history = tuple(row for row in rows[:-1] if row.tool_calls or row.role == "tool" or not is_empty(row.content))
    first = next((row.text for row in rows if row.role == "user"), "")
    return Conversation("\n".join(system) or None, _complete_pairs(history), rows[-1].content, first)


def _take_item(item: Any, param: str, system: list[str], rows: list[Row], now: float) -> None:
    if isinstance(item, str):
        rows.append(Row("user", item[:MAX_TEXT], now))
        return
    if not isinstance(item, dict):
        raise HttpRefusal("invalid_request", "each input item must be a string or an object", param=param)
    match item.get("type"):
        case "reasoning" | "item_reference":
            return
        case "function_call":
            call_id = str(item.get("call_id") or item.get("id") or "")
            arguments = item.get("arguments")
            text = arguments if isinstance(arguments, str) else encode(arguments or {}).decode()
            call = ToolCall(call_id, str(item.get("name") or ""), text)
            if rows and rows[-1].role == "assistant" and rows[-1].tool_calls:
                rows[-1] = Row("assistant", rows[-1].content, now, tool_calls=(*rows[-1].tool_calls, call))
            else:
                rows.append(Row("assistant", "", now, tool_calls=(call,)))
            return
        case "function_call_output":
            output = content_of(item.get("output"), f"{param}.output", text_only=True)
            rows.append(Row("tool", text_of(output), now, tool_call_id=str(item.get("call_id") or "")))
            return
        case _:
            pass
    role = item.get("role", "user")
    content = content_of(item.get("content"), f"{param}.content", text_only=is_system(role))
    if is_system(role):
        if text := text_of(content):
            system.append(text)
    else:
        rows.append(Row("assistant" if role == "assistant" else "user", content, now))


def _complete_pairs(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Calls without a result and results without a call leave the history: providers refuse either."""
    answered = {row.tool_call_id for row in rows if row.role == "tool"}
    called = {call.id for row in rows for call in row.tool_calls if call.id in answered}
    kept: list[Row] = []
    for row in rows:
        if row.role == "tool":
            if row.tool_call_id in called:
                kept.append(row)
        elif row.tool_calls:
            calls = tuple(call for call in row.tool_calls if call.id in called)
            if calls or row.text:
                kept.append(Row(row.role, row.content, row.timestamp, tool_calls=calls))
        else:
            kept.append(row)
    return tuple(kept)


def explicit_history(value: Any, now: float) -> tuple[Row, ...] | None:
    """``conversation_history``: None if it is not given. Raises ``HttpRefusal`` that names the bad entry."""
    if value is None:
        return None
    param = "conversation_history"
    if not isinstance(value, list):
        raise HttpRefusal("invalid_history", f"{param} must be an array", param=param)
    rows: list[Row] = []
    for index, entry in enumerate(value):
        bad = not isinstance(entry, dict) or entry.get("role") not in ("user", "assistant") or "content" not in entry
        if bad:
            message = f"{param}[{index}] must be an object with role (user or assistant) and content"
            raise HttpRefusal("invalid_history", message, param=f"{param}[{index}]")
        content = entry["content"]
        if isinstance(content, int | float):
            content = encode(content).decode()
        rows.append(Row(entry["role"], content_of(content, f"{param}[{index}].content"), now))
    return tuple(rows)
