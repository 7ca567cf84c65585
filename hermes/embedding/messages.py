"""Plain dicts in and out: messages as chat completions write them, and the result record with all its keys (TL-70).

Pure. The rows of a conversation have more fields than such a message; what a host can use of them is kept.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from hermes.errors import InvalidParams
from hermes.messages import Content, ContentPart, ImagePart, Row, TextPart, ToolCall
from hermes.outcomes import Failed, TurnRecord, Usage

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


# --- in --------------------------------------------------------------------------------------------------------------


def content_from(given: str | Sequence[Any] | None) -> Content:
    """Text, or parts ``{"type": "text"}`` and ``{"type": "image_url"}``. Raises ``InvalidParams``."""
    if given is None:
        return None
    if isinstance(given, str):
        return clean(given)
    if not isinstance(given, list | tuple):
        raise InvalidParams(f"a content is text or a list of parts, not {type(given).__name__}")
    return tuple(_part(part) for part in given)


def clean(text: str) -> str:
    """Text without lone surrogates, which no wire can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _part(part: Any) -> ContentPart:
    if isinstance(part, (TextPart, ImagePart)):
        return part
    if isinstance(part, str):
        return TextPart(clean(part))
    if isinstance(part, Mapping):
        match part.get("type"):
            case "text" | "input_text":
                return TextPart(clean(str(part.get("text", ""))))
            case "image_url" | "input_image":
                image = part.get("image_url")
                url = image.get("url") if isinstance(image, Mapping) else image
                if isinstance(url, str):
                    return _image(url)
    raise InvalidParams("a content part is text, or an image_url with a URL")


def _image(url: str) -> ImagePart:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImagePart(head[len("data:") : -len(";base64")] or "image/png", data=data)
    return ImagePart("image/*", url=url)


def rows_from(messages: Sequence[Mapping[str, Any]]) -> tuple[Row, ...]:
    """A conversation of the caller's own. System messages are left out: they have their own argument. Raises
    ``InvalidParams``."""
    if isinstance(messages, str) or not all(isinstance(message, Mapping) for message in messages):
        raise InvalidParams("a conversation is a list of messages, each with its role and content")
    return tuple(_row(message) for message in messages if message.get("role") != "system")


def _row(message: Mapping[str, Any]) -> Row:
    role = message.get("role")
    if role not in ("user", "assistant", "tool"):
        raise InvalidParams(f"a message has the role user, assistant or tool, not {role!r}")
    calls = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments or {})
        calls.append(ToolCall(str(call.get("id") or ""), str(function.get("name")), arguments))
    row_id = message.get("id")
    return Row(
        role,
        content_from(message.get("content")),
        timestamp=float(message.get("timestamp") or 0.0),
        row_id=row_id if isinstance(row_id, int) else None,
        tool_calls=tuple(calls),
        tool_call_id=message.get("tool_call_id"),
        tool_name=message.get("name"),
        reasoning=message.get("reasoning"),
        finish_reason=message.get("finish_reason"),
        display_kind=message.get("display_kind"),
    )


# --- out -------------------------------------------------------------------------------------------------------------


def message_dict(row: Row) -> dict[str, Any]:
    """A row as a message; keys without a value are left out, except ``role`` and ``content``."""
    message: dict[str, Any] = {"role": row.role, "content": _content(row.content)}
    if row.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in row.tool_calls
        ]
    optional = {
        "tool_call_id": row.tool_call_id,
        "name": row.tool_name,
        "reasoning": row.reasoning,
        "finish_reason": row.finish_reason,
        "display_kind": row.display_kind,
        "display_metadata": plain(row.display_metadata),
        "effect_disposition": row.effect_disposition,
        "id": row.row_id,
        "timestamp": row.timestamp or None,
    }
    message |= {name: value for name, value in optional.items() if value is not None}
    return message


def _content(content: Content) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        return content
    return [_part_dict(part) for part in content]


def _part_dict(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    url = part.url if part.url is not None else f"data:{part.mime_type};base64,{part.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def usage_dict(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def record_dict(
    record: TurnRecord, rows: Sequence[Row], *, interrupt_message: str | None = None, service_tier: str | None = None
) -> dict[str, Any]:
    """The result record of agent-core §1.17: the same keys on every path. Token counts are the session's totals,
    ``turn_usage`` is what this turn spent."""
    failed = record.outcome if isinstance(record.outcome, Failed) else None
    cost = record.session_usage.cost_usd
    user_row = record.user_row_id
    user_index = next((at for at, row in enumerate(rows) if user_row is not None and row.row_id == user_row), None)
    return {
        "final_response": record.text,
        "last_reasoning": record.last_reasoning,
        "messages": [message_dict(row) for row in rows],
        "api_calls": record.api_calls,
        "iterations": record.iterations,
        "completed": record.completed,
        "partial": record.partial,
        "interrupted": record.interrupted,
        "failed": record.failed,
        "turn_exit_reason": record.exit_reason,
        "error": record.error,
        "failure_reason": failed.failure_reason if failed is not None else None,
        "failure_retryable": failed is not None and failed.retryable,
        "failure_resets_at": failed.resets_at if failed is not None else None,
        "cause": record.cause.value if record.cause is not None else None,
        "reason": record.reason_text,
        "pending_steer": record.pending_steer,
        "interrupt_message": interrupt_message if interrupt_message is not None else record.interrupt_message,
        "response_previewed": record.response_previewed,
        "response_transformed": False,
        "pre_transform_response": None,
        "response_reused": False,
        "model": record.model,
        "requested_model": record.requested_model,
        "served_model": record.served_model,
        "provider": record.provider,
        "base_url": record.base_url,
        **usage_dict(record.session_usage),
        "turn_usage": usage_dict(record.usage),
        "usage_estimated": record.usage.estimated,
        "last_prompt_tokens": record.last_prompt_tokens,
        "estimated_cost_usd": cost,
        "cost_status": "unknown" if cost is None else "estimated",
        "cost_source": "none" if cost is None else "catalogue",
        "service_tier": service_tier,
        "session_id": record.session_key,
        "turn_id": record.turn_id,
        "current_turn_user_idx": user_index,
        "user_intervened": record.user_intervened,
        "guardrail": plain(record.guardrail),
        "compression_exhausted": record.compression_exhausted,
        "billing_block": plain(record.billing_block),
        "cleanup_errors": list(record.cleanup_errors),
    }


def event_name(event: object) -> str:
    """``TurnEnded`` → ``turn_ended``."""
    return _CAPITAL.sub("_", type(event).__name__).lower()


def plain(value: Any) -> Any:
    """Anything of ours as dicts, lists and scalars, as JSON has them."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
