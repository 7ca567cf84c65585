"""A request whose front is copied has the bytes of one that is made whole, in every format, whatever is added to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.agent.ports import ModelRequest
from hermes.agent.providers import encoded_rows
from hermes.agent.providers.http_provider import FORMATS
from hermes.agent.providers.wire_format import Endpoint, dump_body, dump_list
from hermes.agent.row_memory import RowMemory
from hermes.agent.wire_copy import WireOptions
from hermes.messages import ImagePart, Row, TextPart, ToolCall

OPTIONS = WireOptions()
PLACES = {
    "chat": (Endpoint("p", "https://api.example.com/v1", "k"), "gpt-4.1"),
    "chat with a developer role": (Endpoint("p", "https://api.example.com/v1", "k", developer_role=True), "gpt-5.5"),
    "chat with echoed reasoning": (Endpoint("p", "https://api.example.com/v1", "k", echo_reasoning=True), "deepseek"),
    "routed": (Endpoint("p", "https://openrouter.ai/api/v1", "k", routed=True), "anthropic/claude-sonnet-4.6"),
    "messages": (
        Endpoint("p", "https://api.example.com/v1", "k", api_mode="anthropic_messages"),
        "claude-sonnet-4-6",
    ),
    "responses": (Endpoint("p", "https://api.example.com/v1", "k", api_mode="codex_responses"), "gpt-5.5"),
}
IMAGE = ImagePart(mime_type="image/png", data="aGk=")


def signed(host: str, kind: str) -> list[dict[str, Any]]:
    items = {
        "messages": {"type": "thinking", "thinking": "hm", "signature": "sig"},
        "responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    }
    return [{"issuer": host, "items": [items.get(kind, {"type": "reasoning.text", "text": "hm"})]}]


@st.composite
def pieces(draw: st.DrawFn) -> list[Row]:
    """Something that comes into a conversation in one go."""
    said = draw(st.sampled_from(["hello", " ", 'with "quotes" and é', "a\ud800"]))
    number = draw(st.integers(0, 10_000))
    call = ToolCall(f"c{number}", "look", '{"b":1,"a":2}', response_item_id=f"fc_{number}")
    kind = draw(st.sampled_from(["messages", "responses", "chat"]))
    details = [{"type": "thinking"}] if draw(st.booleans()) else None
    acting = Row(
        "assistant",
        draw(st.sampled_from([None, said])),
        tool_calls=(call,),
        reasoning_details=details,
        replay_items=signed(draw(st.sampled_from(["api.example.com", "openrouter.ai/anthropic"])), kind),
    )
    seen = draw(st.sampled_from([Row("tool", said), Row("tool", (TextPart("an image"), IMAGE))])).content
    result = Row("tool", seen, tool_call_id=call.id, tool_name="look")
    return draw(
        st.sampled_from(
            [
                [Row("user", said)],
                [Row("user", (TextPart(said), IMAGE))],
                [Row("assistant", said)],
                [acting, result],
                [acting, result, Row("user", said, api_content=f"<{said}>", display_kind="steer")],
                [acting],
                [Row("assistant", said), Row("user", said, display_metadata={"redirect": True})],
                [Row("user", said), acting, result, Row("assistant", said)],
            ]
        )
    )


def front(turns: int) -> list[Row]:
    rows: list[Row] = []
    for number in range(turns):
        call = ToolCall(f"f{number}", "look", "{}")
        rows += [Row("user", f"prompt {number}"), Row("assistant", None, tool_calls=(call,))]
        rows += [Row("tool", "seen", tool_call_id=call.id), Row("assistant", f"answer {number}")]
    return rows


def bodies(rows: list[Row], memory: RowMemory, place: Endpoint, model: str, extra: list[Row]) -> tuple[bytes, bytes]:
    """(with the memory, without it)."""
    wire = memory.wire(rows, OPTIONS, extra)
    system = ("You are a test.", f"It is day {len(rows)}.")
    request = ModelRequest("r", model, wire.rows, system=system, settled=wire.settled)
    form = FORMATS[place.api_mode]
    whole = replace(request, settled=None)
    return tuple(dump_body(form.body(asked, place, frozenset())) for asked in (request, whole))  # type: ignore[return-value]


@pytest.mark.parametrize("name", list(PLACES))
@settings(max_examples=60, deadline=None)
@given(st.lists(pieces(), min_size=1, max_size=8), st.booleans(), st.integers(0, 20))
def test_the_bytes_are_those_of_a_request_that_is_made_whole(
    name: str, life: list[list[Row]], continued: bool, cut: int
) -> None:
    place, model = PLACES[name]
    memory = RowMemory()
    rows = front(6)
    extra = [Row("assistant", "half an"), Row("user", "[go on]")] if continued else []
    for piece in life:
        rows += piece
        copied, whole = bodies(rows, memory, place, model, extra)
        assert copied == whole
    # A rewind, and the conversation goes on.
    rows = [*rows[: len(rows) - cut], Row("user", "rather this")]
    for piece in ([], *life[::-1]):
        rows += piece
        copied, whole = bodies(rows, memory, place, model, extra)
        assert copied == whole


@pytest.mark.parametrize("name", list(PLACES))
def test_a_later_request_writes_only_what_is_new(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, model = PLACES[name]
    memory = RowMemory()
    rows = front(200)
    first, _ = bodies(rows, memory, place, model, [])
    written: list[int] = []

    def dump(messages: Sequence[Any]) -> bytes:
        written.append(len(messages))
        return dump_list(messages)

    monkeypatch.setattr(encoded_rows, "dump_list", dump)
    rows += front(1)
    second, whole = bodies(rows, memory, place, model, [])
    assert second == whole and len(second) > len(first)
    assert sum(written) < 40


@pytest.mark.parametrize("name", list(PLACES))
def test_the_request_after_a_rewind_writes_only_what_is_new(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, model = PLACES[name]
    memory = RowMemory()
    rows = front(200)
    bodies(rows, memory, place, model, [])
    written: list[int] = []

    def dump(messages: Sequence[Any]) -> bytes:
        written.append(len(messages))
        return dump_list(messages)

    monkeypatch.setattr(encoded_rows, "dump_list", dump)
    for number in range(3):
        rows[-8:] = [*front(1), Row("user", f"rather this {number}")]
        copied, whole = bodies(rows, memory, place, model, [])
        assert copied == whole
    assert sum(written) < 3 * 40


def test_a_session_that_changes_between_endpoints_keeps_a_few_fronts_only() -> None:
    memory = RowMemory()
    rows = front(6)
    for number in range(10):
        place = Endpoint(f"p{number}", "https://api.example.com/v1")
        copied, whole = bodies(rows, memory, place, "m", [])
        assert copied == whole
    assert len(memory.wire(rows, OPTIONS).settled.kept) == encoded_rows.MOST_ENDPOINTS


def test_characters_that_json_cannot_hold_do_not_spoil_the_front() -> None:
    memory = RowMemory()
    call = ToolCall("c", "look", '{"path":"a\\ud800"}')
    rows = [*front(6), Row("assistant", None, tool_calls=(call,)), Row("tool", "x", tool_call_id="c"), *front(2)]
    place, model = PLACES["chat"]
    copied, whole = bodies(rows, memory, place, model, [])
    assert copied == whole
    orjson.loads(copied)
