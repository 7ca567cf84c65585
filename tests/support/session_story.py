"""What a session's transcript should be, in plain Python: known rows, the turns since, the cuts that can be undone.

The transcript is what a person sees; the rows in it that a summary stands for are no part of the context any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hermes.messages import Row

ROLES: dict[str, tuple[str, ...]] = {
    "quick": ("user", "assistant"),
    "slow": ("user", "assistant"),
    "hang": ("user", "assistant"),
    "fail": ("user", "assistant"),
    "tool": ("user", "assistant", "tool", "tool", "assistant"),
    "ask": ("user", "assistant", "tool", "assistant"),
}
"""The rows of an ended turn, however it ended: a stop closes what is open, a failure leaves its row."""

ENDS_AT_ONCE = ("quick", "fail")
ENDS_IN_TIME = ("slow", "tool")


def kind_of(text: str) -> str:
    return text.split()[0]


def is_prompt(row: Row) -> bool:
    return row.role == "user" and row.display_kind is None and not row.compacted_summary


def is_closing_of_cut(row: Row) -> bool:
    return row.display_metadata == {"rewound": True}


def prompts(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if is_prompt(row)]


def messages(rows: Sequence[Row]) -> list[Row]:
    """What hosts show of them, one message each."""
    return [
        row
        for row in rows
        if row.display_kind != "hidden"
        and not row.compacted_summary
        and (row.role != "assistant" or row.text.strip() or row.reasoning)
    ]


def repair_roles(rows: Sequence[Row]) -> tuple[str, ...]:
    """What the next prompt appends first when a crash has left the last turn open."""
    if not rows or (rows[-1].role == "assistant" and not rows[-1].tool_calls):
        return ()
    answered: set[str | None] = set()
    for row in reversed(rows):
        if row.role == "tool":
            answered.add(row.tool_call_id)
        elif row.role == "assistant":
            missing = [call for call in row.tool_calls if call.id not in answered]
            return ("tool",) * len(missing) + ("assistant",)
        else:
            break
    return ("assistant",)


@dataclass
class Story:
    """One session. ``whole`` is the transcript that was seen and must never change; ``new`` the texts of the turns
    since."""

    key: str
    whole: tuple[Row, ...] = ()
    repairs: tuple[str, ...] = ()
    new: list[str] = field(default_factory=list)
    running: str | None = None
    queue: list[str] = field(default_factory=list)
    cuts: list[tuple[tuple[Row, ...], int]] = field(default_factory=list)
    """The transcript before each cut that may still be undone, and the highest row id that belongs to the cut."""
    dropped: set[int] = field(default_factory=set)
    lost_question: bool = False
    has_turned: bool = False

    @property
    def known(self) -> tuple[Row, ...]:
        """The context: what no summary stands for."""
        return tuple(row for row in self.whole if not row.compacted)

    def survivors(self, before: Row) -> tuple[int | None, ...]:
        """An entry for each prompt that is shown before this row; None for those that no rewind can name."""
        shown = prompts(self.whole[: self.whole.index(before)])
        return tuple(None if row.compacted else row.row_id for row in shown)

    # --- what happens to it ---

    def prompt(self, text: str) -> None:
        """A prompt was accepted: it starts, or waits."""
        if self.running is not None:
            self.queue.append(text)
            return
        self._start(text)
        self.drain()

    def _start(self, text: str) -> None:
        if not self.new and not self.repairs:
            self.repairs = repair_roles(self.known)
        self.new.append(text)
        self.running = text
        self.lost_question = False
        self.has_turned = True

    def drain(self) -> None:
        """What ends at once has ended; what waited has begun."""
        while True:
            if self.running is not None and kind_of(self.running) in ENDS_AT_ONCE:
                self.running = None
            if self.running is not None or not self.queue:
                return
            self._start(self.queue.pop(0))

    def time_passes(self) -> None:
        if self.running is not None and kind_of(self.running) in ENDS_IN_TIME:
            self.running = None
            self.drain()

    def answered(self) -> None:
        self.running = None
        self.drain()

    def interrupted(self) -> None:
        self.running = None
        self.queue.clear()

    def cut(self, index: int, text: str | None, *, own_id: int) -> None:
        """The rows from ``index`` on are archived, and the prompt that came with the cut is there."""
        before = self.known
        place = self.whole.index(before[index])
        self.cuts.append((self.whole, own_id))
        self.dropped |= {row.row_id for row in before[index:] if row.row_id is not None}
        self.whole = self.whole[:place]
        # An undo inside a turn, or right behind a summary, closes what remains.
        is_open = text is None and index > 0 and before[index - 1].role != "assistant"
        self.repairs = ("assistant",) if is_open else ()
        if text is not None:
            self.new.append(text)
            self.running = text
            self.lost_question = False
            self.drain()

    def undo_refused(self) -> bool:
        """Nothing to undo, or a newer prompt has been stored."""
        if not self.cuts:
            return True
        own_id = self.cuts[-1][1]
        return any((row.row_id or 0) > own_id for row in self.known if row.role == "user")

    def cut_undone(self) -> None:
        before, _own_id = self.cuts.pop()
        back = {row.row_id for row in before if not row.compacted}
        self.dropped |= {row.row_id for row in self.known if row.row_id is not None and row.row_id not in back}
        self.dropped -= {row_id for row_id in back if row_id is not None}
        self.whole = before

    def summarized(self, rows: tuple[Row, ...]) -> None:
        """A summary has taken the place of some rows; they are still shown, a former summary is not."""
        fresh = {rows[index + 1].row_id: row for index, row in enumerate(rows[:-1]) if row not in self.known}
        whole: list[Row] = []
        for row in self.whole:
            if row.row_id in fresh:
                whole.append(fresh[row.row_id])
            if row.compacted or row in rows:
                whole.append(row)
            elif not row.compacted_summary:
                whole.append(replace(row, compacted=True))
        self.dropped |= {row.row_id for row in self.known if row not in rows and row.row_id is not None}
        self.whole = tuple(whole)
        self.cuts.clear()

    def put_away(self) -> None:
        """The history was emptied; that can not be undone."""
        if self.known:
            self.dropped |= {row.row_id for row in self.known if row.row_id is not None}
            self.whole, self.repairs = (), ()
            self.cuts.clear()

    def branched(self, count: int) -> tuple[Row, ...]:
        """The transcript of a branch that takes the first so many messages, with the results of the last one."""
        shown = messages(self.whole)
        if not 0 < count < len(shown):
            return self.whole
        end = self.whole.index(shown[count - 1]) + 1
        while end < len(self.whole) and self.whole[end].role == "tool":
            end += 1
        part = self.whole[:end]
        if any(row.compacted_summary for row in part):
            return part
        # What has closed a cut for the sake of a summary has nothing to close without it.
        spare = [later for row, later in pairwise(part) if row.role == "assistant" and is_closing_of_cut(later)]
        return tuple(replace(row, compacted=False) for row in part if row not in spare)

    def crashed(self, rows: tuple[Row, ...]) -> None:
        """The server has died; what is stored is known now, what waited is gone."""
        self.lost_question |= self.running is not None and kind_of(self.running) == "ask"
        self.whole += rows[len(self.known) :]
        self.new, self.repairs, self.running = [], (), None
        self.queue.clear()

    # --- what must be stored ---

    def expected_roles(self) -> tuple[str, ...]:
        return self.repairs + tuple(role for text in self.new for role in ROLES[kind_of(text)])

    def check(self, rows: Sequence[Row], *, cut_short: bool = False) -> None:
        """``rows`` is what is stored. While a turn runs, or when a crash ``cut_short`` one, a prefix will do."""
        rows = tuple(rows)
        assert rows[: len(self.known)] == self.known, f"known rows have changed: {self.known} became {rows}"
        added = rows[len(self.known) :]
        roles, expected = tuple(row.role for row in added), self.expected_roles()
        if self.running is None and not cut_short:
            assert roles == expected, f"{roles} is stored, {expected} was to be: {added}"
        else:
            assert roles == expected[: len(roles)], f"{roles} is stored, {expected} was to be begun: {added}"
        told = [row.text for row in added if is_prompt(row)]
        assert told == self.new[: len(told)] if cut_short else told == self.new, f"{told} is stored, not {self.new}"
        ids = [row.row_id for row in added]
        assert None not in ids and len(set(ids)) == len(ids)
        assert not {row.row_id for row in rows} & self.dropped, "a dropped row is back"
        if self.running is None and not cut_short:
            self.whole += added
            self.new, self.repairs = [], ()
