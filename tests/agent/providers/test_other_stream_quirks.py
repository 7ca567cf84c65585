"""Habits of message and response streams."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from hermes.agent.ports import DeltaKind, ModelFinished
from hermes.errors import ProviderError
from hermes.messages import ToolCall
from hermes.outcomes import Usage
from tests.support.provider_parsing import Reading, events


def messages(*payloads: Any) -> ModelFinished:
    return Reading("anthropic_messages").read([events(*payloads, done=False)])


def responses(*payloads: Any) -> ModelFinished:
    return Reading("codex_responses").read([events(*payloads, done=False)])


START = {
    "type": "message_start",
    "message": {"id": "m1", "model": "claude", "usage": {"input_tokens": 9, "output_tokens": 1}},
}
TEXT = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
STOP = {"type": "message_stop"}


def stopped(reason: str, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "length"),
        ("model_context_window_exceeded", "length"),
    ],
)
def test_stop_reasons_of_messages_have_one_name_each(reason: str, expected: str) -> None:
    assert messages(START, TEXT, stopped(reason), STOP).finish_reason == expected


def test_usage_of_messages_is_cumulative_and_a_later_zero_changes_nothing() -> None:
    finished = messages(START, TEXT, stopped("end_turn", input_tokens=0, output_tokens=5), STOP)
    assert finished.usage == Usage(9, 5, calls=1)


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "api_error", "message": "Internal server error"}, "server_error"),
        ({"type": "rate_limit_error", "message": "slow down"}, "rate_limit"),
        (
            {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
            "context_overflow",
        ),
    ],
)
def test_an_error_event_of_messages_is_classified(error: dict[str, str], error_class: str) -> None:
    with pytest.raises(ProviderError) as caught:
        messages(START, TEXT, {"type": "error", "error": error})
    assert caught.value.error_class == error_class


def test_a_stated_window_is_learned_from_the_error() -> None:
    with pytest.raises(ProviderError) as caught:
        messages(
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 210000 tokens > 200000 maximum",
                },
            }
        )
    assert caught.value.details["context_limit"] == 200_000


def test_messages_without_stop_are_truncated() -> None:
    assert messages(START, TEXT).finish_reason is None


def test_text_without_an_opening_event_is_read() -> None:
    assert messages(TEXT, TEXT, STOP).text == "HiHi"


def test_thinking_without_signature_is_shown_and_not_replayed() -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "hm"}}
    finished = messages(START, block, STOP)
    assert (finished.reasoning, finished.reasoning_details, finished.replay_items) == ("hm", None, None)


def test_a_tool_input_that_came_whole_is_taken() -> None:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    finished = messages({"type": "content_block_start", "index": 0, "content_block": block}, stopped("tool_use"), STOP)
    assert finished.tool_calls == (ToolCall("t", "f", '{"a": 1}'),)


def test_a_whole_message_is_an_answer() -> None:
    body = {
        "id": "m1",
        "type": "message",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "S"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    reading = Reading("anthropic_messages")
    finished = reading.read([orjson.dumps(body)], "application/json")
    assert (finished.text, finished.reasoning, finished.finish_reason) == ("Hi", "hm", "tool_calls")
    assert finished.reasoning_details == [{"type": "thinking", "thinking": "hm", "signature": "S"}]
    assert reading.said(DeltaKind.TOOL_NAME) == "f"


def item(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": fields}


def ended(kind: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"id": "r", "status": kind, "model": "gpt", **fields}}


MESSAGE = {"id": "m", "type": "message", "content": [{"type": "output_text", "text": "Hello"}]}


def test_text_that_came_without_deltas_is_read_from_the_item() -> None:
    reading = Reading("codex_responses")
    finished = reading.read([events(item("done", 0, **MESSAGE), ended(output=[]), done=False)])
    assert (finished.text, reading.said(DeltaKind.TEXT), finished.finish_reason) == ("Hello", "Hello", "stop")


def test_text_that_came_as_deltas_is_not_read_twice() -> None:
    piece = {"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": "Hello"}
    assert responses(piece, item("done", 0, **MESSAGE), ended(output=[MESSAGE])).text == "Hello"


def test_items_only_in_the_final_list_are_read() -> None:
    call = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": "{}"}
    finished = responses(ended(output=[MESSAGE, call]))
    assert (finished.text, finished.tool_calls[0].id, finished.finish_reason) == ("Hello", "c1", "tool_calls")


@pytest.mark.parametrize(
    ("reason", "expected"), [("max_output_tokens", "length"), ("content_filter", "content_filter"), (None, "length")]
)
def test_an_incomplete_response_says_why(reason: str | None, expected: str) -> None:
    finished = responses(ended("incomplete", incomplete_details={"reason": reason}))
    assert (finished.finish_reason, finished.incomplete) == (expected, expected == "length")
    assert not responses(ended()).incomplete


@pytest.mark.parametrize(
    ("payload", "error_class"),
    [
        (ended("failed", error={"code": "server_error", "message": "boom"}), "server_error"),
        (ended("failed", error={"code": "rate_limit_exceeded", "message": "try again in 3s"}), "rate_limit"),
        ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, "context_overflow"),
        (
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "code": "invalid_encrypted_content", "message": "x"},
            },
            "invalid_encrypted_content",
        ),
    ],
)
def test_a_failed_response_is_classified(payload: Any, error_class: str) -> None:
    with pytest.raises(ProviderError) as caught:
        responses(payload)
    assert caught.value.error_class == error_class


def test_a_response_that_just_closes_is_truncated() -> None:
    piece = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"}
    assert (responses(piece).text, responses(piece).finish_reason) == ("Hel", None)


def test_reasoning_without_encrypted_content_is_not_replayed() -> None:
    reasoning = {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]}
    finished = responses(item("done", 0, **reasoning), ended(output=[]))
    assert (finished.reasoning, finished.replay_items) == ("why", None)


def test_refusals_of_responses_are_kept_apart() -> None:
    finished = responses({"type": "response.refusal.delta", "output_index": 0, "delta": "No."}, ended(output=[]))
    assert (finished.text, finished.refusal) == ("", "No.")


def test_a_whole_response_is_an_answer() -> None:
    body = {
        "id": "r",
        "object": "response",
        "status": "completed",
        "model": "gpt",
        "output": [MESSAGE],
        "usage": {"input_tokens": 2, "output_tokens": 1},
    }
    finished = Reading("codex_responses").read([orjson.dumps(body)], "application/json")
    assert (finished.text, finished.finish_reason, finished.usage) == ("Hello", "stop", Usage(2, 1, calls=1))
