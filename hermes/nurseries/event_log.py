"""EventLog and Subscription: numbered events of one session, a bounded tail, and cursors into it.

``append`` is synchronous: it numbers, stores and wakes. A subscription is a cursor, not a queue: replay after a
reconnect and live delivery are the same code, and a slow reader costs no memory of its own. A cursor that falls out of
the retained tail is *lagged*: its owner resynchronises from the snapshot or hangs up. A slow reader never slows a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar
from weakref import ref

import trio

from hermes.nurseries.replay_memory import ReplayMemory

E = TypeVar("E")


IN_ONE_BREATH: Final = 16
"""So many events may be appended before readers have had their turn."""


class Lagged(Exception):
    """The cursor fell out of the retained tail; ``oldest`` is the lowest number that is still there."""

    def __init__(self, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(f"events before {oldest} are gone")


class LogClosed(Exception):
    """The log is closed and the cursor has seen everything."""


class LogEntry(Generic[E]):
    """One event with its number. ``encoded`` keeps wire forms that are the same for every reader of a surface, so that
    a hundred readers of one session cost one encoding; it lives exactly as long as the entry."""

    __slots__ = ("at", "cost", "encoded", "event", "seq")

    def __init__(self, seq: int, event: E, cost: int, at: float) -> None:
        self.seq = seq
        self.event = event
        self.cost = cost
        self.at = at
        self.encoded: dict[str, bytes] = {}


class EventLog(Generic[E]):
    """Numbered events, the first has number 1. Bounds: ``max_events`` and ``max_cost`` bytes (estimated).

    ``memory`` is the bound over all logs of the server, which may make this one forget its events early.
    """

    def __init__(
        self,
        *,
        cost: Callable[[E], int],
        clock: Callable[[], float],
        max_events: int = 512,
        max_cost: int = 4 << 20,
        memory: ReplayMemory | None = None,
    ) -> None:
        self._entries: deque[LogEntry[E]] = deque()
        self._cost_of = cost
        self._clock = clock
        self._max_events = max_events
        self._max_cost = max_cost
        self._quarter = max(1, max_events // 4)
        self._memory = memory
        self._cost = 0
        self._latest = 0
        self._closed = False
        self._letting_go = False
        # References of our own: to walk a WeakSet costs more than all else of an append.
        self._subscriptions: dict[ref[Subscription[E]], None] = {}
        self._readers = trio.lowlevel.ParkingLot()
        self._passed = trio.lowlevel.ParkingLot()
        self._followers: tuple[Follower[E], ...] = ()
        self.observers: list[Callable[[E], None]] = []
        """Called with each event in the same breath as ``append``: for readers that may miss nothing, whatever the
        window. They must not wait and must not raise."""

    @property
    def latest_seq(self) -> int:
        """Number of the newest event, 0 before the first."""
        return self._latest

    @property
    def oldest_seq(self) -> int:
        """Number of the oldest retained event; ``latest_seq + 1`` when nothing is retained."""
        return self._entries[0].seq if self._entries else self._latest + 1

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def cost(self) -> int:
        """Estimated bytes retained."""
        return self._cost

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_time_to_read(self) -> bool:
        """Whether readers who put it off should read now, asked with each event: at four places of the window, the
        same for all of them, so that they read the same; with each event where few large ones fill it."""
        return self._latest % self._quarter == 0 or self._cost > self._max_cost // 2

    def append(self, event: E) -> int:
        """Number, store, wake; returns the number. Nothing is appended to a closed log (returns the latest number)."""
        if self._closed:
            return self._latest
        self._latest += 1
        self._letting_go = False
        cost = self._cost_of(event)
        self._entries.append(LogEntry(self._latest, event, cost, self._clock()))
        self._cost += cost
        if len(self._entries) > self._max_events or self._cost > self._max_cost:
            self._trim()
        if self._memory is not None:
            self._memory.changed(self, self._cost)
        for observer in self.observers:
            observer(event)
        if self._readers:
            self._readers.unpark_all()
        for follower in self._followers:
            follower.hear(event)
        return self._latest

    def close(self) -> None:
        """No more events; readers finish what is there and then see ``LogClosed``."""
        self._closed = True
        if self._memory is not None:
            self._memory.gone(self)
        self._readers.unpark_all()
        self._passed.unpark_all()
        for follower in self._followers:
            follower.wake()

    def forget_all(self) -> None:
        """Keep no event: all memory for replays is used up elsewhere. Readers that are up to date notice nothing."""
        self._entries.clear()
        self._cost = 0
        self._letting_go = False

    def forget_read(self) -> None:
        """Keep only what readers that are there have not read yet, and that until they have."""
        read = self._latest
        for reference in tuple(self._subscriptions):
            one = reference()
            if one is not None and one.cursor < read and one.is_behind:
                read = one.cursor
        if read == self._latest:
            self.forget_all()
            return
        while self._entries and self._entries[0].seq <= read:
            self._cost -= self._entries.popleft().cost
        self._letting_go = bool(self._entries)

    def since(self, seq: int) -> tuple[list[LogEntry[E]], bool]:
        """Retained entries after ``seq`` and whether some after ``seq`` are gone (``truncated``)."""
        truncated = seq + 1 < self.oldest_seq and seq < self._latest
        if seq >= self._latest:
            return [], truncated
        start = max(0, seq + 1 - self.oldest_seq)
        # A deque is walked from its nearer end; live readers stand at the right one.
        if start > len(self._entries) // 2:
            newest: list[LogEntry[E]] = []
            for entry in reversed(self._entries):
                if entry.seq <= seq:
                    break
                newest.append(entry)
            newest.reverse()
            return newest, truncated
        return [entry for entry in self._entries if entry.seq > seq], truncated

    async def wait_changed(self) -> None:
        """Wait for the next event, or for the end of the log if it is still open."""
        if self._closed:
            await trio.lowlevel.checkpoint()
        else:
            await self._readers.park()

    def follow(self, pass_on: Callable[[E], bool]) -> Follower[E]:
        """Wait for news as ``wait_changed`` does, but for those that ``pass_on`` deals with at once."""
        follower = Follower(self, pass_on)
        self._followers += (follower,)
        return follower

    def unfollow(self, follower: Follower[E]) -> None:
        self._followers = tuple(one for one in self._followers if one is not follower)

    def subscribe(self, after: int | None = None) -> Subscription[E]:
        """A cursor that reads everything after ``after`` (default: only what is new)."""
        subscription = Subscription(self, self._latest if after is None else after)
        readers = self._subscriptions
        readers[ref(subscription, lambda one: readers.pop(one, None))] = None
        return subscription

    def _trim(self) -> None:
        while len(self._entries) > 1 and (len(self._entries) > self._max_events or self._cost > self._max_cost):
            # A few of the newest stay, whatever their size, until they are read: a large event and the one behind it
            # are appended in one breath, and readers who are in step have had no turn between them.
            if len(self._entries) <= min(IN_ONE_BREATH, self._max_events) and self._is_unread(self._entries[0].seq):
                return
            self._cost -= self._entries.popleft().cost

    def _is_unread(self, seq: int) -> bool:
        return any(one is not None and one.cursor < seq and one.is_behind for one in (r() for r in self._subscriptions))


class Follower(Generic[E]):
    """Somebody who is told of an event while his task waits for news, and woken only if he wants to: a wake-up of a
    task costs more than what most events need. ``pass_on`` says whether it was dealt with; it is called in the same
    breath as ``append``, must not wait and must not raise. Made by ``EventLog.follow``."""

    __slots__ = ("_log", "_parked", "_pass_on")

    def __init__(self, log: EventLog[E], pass_on: Callable[[E], bool]) -> None:
        self._log = log
        self._pass_on = pass_on
        self._parked = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        """Wait for an event that was not dealt with, or for the end of the log if it is still open."""
        if self._log.closed:
            await trio.lowlevel.checkpoint()
        else:
            await self._parked.park()

    def hear(self, event: E) -> None:
        if self._parked and not self._pass_on(event):
            self._parked.unpark_all()

    def wake(self) -> None:
        self._parked.unpark_all()


class Subscription(Generic[E]):
    """One reader. ``cursor`` is the number of the last event handed out, ``handled`` of the last one dealt with."""

    __slots__ = ("__weakref__", "_ended", "_log", "cursor", "handled")

    def __init__(self, log: EventLog[E], after: int) -> None:
        self._log = log
        self.cursor = after
        self.handled = after
        self._ended = False

    @property
    def is_behind(self) -> bool:
        """It has something to read that is still there."""
        return not self._ended and self._log.oldest_seq - 1 <= self.cursor < self._log.latest_seq

    async def next(self, limit: int = 256) -> list[LogEntry[E]]:
        """Everything that is new, at least one entry, at most ``limit``. Asking again says that the former batch has
        been dealt with. Raises ``Lagged`` or ``LogClosed``."""
        self._mark_handled()
        while True:
            batch = self.next_nowait(limit)
            if batch:
                await trio.lowlevel.checkpoint_if_cancelled()
                return batch
            if self._log.closed:
                self._end()
                raise LogClosed
            await self._log._readers.park()

    async def wait(self) -> None:
        """Wait until there is something new, without taking it. Raises ``LogClosed`` when nothing more will come.

        For readers that take (``next_nowait``) and pass on in one breath, so that others can do it for them too.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self.cursor >= self._log.latest_seq:
            if self._log.closed:
                self._end()
                raise LogClosed
            await self._log._readers.park()

    def next_nowait(self, limit: int = 256) -> list[LogEntry[E]]:
        """What is new right now, possibly nothing. Raises ``Lagged``."""
        if self.cursor >= self._log.latest_seq:
            return []
        entries, truncated = self._log.since(self.cursor)
        if truncated:
            self._end()
            raise Lagged(self._log.oldest_seq)
        del entries[limit:]
        if entries:
            self.skip_to(entries[-1].seq)
        return entries

    def skip_to(self, seq: int) -> None:
        """Everything up to ``seq`` has been taken for this reader, by one who takes for many."""
        self.cursor = seq
        if self._log._letting_go:
            self._log.forget_read()
        elif self._log._cost > self._log._max_cost:
            self._log._trim()

    async def wait_handled(self, seq: int) -> None:
        """Wait until this reader has dealt with everything up to ``seq``, or has ended.

        A request that must be answered after an event waits here, so that the answer follows the event on the wire.
        """
        while self.handled < seq and not self._ended:
            await self._log._passed.park()

    def close(self) -> None:
        """The reader is gone; whoever waits for it goes on."""
        self._end()

    def _mark_handled(self) -> None:
        if self.handled != self.cursor:
            self.handled = self.cursor
            if self._log._passed:
                self._log._passed.unpark_all()

    def _end(self) -> None:
        self._ended = True
        if self._log._letting_go:
            self._log.forget_read()
        self._log._passed.unpark_all()
