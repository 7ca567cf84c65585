"""What is remembered of a conversation changes nothing that is sent, whatever becomes of the conversation."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.ports import ModelRequest, ToolSpec
from hermes.agent.row_memory import MOST_PLACES, RowMemory
from hermes.agent.tokens import request_tokens, rows_tokens, spec_tokens
from hermes.agent.wire_copy import WireOptions, wire_copy
from hermes.messages import Row, ToolCall

OPTIONS = WireOptions()
texts = st.sampled_from(["", " ", "hello", "a\ud800", "two\nlines"])
ids = st.sampled_from(["1", "2", "3"])
KINDS = (None, None, None, "steer", "hidden", "model_switch", "failed_turn")
any_row = st.one_of(
    st.builds(
        Row,
        st.just("user"),
        texts,
        display_kind=st.sampled_from(KINDS),
        display_metadata=st.sampled_from([None, {"redirect": True}, {"left_out_of_context": True}]),
    ),
    st.builds(
        lambda text, calls: Row("assistant", text, tool_calls=tuple(calls)),
        texts,
        st.lists(
            st.builds(ToolCall, ids, st.just("x"), st.sampled_from(["{}", "{", '{"b":1,"a":2}'])),
            max_size=2,
            unique_by=lambda one: one.id,
        ),
    ),
    st.builds(lambda text, call_id: Row("tool", text, tool_call_id=call_id), texts, ids),
    st.builds(Row, st.just("system"), texts),
)
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(any_row, min_size=1, max_size=5)),
    st.tuples(st.just("cut"), st.integers(0, 9)),
    st.tuples(st.just("drop the front"), st.integers(0, 5)),
    st.tuples(st.just("options"), st.sampled_from([OPTIONS, WireOptions(vision=False, merge_all_roles=True)])),
    st.tuples(st.just("load again"), st.none()),
    st.tuples(st.just("shorten"), st.integers(0, 9)),
    st.tuples(st.just("extra"), st.lists(any_row, max_size=2)),
)


@given(st.lists(steps, max_size=14))
def test_every_request_is_what_it_would_be_without_the_memory(life: list[tuple[str, object]]) -> None:
    memory, options, rows = RowMemory(), OPTIONS, list[Row]()
    for what, given_ in life:
        extra: list[Row] = []
        match what, given_:
            case "add", list():
                rows.extend(given_)
            case "cut", int():
                del rows[given_:]
            case "drop the front", int():
                rows = rows[given_:]
            case "options", WireOptions():
                options = given_
            case "load again", _:
                rows = [replace(row) for row in rows]
            case "shorten", int():
                rows = [replace(row, api_content="short") if at == given_ else row for at, row in enumerate(rows)]
            case "extra", list():
                # What is added for one request is a plain prompt or a piece of an answer.
                extra = [row for row in given_ if row.role in ("user", "assistant") and row.display_kind is None]
        wire = memory.wire(rows, options, extra)
        assert wire.rows == wire_copy([*rows, *extra], options)
        assert wire.tokens == rows_tokens(wire.rows)
        assert wire.rows[: wire.settled.count] == wire_copy(rows, options)[: wire.settled.count]
        assert memory.tokens(rows) == rows_tokens(rows)
        assert memory.call_ids(rows) >= {call.id for row in rows for call in row.tool_calls}


def conversation(turns: int) -> list[Row]:
    rows: list[Row] = []
    for number in range(turns):
        call = ToolCall(f"c{number}", "look", "{}")
        rows += [
            Row("user", f"prompt {number}"),
            Row("assistant", None, tool_calls=(call,)),
            Row("tool", "seen", tool_call_id=call.id),
            Row("assistant", f"answer {number}"),
        ]
    return rows


def test_all_but_the_newest_piece_of_a_conversation_has_settled_and_stays_the_same_objects() -> None:
    rows = conversation(3)
    memory = RowMemory()
    first = memory.wire(rows, OPTIONS)
    assert first.settled.count == len(rows) - 1
    rows += conversation(1)
    second = memory.wire(rows, OPTIONS)
    assert second.settled.count == len(rows) - 1
    assert all(one is other for one, other in zip(first.rows, second.rows, strict=False))
    assert second.settled.kept is first.settled.kept


def test_a_rewind_keeps_what_stands_before_the_cut() -> None:
    rows = conversation(MOST_PLACES)
    memory = RowMemory()
    first = memory.wire(rows, OPTIONS)
    rows[-8:] = [Row("user", "rather this")]
    second = memory.wire(rows, OPTIONS)
    assert second.settled.count == len(rows) - 1
    assert all(one is other for one, other in zip(first.rows, second.rows[:-1], strict=False))
    assert second.settled.kept is first.settled.kept


def test_what_formats_keep_is_forgotten_when_the_front_changes() -> None:
    rows = conversation(MOST_PLACES)
    memory = RowMemory()
    first = memory.wire(rows, OPTIONS)
    second = memory.wire([*rows[:4], Row("user", "rather this")], OPTIONS)
    assert second.settled.kept is not first.settled.kept
    rows += [Row("user", "[the model is another one now]", display_kind="model_switch"), *conversation(1)]
    third = memory.wire(rows, OPTIONS)
    # The note that is cut had taken the place of an older one, perhaps.
    fourth = memory.wire([*rows[:-5], *conversation(1)], OPTIONS)
    assert fourth.settled.kept is not third.settled.kept


def test_the_ids_of_a_conversation_that_was_cut_are_those_that_are_left() -> None:
    rows = conversation(3)
    memory = RowMemory()
    assert memory.call_ids(rows) == {"c0", "c1", "c2"}
    assert memory.call_ids(rows[:4]) == {"c0"}


def test_a_result_behind_a_note_that_was_taken_out_belongs_to_its_call() -> None:
    call = ToolCall("c", "look", "{}")
    acting = Row("assistant", None, tool_calls=(call,))
    note = Row("user", "[another model]", display_kind="model_switch")
    rows = [Row("user", "go"), acting, note, Row("tool", "seen", tool_call_id="c")]
    memory = RowMemory()
    for _ in range(2):
        assert memory.wire(rows, OPTIONS).rows == wire_copy(rows, OPTIONS)
        rows += [Row("user", "[yet another]", display_kind="model_switch")]


def test_the_size_of_the_tools_is_known_until_they_are_others() -> None:
    memory, specs = RowMemory(), (ToolSpec("a", "reads", {"type": "object"}), ToolSpec("b", "writes", {}))
    assert memory.spec_tokens(specs) == memory.spec_tokens(specs) == spec_tokens(specs)
    assert memory.spec_tokens(specs[:1]) == spec_tokens(specs[:1])
    assert memory.spec_tokens(()) == 0
    request = ModelRequest("r", "m", (), tools=specs, tool_tokens=spec_tokens(specs))
    assert request_tokens(request) == request_tokens(replace(request, tool_tokens=None))
