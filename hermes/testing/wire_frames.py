"""Frames of an event stream and error bodies: what the three wire formats of the fake provider have in common."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hermes.testing.script import Finish, Step

Json = dict[str, Any]


class WireFormat(enum.Enum):
    """By the last part of the path."""

    CHAT = "chat/completions"
    MESSAGES = "messages"
    RESPONSES = "responses"


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event. A string is sent as it stands (`[DONE]`); `final` marks the one that ends the answer."""

    data: Mapping[str, Any] | str
    event: str | None = None
    final: bool = False

    def encode(self, newline: str = "\n") -> bytes:
        data = self.data if isinstance(self.data, str) else to_json(self.data)
        head = f"event: {self.event}{newline}" if self.event else ""
        return f"{head}data: {data}{newline}{newline}".encode()


class Encoder(Protocol):
    """Turns typed steps into the frames of one format, and keeps what was said for the answer in one piece."""

    def start(self) -> list[Frame]: ...
    def feed(self, step: Step) -> list[Frame]: ...
    def finish(self, step: Finish) -> list[Frame]: ...
    def whole(self, step: Finish) -> Json: ...
    def error(self, message: str, kind: str, code: str | None) -> Frame: ...


def to_json(value: object) -> str:
    """Readable text where it can be encoded, escapes where it cannot (half of a surrogate pair)."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _encodable(text) else json.dumps(value)


def error_body(wire: WireFormat, status: int, message: str, code: str | None = None) -> Json:
    """The error object that the real service sends with this status."""
    openai_type, anthropic_type = ERROR_TYPES.get(status, ("server_error", "api_error"))
    if wire is WireFormat.MESSAGES:
        return {"type": "error", "error": {"type": anthropic_type, "message": message}, "request_id": "req_fake"}
    return {"error": {"message": message, "type": openai_type, "param": None, "code": code}}


ERROR_TYPES = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    402: ("insufficient_quota", "billing_error"),
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_exceeded", "rate_limit_error"),
    503: ("service_unavailable", "overloaded_error"),
    504: ("timeout", "timeout_error"),
    529: ("overloaded", "overloaded_error"),
}


def parse_arguments(text: str) -> Any:
    """Arguments as the object they are; as the string, if they are no JSON and so cannot be nested."""
    try:
        return json.loads(text or "{}")
    except json.JSONDecodeError:
        return text


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
