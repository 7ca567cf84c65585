"""Which rows survive a rewind, an undo, a branch."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.agent.history import (
    branch_rows,
    closing_after_cut,
    parse_rewind,
    resolve_rewind,
    resolve_undo,
    survivor_map,
    visible_rows,
)
from hermes.errors import (
    EmptyRewindNotConfirmed,
    HermesError,
    InvalidRewind,
    NothingToUndo,
    RewindNotConfirmed,
    RewindTargetMismatch,
    StaleRewindTarget,
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


@pytest.mark.parametrize(
    ("intent", "target"),
    [
        (RewindIntent(row_id=3), 3),
        (RewindIntent(message_id="m2"), 3),
        (RewindIntent(ordinal=1), 3),
        (RewindIntent(ordinal=2), 10),
        (RewindIntent(row_id=10, ordinal=2), 10),
        (RewindIntent(row_id=6), 6),
        (RewindIntent(row_id=1, confirm_empty=True), 1),
    ],
)
def test_a_target_is_found_and_everything_from_it_on_is_removed(intent: RewindIntent, target: int) -> None:
    cut = resolve_rewind(ROWS, intent)
    assert cut.target.row_id == target
    assert (*cut.survivors, *cut.removed) == ROWS


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        (RewindIntent(row_id=99, ordinal=1), StaleRewindTarget),
        (RewindIntent(row_id=2), StaleRewindTarget),
        (RewindIntent(message_id="gone"), StaleRewindTarget),
        (RewindIntent(row_id=3, ordinal=0), RewindTargetMismatch),
        (RewindIntent(row_id=6, ordinal=1), RewindTargetMismatch),
        (RewindIntent(ordinal=3), StaleRewindTarget),
        (RewindIntent(ordinal=-1), StaleRewindTarget),
        (RewindIntent(ordinal=0), EmptyRewindNotConfirmed),
        (RewindIntent(row_id=1, ordinal=0), EmptyRewindNotConfirmed),
    ],
)
def test_the_first_failing_check_is_the_answer(intent: RewindIntent, expected: type[HermesError]) -> None:
    with pytest.raises(expected):
        resolve_rewind(ROWS, intent)


def test_survivors_are_the_counted_prompts_in_order() -> None:
    assert resolve_rewind(ROWS, RewindIntent(row_id=10)).survivor_ids == (1, 3)
    assert survivor_map(ROWS[:3], [1, 3, 10]) == {"1": 1, "3": 3, "10": None}


def test_ordinals_count_the_displayed_lineage_behind_a_compression() -> None:
    rows = (Row("user", "summary", row_id=20, display_kind="hidden", compacted_summary=True), *ROWS)
    assert resolve_rewind(rows, RewindIntent(ordinal=5), earlier_prompts=4).target.row_id == 3
    assert resolve_rewind(rows, RewindIntent(row_id=3, ordinal=1), earlier_prompts=4).target.row_id == 3
    assert resolve_rewind(rows, RewindIntent(row_id=3, ordinal=5), earlier_prompts=4).target.row_id == 3
    with pytest.raises(StaleRewindTarget) as caught:
        resolve_rewind(rows, RewindIntent(ordinal=2), earlier_prompts=4)
    assert caught.value.data == {"user_turn_count": 7, "ordinal": 2}
    with pytest.raises(StaleRewindTarget):
        resolve_rewind(rows, RewindIntent(row_id=20))


def test_undo_counts_steers_and_a_cut_inside_a_turn_is_closed() -> None:
    assert resolve_undo(ROWS).target.row_id == 10
    cut = resolve_undo(ROWS, 2)
    assert cut.target.row_id == 6
    closing = closing_after_cut(cut.survivors, 1.0)
    assert closing is not None and closing.role == "assistant" and closing.display_kind == "hidden"
    assert closing_after_cut(ROWS[:2], 1.0) is None
    with pytest.raises(NothingToUndo):
        resolve_undo(ROWS, 5)


def test_a_branch_takes_the_results_of_its_last_call() -> None:
    assert branch_rows(ROWS) == ROWS
    assert [row.row_id for row in branch_rows(ROWS, 4)] == [1, 2, 3, 4, 5]
    with pytest.raises(StoredSessionNotFound):
        branch_rows(ROWS, 99)


def test_hidden_rows_and_summaries_are_not_visible() -> None:
    rows = [Row("user", "a"), Row("user", "s", compacted_summary=True), Row("assistant", "h", display_kind="hidden")]
    assert [row.text for row in visible_rows(rows)] == ["a"]
