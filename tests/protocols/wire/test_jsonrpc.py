"""Frames: each kind of message and each kind of nonsense, row by row."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.protocols.wire.json_codec import Unencodable, encode
from hermes.protocols.wire.jsonrpc import (
    MAX_MESSAGE,
    ErrorObject,
    ErrorResponse,
    Notification,
    ParseFault,
    Request,
    Response,
    build_error,
    build_notification,
    build_request,
    build_result,
    parse_frame,
)

MESSAGES: list[tuple[bytes, object]] = [
    (b'{"jsonrpc":"2.0","id":"r1","method":"ping"}', Request("r1", "ping", {})),
    (b'{"id":1,"method":"m","params":null}', Request(1, "m", {})),
    (b'{"id":null,"method":"m","params":{"a":1}}', Request(None, "m", {"a": 1})),
    (b'{"id":1.5,"method":"m"}', Request(1.5, "m", {})),
    (b'{"id":123456789012345678901234567890,"method":"m"}', Request(123456789012345678901234567890, "m", {})),
    (b'{"jsonrpc":"1.0","method":"m"}', Notification("m", {})),
    (b'{"id":"srq-1","result":{"choice":"once"}}', Response("srq-1", {"choice": "once"})),
    (b'{"id":"srq-1","result":null}', Response("srq-1", None)),
    (b'{"id":"srq-1","result":1,"error":null}', Response("srq-1", 1)),
    (
        b'{"id":"srq-1","error":{"code":4404,"message":"no","data":[1]}}',
        ErrorResponse("srq-1", ErrorObject(4404, "no", [1])),
    ),
    (b'{"id":"srq-1","error":"bad"}', ErrorResponse("srq-1", ErrorObject(-32603, "bad"))),
    (b'{"id":7,"method":"m","params":{"t":"\\ud800x"}}', Request(7, "m", {"t": "\ufffdx"})),
]


@pytest.mark.parametrize(("raw", "message"), MESSAGES)
def test_a_message_is_understood(raw: bytes, message: object) -> None:
    assert parse_frame(raw) == message


FAULTS: list[tuple[bytes, int, Any, bool]] = [
    (b"{", -32700, None, True),
    (b"\xff", -32700, None, True),
    (b'{"id":1,"method":"m","params":{"x":NaN}}', -32700, None, True),
    (b"[" * 5000, -32700, None, True),
    (b'{"a":' * 5000 + b'"\\u0041"', -32700, None, True),
    (b"[]", -32600, None, True),
    (b'[{"id":1,"method":"m"},{"id":2,"method":"m"}]', -32600, None, True),
    (b"null", -32600, None, True),
    (b'"x"', -32600, None, True),
    (b"1", -32600, None, True),
    (b"{}", -32600, None, True),
    (b'{"id":5}', -32600, 5, True),
    (b'{"id":5,"method":""}', -32600, 5, True),
    (b'{"id":5,"method":7}', -32600, 5, True),
    (b'{"result":1}', -32600, None, True),
    (b'{"id":5,"method":"unknown","params":[1]}', -32602, 5, True),
    (b'{"method":"m","params":"x"}', -32602, None, False),
]


@pytest.mark.parametrize(("raw", "code", "id", "expects_answer"), FAULTS)
def test_a_frame_that_is_no_message_says_what_is_wrong(raw: bytes, code: int, id: Any, expects_answer: bool) -> None:
    fault = parse_frame(raw)
    assert isinstance(fault, ParseFault)
    assert (fault.code, fault.id, fault.expects_answer) == (code, id, expects_answer)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_raise(raw: bytes) -> None:
    parse_frame(raw)


def test_what_is_built_is_what_is_read() -> None:
    assert parse_frame(build_request("srq-1", "ask", {"a": "é"})) == Request("srq-1", "ask", {"a": "é"})
    assert parse_frame(build_notification("event")) == Notification("event", {})
    assert parse_frame(build_result(3, [1])) == Response(3, [1])
    assert parse_frame(build_error(3, ErrorObject(-32601, "no", {"k": 1}))) == ErrorResponse(
        3, ErrorObject(-32601, "no", {"k": 1})
    )


def test_text_and_numbers_that_orjson_refuses_are_written_all_the_same() -> None:
    raw = encode({"text": "a\ud83d b \u00e9", "big": 2**70, "nested": [("\udc00", float("nan"))], "\ud800k": None})
    assert json.loads(raw) == {"text": "a\ufffd b \u00e9", "big": 2**70, "nested": [["\ufffd", None]], "\ufffdk": None}
    assert "é".encode() in raw


def test_a_frame_never_holds_a_line_feed() -> None:
    assert b"\n" not in build_notification("m", {"t": "a\nb\ud800\n"})


def test_a_value_without_a_json_form_is_named() -> None:
    with pytest.raises(Unencodable, match="object"):
        encode({"a": object()})
    looped: list[Any] = []
    looped.append(looped)
    with pytest.raises(Unencodable):
        encode(looped)


def test_an_error_gets_through_even_if_its_data_cannot() -> None:
    assert json.loads(build_error(1, ErrorObject(-32000, "m", object()))) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32000, "message": "m"},
    }


def test_an_error_does_not_send_back_all_that_it_quotes() -> None:
    frame = json.loads(build_error(1, ErrorObject(4002, "unknown key: " + "é" * 1_000_000)))
    assert len(frame["error"]["message"]) == MAX_MESSAGE + 1 and frame["error"]["message"].endswith("é…")
