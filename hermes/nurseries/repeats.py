"""Requests that may be sent twice: a repeat under the same key gets the first answer, with another body it is refused.

The work of a keyed request belongs to the server, not to the connection that asked: a client that loses its connection
before the answer came repeats the request elsewhere and waits for the same outcome. Only what succeeded is kept; a
refusal has changed nothing, so its repeat is judged anew. Bounded in time, number and bytes; the oldest answer goes
first. What still runs is never forgotten: its repeat would be done beside it.
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
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of all answers together; the newest one is kept whatever its size."""


class Outcome:
    """What a keyed request came to, for everybody who asks under its key."""

    def __init__(self, body: bytes) -> None:
        # Not the body itself: a picture of 25 MiB would stay for five minutes.
        self._body = hashlib.sha256(body).digest()
        self.settled_at = 0.0
        self.size = 0
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


class Repeats:
    """Outcomes by key. A request may be known by several keys: by the live and by the stored id of its session."""

    def __init__(self, seconds: float = KEPT_SECONDS, limit: int = MAX_KEPT, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._seconds = seconds
        self._limit = limit
        self._max_bytes = max_bytes
        self._kept: dict[str, Outcome] = {}
        # In the order in which they were settled.
        self._settled: dict[Outcome, None] = {}
        self._bytes = 0

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

    def settle(self, outcome: Outcome, answer: Any, size: int) -> None:
        """The request has come to this answer, of ``size`` bytes; from now on it may be forgotten."""
        if not outcome.settled.settle(answer):
            return
        outcome.settled_at, outcome.size = trio.current_time(), size
        self._settled[outcome] = None
        self._bytes += size
        self._forget_old()

    async def run(
        self, outcome: Outcome, name: str, work: Callable[[], Awaitable[Any]], size_of: Callable[[Any], int]
    ) -> None:
        """In a task of the server: the work, and what became of it."""
        try:
            result = await contained(name, work, log=False)
            if isinstance(result, Crash):
                self.forget(outcome)
                outcome.settled.settle(result)
            else:
                self.settle(outcome, result, size_of(result))
        finally:
            if outcome.settled.settle(Crash(name, Draining())):
                self.forget(outcome)

    def forget(self, outcome: Outcome) -> None:
        for key in [key for key, kept in self._kept.items() if kept is outcome]:
            del self._kept[key]
        if outcome in self._settled:
            del self._settled[outcome]
            self._bytes -= outcome.size

    def _forget_old(self) -> None:
        oldest = trio.current_time() - self._seconds
        while self._settled:
            first = next(iter(self._settled))
            too_large = self._bytes > self._max_bytes and len(self._settled) > 1
            if first.settled_at >= oldest and len(self._settled) <= self._limit and not too_large:
                return
            self.forget(first)
