"""TurnFeed: the events of one turn for one reader, lossless while the reader keeps up with the bytes.

A session's log forgets what lies behind its window, which a burst of small deltas can outrun between two looks of a
reader. A feed is filled in the same breath as the log is, and merges what has piled up: adjacent text becomes one
event. Beyond ``max_cost`` bytes the reader is too slow and is cut off (``lagged``); the turn never waits for it.
"""

from __future__ import annotations

from dataclasses import replace

import trio

from hermes.events import ProcessOutput, ReasoningDelta, SessionEvent, TextDelta, ToolProgress, UsageUpdated, event_cost
from hermes.outcomes import TurnRecord

UNSHOWN = (ToolProgress, UsageUpdated, ProcessOutput)
"""Frequent events that no reader of a feed shows."""


class TurnFeed:
    """One reader's share of one turn. ``record`` is the turn's end, once there is one."""

    def __init__(self, max_cost: int = 4 * 1024 * 1024) -> None:
        self.record: TurnRecord | None = None
        self.lagged = False
        self._pending: list[SessionEvent] = []
        self._cost = 0
        self._max_cost = max_cost
        self._reader = trio.lowlevel.ParkingLot()

    def push(self, event: SessionEvent) -> None:
        """Take an event. Never waits."""
        if self.lagged or isinstance(event, UNSHOWN):
            return
        self._cost += event_cost(event)
        if self._cost > self._max_cost:
            self.lagged = True
            self._pending.clear()
        elif not self._merged(event):
            self._pending.append(event)
        self._reader.unpark_all()

    def finish(self, record: TurnRecord) -> None:
        """The turn has ended; what is pending can still be read."""
        self.record = record
        self._reader.unpark_all()

    @property
    def finished(self) -> bool:
        """Nothing more will come, and nothing is left."""
        return self.lagged or (self.record is not None and not self._pending)

    async def next(self, within: float) -> list[SessionEvent]:
        """Everything that has piled up. Empty when nothing came in ``within`` seconds, or when ``finished``."""
        if self._pending or self.finished:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            with trio.move_on_after(within):
                await self._reader.park()
        events, self._pending = self._pending, []
        self._cost = 0
        return events

    def _merged(self, event: SessionEvent) -> bool:
        last = self._pending[-1] if self._pending else None
        if isinstance(last, TextDelta) and isinstance(event, TextDelta):
            self._pending[-1] = replace(last, text=last.text + event.text)
            return True
        if isinstance(last, ReasoningDelta) and isinstance(event, ReasoningDelta):
            self._pending[-1] = replace(last, text=last.text + event.text)
            return True
        return False
