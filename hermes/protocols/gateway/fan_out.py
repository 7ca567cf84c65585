"""From one session's log to all clients of this surface that watch it.

A ``Watch`` is one client's cursor and its task. Most of the time the clients are in step, and what one needs all need:
then one of the tasks, the leader's, wakes for all, the frames are made once, and each client costs one write. A client
that does not read leaves the others (``leave``), looks after itself, and joins them again when it has caught up. When
the leader goes, the next one leads. A delta to a few clients wakes nobody: it is passed on where it is logged.

Passing an event on costs a write for each client, so with many clients deltas are spaced: the first is passed on at
once, those that come within ``space(clients)`` of it go together. Nothing but deltas ever waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import trio

from hermes.events import (
    BrowserAsked,
    ClientRequestClosed,
    ClientRequestOpened,
    RedirectApplied,
    SessionEvent,
    SessionInfoChanged,
    SteerAccepted,
    SteerDelivered,
    ToolProgress,
)
from hermes.nurseries.event_log import EventLog, Follower, Lagged, LogClosed
from hermes.nurseries.session import Session
from hermes.protocols.channels.message_channel import Frames
from hermes.protocols.gateway.backlog import MERGED_BYTES, MERGING, Backlog, Batch, Entry, ShownNow, grouped, run_frame

if TYPE_CHECKING:
    from hermes.protocols.gateway.client import GatewayClient

logger = logging.getLogger(__name__)

GAVE_UP_SENDING: Final = 1011

UNSPACED_CLIENTS: Final = 8
SPACE_PER_CLIENT: Final = 100e-6
"""Seconds; about eight times what one write costs, so that deltas take an eighth of the processor."""

ONE_BREATH: Final = 100e-6
"""Seconds. What a model says in the same breath as what was passed on goes together, with the leader."""

MOST_SPACE: Final = 0.010
SPACED_EVENTS: Final = 128
"""So many deltas wait for their companions, far fewer than a log keeps."""

DIFFERENT_FOR_EACH: Final = (
    BrowserAsked,
    ClientRequestOpened,
    ClientRequestClosed,
    RedirectApplied,
    SessionInfoChanged,
    SteerAccepted,
    SteerDelivered,
    ToolProgress,
)
"""What a client gets of these depends on what it has declared and answered."""


def space(clients: int) -> float:
    """Seconds from one passing on of deltas to the next, with so many clients."""
    return 0.0 if clients <= UNSPACED_CLIENTS else min(clients * SPACE_PER_CLIENT, MOST_SPACE)


class Watch:
    """One session as one client sees it."""

    def __init__(self, client: GatewayClient, session: Session, fan_out: FanOut) -> None:
        self.session = session
        self._client = client
        self._fan_out = fan_out
        self._subscription = session.log.subscribe()
        self._backlog = Backlog()
        self._called = trio.Event()
        self._is_cut_off = False

    async def run(self) -> None:
        """Pass events on until the client or the session is gone."""
        try:
            while await self._wait_room() and self.catch_up():
                await self._fan_out.follow(self)
        except LogClosed:
            self.catch_up()
        finally:
            self._fan_out.leave(self)
            self._subscription.close()
            self._client.unwatch(self)

    def catch_up(self) -> bool:
        """Queue everything that the log holds. Synchronous; false when the client was cut off."""
        if not self._collect():
            return False
        for run in self._backlog.take():
            self._client.send_run(self.session, run)
        return True

    def pass_on(self, after: int, until: int, frames: Frames | None) -> bool:
        """Queue ``frames``, which say what the log holds behind ``after``; without them, or if this client has read
        on by itself, whatever the log holds. False when the client does not read or was cut off."""
        if not self._client.connection.has_room:
            return False
        if frames is None or self._client.turns_declared or self._subscription.cursor != after or self._backlog:
            return self.catch_up()
        self._subscription.skip_to(until)
        return not frames.whole or self._client.connection.send_together(frames)

    def call(self) -> None:
        """Wake the task of this watch."""
        self._called.set()

    async def wait_called(self) -> None:
        await self._called.wait()
        self._called = trio.Event()

    async def _wait_room(self) -> bool:
        """Wait until the client reads. What comes meanwhile is merged, in time: before the log lets it go."""
        connection = self._client.connection
        await trio.lowlevel.checkpoint_if_cancelled()
        if connection.has_room:
            return True
        observers = self.session.log.observers
        observers.append(self._heard)
        try:
            # What had piled up before may be most of what the log holds.
            return self._collect() and await connection.wait_room()
        finally:
            observers.remove(self._heard)

    def _heard(self, _: SessionEvent) -> None:
        if self.session.log.is_time_to_read and not self._is_cut_off:
            self._collect()

    def _collect(self) -> bool:
        try:
            while entries := self._subscription.next_nowait():
                self._backlog.add(self._fan_out.batch(entries))
        except Lagged:
            return self._cut_off()
        if len(self._backlog) == 1:
            return True
        limits = self._client.server.settings.limits
        is_over = len(self._backlog) > limits.subscriber_buffer + limits.replay_events
        if is_over or self._backlog.cost > limits.subscriber_bytes:
            return self._cut_off()
        return True

    def _cut_off(self) -> bool:
        self._is_cut_off = True
        logger.warning("%s does not read; closed", self._client.name)
        self._client.connection.close(GAVE_UP_SENDING, "too much is waiting to be read")
        return False


class FanOut:
    """The watches of one session. Those in it are in step, up to what a handler has queued for one of them alone."""

    def __init__(self, session_id: str, log: EventLog[SessionEvent], shown: ShownNow) -> None:
        self._session_id = session_id
        self._log = log
        self._shown = shown
        self._watches: dict[Watch, None] = {}
        self._leader: Watch | None = None
        self._passed_on = log.latest_seq
        self._passed_on_at = float("-inf")
        self._newest: tuple[int, int, Batch] | None = None
        self._news: Follower[SessionEvent] | None = None

    def batch(self, entries: list[Entry]) -> Batch:
        """The entries in runs. Clients that read the same find it made already."""
        first, last = entries[0].seq, entries[-1].seq
        if self._newest is None or self._newest[:2] != (first, last):
            self._newest = first, last, grouped(entries)
        return self._newest[2]

    async def follow(self, watch: Watch) -> None:
        """Be in step, and lead when it falls to this one. Returns when the client does not read or was cut off.

        Call it with everything queued that the log holds. Raises ``LogClosed`` when nothing more will come.
        """
        self._join(watch)
        while watch in self._watches:
            if self._leader is not watch:
                await watch.wait_called()
            elif self._passed_on < self._log.latest_seq:
                await self._wait_space()
                self._pass_on()
            elif self._log.closed:
                raise LogClosed
            else:
                await self._wait_news()

    def leave(self, watch: Watch) -> None:
        """Be in step no more. The leader hands over."""
        self._watches.pop(watch, None)
        if not self._watches and self._news is not None:
            self._log.unfollow(self._news)
            self._news = None
        if self._leader is watch:
            self._leader = next(iter(self._watches), None)
            if self._leader is not None:
                self._leader.call()

    def _join(self, watch: Watch) -> None:
        if not self._watches:
            self._passed_on = self._log.latest_seq
        self._watches[watch] = None
        if self._leader is None:
            self._leader = watch
        if self._news is None:
            self._news = self._log.follow(self._pass_on_at_once)

    async def _wait_news(self) -> None:
        assert self._news is not None
        await self._news.wait()

    def _pass_on_at_once(self, event: SessionEvent) -> bool:
        """Pass a delta on in the breath in which it is logged, if it is all that is new and few are there to get it:
        nobody's task has to wake for it. Everything else is the leader's, whose task waits. Whether it was done."""
        alone = self._passed_on == self._log.latest_seq - 1
        if not (alone and isinstance(event, MERGING) and len(self._watches) <= UNSPACED_CLIENTS):
            return False
        if trio.current_time() - self._passed_on_at < ONE_BREATH:
            return False
        leader = self._leader
        self._pass_on()
        # A leader that could not keep up has work to do.
        return self._leader is leader

    async def _wait_space(self) -> None:
        due = self._passed_on_at + space(len(self._watches))
        while trio.current_time() < due and self._may_wait():
            with trio.move_on_at(due):
                await self._wait_news()

    def _may_wait(self) -> bool:
        """Only a few deltas are to be passed on."""
        if self._log.closed or self._log.latest_seq - self._passed_on >= SPACED_EVENTS:
            return False
        entries, truncated = self._log.since(self._passed_on)
        if truncated or sum(entry.cost for entry in entries) > MERGED_BYTES:
            return False
        return all(isinstance(entry.event, MERGING) for entry in entries)

    def _pass_on(self) -> None:
        self._passed_on_at = trio.current_time()
        after, until = self._passed_on, self._log.latest_seq
        entries, truncated = self._log.since(after)
        self._passed_on = until
        frames = None if truncated or not entries else self._frames(entries)
        for watch in list(self._watches):
            if not watch.pass_on(after, until, frames):
                self.leave(watch)
                watch.call()

    def _frames(self, entries: list[Entry]) -> Frames | None:
        """What all clients get, or None where that differs."""
        if any(isinstance(entry.event, DIFFERENT_FOR_EACH) for entry in entries):
            return None
        made = [run_frame(run, self._session_id, self._shown) for run in self.batch(entries).runs]
        return Frames([frame for frame in made if frame])


class FanOuts:
    """One for each session that somebody watches; its watches keep it alive."""

    def __init__(self) -> None:
        self._by_session: WeakValueDictionary[str, FanOut] = WeakValueDictionary()

    def of(self, session: Session, shown: ShownNow) -> FanOut:
        fan_out = self._by_session.get(session.runtime_id)
        if fan_out is None:
            fan_out = self._by_session[session.runtime_id] = FanOut(session.runtime_id, session.log, shown)
        return fan_out
