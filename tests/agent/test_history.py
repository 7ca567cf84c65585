"""What a rewind asks for, and which rows survive an undo or a branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermes.agent.history import (
    branch_rows,
    closing_after_cut,
    is_shown,
    parse_rewind,
    resolve_undo,
    survivor_ids,
    survivor_map,
    visible_rows,
)
from hermes.errors import (
    HermesError,
    InvalidRewind,
    NothingToUndo,
    RewindNotConfirmed,
    StoredSessionNotFound,
)
from hermes.messages import RewindIntent, Row, ToolCall

ROWS = (
    Row("user", "one", row_id=1),
    Row("assistant", "a", row_id=2),
    Row("user", "two", row_id=3, platform_message_id="m2"),
    Row("assistant", None, row_id=4, tool_calls=(ToolCall("c", "x", "{}"),)),
    Row("tool", "r", row_id=5, tool_call_id="c"),
    Row("user", "psst", row_id=6, display_kind="steer"),
    Row("assistant", "b", row_id=7),
    Row("user", "notice", row_id=8, display_kind="process_complete"),
    Row("assistant", "c", row_id=9),
    Row("user", "/skill", row_id=10, display_kind="skill_invocation"),
    Row("assistant", "d", row_id=11),
)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"confirm_truncate": True}, InvalidRewind),
        ({"truncate_before_user_ordinal": True, "confirm_truncate": True}, InvalidRewind),
        ({"truncate_before_row_id": "3", "confirm_truncate": True}, InvalidRewind),
        ({"truncate_before_row_id": [3]}, InvalidRewind),
        ({"truncate_before_user_ordinal": 1.5, "confirm_truncate": True}, InvalidRewind),
        ({"truncate_before_row_id": 3}, RewindNotConfirmed),
        ({"truncate_before_row_id": 3, "confirm_truncate": 1}, RewindNotConfirmed),
        ({"truncate_before_user_ordinal": 0}, RewindNotConfirmed),
    ],
)
def test_malformed_and_unconfirmed_wishes_are_refused(params: dict[str, Any], expected: type[HermesError]) -> None:
    with pytest.raises(expected):
        parse_rewind(params)


def test_no_target_is_no_wish_and_null_counts_as_absent() -> None:
    assert parse_rewind({}) is None
    assert parse_rewind({"truncate_before_row_id": None, "confirm_empty_truncate": True}) is None


def test_a_message_id_is_ignored_beside_a_row_id() -> None:
    params = {"truncate_before_row_id": 3, "truncate_before_message_id": "zz", "confirm_truncate": True}
    assert parse_rewind(params) == RewindIntent(row_id=3)


def test_survivors_are_the_counted_prompts_in_order_and_compacted_ones_can_not_be_named() -> None:
    assert survivor_ids(ROWS) == (1, 3, 10)
    assert survivor_ids((replace(ROWS[0], compacted=True), *ROWS[1:])) == (None, 3, 10)
    assert survivor_map(ROWS[:3], [1, 3, 10]) == {"1": 1, "3": 3, "10": None}
    assert survivor_map((replace(ROWS[0], compacted=True), *ROWS[1:3]), [1, 3]) == {"1": None, "3": 3}


def test_undo_counts_steers_and_a_cut_inside_a_turn_is_closed() -> None:
    assert resolve_undo(ROWS).target.row_id == 10
    cut = resolve_undo(ROWS, 2)
    assert cut.target.row_id == 6
    closing = closing_after_cut(cut.survivors, 1.0)
    assert closing is not None and closing.role == "assistant" and closing.display_kind == "hidden"
    assert closing_after_cut(ROWS[:2], 1.0) is None
    with pytest.raises(NothingToUndo):
        resolve_undo(ROWS, 5)


def test_an_undo_stops_before_what_a_summary_stands_for() -> None:
    """Taking two texts back must not skip those that a person still sees and reach the ones before them."""
    summary = Row("user", "so far", row_id=12, compacted_summary=True, display_kind="hidden")
    middle = [replace(row, compacted=True) for row in ROWS[2:9]]
    rows = (*ROWS[:2], *middle, summary, *ROWS[9:])
    assert resolve_undo(rows).target.row_id == 10
    for count in (2, 3, 4):
        with pytest.raises(NothingToUndo):
            resolve_undo(rows, count)


def test_a_branch_takes_the_results_of_its_last_call() -> None:
    assert branch_rows(ROWS) == ROWS
    assert [row.row_id for row in branch_rows(ROWS, 4)] == [1, 2, 3, 4, 5]
    with pytest.raises(StoredSessionNotFound):
        branch_rows(ROWS, 99)


def test_a_branch_without_the_summary_leaves_out_what_closed_a_cut_behind_it() -> None:
    closing = closing_after_cut(ROWS[:1], 1.0)
    assert closing is not None
    compacted = tuple(replace(row, compacted=True) for row in (*ROWS[:2], closing.with_id(12)))
    rows = (*compacted, Row("user", "three", row_id=13), Row("assistant", "e", row_id=14))
    assert [row.row_id for row in branch_rows(rows, 14)] == [1, 2, 13, 14]
    summarized = (*rows[:2], Row("user", "so far", row_id=15, compacted_summary=True), *rows[2:])
    assert [row.row_id for row in branch_rows(summarized, 14)] == [1, 2, 15, 12, 13, 14]
    # Inside a turn it closes the turn.
    assert [row.row_id for row in branch_rows((ROWS[0], *rows[2:]), 14)] == [1, 12, 13, 14]


def test_an_answer_that_is_nothing_but_calls_is_no_message_of_its_own() -> None:
    assert [row.row_id for row in ROWS if is_shown(row)] == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    assert is_shown(replace(ROWS[3], reasoning="because"))
    assert not is_shown(Row("user", "so far", compacted_summary=True))


def test_hidden_rows_and_summaries_are_not_visible() -> None:
    rows = [Row("user", "a"), Row("user", "s", compacted_summary=True), Row("assistant", "h", display_kind="hidden")]
    assert [row.text for row in visible_rows(rows)] == ["a"]
