"""A conversation: one answer for each call, no answer for what nobody asked."""

import json
from typing import Any

from hermes.protocols.wire.jsonrpc import ErrorObject
from hermes.protocols.wire.ndjson import InvalidUtf8, LineTooLong
from hermes.protocols.wire.peer import Call, Dropped, Peer, Refused, Reply


def received_call(peer: Peer, raw: bytes) -> Call:
    call = peer.receive(raw)
    assert isinstance(call, Call)
    return call


def error_of(refused: object) -> tuple[int, Any]:
    assert isinstance(refused, Refused)
    frame = json.loads(refused.frame)
    return frame["error"]["code"], frame["id"]


def test_a_request_is_answered_once() -> None:
    peer = Peer()
    call = received_call(peer, b'{"id":"a","method":"m"}')
    assert json.loads(peer.answer(call, {"x": 1}) or b"") == {"jsonrpc": "2.0", "id": "a", "result": {"x": 1}}
    assert peer.answer(call, {}) is None
    assert peer.refuse(call, ErrorObject(-32000, "late")) is None
    assert peer.open_calls == 0


def test_an_id_in_use_is_refused_without_answering_the_open_call() -> None:
    peer = Peer()
    call = received_call(peer, b'{"id":1,"method":"m"}')
    assert error_of(peer.receive(b'{"id":1,"method":"other"}')) == (-32600, None)
    assert peer.answer(call, {}) is not None
    assert isinstance(peer.receive(b'{"id":1,"method":"again"}'), Call)


def test_a_number_and_a_string_are_different_ids() -> None:
    peer = Peer()
    one = received_call(peer, b'{"id":1,"method":"m"}')
    other = received_call(peer, b'{"id":"1","method":"m"}')
    assert peer.call_with_id(1) == one.number
    assert peer.call_with_id("1") == other.number


def test_null_ids_name_nothing_and_are_each_answered() -> None:
    peer = Peer()
    calls = [received_call(peer, b'{"id":null,"method":"m"}') for _ in range(2)]
    assert [json.loads(peer.answer(call, i) or b"")["id"] for i, call in enumerate(calls)] == [None, None]


def test_a_notification_is_answered_only_where_the_dialect_says_so() -> None:
    quiet, talkative = Peer(), Peer(answers_notifications=True)
    assert quiet.answer(received_call(quiet, b'{"method":"m"}'), {}) is None
    answer = talkative.answer(received_call(talkative, b'{"method":"m"}'), {})
    assert json.loads(answer or b"") == {"jsonrpc": "2.0", "id": None, "result": {}}
    assert isinstance(quiet.receive(b'{"method":"m","params":[]}'), Dropped)
    assert error_of(talkative.receive(b'{"method":"m","params":[]}')) == (-32602, None)


def test_faults_of_the_framing_are_answered_and_the_conversation_goes_on() -> None:
    peer = Peer()
    assert error_of(peer.receive(LineTooLong(10))) == (-32600, None)
    assert error_of(peer.receive(InvalidUtf8(3))) == (-32700, None)
    assert error_of(peer.receive(b"nonsense")) == (-32700, None)
    assert isinstance(peer.receive(b'{"id":1,"method":"m"}'), Call)


def test_our_request_gets_its_first_answer_only() -> None:
    peer = Peer()
    assert json.loads(peer.ask("srq-1", "approval", {"a": 1}))["id"] == "srq-1"
    assert peer.receive(b'{"id":"srq-1","result":{"choice":"once"}}') == Reply("srq-1", {"choice": "once"}, None)
    assert isinstance(peer.receive(b'{"id":"srq-1","result":{"choice":"deny"}}'), Dropped)


def test_answers_to_unknown_and_withdrawn_requests_are_dropped() -> None:
    peer = Peer()
    peer.ask("srq-1", "approval")
    assert peer.withdraw("srq-1") is True
    assert peer.withdraw("srq-1") is False
    for raw in (b'{"id":"srq-1","result":1}', b'{"id":"other","result":1}', b'{"id":[1],"error":null}'):
        assert isinstance(peer.receive(raw), Dropped)


def test_a_result_that_cannot_be_serialised_is_an_internal_error_with_the_id() -> None:
    peer = Peer()
    call = received_call(peer, b'{"id":9,"method":"m"}')
    frame = json.loads(peer.answer(call, object()) or b"")
    assert (frame["id"], frame["error"]["code"]) == (9, -32603)
