"""The turn lease while somebody holds it: refreshed in time, given back, and noticed when it is lost (TL-3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from hermes.agent.ports import LeaseOwner, TurnBegun
from hermes.errors import HermesError, SessionOwnedElsewhere
from hermes.events import StatusUpdate
from hermes.messages import Row

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


async def keep(session: Session, ttl: float, lost: Callable[[], None], *, since: float | None = None) -> None:
    """Refresh the lease until cancelled. When it is not ours any more, ``lost`` is called and this returns.

    ``since``: when it was taken, if that was not just now."""
    asked = trio.current_time() if since is None else since
    ours_until = asked + ttl
    while True:
        await trio.sleep_until(asked + ttl / 3)
        asked = trio.current_time()
        try:
            held = await session.services.store.refresh_lease(session.key, session.services.owner, ttl=ttl)
            ours_until = trio.current_time() + ttl
        except HermesError as error:
            log.warning("cannot refresh the turn lease of %s: %s", session.key, error)
            # From here on another process may take it, and we could not know.
            held = trio.current_time() < ours_until
        if not held:
            lost()
            return


async def release(session: Session) -> None:
    """Give it back; a failure is only logged, a lease ends by itself."""
    try:
        await session.services.store.release_lease(session.key, session.services.owner)
    except HermesError as error:
        log.warning("cannot release the turn lease of %s: %s", session.key, error)
