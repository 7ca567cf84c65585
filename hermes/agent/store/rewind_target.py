"""Which row a rewind cuts at: the last look, inside the transaction, at what is really stored. Pure.

An ordinal counts the visible user prompts among the active rows. Beside a row id it may also count the whole displayed
lineage, compacted prompts included (gateway §5.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from hermes.errors import EmptyRewindNotConfirmed, InvalidRewind, RewindTargetMismatch, StaleRewindTarget
from hermes.messages import PROMPT_KINDS, RewindIntent
from hermes.records import dataclass

# A steer can be named by its row id (undo cuts inside a turn); it has no ordinal.
TARGET_KINDS = PROMPT_KINDS | {"steer"}


@dataclass(frozen=True, slots=True)
class ActiveRow:
    """What a target is chosen by."""

    row_id: int
    position: float
    role: str
    display_kind: str | None
    message_id: str | None
    summary: bool

    @property
    def is_prompt(self) -> bool:
        return self.role == "user" and self.display_kind in PROMPT_KINDS and not self.summary

    @property
    def is_target(self) -> bool:
        return self.role == "user" and self.display_kind in TARGET_KINDS and not self.summary

    @property
    def is_conversation(self) -> bool:
        """False for timeline markers: a history of nothing else counts as empty."""
        return self.summary or self.role in ("assistant", "tool") or self.is_target


def resolve_cut(active: Sequence[ActiveRow], intent: RewindIntent, compacted: Sequence[float] = ()) -> int:
    """The index in ``active`` of the first row to go. ``compacted`` are the positions of compacted prompts.

    Raises ``StaleRewindTarget``, ``RewindTargetMismatch``, ``EmptyRewindNotConfirmed``, ``InvalidRewind``.
    """
    ordinals = [index for index, row in enumerate(active) if row.is_prompt]
    if intent.row_id is not None or intent.message_id is not None:
        index = named_row(active, intent)
        if intent.ordinal is not None:
            before = sum(1 for place in ordinals if place < index)
            older = sum(1 for position in compacted if position < active[index].position)
            if not active[index].is_prompt or intent.ordinal not in (before, before + older):
                raise RewindTargetMismatch(data={"row_id": active[index].row_id, "ordinal": intent.ordinal})
    elif intent.ordinal is not None:
        if not 0 <= intent.ordinal < len(ordinals):
            raise StaleRewindTarget(data={"user_turn_count": len(ordinals), "ordinal": intent.ordinal})
        index = ordinals[intent.ordinal]
    else:
        raise InvalidRewind("a rewind needs a target")
    if not intent.confirm_empty and not any(row.is_conversation for row in active[:index]):
        raise EmptyRewindNotConfirmed
    return index


def named_row(active: Sequence[ActiveRow], intent: RewindIntent) -> int:
    """By row id, else by the platform's message id; never by anything else."""
    for index in range(len(active) - 1, -1, -1):
        row = active[index]
        found = row.row_id == intent.row_id if intent.row_id is not None else row.message_id == intent.message_id
        if found and row.is_target:
            return index
    data = {"user_turn_count": sum(row.is_prompt for row in active)}
    if intent.ordinal is not None:
        data["ordinal"] = intent.ordinal
    raise StaleRewindTarget(data=data)
