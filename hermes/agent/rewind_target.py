"""Which row a rewind cuts at: the last look, inside the transaction, at what is really stored. Pure.

An ordinal counts the user prompts that a person sees: those of the context and, in their old places, those that a
compression has replaced by a summary. The latter are counted but can not be targets (gateway §5.2). Beside a row id an
ordinal may also count the context alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from hermes.errors import EmptyRewindNotConfirmed, InvalidRewind, RewindTargetMismatch, StaleRewindTarget
from hermes.messages import PROMPT_KINDS, RewindIntent
from hermes.records import dataclass

# A steer can be named by its row id (undo cuts inside a turn); it has no ordinal.
TARGET_KINDS = PROMPT_KINDS | {"steer"}


@dataclass(frozen=True, slots=True)
class OutlineRow:
    """A row of the transcript, as far as choosing a target needs it."""

    row_id: int
    position: float
    role: str
    display_kind: str | None
    message_id: str | None
    summary: bool
    compacted: bool = False

    @property
    def is_prompt(self) -> bool:
        return self.role == "user" and self.display_kind in PROMPT_KINDS and not self.summary

    @property
    def is_target(self) -> bool:
        return self.role == "user" and self.display_kind in TARGET_KINDS and not (self.summary or self.compacted)

    @property
    def is_conversation(self) -> bool:
        """False for timeline markers: a history of nothing else counts as empty."""
        return self.summary or self.role in ("assistant", "tool") or self.is_prompt or self.is_target


def resolve_cut(outline: Sequence[OutlineRow], intent: RewindIntent) -> int:
    """The index in ``outline`` of the first row to go. ``outline`` is the transcript, compacted rows included.

    Raises ``StaleRewindTarget``, ``RewindTargetMismatch``, ``EmptyRewindNotConfirmed``, ``InvalidRewind``.
    """
    prompts = [index for index, row in enumerate(outline) if row.is_prompt]
    if intent.row_id is not None or intent.message_id is not None:
        index = _named(outline, intent)
        if intent.ordinal is not None:
            before = [outline[place] for place in prompts if place < index]
            counts = (len(before), sum(not row.compacted for row in before))
            if not outline[index].is_prompt or intent.ordinal not in counts:
                raise RewindTargetMismatch(data={"row_id": outline[index].row_id, "ordinal": intent.ordinal})
    elif intent.ordinal is not None:
        if not 0 <= intent.ordinal < len(prompts) or outline[prompts[intent.ordinal]].compacted:
            raise _stale(outline, intent)
        index = prompts[intent.ordinal]
    else:
        raise InvalidRewind("a rewind needs a target")
    if not intent.confirm_empty and not any(row.is_conversation for row in outline[:index]):
        raise EmptyRewindNotConfirmed
    return index


def survivor_ids(outline: Sequence[OutlineRow]) -> tuple[int | None, ...]:
    """One entry for each prompt that a person sees; None for one that no rewind can name any more."""
    return tuple(None if row.compacted else row.row_id for row in outline if row.is_prompt)


def _named(outline: Sequence[OutlineRow], intent: RewindIntent) -> int:
    """By row id, else by the platform's message id; never by anything else."""
    for index in range(len(outline) - 1, -1, -1):
        row = outline[index]
        found = row.row_id == intent.row_id if intent.row_id is not None else row.message_id == intent.message_id
        if found and row.is_target:
            return index
    raise _stale(outline, intent)


def _stale(outline: Sequence[OutlineRow], intent: RewindIntent) -> StaleRewindTarget:
    """With what helps a host to find its place again: the prompts it shows, and those of them that are compacted."""
    prompts = [row for row in outline if row.is_prompt]
    data = {"user_turn_count": len(prompts)}
    if intent.ordinal is not None:
        data["ordinal"] = intent.ordinal
    compacted = sum(row.compacted for row in prompts)
    if compacted:
        data["prefix_user_count"] = compacted
    return StaleRewindTarget(data=data)
