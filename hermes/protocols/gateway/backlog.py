"""Backlog: log entries on their way to one client, adjacent deltas merged.

Never waits for more: only what has piled up while the client was not reading is merged. Order never changes, and the
merged frame carries the number of its last delta, so a reconnect with that number continues exactly behind it. What one
entry looks like is encoded once and kept with the entry, for every client that reads the same session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hermes.events import ReasoningDelta, SessionEvent, TextDelta
from hermes.nurseries.event_log import LogEntry
from hermes.protocols.gateway.events import Shown, WireEvent, event_frame, translate, turn_of
from hermes.records import dataclass

ENCODED_AS = "gateway"
ENCODED_WITH_TURN = "gateway with turn"
MERGED_BYTES: Final = 256 * 1024
"""A frame of merged deltas is not made larger than this: WebSocket libraries refuse messages of 1 MiB and more."""

Entry = LogEntry[SessionEvent]
ShownNow = Callable[[], Shown]
"""What hosts may see; asked only when something has to be encoded."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries that were read in one go, in runs of what merges. ``cost`` is their estimated size in bytes."""

    runs: tuple[list[Entry], ...]
    cost: int


def grouped(entries: list[Entry]) -> Batch:
    runs: list[list[Entry]] = []
    cost = size = 0
    for entry in entries:
        cost += entry.cost
        size += entry.cost
        if runs and size <= MERGED_BYTES and merges(runs[-1][-1].event, entry.event):
            runs[-1].append(entry)
        else:
            runs.append([entry])
            size = entry.cost
    return Batch(tuple(runs), cost)


class Backlog:
    """Entries in order, in runs that become one frame each. ``cost`` is their estimated size in bytes."""

    def __init__(self) -> None:
        self._runs: list[list[Entry]] = []
        self.cost = 0

    def __len__(self) -> int:
        """How many frames it will be."""
        return len(self._runs)

    def add(self, batch: Batch) -> None:
        self.cost += batch.cost
        runs = batch.runs
        if self._runs and merges(self._runs[-1][-1].event, runs[0][0].event):
            whole = [*self._runs[-1], *runs[0]]
            if sum(entry.cost for entry in whole) <= MERGED_BYTES:
                self._runs[-1] = whole
                runs = runs[1:]
        self._runs.extend(runs)

    def take(self) -> Iterator[list[Entry]]:
        """All runs; the backlog is empty afterwards."""
        runs, self._runs, self.cost = self._runs, [], 0
        return iter(runs)


MERGING: Final = (TextDelta, ReasoningDelta)
"""Events that may wait a moment for the next of their kind."""


def merges(first: SessionEvent, second: SessionEvent) -> bool:
    """Text of the same kind, of the same turn."""
    if type(first) is not type(second):
        return False
    return isinstance(second, MERGING) and first.turn_id == second.turn_id  # type: ignore[union-attr]


def run_frame(run: list[Entry], session_id: str, shown: ShownNow, *, turns: bool = False) -> bytes:
    """The frame of one run; empty where this surface shows nothing. ``turns``: it names the turn."""
    if len(run) == 1:
        return entry_frame(run[0], session_id, shown, turns=turns)
    # Readers in step merge the same entries: their frame stays with the last of them.
    name = f"{ENCODED_WITH_TURN if turns else ENCODED_AS}:{run[0].seq}"
    frame = run[-1].encoded.get(name)
    if frame is None:
        frame = run[-1].encoded[name] = _merged_frame(run, session_id, shown, turns)
    return frame


def _merged_frame(run: list[Entry], session_id: str, shown: ShownNow, turns: bool) -> bytes:
    first = translate(run[0].event, shown())
    if first is None:
        return b""
    texts = [entry.event.text for entry in run if isinstance(entry.event, MERGING)]
    turn_id = turn_of(run[0].event) if turns else None
    return event_frame(WireEvent(first.type, {"text": "".join(texts)}), session_id, run[-1].seq, turn_id)


def entry_frame(entry: Entry, session_id: str, shown: ShownNow, *, turns: bool = False) -> bytes:
    """One entry's frame, encoded once for all readers."""
    name = ENCODED_WITH_TURN if turns else ENCODED_AS
    frame = entry.encoded.get(name)
    if frame is None:
        wire = translate(entry.event, shown())
        turn_id = turn_of(entry.event) if turns else None
        frame = b"" if wire is None else event_frame(wire, session_id, entry.seq, turn_id)
        entry.encoded[name] = frame
    return frame
