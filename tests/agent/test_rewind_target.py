"""Which row a rewind cuts at: every way to name it, and the order in which a wrong one is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermes.agent.rewind_target import OutlineRow, resolve_cut, survivor_ids
from hermes.errors import (
    EmptyRewindNotConfirmed,
    HermesError,
    InvalidRewind,
    RewindTargetMismatch,
    StaleRewindTarget,
)
from hermes.messages import RewindIntent


def row(row_id: int, role: str, kind: str | None = None, message_id: str | None = None) -> OutlineRow:
    return OutlineRow(row_id, float(row_id), role, kind, message_id, False)


ROWS = (
    row(1, "user"),
    row(2, "assistant"),
    row(3, "user", message_id="m2"),
    row(4, "assistant"),
    row(5, "tool"),
    row(6, "user", "steer"),
    row(7, "assistant"),
    row(8, "user", "process_complete"),
    row(9, "assistant"),
    row(10, "user", "skill_invocation"),
    row(11, "assistant"),
)
SUMMARY = OutlineRow(20, 5.5, "user", "hidden", None, True)
# Prompts 1 and 10 are in the context, 3 is behind the summary.
COMPRESSED = (*ROWS[:2], *(replace(one, compacted=True) for one in ROWS[2:5]), SUMMARY, *ROWS[5:], row(12, "user"))


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
def test_a_target_is_found_by_each_of_its_names(intent: RewindIntent, target: int) -> None:
    assert ROWS[resolve_cut(ROWS, intent)].row_id == target


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
        (RewindIntent(), InvalidRewind),
    ],
)
def test_the_first_failing_check_is_the_answer(intent: RewindIntent, expected: type[HermesError]) -> None:
    with pytest.raises(expected):
        resolve_cut(ROWS, intent)


@pytest.mark.parametrize(
    ("intent", "target"),
    [
        (RewindIntent(ordinal=0, confirm_empty=True), 1),
        (RewindIntent(ordinal=2), 10),
        (RewindIntent(ordinal=3), 12),
        (RewindIntent(row_id=10), 10),
        (RewindIntent(row_id=10, ordinal=2), 10),
        (RewindIntent(row_id=10, ordinal=1), 10),
        (RewindIntent(row_id=12, ordinal=3), 12),
        (RewindIntent(row_id=12, ordinal=2), 12),
        (RewindIntent(row_id=6), 6),
    ],
)
def test_behind_a_compression_an_ordinal_counts_what_is_shown_or_beside_a_row_id_the_context_alone(
    intent: RewindIntent, target: int
) -> None:
    assert COMPRESSED[resolve_cut(COMPRESSED, intent)].row_id == target


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        (RewindIntent(ordinal=1), StaleRewindTarget),
        (RewindIntent(ordinal=4), StaleRewindTarget),
        (RewindIntent(ordinal=-1), StaleRewindTarget),
        (RewindIntent(row_id=3), StaleRewindTarget),
        (RewindIntent(row_id=3, ordinal=1), StaleRewindTarget),
        (RewindIntent(message_id="m2"), StaleRewindTarget),
        (RewindIntent(row_id=20), StaleRewindTarget),
        (RewindIntent(row_id=12, ordinal=1), RewindTargetMismatch),
        (RewindIntent(row_id=10, ordinal=0), RewindTargetMismatch),
        (RewindIntent(row_id=6, ordinal=1), RewindTargetMismatch),
        (RewindIntent(ordinal=0), EmptyRewindNotConfirmed),
    ],
)
def test_what_a_summary_stands_for_is_counted_and_is_no_target(
    intent: RewindIntent, expected: type[HermesError]
) -> None:
    with pytest.raises(expected):
        resolve_cut(COMPRESSED, intent)


def test_a_refusal_says_how_many_prompts_there_are_and_how_many_of_them_are_out_of_reach() -> None:
    with pytest.raises(StaleRewindTarget) as caught:
        resolve_cut(ROWS, RewindIntent(ordinal=7))
    assert caught.value.data == {"user_turn_count": 3, "ordinal": 7}
    with pytest.raises(StaleRewindTarget) as caught:
        resolve_cut(COMPRESSED, RewindIntent(ordinal=1))
    assert caught.value.data == {"user_turn_count": 4, "ordinal": 1, "prefix_user_count": 1}


def test_survivors_have_an_entry_for_each_shown_prompt_and_none_for_those_out_of_reach() -> None:
    assert survivor_ids(ROWS) == (1, 3, 10)
    assert survivor_ids(COMPRESSED) == (1, None, 10, 12)


def test_nothing_can_be_named_in_an_empty_transcript() -> None:
    for intent in (RewindIntent(row_id=1), RewindIntent(ordinal=0, confirm_empty=True), RewindIntent(message_id="m")):
        with pytest.raises(StaleRewindTarget):
            resolve_cut((), intent)
