"""A store that refuses: MemoryStore behind a switchboard, so that each single write of a path can be made to fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from hermes.agent.store.memory import MemoryStore
from hermes.errors import StoreUnavailable
from tests.support.core import clock

WRITES = frozenset(
    {
        "create_session",
        "update_session",
        "append_rows",
        "begin_turn",
        "finish_turn",
        "rewind",
        "replace_with_summary",
        "shorten_rows",
        "acquire_lease",
        "refresh_leases",
        "release_lease",
    }
)


def disk_full() -> Exception:
    return StoreUnavailable("the disk is full", cause="full")


class FailingStore:
    """Every method of the store it wraps. ``writes`` names the writes so far, those that were refused included.

    A write fails when it is the ``at``-th one (from 1), or is named in ``refused``; ``stay`` keeps refusing every write
    after the first refusal, as a full disk does. ``before`` is awaited before each call, to hold one up.
    """

    def __init__(
        self,
        *,
        at: int | None = None,
        refused: frozenset[str] = frozenset(),
        stay: bool = False,
        error: Callable[[], Exception] = disk_full,
        before: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.inner = MemoryStore(now=clock)
        self.writes: list[str] = []
        self.refusals = 0
        self.at = at
        self.refused = refused
        self.stay = stay
        self.before = before
        self._error = error

    def recover(self) -> None:
        """From now on everything is stored again."""
        self.at, self.refused, self.stay = None, frozenset(), False

    def stop_waiting(self) -> None:
        self.inner.stop_waiting()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            if self.before is not None:
                await self.before(name)
            if name in WRITES:
                self.writes.append(name)
                full = self.stay and self.refusals > 0
                if full or len(self.writes) == self.at or name in self.refused:
                    self.refusals += 1
                    await trio.lowlevel.checkpoint()
                    raise self._error()
            return await method(*args, **options)

        return call
