"""StoredChanges: that the list of stored sessions is different, told to everybody at most every two seconds.

Each prompt and each end of a turn changes the list. Whoever is connected wakes for what everybody is told: with a
thousand clients that cost 40 ms each time, and a stop in the middle of that waited. So it is put together here, at the
source, and not by each client for itself.
"""

from __future__ import annotations

from typing import Final

import trio

from hermes.events import ServerEvent, SessionsChanged
from hermes.nurseries.event_log import EventLog

EVERY: Final = 2.0
"""Seconds between two announcements (gateway §6.6)."""


class StoredChanges:
    """``note`` may be called from anywhere in the server; ``run`` tells."""

    def __init__(self) -> None:
        self._noted = trio.Event()

    def note(self) -> None:
        """The list is different."""
        self._noted.set()

    async def run(self, announce: EventLog[ServerEvent]) -> None:
        """Until cancelled. What comes first is told at once."""
        while True:
            await self._noted.wait()
            self._noted = trio.Event()
            announce.append(SessionsChanged())
            await trio.sleep(EVERY)
