"""One side of a JSON-RPC conversation, as a state machine without I/O.

It knows two tables: the calls of the other side that are not answered yet, and our own requests that wait for an
answer. From them it keeps three promises: each call is answered at most once, two open calls never share an id, and
an answer that nobody waits for (late, unknown, sent twice) is dropped.

    bytes ──► receive() ──► Call │ Reply │ Refused(frame) │ Dropped(why)
    answer(call, result) / refuse(call, error) ──► bytes │ None
    ask(id, method, params) ──► bytes;   withdraw(id)
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from hermes.protocols.wire.json_codec import Unencodable, encode
from hermes.protocols.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorObject,
    ErrorResponse,
    JsonId,
    Notification,
    ParseFault,
    Request,
    Response,
    build_error,
    build_request,
    build_result,
    parse_frame,
)
from hermes.protocols.wire.ndjson import InvalidUtf8, Line, LineTooLong, TooManyValues
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """A request or a notification of the other side. ``number`` is its own within this conversation."""

    number: int
    id: JsonId
    method: str
    params: dict[str, Any] = field(hash=False)
    is_notification: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one of our requests; ``error`` is None when it was a result."""

    id: str
    result: Any
    error: ErrorObject | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A frame that was no acceptable message, and the error frame that says so."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """A frame that gets no answer."""

    why: str


Received = Call | Reply | Refused | Dropped


class Peer:
    """The conversation with one client.

    Parameters: ``answers_notifications``, whether a call without an id is answered with ``"id": null`` (gateway) or
    not at all (ACP).
    """

    def __init__(self, *, answers_notifications: bool = False) -> None:
        self._answers_notifications = answers_notifications
        self._calls_made = 0
        self._open_calls: dict[int, bytes | None] = {}
        self._numbers_by_id: dict[bytes, int] = {}
        self._awaited: set[str] = set()

    @property
    def open_calls(self) -> int:
        """How many calls of the other side are not answered yet."""
        return len(self._open_calls)

    def receive(self, line: Line) -> Received:
        """What one frame, or one fault of the framing, means. Never raises."""
        match line:
            case LineTooLong(limit):
                return _refused(ParseFault(INVALID_REQUEST, f"a frame must not be longer than {limit} bytes"))
            case InvalidUtf8(position):
                return _refused(ParseFault(PARSE_ERROR, f"parse error: not UTF-8 at byte {position}"))
            case TooManyValues(limit):
                return _refused(ParseFault(INVALID_REQUEST, f"a frame must not hold more than {limit} values"))
            case bytes():
                return self._understand(line)

    def call_with_id(self, id: JsonId) -> int | None:
        """The number of the open call that has this id."""
        return self._numbers_by_id.get(encode(id))

    def answer(self, call: Call, result: Any) -> bytes | None:
        """The frame that answers ``call``, or None when it needs no answer or has had one.

        A result without a JSON form becomes an internal error with the call's id.
        """
        if not self._close(call):
            return None
        try:
            return build_result(call.id, result)
        except Unencodable as error:
            return build_error(call.id, ErrorObject(INTERNAL_ERROR, f"the result cannot be serialised: {error}"))

    def refuse(self, call: Call, error: ErrorObject) -> bytes | None:
        """The error frame that answers ``call``, or None when it needs no answer or has had one."""
        return build_error(call.id, error) if self._close(call) else None

    def abandon(self, call: Call) -> None:
        """Forget ``call`` without an answer, for a connection that is ending."""
        self._close(call)

    def ask(self, id: str, method: str, params: Any = None) -> bytes:
        """The frame of our own request; its answer will come out of ``receive`` as a Reply."""
        frame = build_request(id, method, params)
        self._awaited.add(id)
        return frame

    def expect(self, id: str) -> None:
        """Await an answer to a request that the other side already has, from a former connection or a snapshot."""
        self._awaited.add(id)

    def withdraw(self, id: str) -> bool:
        """Stop waiting for an answer. True if it was still awaited."""
        if id not in self._awaited:
            return False
        self._awaited.remove(id)
        return True

    def _understand(self, raw: bytes) -> Received:
        match parse_frame(raw):
            case Request(id, method, params):
                return self._open(id, method, params)
            case Notification(method, params):
                return self._open_notification(method, params)
            case Response(id, result):
                return self._reply(id, result, None)
            case ErrorResponse(id, error):
                return self._reply(id, None, error)
            case ParseFault() as fault:
                if not fault.expects_answer and not self._answers_notifications:
                    return Dropped(fault.message)
                return _refused(fault)

    def _open(self, id: JsonId, method: str, params: dict[str, Any]) -> Received:
        # A null id names nothing, so two of them are not the same.
        key = None if id is None else encode(id)
        if key is not None and key in self._numbers_by_id:
            # Answered with a null id: the id belongs to the call that is open, and gets one answer.
            return _refused(ParseFault(INVALID_REQUEST, f"id {key.decode()} is already in use by an open request"))
        call = self._next_call(id, method, params, is_notification=False)
        self._open_calls[call.number] = key
        if key is not None:
            self._numbers_by_id[key] = call.number
        return call

    def _open_notification(self, method: str, params: dict[str, Any]) -> Call:
        call = self._next_call(None, method, params, is_notification=True)
        if self._answers_notifications:
            self._open_calls[call.number] = None
        return call

    def _next_call(self, id: JsonId, method: str, params: dict[str, Any], *, is_notification: bool) -> Call:
        self._calls_made += 1
        return Call(self._calls_made, id, method, params, is_notification)

    def _close(self, call: Call) -> bool:
        if call.number not in self._open_calls:
            return False
        key = self._open_calls.pop(call.number)
        if key is not None:
            del self._numbers_by_id[key]
        return True

    def _reply(self, id: JsonId, result: Any, error: ErrorObject | None) -> Received:
        if not isinstance(id, str) or not self.withdraw(id):
            return Dropped(f"an answer to {str(id)[:60]!r}, for which nobody waits (any more)")
        return Reply(id, result, error)


def _refused(fault: ParseFault) -> Refused:
    return Refused(build_error(fault.id, ErrorObject(fault.code, fault.message)))
