"""Strict mode: one row for each rule, with the place that its message names, and good histories that must pass."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.testing import MalformedHistory, check_request
from hermes.testing.wire_frames import WireFormat

USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "hello"}


def call(call_id: Any = "c1", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def calls(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(given), **more}


def result(call_id: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done", **more}


GOOD_CHATS: list[list[dict[str, Any]]] = [
    [USER],
    [{"role": "system", "content": "be good"}, USER, SAID, USER],
    [USER, USER, calls(call("a"), call("b")), result("b"), result("a"), SAID, USER],
    [USER, calls(call()), result(), USER, calls(call()), result()],
    [USER, calls(call(arguments='{"_private": 1}'), reasoning_content="hm"), result(name="f"), USER],
    [USER, SAID],
]


@pytest.mark.parametrize("rows", GOOD_CHATS)
def test_a_good_chat_passes(rows: list[dict[str, Any]]) -> None:
    check_request(WireFormat.CHAT, {"model": "m", "messages": rows})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"^messages: must be a non-empty list"),
        (["hi"], r"^messages\[0\]: must be an object"),
        ([{"role": "robot", "content": "x"}], r"^messages\[0\]\.role: 'robot'"),
        ([{"role": "user", "content": ""}], r"^messages\[0\]\.content: is empty"),
        ([USER | {"timestamp": 1}], r"^messages\[0\]\.timestamp: is not a key"),
        ([USER | {"_secret": 1}], r"^messages\[0\]\._secret: is a private key"),
        ([USER, calls(call(_x=1)), result()], r"^messages\[1\]\.tool_calls\[0\]\._x: is a private key"),
        ([USER, calls(call(response_item_id="x")), result()], r"tool_calls\[0\]\.response_item_id: is not a key"),
        ([USER, SAID, SAID], r"^messages\[2\]: follows another assistant message"),
        ([USER, {"role": "assistant", "content": ""}, USER], r"^messages\[1\]: an assistant message needs"),
        ([USER, calls(), USER], r"^messages\[1\]\.tool_calls: must not be empty"),
        ([USER, result()], r"^messages\[1\]: answers 'c1', which is no open call"),
        ([USER, calls(call()), result(), result()], r"^messages\[3\]: answers 'c1'"),
        ([USER, calls(call()), USER, result()], r"^messages\[2\]: the call 'c1' of messages\[1\]\.tool_calls\[0\]"),
        ([USER, calls(call()), SAID], r"^messages\[2\]: the call 'c1'"),
        ([USER, calls(call("a"), call("b")), result("a"), USER], r"^messages\[3\]: the call 'b'"),
        ([USER, calls(call())], r"^messages: the call 'c1' .* at the end"),
        ([USER, calls(call("a"), call("a")), result("a")], r"tool_calls\[1\]\.id: 'a' is used twice"),
        ([USER, calls(call(7)), result(7)], r"tool_calls\[0\]\.id: must be a non-empty string"),
        ([USER, calls(call(arguments="{")), result()], r"function\.arguments: is not JSON"),
        ([USER, calls(call(arguments="[]")), result()], r"function\.arguments: must be a JSON object"),
        ([USER, calls(call(arguments={})), result()], r"function\.arguments: must be a string of JSON"),
        ([USER, calls(call()), result() | {"content": None}], r"^messages\[2\]\.content: must be a string"),
        ([{"role": "user", "content": "half \ud83d"}], r"^messages\[0\]\.content: holds a lone surrogate"),
    ],
)
def test_a_malformed_chat_is_refused_with_its_place(rows: list[Any], message: str) -> None:
    with pytest.raises(MalformedHistory, match=message):
        check_request(WireFormat.CHAT, {"model": "m", "messages": rows})


def use(call_id: str = "t1", arguments: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {} if arguments is None else arguments}


def answer(call_id: str = "t1") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done"}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def asked(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


TEXT = {"type": "text", "text": "so"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig"}


def messages_body(rows: list[Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 10, "messages": rows, "tools": [{"name": "f"}], **more}


@pytest.mark.parametrize(
    "rows",
    [
        [USER],
        [USER, SAID, USER],
        [USER, said(THOUGHT, TEXT, use("a"), use("b")), asked(answer("b"), answer("a"), TEXT)],
        [USER, said(use(arguments={"_private": 1})), asked(answer())],
    ],
)
def test_a_good_messages_history_passes(rows: list[Any]) -> None:
    check_request(WireFormat.MESSAGES, messages_body(rows))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (messages_body([USER], max_tokens=None), r"^max_tokens: is required"),
        (messages_body([SAID]), r"^messages\[0\]\.role: is 'assistant'; roles must alternate"),
        (messages_body([USER, USER]), r"^messages\[1\]\.role: is 'user'"),
        (messages_body([USER, SAID, SAID]), r"^messages\[2\]\.role"),
        (messages_body([{"role": "system", "content": "x"}]), r"^messages\[0\]\.role"),
        (messages_body([USER | {"name": "x"}]), r"^messages\[0\]\.name: is not a key"),
        (messages_body([asked()]), r"^messages\[0\]\.content: must be a non-empty list"),
        (messages_body([asked({"type": "text", "text": " "})]), r"content\[0\]\.text: must hold more than"),
        (messages_body([USER, {"role": "assistant", "content": "so "}]), r"must not end in white space"),
        (messages_body([USER, said(use()), USER]), r"^messages\[2\]: the call 't1' of messages\[1\]"),
        (messages_body([USER, said(use())]), r"^messages: the call 't1' .* at the end"),
        (messages_body([USER, said(use()), asked(TEXT, answer())]), r"^messages\[2\]\.content\[1\]: .* come before"),
        (messages_body([USER, said(TEXT), asked(answer())]), r"^messages\[2\]\.content\[0\]: answers 't1'"),
        (messages_body([USER, said(use()), asked(answer(), answer())]), r"^messages\[2\]\.content\[1\]: answers"),
        (messages_body([USER, said(use("a b")), asked(answer("a b"))]), r"content\[0\]\.id: 'a b' must match"),
        (messages_body([USER, said(use(), use()), asked(answer())]), r"content\[1\]\.id: 't1' is used twice"),
        (messages_body([USER, said(use(arguments="{}")), asked(answer())]), r"input: must be an object"),
        (messages_body([USER, said({"type": "thinking", "thinking": "x"}, TEXT), USER]), r"signature: a thinking"),
        (messages_body([USER, said(answer())]), r"an assistant message cannot hold a tool_result"),
        (messages_body([asked(use())]), r"a user message cannot hold a block of type tool_use"),
        (messages_body([USER, said(use()), asked(answer())], tools=[]), r"^tools: must be given"),
        (messages_body([asked(TEXT | {"_x": 1})]), r"content\[0\]\._x: is a private key"),
        (messages_body([asked({"type": "text", "text": "\udc00"})]), r"lone surrogate"),
    ],
)
def test_a_malformed_messages_history_is_refused_with_its_place(body: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedHistory, match=message):
        check_request(WireFormat.MESSAGES, body)


def test_with_thinking_enabled_the_running_tool_cycle_must_keep_its_thinking() -> None:
    old = [USER, said(use("old")), asked(answer("old")), said(TEXT)]
    thinking = {"type": "enabled", "budget_tokens": 4000}
    kept = [*old, USER, said(THOUGHT, use()), asked(answer())]
    check_request(WireFormat.MESSAGES, messages_body(kept, thinking=thinking))
    lost = [*old, USER, said(use()), asked(answer())]
    check_request(WireFormat.MESSAGES, messages_body(lost))
    with pytest.raises(MalformedHistory, match=r"^messages\[5\]\.content\[0\]\.type: expected thinking"):
        check_request(WireFormat.MESSAGES, messages_body(lost, thinking=thinking))


def function(call_id: Any = "c1", arguments: Any = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments}


def output(call_id: Any = "c1", value: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


THINKING_ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}


@pytest.mark.parametrize(
    "items",
    [
        "hi",
        [USER],
        [USER, THINKING_ITEM, function("a"), function("b"), output("b"), output("a"), SAID, USER],
        [USER, function(), SAID, output(), USER],
    ],
)
def test_a_good_responses_history_passes(items: Any) -> None:
    check_request(WireFormat.RESPONSES, {"model": "m", "input": items, "store": False})


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (None, r"^input: must be a non-empty list"),
        ([{"role": "tool", "content": "x"}], r"^input\[0\]\.role: 'tool'"),
        ([{"role": "user", "content": ""}], r"^input\[0\]\.content: is empty"),
        ([USER, output()], r"^input\[1\]: no open function call with call_id 'c1'"),
        ([USER, function(), output(), output()], r"^input\[3\]: no open function call"),
        ([USER, function(), USER], r"^input\[2\]: the call 'c1' of input\[1\] has no result"),
        ([USER, function()], r"^input: the call 'c1' .* at the end"),
        ([USER, function(), output(), function(), output()], r"^input\[3\]\.call_id: 'c1' is used twice"),
        ([USER, function(None)], r"call_id: must be a non-empty string"),
        ([USER, function(arguments="x"), output()], r"^input\[1\]\.arguments: is not JSON"),
        ([USER, function(), output(value=None)], r"^input\[2\]\.output: must be"),
        ([USER, SAID, SAID], r"^input\[2\]: follows another assistant"),
        ([USER, THINKING_ITEM], r"^input\[1\]: a reasoning item must be followed"),
        ([USER, THINKING_ITEM, USER], r"^input\[1\]: a reasoning item must be followed"),
        ([USER, {"type": "reasoning", "id": "rs_1", "summary": []}, SAID], r"no encrypted_content"),
        ([USER | {"_x": 1}], r"^input\[0\]\._x: is a private key"),
        ([{"role": "user", "content": "\ud800"}], r"lone surrogate"),
    ],
)
def test_a_malformed_responses_history_is_refused_with_its_place(items: Any, message: str) -> None:
    with pytest.raises(MalformedHistory, match=message):
        check_request(WireFormat.RESPONSES, {"model": "m", "input": items, "store": False})
