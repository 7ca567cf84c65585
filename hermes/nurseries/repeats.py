"""Requests that may be sent twice: a repeat under the same key gets the first answer, with another body it is refused.

The work of a keyed request belongs to the server, not to the connection that asked: a client that loses its connection
before the answer came repeats the request elsewhere and waits for the same outcome. Only what succeeded is kept; a
refusal has changed nothing, so its repeat is judged anew. Bounded in time and number; the oldest key goes first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from hermes.errors import Draining, IdempotencyConflict
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.settlement import Settlement

KEPT_SECONDS: Final = 300.0
MAX_KEPT: Final = 1024


class Outcome:
    """What a keyed request came to, for everybody who asks under its key."""

    def __init__(self, body: bytes) -> None:
        # Not the body itself: a picture of 25 MiB would stay for five minutes.
        self._body = hashlib.sha256(body).digest()
        self.at = trio.current_time()
        self.settled: Settlement[Any] = Settlement()

    def is_for(self, body: bytes) -> bool:
        """Whether the request had this body."""
        return hashlib.sha256(body).digest() == self._body

    async def wait(self) -> Any:
        """The result, once there is one; raises what the request raised."""
        result = await self.settled.wait()
        if isinstance(result, Crash):
            raise result.error
        return result

    async def run(self, name: str, work: Callable[[], Awaitable[Any]], forget: Callable[[], None]) -> None:
        """In a task of the server: the work, and what became of it."""
        try:
            result = await contained(name, work, log=False)
            if isinstance(result, Crash):
                forget()
            self.settled.settle(result)
        finally:
            if self.settled.settle(Crash(name, Draining())):
                forget()


class Repeats:
    """Outcomes by key. A request may be known by several keys: by the live and by the stored id of its session."""

    def __init__(self, seconds: float = KEPT_SECONDS, limit: int = MAX_KEPT) -> None:
        self._seconds = seconds
        self._limit = limit
        self._kept: dict[str, Outcome] = {}

    def find(self, keys: Sequence[str], body: bytes) -> Outcome | None:
        """The outcome under one of these keys. Raises ``IdempotencyConflict`` when it was for another body."""
        self._forget_old()
        found = next((self._kept[key] for key in keys if key in self._kept), None)
        if found is not None and not found.is_for(body):
            raise IdempotencyConflict
        return found

    def begin(self, keys: Sequence[str], body: bytes) -> Outcome:
        outcome = Outcome(body)
        for key in keys:
            self._kept[key] = outcome
        return outcome

    def forget(self, outcome: Outcome) -> None:
        for key in [key for key, kept in self._kept.items() if kept is outcome]:
            del self._kept[key]

    def _forget_old(self) -> None:
        oldest = trio.current_time() - self._seconds
        for key, outcome in list(self._kept.items()):
            if outcome.at >= oldest and len(self._kept) < self._limit:
                break
            del self._kept[key]
