"""Recorded streams of the three formats, whole and cut at every byte."""

from __future__ import annotations

import pytest

from hermes.agent.ports import DeltaKind, ModelFinished
from hermes.messages import ToolCall
from hermes.outcomes import Usage
from tests.support.provider_parsing import TRANSCRIPTS, Reading, endpoint

ROUTED = endpoint(base_url="https://openrouter.example/api/v1", routed=True)
THINKING = [
    {"type": "thinking", "thinking": "I should look.", "signature": "EqQB"},
    {"type": "redacted_thinking", "data": "opaque=="},
]
DETAILS = [
    {
        "type": "reasoning.text",
        "text": "Let me think.",
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": "SIG",
    }
]
REASONING_ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Plan it."}],
    "encrypted_content": "gAAA",
}

EXPECTED = {
    "chat_text": ModelFinished(
        text="Héllo wörld 👋",
        finish_reason="stop",
        usage=Usage(15, 7, cache_read_tokens=5, reasoning_tokens=3, calls=1),
        served_model="gpt-x",
        response_id="chatcmpl-1",
    ),
    "chat_tools": ModelFinished(
        tool_calls=(
            ToolCall("call_a", "read_file", '{"path":"a.txt"}'),
            ToolCall("call_b", "terminal", '{"command":"ls"}'),
        ),
        finish_reason="tool_calls",
        served_model="gpt-x",
        response_id="c2",
    ),
    "chat_routed_reasoning": ModelFinished(
        text="Done.",
        reasoning="Let me think.",
        finish_reason="stop",
        usage=Usage(10, 4, calls=1, cost_usd=0.0012),
        reasoning_details=DETAILS,
        replay_items=[{"issuer": "openrouter.example", "items": DETAILS}],
        served_model="anthropic/claude-x",
        response_id="gen-1",
    ),
    "messages_thinking_tools": ModelFinished(
        text="Checking — now.",
        reasoning="I should look.",
        tool_calls=(ToolCall("toolu_1", "get_weather", '{"location": "San Francisco"}'),),
        finish_reason="tool_calls",
        usage=Usage(30, 89, cache_read_tokens=200, cache_write_tokens=100, calls=1),
        reasoning_details=THINKING,
        replay_items=[{"issuer": "api.example.com", "items": THINKING}],
        served_model="claude-x",
        response_id="msg_1",
    ),
    "responses_reasoning_tools": ModelFinished(
        text="Looking ✓",
        reasoning="Plan it.",
        tool_calls=(ToolCall("call_1", "read_file", '{"path":"a"}', call_id="call_1", response_item_id="fc_1"),),
        finish_reason="tool_calls",
        usage=Usage(30, 12, cache_read_tokens=20, reasoning_tokens=6, calls=1),
        reasoning_details=[REASONING_ITEM],
        replay_items=[{"issuer": "api.example.com", "items": [REASONING_ITEM]}],
        served_model="gpt-5.5-2026",
        response_id="resp_1",
    ),
}
MODES = {"chat": "chat_completions", "messages": "anthropic_messages", "responses": "codex_responses"}


def reading(name: str) -> Reading:
    if name == "chat_routed_reasoning":
        return Reading("chat_completions", at=ROUTED)
    return Reading(MODES[name.partition("_")[0]])


@pytest.fixture(params=sorted(EXPECTED))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_recorded_stream_gives_what_was_said(name: str) -> None:
    read = reading(name)
    finished = read.read([(TRANSCRIPTS / f"{name}.sse").read_bytes()])
    assert finished == EXPECTED[name]
    assert read.said(DeltaKind.TEXT) == finished.text
    assert read.said(DeltaKind.REASONING) == finished.reasoning
    assert [text for kind, text in read.deltas if kind is DeltaKind.TOOL_NAME] == [c.name for c in finished.tool_calls]


def test_a_stream_cut_at_any_byte_gives_the_same(name: str) -> None:
    data = (TRANSCRIPTS / f"{name}.sse").read_bytes()
    for cut in range(1, len(data)):
        assert reading(name).read([data[:cut], data[cut:]]) == EXPECTED[name], cut


def test_a_stream_byte_by_byte_gives_the_same(name: str) -> None:
    data = (TRANSCRIPTS / f"{name}.sse").read_bytes()
    assert reading(name).read([data[i : i + 1] for i in range(len(data))]) == EXPECTED[name]


def test_a_stream_with_crlf_cut_at_any_byte_gives_the_same(name: str) -> None:
    data = (TRANSCRIPTS / f"{name}.sse").read_bytes().replace(b"\n", b"\r\n")
    for cut in range(1, len(data), 3):
        assert reading(name).read([data[:cut], data[cut:]]) == EXPECTED[name], cut
