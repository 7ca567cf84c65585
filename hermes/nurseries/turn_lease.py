"""The turn lease while somebody holds it: refreshed in time, given back, and noticed when it is lost (TL-3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from hermes.errors import HermesError

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

log = logging.getLogger(__name__)


async def keep(session: Session, ttl: float, lost: Callable[[], None]) -> None:
    """Refresh the lease until cancelled. When it is not ours any more, ``lost`` is called and this returns."""
    ours_until = trio.current_time() + ttl
    while True:
        await trio.sleep(ttl / 3)
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
