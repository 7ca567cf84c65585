"""What a rewind asks for, which rows survive an undo or a branch, and which a person sees. Pure; which row a rewind
cuts at is decided in ``rewind_target``.

Ordinals count user prompts (gateway §5.4): rows that the server wrote itself, steers and summaries do not count. The
order of the checks is the contract (gateway §5.2): a client learns the first thing that is wrong, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.errors import (
    InvalidRewind,
    NothingToUndo,
    RewindNotConfirmed,
    StoredSessionNotFound,
)
from hermes.messages import RewindIntent, Row
from hermes.records import dataclass

_UNDO_KINDS = frozenset({None, "skill_invocation", "steer"})
_HIDDEN_KINDS = frozenset({"hidden"})


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a transcript is cut: ``removed`` begins with the target row."""

    survivors: tuple[Row, ...]
    removed: tuple[Row, ...]

    @property
    def target(self) -> Row:
        return self.removed[0]


# --- rewind ----------------------------------------------------------------------------------------------------------


def parse_rewind(params: Mapping[str, Any]) -> RewindIntent | None:
    """The wish in the parameters of a submit, or None if they hold none (gateway §5.2 rows 2 to 4).

    Raises ``InvalidRewind`` for a confirmation without a target and for malformed targets, ``RewindNotConfirmed`` for a
    target without ``confirm_truncate: true``.
    """
    row_id = params.get("truncate_before_row_id")
    ordinal = params.get("truncate_before_user_ordinal")
    message_id = params.get("truncate_before_message_id")
    confirmed = params.get("confirm_truncate") is True
    if row_id is None and ordinal is None and message_id is None:
        if confirmed:
            raise InvalidRewind("confirm_truncate needs a target")
        return None
    for name, value in (("truncate_before_row_id", row_id), ("truncate_before_user_ordinal", ordinal)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise InvalidRewind(f"{name} must be an integer")
    if message_id is not None and not isinstance(message_id, str):
        raise InvalidRewind("truncate_before_message_id must be a string")
    if not confirmed:
        raise RewindNotConfirmed
    return RewindIntent(
        row_id=row_id,
        ordinal=ordinal,
        message_id=message_id if row_id is None else None,
        confirm_empty=params.get("confirm_empty_truncate") is True,
    )


def prompt_indexes(rows: Sequence[Row]) -> list[int]:
    """Where the counted user prompts stand."""
    return [index for index, row in enumerate(rows) if row.is_user_prompt and not row.compacted_summary]


def survivor_ids(rows: Sequence[Row]) -> tuple[int | None, ...]:
    """Ids of the counted user prompts, in ordinal order; None where a row has none, or none that a rewind can name."""
    return tuple(None if rows[index].compacted else rows[index].row_id for index in prompt_indexes(rows))


def survivor_map(rows: Sequence[Row], asked: Sequence[int]) -> dict[str, int | None]:
    """For each id that a client holds: the id it has now, or None if it is gone."""
    alive = {row.row_id for row in rows if row.role == "user" and not row.compacted}
    return {str(row_id): row_id if row_id in alive else None for row_id in asked}


# --- undo and branch -------------------------------------------------------------------------------------------------


def resolve_undo(rows: Sequence[Row], count: int = 1) -> Cut:
    """Cut the transcript before the ``count``-th user text from the end; steers count too. Raises ``NothingToUndo``,
    also when one of these texts has been replaced by a summary."""
    found = [
        index
        for index, row in enumerate(rows)
        if row.role == "user" and row.display_kind in _UNDO_KINDS and not row.compacted_summary
    ]
    if count < 1 or count > len(found):
        raise NothingToUndo
    if any(rows[index].compacted for index in found[-count:]):
        raise NothingToUndo("what was said before has been summarized; it can not be taken back any more")
    index = found[-count]
    return Cut(tuple(rows[:index]), tuple(rows[index:]))


def closing_after_cut(survivors: Sequence[Row], now: float) -> Row | None:
    """The hidden row that a cut inside a turn needs, so that the remaining rounds are closed."""
    if not survivors or survivors[-1].role == "assistant":
        return None
    note = "[The conversation was taken back to this point.]"
    return Row("assistant", note, now, display_kind="hidden", display_metadata={"rewound": True})


def branch_rows(rows: Sequence[Row], upto_row_id: int | None = None) -> tuple[Row, ...]:
    """The rows that a branch copies: all, or those up to and with one row, and the results that belong to it.

    Raises ``StoredSessionNotFound`` if no active row has this id.
    """
    if upto_row_id is None:
        return tuple(rows)
    for index, row in enumerate(rows):
        if row.row_id == upto_row_id:
            end = index + 1
            while end < len(rows) and rows[end].role == "tool":
                end += 1
            return _without_spare_closings(rows[:end])
    raise StoredSessionNotFound(f"no active row {upto_row_id} in this session")


def _without_spare_closings(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A cut right behind a summary was closed for the summary's sake: where that is not copied, the answer before it
    is followed by a second closing."""
    if any(row.compacted_summary for row in rows):
        return tuple(rows)
    kept: list[Row] = []
    for row in rows:
        spare = row.display_metadata is not None and "rewound" in row.display_metadata
        if not (spare and kept and kept[-1].role == "assistant"):
            kept.append(row)
    return tuple(kept)


# --- what a person sees ----------------------------------------------------------------------------------------------


def is_shown(row: Row) -> bool:
    """One message of the history that hosts get: an answer that is nothing but calls shows as its results."""
    return is_visible(row) and (row.role != "assistant" or bool(row.text.strip() or row.reasoning))


def is_visible(row: Row) -> bool:
    """Hosts render everything but hidden rows, system rows and the summaries of compressions."""
    return row.role != "system" and row.display_kind not in _HIDDEN_KINDS and not row.compacted_summary


def visible_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if is_visible(row))


def last_prompt(rows: Sequence[Row]) -> Row | None:
    """The newest counted user prompt, for a retry."""
    indexes = prompt_indexes(rows)
    return rows[indexes[-1]] if indexes else None
