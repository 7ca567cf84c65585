"""Plain dicts in and out."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.embedding.messages import (
    clean,
    content_from,
    event_name,
    message_dict,
    plain,
    record_dict,
    rows_from,
    usage_dict,
)
from hermes.errors import InvalidParams
from hermes.events import ToolEnded, TurnEnded
from hermes.messages import Content, ImagePart, Row, TextPart, ToolCall, ToolResult
from hermes.outcomes import Cancelled, CancelReason, Cause, Completed, Failed, TurnOutcome, TurnRecord, Usage

KEYS = {
    "final_response", "last_reasoning", "messages", "api_calls", "iterations", "completed", "partial", "interrupted",
    "failed", "turn_exit_reason", "error", "failure_reason", "failure_retryable", "failure_resets_at", "pending_steer",
    "interrupt_message", "response_previewed", "response_transformed", "pre_transform_response", "response_reused",
    "model", "requested_model", "served_model", "provider", "base_url", "input_tokens", "output_tokens",
    "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "prompt_tokens", "completion_tokens",
    "total_tokens", "turn_usage", "last_prompt_tokens", "estimated_cost_usd", "cost_status", "cost_source",
    "service_tier", "session_id", "turn_id", "current_turn_user_idx", "user_intervened", "guardrail",
    "compression_exhausted", "billing_block", "cleanup_errors",
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "content"),
    [
        (None, None),
        ("text", "text"),
        ("lone \ud800 surrogate", "lone � surrogate"),
        ([{"type": "text", "text": "a"}, "b"], (TextPart("a"), TextPart("b"))),
        (
            [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}],
            (ImagePart("image/png", data="aGk="),),
        ),
        ([{"type": "input_image", "image_url": "https://x/y.png"}], (ImagePart("image/*", url="https://x/y.png"),)),
        ([TextPart("a")], (TextPart("a"),)),
    ],
)
def test_content_is_text_or_parts(given: Any, content: Content) -> None:
    assert content_from(given) == content


@pytest.mark.parametrize("part", [5, {"type": "audio"}, {"type": "image_url"}, {}])
def test_a_part_that_is_none_is_refused(part: Any) -> None:
    with pytest.raises(InvalidParams):
        content_from([part])


def test_text_with_emoji_stays_as_it_is() -> None:
    assert clean("🙂 ü") == "🙂 ü"


CONVERSATION = (
    Row("user", (TextPart("look"), ImagePart("image/png", data="aGk=")), row_id=1),
    Row("assistant", "", tool_calls=(ToolCall("c1", "read", '{"a": 1}'),), row_id=2, finish_reason="tool_calls"),
    Row("tool", "content", tool_call_id="c1", tool_name="read", row_id=3),
    Row("assistant", "done", row_id=4, reasoning="thought"),
)


def test_a_conversation_goes_out_and_in_again() -> None:
    messages = [message_dict(row) for row in CONVERSATION]
    assert messages[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}],
        "finish_reason": "tool_calls",
        "id": 2,
    }
    assert rows_from(messages) == CONVERSATION


def test_system_messages_are_left_out_and_unknown_roles_refused() -> None:
    assert rows_from([{"role": "system", "content": "x"}]) == ()
    with pytest.raises(InvalidParams, match="'robot'"):
        rows_from([{"role": "robot", "content": "x"}])


@pytest.mark.parametrize(
    "outcome",
    [
        Completed("done"),
        Cancelled(CancelReason(Cause.USER_INTERRUPT, "enough"), "half"),
        Failed("broken", "auth", retryable=True, resets_at=5.0),
        Failed("cut", "truncated", "half", incomplete=True),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_the_record_has_all_keys_on_every_path(outcome: TurnOutcome) -> None:
    record = TurnRecord("t", "s", outcome, "reason", user_row_id=1, usage=Usage(1, 2), session_usage=Usage(10, 20))
    told = record_dict(record, CONVERSATION, interrupt_message="later")
    assert told.keys() >= KEYS
    assert (told["completed"], told["interrupted"], told["failed"], told["partial"]) == (
        record.completed,
        record.interrupted,
        record.failed,
        record.partial,
    )
    assert (told["total_tokens"], told["turn_usage"]["total_tokens"]) == (30, 3)
    assert (told["current_turn_user_idx"], told["interrupt_message"]) == (0, "later")
    assert told["messages"][0]["content"][0] == {"type": "text", "text": "look"}


def test_a_turn_without_a_prompt_of_its_own_has_no_index() -> None:
    told = record_dict(TurnRecord("t", "s", Completed("x"), "r"), [Row("assistant", "x")])
    assert told["current_turn_user_idx"] is None
    assert (told["estimated_cost_usd"], told["cost_status"]) == (None, "unknown")
    priced = TurnRecord("t", "s", Completed("x"), "r", session_usage=Usage(cost_usd=0.5))
    assert record_dict(priced, [])["cost_status"] == "estimated"


def test_usage_has_both_spellings() -> None:
    told = usage_dict(Usage(5, 7, cache_read_tokens=20, cache_write_tokens=30))
    assert (told["input_tokens"], told["output_tokens"]) == (5, 7)
    assert (told["prompt_tokens"], told["completion_tokens"], told["total_tokens"]) == (55, 7, 62)


def test_events_become_plain_data() -> None:
    ended = ToolEnded("t", "c", "read", {"path": "x"}, ToolResult("c", "read", "text"), 1.5)
    assert event_name(ended) == "tool_ended"
    told = plain(ended)
    assert (told["args"], told["result"]["content"], told["duration_s"]) == ({"path": "x"}, "text", 1.5)
    record = TurnRecord("t", "s", Cancelled(CancelReason(Cause.DEADLINE)), "r", row_ids=(1, 2))
    told = plain(TurnEnded("t", record))
    assert told["record"]["outcome"]["reason"]["cause"] == "deadline"
    assert told["record"]["row_ids"] == [1, 2]
