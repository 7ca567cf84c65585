"""What is remembered of a conversation from one request to the next, so that a turn costs the same however long it is.

Rows are hardly ever edited and a conversation grows at its end. So the wire copy of its front, the tokens in it and
the ids of its calls stay what they were; only what has come since is looked at. Whatever else happened to the rows (a
rewind, a compression, another process) is seen by comparing, at the speed of C. Then what stands before the first
change is kept, up to the last place that is remembered: a rewind of the newest turns costs what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from hermes.agent.ports import SettledRows, ToolSpec
from hermes.agent.tokens import row_tokens, rows_tokens, spec_tokens
from hermes.agent.wire_copy import WireOptions, alternating, clean_row, is_sent, is_switch
from hermes.messages import Row
from hermes.records import dataclass

MOST_PLACES = 64


@dataclass(frozen=True, slots=True)
class WireRows:
    """The rows of one request, about how many tokens they have, and how many of them have settled."""

    rows: tuple[Row, ...]
    tokens: int
    settled: SettledRows


@dataclass(frozen=True, slots=True)
class SettledPlace:
    """A place up to which the conversation has settled: ``rows`` of it, as ``wire`` messages of ``tokens``."""

    rows: int
    wire: int
    tokens: int
    switch: Row | None


class RowMemory:
    """The memory of one session. Every method takes the whole conversation as it is now."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._sums: list[int] = []
        """Tokens of the rows up to each one."""
        self._ids: set[str] = set()
        self._ids_of = 0
        self._options = WireOptions()
        self._clean: list[Row | None] = []
        self._anchor: tuple[int, int] | None = None
        """(tokens that a provider has counted, estimate of the rows that it had counted)."""
        self._settled_to = 0
        self._wire: list[Row] = []
        self._wire_tokens = 0
        self._switch: Row | None = None
        self._places: list[SettledPlace] = []
        """The newest places that have settled, oldest first."""
        self._encoded: dict[object, object] = {}
        self._specs: tuple[ToolSpec, ...] = ()
        self._spec_tokens = 0

    def spec_tokens(self, specs: tuple[ToolSpec, ...]) -> int:
        """``spec_tokens`` of the tools, which seldom change."""
        if specs != self._specs:
            self._specs, self._spec_tokens = specs, spec_tokens(specs)
        return self._spec_tokens

    def tokens(self, rows: Sequence[Row]) -> int:
        """``rows_tokens`` of the conversation."""
        self._know(rows)
        return self._sums[-1] if self._sums else 0

    def anchor(self, rows: Sequence[Row], prompt_tokens: int) -> None:
        """A provider has said how long a request of these rows was."""
        self._anchor = prompt_tokens, self.tokens(rows)

    def counted(self, rows: Sequence[Row]) -> int | None:
        """What the provider has counted last, and an estimate of what has come since; None before it has."""
        total = self.tokens(rows)
        if self._anchor is None:
            return None
        counted, estimate = self._anchor
        return counted + max(total - estimate, 0)

    def call_ids(self, rows: Sequence[Row]) -> set[str]:
        """The ids of all tool calls. The set is the caller's to add to: an id is not given twice anyway."""
        self._know(rows)
        self._ids |= {call.id for row in self._rows[self._ids_of :] if row.tool_calls for call in row.tool_calls}
        self._ids_of = len(self._rows)
        return self._ids

    def wire(self, rows: Sequence[Row], options: WireOptions, extra: Sequence[Row] = ()) -> WireRows:
        """``wire_copy`` of the conversation with ``extra`` behind it, which is for this request only."""
        self._know(rows)
        if options != self._options:
            self._options = options
            self._clean.clear()
            self._forget_wire()
        self._clean += [clean_row(row, options) for row in self._rows[len(self._clean) :]]
        if self._switched_again():
            self._forget_wire()
        sent = self._unsettled()
        borders = self._borders(sent)
        self._settle(sent, borders)
        border = borders[-1] if borders else 0
        behind = [clean for row in extra if (clean := clean_row(row, options)) is not None]
        tail = tuple(alternating([*(clean for _, clean in sent[border:]), *behind], options))
        settled = SettledRows(len(self._wire), self._encoded)
        return WireRows((*self._wire, *tail), self._wire_tokens + rows_tokens(tail), settled)

    # --- inside ---

    def _know(self, rows: Sequence[Row]) -> None:
        known = len(self._rows)
        front = rows if len(rows) == known else rows[:known]
        # Each row is first compared by identity, so this is one quick pass.
        if self._rows != (front if isinstance(front, list) else list(front)):
            pairs = enumerate(zip(self._rows, rows, strict=False))
            known = next((at for at, (mine, row) in pairs if mine is not row), min(known, len(rows)))
            self._forget_from(known)
        total = self._sums[-1] if self._sums else 0
        for row in rows[known:]:
            total += row_tokens(row)
            self._rows.append(row)
            self._sums.append(total)

    def _forget_from(self, at: int) -> None:
        # A note of another model had taken an older one out of the front.
        whole = any(is_switch(row) for row in self._rows[at:])
        del self._rows[at:], self._sums[at:], self._clean[at:]
        self._ids, self._ids_of = set(), 0
        self._anchor = None
        # The row behind a place has to be there still: it tells that another role begins.
        places = [] if whole else [place for place in self._places if place.rows < at]
        if not places:
            self._forget_wire()
            return
        self._places = places
        place = places[-1]
        del self._wire[place.wire :]
        self._settled_to, self._wire_tokens, self._switch = place.rows, place.tokens, place.switch

    def _forget_wire(self) -> None:
        self._settled_to, self._wire_tokens, self._switch = 0, 0, None
        self._wire, self._places, self._encoded = [], [], {}

    def _switched_again(self) -> bool:
        """A newer note of another model takes the older one out of a front that had settled."""
        return self._switch is not None and any(is_switch(row) for row in self._rows[self._settled_to :])

    def _unsettled(self) -> list[tuple[int, Row]]:
        """What is sent of the rows that have not settled, each with its place."""
        start = self._settled_to
        switch = next((row for row in reversed(self._rows[start:]) if is_switch(row)), self._switch)
        return [
            (at, clean)
            for at, clean in enumerate(self._clean[start:], start)
            if clean is not None and is_sent(self._rows[at], switch)
        ]

    def _borders(self, sent: Sequence[tuple[int, Row]]) -> list[int]:
        """How many of them have settled, the newest such numbers: the places where another role begins, calls and
        results being one piece.

        Nothing that is added behind such a place can change what stands before it.
        """
        role = self._wire[-1].role if self._wire else None
        borders: list[int] = []
        for number, (_, clean) in enumerate(sent):
            if clean.role == "tool":
                continue
            # A note of another model may be taken out again: then what follows it stands behind the place.
            if number and role is not None and clean.role != role and not is_switch(clean):
                borders.append(number)
            role = "tool" if clean.tool_calls else clean.role
        return borders[-MOST_PLACES:]

    def _settle(self, sent: Sequence[tuple[int, Row]], borders: Sequence[int]) -> None:
        begin = 0
        for border in borders:
            front = tuple(alternating([clean for _, clean in sent[begin:border]], self._options))
            self._wire += front
            self._wire_tokens += rows_tokens(front)
            begin, end = border, sent[border][0]
            before = self._rows[self._settled_to : end]
            self._switch = next((row for row in reversed(before) if is_switch(row)), self._switch)
            self._settled_to = end
            self._places.append(SettledPlace(end, len(self._wire), self._wire_tokens, self._switch))
        del self._places[:-MOST_PLACES]
