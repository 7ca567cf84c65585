"""Keys that were seen lately, and what they stood for: a repeated request with the same key finds its first answer.

Bounded in time and number; the oldest key goes first.
"""

from __future__ import annotations

import trio

MAX_KEYS = 1024


class RecentKeys:
    """Values by key for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, tuple[float, str]] = {}

    def get(self, key: str) -> str | None:
        """The value, if the key is not too old."""
        self._forget_old()
        found = self._seen.get(key)
        return None if found is None else found[1]

    def put(self, key: str, value: str) -> None:
        self._forget_old()
        self._seen[key] = (trio.current_time(), value)

    def _forget_old(self) -> None:
        oldest = trio.current_time() - self._seconds
        for key, (at, _) in list(self._seen.items()):
            if at >= oldest and len(self._seen) < MAX_KEYS:
                break
            del self._seen[key]
