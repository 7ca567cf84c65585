"""Backlog: log entries on their way to one client, adjacent deltas merged.

Never waits for more: only what has piled up while the client was not reading is merged. Order never changes, and the
merged frame carries the number of its last delta, so a reconnect with that number continues exactly behind it. What one
entry looks like is encoded once and kept with the entry, for every client that reads the same session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hermes.events import ReasoningDelta, SessionEvent, TextDelta, ThinkingStatus
from hermes.nurseries.event_log import LogEntry
from hermes.protocols.gateway.events import Shown, WireEvent, event_frame, translate
from hermes.records import dataclass

ENCODED_AS = "gateway"
MERGED_BYTES: Final = 256 * 1024
"""A frame of merged deltas is not made larger than this: WebSocket libraries refuse messages of 1 MiB and more."""

Entry = LogEntry[SessionEvent]
ShownNow = Callable[[], Shown]
"""What hosts may see; asked only when something has to be encoded."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries that were read in one go, in runs of what merges. ``cost`` is their estimated size in bytes. Shared by
    readers, never changed."""

    runs: tuple[list[Entry], ...]
    cost: int


class Batches:
    """The newest batch of each session: clients that read in step find their entries grouped already."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, int, Batch]] = {}

    def batch(self, session_id: str, entries: list[Entry]) -> Batch:
        first, last = entries[0].seq, entries[-1].seq
        known = self._newest.get(session_id)
        if known is not None and known[:2] == (first, last):
            return known[2]
        made = grouped(entries)
        if len(entries) > 1:
            self._newest[session_id] = (first, last, made)
        return made

    def forget(self, session_id: str) -> None:
        self._newest.pop(session_id, None)


def grouped(entries: list[Entry]) -> Batch:
    runs: list[list[Entry]] = []
    cost = 0
    for entry in entries:
        cost += entry.cost
        if runs and merges(runs[-1][-1].event, entry.event):
            runs[-1].append(entry)
        else:
            runs.append([entry])
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
            self._runs[-1] = [*self._runs[-1], *runs[0]]
            runs = runs[1:]
        self._runs.extend(runs)

    def take(self) -> Iterator[list[Entry]]:
        """All runs; the backlog is empty afterwards."""
        runs, self._runs, self.cost = self._runs, [], 0
        return iter(runs)


def merges(first: SessionEvent, second: SessionEvent) -> bool:
    """Text of the same kind, of the same turn; a status line replaces the one before."""
    if type(first) is not type(second):
        return False
    return isinstance(second, TextDelta | ReasoningDelta | ThinkingStatus) and first.turn_id == second.turn_id  # type: ignore[union-attr]


def run_frame(run: list[Entry], session_id: str, shown: ShownNow) -> bytes:
    """The frame of one run; empty where this surface shows nothing."""
    if len(run) == 1:
        return entry_frame(run[0], session_id, shown)
    # Readers in step merge the same entries: their frame stays with the last of them.
    name = f"{ENCODED_AS}:{run[0].seq}"
    frame = run[-1].encoded.get(name)
    if frame is None:
        frame = run[-1].encoded[name] = _merged_frame(run, session_id, shown)
    return frame


def _merged_frame(run: list[Entry], session_id: str, shown: ShownNow) -> bytes:
    first = translate(run[0].event, shown())
    if first is None:
        return b""
    last = run[-1].event
    if isinstance(last, ThinkingStatus):
        texts = [last.text]
    else:
        texts = [entry.event.text for entry in run if isinstance(entry.event, TextDelta | ReasoningDelta)]
    return event_frame(WireEvent(first.type, {"text": "".join(texts)}), session_id, run[-1].seq)


def entry_frame(entry: Entry, session_id: str, shown: ShownNow) -> bytes:
    """One entry's frame, encoded once for all readers."""
    frame = entry.encoded.get(ENCODED_AS)
    if frame is None:
        wire = translate(entry.event, shown())
        frame = b"" if wire is None else event_frame(wire, session_id, entry.seq)
        entry.encoded[ENCODED_AS] = frame
    return frame
