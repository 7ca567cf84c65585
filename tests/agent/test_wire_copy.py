"""The wire copy keeps the strict grammar whatever is stored, and its front stays the same when rows are added."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.wire_copy import MISSING_RESULT, WireOptions, canonical_arguments, wire_copy
from hermes.messages import ImagePart, Row, TextPart, ToolCall
from hermes.testing.strict import check_request
from hermes.testing.wire_frames import WireFormat
from tests.support.loop_port import chat_message

OPTIONS = WireOptions()


def copied(*rows: Row, options: WireOptions = OPTIONS) -> list[tuple[str, Any]]:
    return [(row.role, row.content) for row in wire_copy(rows, options)]


def test_api_content_replaces_content_and_private_fields_are_gone() -> None:
    row = Row("user", "shown", 5.0, row_id=3, api_content="sent", platform_message_id="p", display_metadata={"x": 1})
    (sent,) = wire_copy([row], OPTIONS)
    assert sent == Row("user", "sent")


def test_arguments_are_canonical_and_broken_ones_become_an_empty_object() -> None:
    assert canonical_arguments('{"b": 1, "a": [1, 2]}') == '{"a":[1,2],"b":1}'
    assert canonical_arguments('{"b": ') == "{}"
    assert canonical_arguments("[1]") == "{}"


def test_results_without_a_call_go_and_calls_without_a_result_get_one() -> None:
    calls = (ToolCall("a", "x", "{}"), ToolCall("b", "y", "{}"))
    rows = [
        Row("user", "u"),
        Row("assistant", None, tool_calls=calls),
        Row("tool", "rb", tool_call_id="b"),
        Row("tool", "lost", tool_call_id="z"),
    ]
    assert copied(*rows)[2:] == [("tool", MISSING_RESULT), ("tool", "rb")]


def test_neighbours_of_one_role_are_joined_but_a_steer_stays_apart() -> None:
    steer = Row("user", "psst", display_kind="steer", api_content="[psst]")
    assert copied(Row("user", "a"), Row("user", "b"), steer, Row("user", "c")) == [
        ("user", "a\n\nb"),
        ("user", "[psst]"),
        ("user", "c"),
    ]
    assert copied(Row("user", "a"), steer, options=WireOptions(merge_all_roles=True)) == [("user", "a\n\n[psst]")]


def test_empty_assistant_rows_are_dropped_and_failure_notices_are_bracketed() -> None:
    failed = Row("assistant", "The turn failed", api_content="[note]", display_kind="failed_turn")
    left_out = Row("assistant", "x", display_kind="failed_turn", display_metadata={"left_out_of_context": True})
    rows = [Row("user", "a"), Row("assistant", ""), failed, Row("user", "b"), left_out, Row("user", "c")]
    assert copied(*rows) == [("user", "a"), ("assistant", "[note]"), ("user", "b\n\nc")]


def test_images_stay_for_models_that_see() -> None:
    content = (TextPart("look"), ImagePart("image/png", data="x"))
    assert copied(Row("user", content)) == [("user", content)]
    assert "cannot see" in copied(Row("user", content), options=WireOptions(vision=False))[0][1]


def test_lone_surrogates_never_leave() -> None:
    assert copied(Row("user", "a\ud800b")) == [("user", "a\ufffdb")]


texts = st.sampled_from(["", "hello", "a\ud800", "two\nlines"])
ids = st.sampled_from(["1", "2", "3"])
any_row = st.one_of(
    st.builds(Row, st.just("user"), texts, display_kind=st.sampled_from([None, "steer", "hidden"])),
    st.builds(
        lambda text, calls: Row("assistant", text, tool_calls=tuple(calls)),
        texts,
        st.lists(
            st.builds(ToolCall, ids, st.just("x"), st.sampled_from(["{}", "{", "[]", '{"b":1,"a":2}'])),
            max_size=2,
            unique_by=lambda one: one.id,
        ),
    ),
    st.builds(lambda text, call_id: Row("tool", text, tool_call_id=call_id), texts, ids),
)


@given(st.lists(any_row, max_size=12))
def test_any_pile_of_rows_becomes_a_request_that_strict_services_accept(rows: list[Row]) -> None:
    messages = [chat_message(row) for row in wire_copy([*rows, Row("user", "go")], OPTIONS)]
    check_request(WireFormat.CHAT, {"model": "m", "messages": messages})


@given(st.lists(any_row, max_size=12), st.lists(any_row, max_size=4))
def test_rows_added_behind_a_closed_turn_leave_the_front_alone(front: list[Row], more: list[Row]) -> None:
    closed = [*front, Row("user", "q", display_kind="steer"), Row("assistant", "a")]
    added = [row for row in more if row.role != "assistant"][:1]
    first = [json.dumps(chat_message(row)) for row in wire_copy(closed, OPTIONS)]
    second = [json.dumps(chat_message(row)) for row in wire_copy([*closed, *added], OPTIONS)]
    assert second[: len(first)] == first


def test_copying_twice_changes_nothing() -> None:
    rows = [Row("user", "a"), Row("assistant", None, tool_calls=(ToolCall("1", "x", '{"b":1,"a":2}'),))]
    once = wire_copy(rows, OPTIONS)
    assert wire_copy(once, OPTIONS) == once
