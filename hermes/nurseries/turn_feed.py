"""Feeds: events for one reader that must miss nothing while it keeps up with the bytes.

A session's log forgets what lies behind its window, which a burst of small deltas can outrun between two looks of a
reader. A feed is filled in the same breath as the log is, and merges what has piled up: adjacent text becomes one
event, a newer picture of the same thing replaces the older one. Beyond ``max_cost`` bytes the reader is too slow and
is cut off (``lagged``); the turn never waits for it.

``TurnFeed`` is one reader's share of one turn, ``SessionFeed`` of all turns of a session.
"""

from __future__ import annotations

import io
from collections.abc import Hashable
from dataclasses import replace

import trio

from hermes.events import (
    ProcessOutput,
    ReasoningDelta,
    SessionEvent,
    TextDelta,
    ThinkingStatus,
    ToolProgress,
    UsageUpdated,
    event_cost,
)
from hermes.nurseries.event_log import EventLog, LogClosed
from hermes.outcomes import TurnRecord

UNSHOWN = (ToolProgress, UsageUpdated, ProcessOutput, ThinkingStatus)
"""Frequent events that no reader of a turn's feed shows."""


class _GrowingText:
    """Adjacent deltas of one kind. A buffer and not a sum of strings, which would cost the square of a long text."""

    __slots__ = ("first", "text")

    def __init__(self, first: TextDelta | ReasoningDelta) -> None:
        self.first = first
        self.text = io.StringIO()
        self.text.write(first.text)

    def whole(self) -> SessionEvent:
        return replace(self.first, text=self.text.getvalue())


class MergedEvents:
    """Events that wait for a reader. ``cost`` is an estimate of the bytes they hold."""

    def __init__(self) -> None:
        self.cost = 0
        self._events: list[SessionEvent | _GrowingText] = []
        self._pictures: dict[Hashable, int] = {}

    def __bool__(self) -> bool:
        return bool(self._events)

    def push(self, event: SessionEvent) -> None:
        match event:
            case TextDelta() | ReasoningDelta():
                self._push_text(event)
            case ToolProgress(call_id=call_id):
                self._push_picture(call_id, event)
            case UsageUpdated(turn_id=turn_id):
                self._push_picture((UsageUpdated, turn_id), event)
            case _:
                self._append(event)

    def take(self) -> list[SessionEvent]:
        """Everything that has piled up, oldest first."""
        events = [event.whole() if isinstance(event, _GrowingText) else event for event in self._events]
        self.clear()
        return events

    def clear(self) -> None:
        self._events = []
        self._pictures.clear()
        self.cost = 0

    def _append(self, event: SessionEvent) -> None:
        self._events.append(event)
        self.cost += event_cost(event)

    def _push_text(self, event: TextDelta | ReasoningDelta) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, _GrowingText) and type(last.first) is type(event):
            last.text.write(event.text)
            self.cost += len(event.text)
        elif isinstance(last, TextDelta | ReasoningDelta) and type(last) is type(event):
            growing = self._events[-1] = _GrowingText(last)
            growing.text.write(event.text)
            self.cost += len(event.text)
        else:
            self._append(event)

    def _push_picture(self, key: Hashable, event: SessionEvent) -> None:
        place = self._pictures.get(key)
        if place is None:
            self._pictures[key] = len(self._events)
            self._append(event)
        else:
            old = self._events[place]
            assert not isinstance(old, _GrowingText)
            self.cost += event_cost(event) - event_cost(old)
            self._events[place] = event


class TurnFeed:
    """One reader's share of one turn. ``record`` is the turn's end, once there is one."""

    def __init__(self, max_cost: int = 4 * 1024 * 1024) -> None:
        self.record: TurnRecord | None = None
        self.lagged = False
        self._pending = MergedEvents()
        self._max_cost = max_cost
        self._reader = trio.lowlevel.ParkingLot()

    def push(self, event: SessionEvent) -> None:
        """Take an event. Never waits."""
        if self.lagged or isinstance(event, UNSHOWN):
            return
        self._pending.push(event)
        if self._pending.cost > self._max_cost:
            self.lagged = True
            self._pending.clear()
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
        return self._pending.take()


class SessionFeed:
    """One reader's share of a session, from its making until ``close``.

    Parameters: ``after``, begin behind this number of the log instead of now; ``max_cost``, bytes that may wait.
    """

    def __init__(self, log: EventLog[SessionEvent], *, after: int | None = None, max_cost: int = 64 << 20) -> None:
        self._log = log
        self._max_cost = max_cost
        self._pending = MergedEvents()
        self._lagged = False
        if after is not None:
            for entry in log.since(after)[0]:
                self._push(entry.event)
        log.observers.append(self._push)
        self._open = True

    async def wait(self) -> None:
        """Wait until there is something to take. Raises ``LogClosed`` when nothing more will come."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._pending and not self._lagged:
            if self._log.closed:
                raise LogClosed
            await self._log.wait_changed()

    def take_nowait(self) -> tuple[list[SessionEvent], bool]:
        """(everything that has piled up, whether something before it is lost because it was too much)."""
        lost, self._lagged = self._lagged, False
        return self._pending.take(), lost

    def close(self) -> None:
        """Take nothing more. Closing twice is closing once."""
        if self._open:
            self._open = False
            self._log.observers.remove(self._push)
            self._pending.clear()

    def _push(self, event: SessionEvent) -> None:
        if isinstance(event, ProcessOutput):
            return
        self._pending.push(event)
        if self._pending.cost > self._max_cost:
            self._pending.clear()
            self._lagged = True
