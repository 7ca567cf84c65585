"""Threads for those who wait for threads: work in a thread that calls back into the loop and needs another one there.

Trio hands out a fixed number of places. When all of them are held by work that itself waits for a place, nothing ever
ends. So whoever holds places is looked at now and then: where somebody waits, and none of the holders has changed since
the last look, a few places more are lent, up to a bound, and taken back when nobody waits any more.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0
MOST_LENT: Final = 256
"""A thread costs some tens of kilobytes; work that hangs in the system is not to take them without end."""


async def lend_threads(every: float = LOOK_EVERY) -> None:
    """Run beside everything that uses the default places, until cancelled."""
    limiter = trio.to_thread.current_default_thread_limiter()
    usual = limiter.total_tokens
    lent, held = 0, frozenset[int]()
    while True:
        await trio.sleep(every)
        state = limiter.statistics()
        holders = frozenset(map(id, state.borrowers))
        if state.tasks_waiting and holders == held and lent < MOST_LENT:
            more = min(state.tasks_waiting, MOST_LENT - lent)
            log.warning("%d pieces of work wait for a thread and none comes free: %d more", state.tasks_waiting, more)
            lent += more
            limiter.total_tokens += more
        elif lent and not state.tasks_waiting and state.borrowed_tokens <= usual:
            limiter.total_tokens -= lent
            lent = 0
        held = holders
