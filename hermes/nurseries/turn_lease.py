"""The turn lease while somebody holds it: refreshed in time, given back, and noticed when it is lost (TL-3)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from hermes.agent.ports import LeaseOwner, TranscriptStore, TurnBegun
from hermes.errors import HermesError, SessionOwnedElsewhere
from hermes.events import StatusUpdate
from hermes.messages import Row
from hermes.nurseries.containment import Crash, contained

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

log = logging.getLogger(__name__)

ASK_EVERY = 0.25
"""Seconds between two tries to take a lease that another process holds."""


async def begin(session: Session, rows: Sequence[Row], ttl: float, *, within: float) -> TurnBegun:
    """Take the lease and, in the same transaction, store the rows and the session itself if it is new.

    A turn of another process may end at any moment, so ``within`` seconds are waited for it. Raises
    ``SessionOwnedElsewhere`` then, and the store's errors at once.
    """
    services = session.services
    new_session = None if session.is_stored else session.stored
    until, told = trio.current_time() + within, False
    while True:
        try:
            return await services.store.begin_turn(
                session.key,
                rows,
                owner=services.owner,
                ttl=ttl,
                expected_version=session.history_version,
                new_session=new_session,
            )
        except SessionOwnedElsewhere as error:
            left = until - trio.current_time()
            if left <= 0:
                if told:
                    session.emit(StatusUpdate(None, "status", "ready"))
                raise
            if not told:
                told = True
                session.emit(StatusUpdate(None, "status", f"{error.message}; waiting up to {within:g} s for its end"))
        await trio.sleep(min(ASK_EVERY, left))


async def held_elsewhere(session: Session) -> LeaseOwner | None:
    """The other process that runs a turn of this session now; None where no other does, or the store cannot tell."""
    if session.slot.turn is not None:
        return None
    try:
        owner = await session.services.store.lease_holder(session.key)
    except HermesError as error:
        log.warning("who runs a turn of %s cannot be read: %s", session.key, error)
        return None
    return None if owner == session.services.owner else owner


class Held:
    """One lease that is kept. ``due``: when it is renewed next; ``ours_until``: when it expires, as far as we know."""

    def __init__(self, key: str, ttl: float, since: float) -> None:
        self.key = key
        self.ttl = ttl
        self.due = since + ttl / 3
        self.ours_until = since + ttl
        self.lost = trio.Event()


class Leases:
    """All leases that turns of this server hold, renewed by one task.

    Each by itself cost two changes of thread: of a thousand turns that had begun together, all did so within a second,
    and a stop in the middle of that waited. So whatever is due soon goes into the same write.
    """

    def __init__(self) -> None:
        self._held: dict[Held, None] = {}
        self._wakes_at = math.inf
        self._called = trio.Event()

    async def wait_lost(self, held: Held) -> None:
        """Have it renewed until cancelled; returns when it is lost."""
        self._held[held] = None
        if held.due < self._wakes_at:
            self._called.set()
        try:
            await held.lost.wait()
        finally:
            del self._held[held]

    async def run(self, store: TranscriptStore, owner: LeaseOwner) -> None:
        """Renew until cancelled. The server runs this once, for as long as it has sessions."""
        while True:
            self._called = trio.Event()
            self._wakes_at = min((held.due for held in self._held), default=math.inf)
            with trio.move_on_at(self._wakes_at):
                await self._called.wait()
            now = trio.current_time()
            if now < self._wakes_at:
                continue
            due = [held for held in self._held if held.due <= now + held.ttl / 6]
            for ttl in sorted({held.ttl for held in due}):
                await _renew([held for held in due if held.ttl == ttl], ttl, store, owner)


async def _renew(due: Sequence[Held], ttl: float, store: TranscriptStore, owner: LeaseOwner) -> None:
    asked = trio.current_time()
    # What goes wrong here is no turn's own fault, and must not end the task that all of them rely on.
    ours = await contained(
        "renewal of turn leases", partial(store.refresh_leases, ttl=ttl), [held.key for held in due], owner
    )
    for held in due:
        held.due = asked + ttl / 3
        if isinstance(ours, Crash):
            # From where it expires on another process may take it, and we could not know.
            is_ours = trio.current_time() < held.ours_until
        elif is_ours := held.key in ours:
            held.ours_until = trio.current_time() + ttl
        if not is_ours:
            held.lost.set()


async def keep(session: Session, ttl: float, lost: Callable[[], None], *, since: float | None = None) -> None:
    """Refresh the lease until cancelled. When it is not ours any more, ``lost`` is called and this returns.

    ``since``: when it was taken, if that was not just now."""
    held = Held(session.key, ttl, trio.current_time() if since is None else since)
    await session.services.leases.wait_lost(held)
    lost()


async def release(session: Session) -> None:
    """Give it back; a failure is only logged, a lease ends by itself."""
    try:
        await session.services.store.release_lease(session.key, session.services.owner)
    except HermesError as error:
        log.warning("cannot release the turn lease of %s: %s", session.key, error)
