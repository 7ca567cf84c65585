"""The conversation of a request as JSON, of which only what is new is made.

A request repeats the whole conversation. Its front has settled: the same rows give the same bytes, so they are made
once per session and endpoint, and later requests copy them. A wire format says where a front may end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, Protocol

from hermes.agent.ports import ModelRequest
from hermes.agent.providers.wire_format import WrittenList, dump_list
from hermes.messages import Row

LEAST_TAIL: Final = 4
"""Messages that are always made anew: the newest ones carry the cache markers."""
SMALLEST_FRONT: Final = 16
MOST_ENDPOINTS: Final = 3
MOST_MARKS: Final = 64


class RowsFormat(Protocol):
    """How one wire format writes rows.

    Contract: ``encode`` of rows between two places where ``begins`` is true gives the same messages whatever stands
    around them; ``final_to`` rows from the start are written the same for ever. ``head`` stands before them, and
    ``finish`` changes at most the last ``LEAST_TAIL`` messages for good.
    """

    final_to: int

    def head(self) -> list[dict[str, Any]]: ...

    def encode(self, rows: Sequence[Row], first: int) -> list[dict[str, Any]]: ...

    def begins(self, before: Row, row: Row) -> bool: ...

    def finish(self, messages: list[dict[str, Any]], *, newest: bool) -> None: ...


def conversation(request: ModelRequest, key: Hashable, form: RowsFormat) -> list[dict[str, Any]] | WrittenList:
    """The messages of the request, as data or, when a front of them is known, as JSON."""
    rows, settled = request.messages, request.settled
    if settled is None or settled.count < SMALLEST_FRONT:
        messages = [*form.head(), *form.encode(rows, 0)]
        form.finish(messages, newest=True)
        return messages
    front = settled.kept.get(key)
    if front is None:
        while len(settled.kept) >= MOST_ENDPOINTS:
            del settled.kept[next(iter(settled.kept))]
        front = settled.kept[key] = EncodedFront()
    return front.written(rows, min(settled.count, form.final_to), form)


class EncodedFront:
    """The bytes of a conversation's front, and the places up to which they can be used."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._bytes = bytearray()
        self._marks = [(0, 0)]
        """(rows, bytes of them), oldest first."""

    def written(self, rows: Sequence[Row], final_to: int, form: RowsFormat) -> WrittenList:
        """All messages. ``final_to`` rows may be kept."""
        self._forget_changed(rows)
        self._extend(rows, final_to, form)
        usable = [mark for mark in self._marks if mark[0] <= final_to]
        while True:
            count, size = usable.pop()
            tail = form.encode(rows[count:], count)
            if len(tail) >= LEAST_TAIL or not usable:
                break
        form.finish(tail, newest=True)
        head = form.head()
        form.finish(head, newest=False)
        return WrittenList(_inside(head), self._bytes, size, dump_list(tail)[1:])

    def _forget_changed(self, rows: Sequence[Row]) -> None:
        """What a rewind has changed is made anew; rows before it are the same objects, so this is one quick pass."""
        count = len(self._rows)
        if self._rows == list(rows[:count]):
            return
        same = next(
            (at for at, (mine, row) in enumerate(zip(self._rows, rows, strict=False)) if mine != row), len(rows)
        )
        self._marks = [mark for mark in self._marks if mark[0] <= same]
        count, size = self._marks[-1]
        del self._rows[count:]
        # A request that was made before may still point to the old ones.
        self._bytes = self._bytes[:size]

    def _extend(self, rows: Sequence[Row], final_to: int, form: RowsFormat) -> None:
        begun = self._marks[-1][0]
        for end in range(begun + 1, min(final_to, len(rows) - 1) + 1):
            if form.begins(rows[end - 1], rows[end]):
                messages = form.encode(rows[begun:end], begun)
                form.finish(messages, newest=False)
                self._bytes += _inside(messages)
                self._rows += rows[begun:end]
                self._marks.append((end, len(self._bytes)))
                begun = end
        # The first mark, for a conversation that must be made whole, and the newest ones.
        del self._marks[1:-MOST_MARKS]


def _inside(messages: Sequence[dict[str, Any]]) -> bytes:
    """The elements of an array, each with its comma."""
    return dump_list(messages)[1:-1] + b"," if messages else b""
