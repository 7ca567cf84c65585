"""What servers do to a chat completion stream, one habit per test."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from hermes.agent.ports import DeltaKind
from hermes.agent.providers.wire_format import FINISHING, SETTLED, made_up_call_id
from hermes.errors import ProviderError
from hermes.messages import ToolCall
from hermes.outcomes import Usage
from tests.support.provider_parsing import TERMINAL, Reading, delta, endpoint, events, request


def read(*payloads: object, done: bool = True) -> Reading:
    reading = Reading("chat_completions")
    reading.finished = reading.read([events(*payloads, done=done)])  # type: ignore[attr-defined]
    return reading


def call(**fields: Any) -> dict[str, object]:
    return delta(tool_calls=[fields])


def calls_of(*payloads: object) -> tuple[ToolCall, ...]:
    return read(*payloads, delta("tool_calls")).finished.tool_calls  # type: ignore[attr-defined,no-any-return]


MADE_UP = [made_up_call_id("t1:api:1", place) for place in range(3)]


def test_a_call_without_index_goes_to_slot_zero() -> None:
    pieces: list[dict[str, Any]] = [
        {"id": "a", "function": {"name": "f", "arguments": '{"x":'}},
        {"function": {"arguments": "1}"}},
    ]
    assert calls_of(*(call(**piece) for piece in pieces)) == (ToolCall("a", "f", '{"x":1}'),)


def test_a_call_without_id_gets_the_same_id_whenever_it_is_read() -> None:
    piece = call(index=0, function={"name": "f", "arguments": "{}"})
    assert calls_of(piece) == calls_of(piece) == (ToolCall(MADE_UP[0], "f", "{}"),)


def test_an_integer_id_becomes_text() -> None:
    assert calls_of(call(index=0, id=7, function={"name": "f", "arguments": "{}"})) == (ToolCall("7", "f", "{}"),)


def test_a_new_id_at_a_filled_index_is_a_new_call() -> None:
    pieces = [call(index=0, id=key, function={"name": key * 2, "arguments": "{}"}) for key in "ab"]
    assert calls_of(*pieces) == (ToolCall("a", "aa", "{}"), ToolCall("b", "bb", "{}"))


def test_whole_calls_at_one_index_without_ids_are_two_calls() -> None:
    pieces = [call(index=0, function={"name": name, "arguments": '{"a":1}'}) for name in ("f", "g")]
    assert [(c.id, c.name) for c in calls_of(*pieces)] == [(MADE_UP[0], "f"), (MADE_UP[1], "g")]


def test_calls_in_pieces_at_one_index_without_ids_are_two_calls() -> None:
    pieces = [
        call(index=0, function=function)
        for name in ("f", "f", "g")
        for function in ({"name": name, "arguments": ""}, {"arguments": '{"a":'}, {"arguments": "1}"})
    ]
    assert [(c.name, c.arguments) for c in calls_of(*pieces)] == [(name, '{"a":1}') for name in ("f", "f", "g")]


def test_a_name_repeated_behind_whole_arguments_is_no_call() -> None:
    pieces = [call(index=0, function={"name": "f", "arguments": text}) for text in ('{"a":', "1}", "")]
    assert [(c.name, c.arguments) for c in calls_of(*pieces)] == [("f", '{"a":1}')]


def test_the_same_id_for_two_calls_is_made_unique() -> None:
    pieces = [call(index=place, id="x", function={"name": "f", "arguments": "{}"}) for place in (0, 1)]
    assert [c.id for c in calls_of(*pieces)] == ["x", MADE_UP[1]]


def test_a_repeated_name_is_not_concatenated() -> None:
    pieces = [call(index=0, id="a", function={"name": "fetch", "arguments": part}) for part in ('{"u":', '"x"}')]
    assert calls_of(*pieces) == (ToolCall("a", "fetch", '{"u":"x"}'),)


def test_a_name_that_grows_is_taken_whole() -> None:
    pieces = [call(index=0, id="a", function={"name": name}) for name in ("fe", "fetch")]
    assert calls_of(*pieces, call(index=0, function={"arguments": "{}"})) == (ToolCall("a", "fetch", "{}"),)


def test_arguments_as_an_object_are_dumped() -> None:
    piece = call(index=0, id="a", function={"name": "f", "arguments": {"é": [1, 2]}})
    assert calls_of(piece) == (ToolCall("a", "f", '{"é":[1,2]}'),)


def test_missing_and_null_arguments_become_an_empty_object() -> None:
    assert calls_of(call(index=0, id="a", function={"name": "f", "arguments": None})) == (ToolCall("a", "f", "{}"),)
    assert calls_of(call(index=0, id="a", function={"name": "f"})) == (ToolCall("a", "f", "{}"),)


def test_broken_arguments_are_kept_as_they_are() -> None:
    assert calls_of(call(index=0, id="a", function={"name": "f", "arguments": '{"x":'}))[0].arguments == '{"x":'


def test_calls_in_a_whole_message_at_the_end_are_taken() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
    }
    chunk = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    finished = read(delta(content="Hi"), chunk).finished  # type: ignore[attr-defined]
    assert (finished.text, finished.tool_calls, finished.finish_reason) == (
        "Hi",
        (ToolCall("a", "f", "{}"),),
        "tool_calls",
    )


def test_a_legacy_function_call_is_a_call() -> None:
    pieces = [delta(function_call={"name": "f"}), delta(function_call={"arguments": '{"a":1}'})]
    assert calls_of(*pieces) == (ToolCall(MADE_UP[0], "f", '{"a":1}'),)


def test_the_name_is_announced_once_and_before_the_arguments_are_whole() -> None:
    reading = read(
        call(index=0, id="a", function={"name": "f", "arguments": ""}),
        call(index=0, function={"arguments": "{"}),
        call(index=0, function={"arguments": "}"}),
    )
    assert reading.deltas == [(DeltaKind.TOOL_NAME, "f")]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_is_read_from_any_of_its_fields(field: str) -> None:
    finished = read(delta(**{field: "thinking"}), delta("stop", content="ok")).finished  # type: ignore[attr-defined]
    assert (finished.reasoning, finished.text) == ("thinking", "ok")
    assert finished.reasoning_content == ("thinking" if field == "reasoning_content" else None)


def test_reasoning_under_two_names_is_read_once() -> None:
    finished = read(
        delta(reasoning="a", reasoning_content="a"), delta("stop", reasoning="b", reasoning_content="b")
    ).finished  # type: ignore[attr-defined]
    assert finished.reasoning == "ab"


def test_reasoning_details_alone_are_shown_and_kept() -> None:
    detail = {"type": "reasoning.summary", "summary": "why", "index": 0}
    finished = read(delta(reasoning_details=[detail]), delta("stop")).finished  # type: ignore[attr-defined]
    assert (finished.reasoning, finished.reasoning_details) == ("why", [detail])


def test_content_as_a_list_of_parts_is_text_and_thinking() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    finished = read(delta("stop", content=parts)).finished  # type: ignore[attr-defined]
    assert (finished.reasoning, finished.text) == ("hm", "yes")


def test_null_deltas_say_nothing() -> None:
    chunk = {"choices": [{"index": 0, "delta": None, "finish_reason": None}]}
    finished = read(chunk, delta(content=None), delta("stop", content="x")).finished  # type: ignore[attr-defined]
    assert finished.text == "x"


USAGE = {"prompt_tokens": 4, "completion_tokens": 2}


@pytest.mark.parametrize(
    "payloads",
    [
        [delta("stop", content="x"), {"choices": [], "usage": USAGE}],
        [delta(content="x"), delta("stop") | {"usage": USAGE}],
        [
            delta(content="x") | {"usage": {"prompt_tokens": 4, "completion_tokens": 1}},
            delta("stop") | {"usage": USAGE},
        ],
        [{"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop", "usage": USAGE}]}],
    ],
    ids=["own chunk", "last chunk", "every chunk", "in the choice"],
)
def test_usage_is_found_wherever_it_is(payloads: list[object]) -> None:
    assert read(*payloads).finished.usage == Usage(4, 2, calls=1)  # type: ignore[attr-defined]


def test_without_usage_there_is_none() -> None:
    assert read(delta("stop", content="x")).finished.usage is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("something new", "stop"),
    ],
)
def test_finish_reasons_have_one_name_each(reason: str, expected: str) -> None:
    assert read(delta(reason, content="x")).finished.finish_reason == expected  # type: ignore[attr-defined]


def test_a_stop_with_calls_means_calls() -> None:
    finished = read(call(index=0, id="a", function={"name": "f", "arguments": "{}"}), delta("stop")).finished  # type: ignore[attr-defined]
    assert finished.finish_reason == "tool_calls"


def test_an_end_without_reason_and_marker_is_a_truncated_answer() -> None:
    finished = read(delta(content="half"), done=False).finished  # type: ignore[attr-defined]
    assert (finished.text, finished.finish_reason) == ("half", None)


def test_an_end_with_either_reason_or_marker_is_an_end() -> None:
    assert read(delta(content="x"), done=True).finished.finish_reason == "stop"  # type: ignore[attr-defined]
    assert read(delta("stop", content="x"), done=False).finished.finish_reason == "stop"  # type: ignore[attr-defined]


def test_a_last_event_without_blank_line_is_read() -> None:
    data = events(delta("stop", content="x"), done=False).rstrip(b"\n")
    assert Reading("chat_completions").read([data]).text == "x"


def test_a_stream_without_any_event_is_a_dropped_stream() -> None:
    with pytest.raises(ProviderError) as caught:
        Reading("chat_completions").read([b": ping\n\n", b": ping\n\n"])
    assert caught.value.error_class == "stream_dropped"


@pytest.mark.parametrize(
    ("payload", "error_class"),
    [
        ({"error": {"message": "Rate limit reached", "type": "rate_limit_error"}}, "rate_limit"),
        ({"error": {"message": "boom", "code": 502}}, "server_error"),
        ({"error": {"message": "too long", "code": "context_length_exceeded"}}, "context_overflow"),
        ({"error": {"code": 429, "message": "slow", "metadata": {"provider_name": "V"}}}, "upstream_rate_limit"),
        ({"object": "error", "message": "The server is overloaded", "code": 503}, "overloaded"),
        (delta("error"), "server_error"),
        (
            {"id": "g", "error": {"code": 503, "message": "x"}, "choices": [{"delta": {}, "finish_reason": "error"}]},
            "overloaded",
        ),
    ],
)
def test_an_error_inside_a_stream_is_classified(payload: object, error_class: str) -> None:
    with pytest.raises(ProviderError) as caught:
        read(delta(content="half"), payload)
    assert caught.value.error_class == error_class


def test_a_bare_error_line_inside_a_stream_is_an_error() -> None:
    data = events(delta(content="x"), done=False) + b'{"error":{"message":"gone","code":500}}\n\n'
    with pytest.raises(ProviderError) as caught:
        Reading("chat_completions").read([data])
    assert caught.value.error_class == "server_error"


def test_an_unreadable_event_is_a_dropped_stream_and_a_keep_alive_is_not() -> None:
    assert read("ping", delta("stop", content="x")).finished.text == "x"  # type: ignore[attr-defined]
    with pytest.raises(ProviderError) as caught:
        read(delta(content="x"), '{"choices": [{"del')
    assert caught.value.error_class == "stream_dropped"


def test_whole_json_instead_of_a_stream_is_an_answer() -> None:
    body = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "all at once"}, "finish_reason": "stop"}],
        "usage": USAGE,
    }
    reading = Reading("chat_completions")
    data = orjson.dumps(body, option=orjson.OPT_INDENT_2)
    finished = reading.read([data[:9], data[9:]], "application/json")
    assert (finished.text, finished.finish_reason, finished.usage) == ("all at once", "stop", Usage(4, 2, calls=1))
    assert reading.deltas == [(DeltaKind.TEXT, "all at once")]


@pytest.mark.parametrize("data", [b"<html><body>Hello</body></html>", b"\n<!doctype html><p>x"])
def test_a_web_page_is_a_wrong_address(data: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        Reading("chat_completions").read([data], "text/html")
    assert (caught.value.error_class, "base URL" in caught.value.message) == ("format_error", True)


def test_an_error_object_with_status_200_is_an_error() -> None:
    with pytest.raises(ProviderError) as caught:
        Reading("chat_completions").read([b'{"error": {"message": "no", "type": "authentication_error"}}'])
    assert caught.value.error_class == "auth"


def test_refusal_text_is_kept_apart() -> None:
    finished = read(delta(content=None, refusal="I can"), delta("stop", refusal="not.")).finished  # type: ignore[attr-defined]
    assert (finished.text, finished.refusal) == ("", "I cannot.")


def test_the_parser_says_how_long_the_rest_is_worth_waiting_for() -> None:
    from hermes.agent.providers.openai_chat import ChatParser

    parser = ChatParser(request(), endpoint(), lambda kind, text: None)
    assert parser.event(orjson.dumps(delta(content="x"))) is None
    assert parser.event(orjson.dumps(delta("stop"))) == FINISHING
    assert parser.event(b"[DONE]") == SETTLED


# --- calls written as text, local servers only


def local(text: list[str], **more: object) -> Reading:
    reading = Reading("chat_completions", asked=request(tools=(TERMINAL,)), at=endpoint(local=True))
    reading.finished = reading.read([events(*(delta(content=piece) for piece in text), delta("stop"))])  # type: ignore[attr-defined]
    return reading


@pytest.mark.parametrize("size", [1, 3, 200])
def test_a_local_server_may_write_a_call_as_text(size: int) -> None:
    text = 'Sure.\n<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>\n'
    reading = local([text[i : i + size] for i in range(0, len(text), size)])
    finished = reading.finished  # type: ignore[attr-defined]
    assert finished.tool_calls == (ToolCall(MADE_UP[0], "terminal", '{"command":"ls"}'),)
    assert (finished.finish_reason, reading.said(DeltaKind.TEXT).strip()) == ("tool_calls", "Sure.")


def test_a_call_may_be_written_as_xml() -> None:
    finished = local(
        ["<tool_call><function=terminal><parameter=command>\nls -l\n</parameter></function></tool_call>"]
    ).finished  # type: ignore[attr-defined]
    assert finished.tool_calls[0].arguments == '{"command":"ls -l"}'


def test_text_about_the_tag_stays_text() -> None:
    text = "Write `<tool_call>` like a < b, <tool>."
    assert local([text]).finished.text == text  # type: ignore[attr-defined]


def test_an_unreadable_block_stays_text() -> None:
    assert local(["<tool_call>nonsense</tool_call>"]).finished.text == "nonsense"  # type: ignore[attr-defined]


def test_elsewhere_the_tag_is_text() -> None:
    text = '<tool_call>{"name": "terminal"}</tool_call>'
    assert read(delta("stop", content=text)).finished.text == text  # type: ignore[attr-defined]
