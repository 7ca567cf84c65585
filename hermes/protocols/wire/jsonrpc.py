"""JSON-RPC 2.0 frames: parse one from bytes, build one to bytes.

The checks and their order are those of the gateway protocol's §1.6, which the other surfaces share: not JSON, not an
object (a batch is one error), an answer, no usable method, parameters that are not an object. ``jsonrpc`` itself is
not looked at on the way in. Ids are kept exactly as they came, whatever JSON value they are.
"""

from __future__ import annotations

from typing import Any, Final

from hermes.protocols.wire.json_codec import NotJson, Unencodable, decode, decode_exact, encode, is_rounded_integer
from hermes.records import dataclass

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_ERROR: Final = -32000
REQUEST_CANCELLED: Final = -32800

MAX_MESSAGE: Final = 4000
"""Characters of an error message that are sent."""

JsonId = Any
"""Any JSON value: a string or a number in practice, echoed as it came."""


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """The ``error`` member of a response."""

    code: int
    message: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Request:
    id: JsonId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    id: JsonId
    result: Any


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    id: JsonId
    error: ErrorObject


@dataclass(frozen=True, slots=True)
class ParseFault:
    """A frame that is no message. ``id`` is the request's where it was known; ``expects_answer`` is False for what
    would have been a notification."""

    code: int
    message: str
    id: JsonId = None
    expects_answer: bool = True


Frame = Request | Notification | Response | ErrorResponse | ParseFault


def parse_frame(raw: bytes) -> Frame:
    """The message in ``raw``. Never raises."""
    try:
        value = decode(raw)
        if isinstance(value, dict) and is_rounded_integer(value.get("id")):
            value = decode_exact(raw)
    except NotJson:
        return ParseFault(PARSE_ERROR, "parse error")
    if isinstance(value, list):
        return ParseFault(INVALID_REQUEST, "batches are not supported; send one request per frame")
    if not isinstance(value, dict):
        return ParseFault(INVALID_REQUEST, "a request is a JSON object")
    if "method" not in value and "id" in value and ("result" in value or "error" in value):
        return _parse_answer(value)
    return _parse_call(value)


def _parse_call(value: dict[str, Any]) -> Request | Notification | ParseFault:
    has_id = "id" in value
    id = value.get("id")
    method = value.get("method")
    if not isinstance(method, str) or not method:
        return ParseFault(INVALID_REQUEST, "method must be a non-empty string", id)
    params = value.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        return ParseFault(INVALID_PARAMS, f"params of {method} must be an object", id, expects_answer=has_id)
    if not has_id:
        return Notification(method, params)
    return Request(id, method, params)


def _parse_answer(value: dict[str, Any]) -> Response | ErrorResponse:
    error = value.get("error")
    if error is None and "result" in value:
        return Response(value["id"], value["result"])
    if not isinstance(error, dict):
        return ErrorResponse(value["id"], ErrorObject(INTERNAL_ERROR, str(error)))
    code, message = error.get("code"), error.get("message")
    return ErrorResponse(
        value["id"],
        ErrorObject(
            code=code if isinstance(code, int) else INTERNAL_ERROR,
            message=message if isinstance(message, str) else "",
            data=error.get("data"),
        ),
    )


def build_request(id: JsonId, method: str, params: Any = None) -> bytes:
    """A request frame. Raises Unencodable, as all builders do, when the values have no JSON form."""
    return encode(_call({"jsonrpc": "2.0", "id": id, "method": method}, params))


def build_notification(method: str, params: Any = None) -> bytes:
    return encode(_call({"jsonrpc": "2.0", "method": method}, params))


def build_result(id: JsonId, result: Any) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "result": result})


def build_error(id: JsonId, error: ErrorObject) -> bytes:
    """An error frame. ``data`` that has no JSON form is left out: an error must always get through."""
    message = error.message
    if len(message) > MAX_MESSAGE:
        # It quotes what was sent, which may be megabytes.
        message = f"{message[:MAX_MESSAGE]}…"
    body: dict[str, Any] = {"code": error.code, "message": message}
    frame = {"jsonrpc": "2.0", "id": id, "error": body}
    if error.data is None:
        return encode(frame)
    try:
        return encode({**frame, "error": {**body, "data": error.data}})
    except Unencodable:
        return encode(frame)


def _call(frame: dict[str, Any], params: Any) -> dict[str, Any]:
    if params is not None:
        frame["params"] = params
    return frame
