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

ENCODED_AS = "gateway"
MERGED_BYTES: Final = 256 * 1024
"""A frame of merged deltas is not made larger than this: WebSocket libraries refuse messages of 1 MiB and more."""

Entry = LogEntry[SessionEvent]
ShownNow = Callable[[], Shown]
"""What hosts may see; asked only when something has to be encoded."""


class Backlog:
    """Entries in order, in runs that become one frame each. ``cost`` is their estimated size in bytes."""

    def __init__(self) -> None:
        self._runs: list[list[Entry]] = []
        self._newest_cost = 0
        self.cost = 0

    def __len__(self) -> int:
        """How many frames it will be."""
        return len(self._runs)

    def add(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.cost += entry.cost
            fits = self._newest_cost + entry.cost <= MERGED_BYTES
            if self._runs and fits and merges(self._runs[-1][-1].event, entry.event):
                self._runs[-1].append(entry)
                self._newest_cost += entry.cost
            else:
                self._runs.append([entry])
                self._newest_cost = entry.cost

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
