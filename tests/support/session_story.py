"""What a session's transcript should be, in plain Python: known rows, the turns since, the cuts that can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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


def prompts(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if is_prompt(row)]


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
    """One session. ``known`` are rows that were seen and must never change; ``new`` the texts of the turns since."""

    key: str
    known: tuple[Row, ...] = ()
    repairs: tuple[str, ...] = ()
    new: list[str] = field(default_factory=list)
    running: str | None = None
    queue: list[str] = field(default_factory=list)
    cuts: list[tuple[tuple[Row, ...], int]] = field(default_factory=list)
    """The rows before each cut that may still be undone, and the highest row id that belongs to the cut."""
    dropped: set[int] = field(default_factory=set)
    lost_question: bool = False
    has_turned: bool = False

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
        self.cuts.append((before, own_id))
        self.dropped |= {row.row_id for row in before[index:] if row.row_id is not None}
        self.known = before[:index]
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
        back = {row.row_id for row in before}
        self.dropped |= {row.row_id for row in self.known if row.row_id is not None and row.row_id not in back}
        self.dropped -= {row_id for row_id in back if row_id is not None}
        self.known = before

    def crashed(self, rows: tuple[Row, ...]) -> None:
        """The server has died; what is stored is known now, what waited is gone."""
        self.lost_question |= self.running is not None and kind_of(self.running) == "ask"
        self.known, self.new, self.repairs, self.running = rows, [], (), None
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
            self.known, self.new, self.repairs = rows, [], ()
