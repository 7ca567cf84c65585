"""How long the event loop works between two looks at the world: the one figure that says whether a server is stuck.

A Trio instrument; it costs two readings of a clock for each round of the loop. A long round is a call that should
have been in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio


class LoopWatch(trio.abc.Instrument):
    """``busy_seconds`` only grows; ``take_longest`` gives the longest round since it was last asked."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.busy_seconds = 0.0
        self._clock = clock
        self._longest = 0.0
        self._began: float | None = None

    def after_io_wait(self, timeout: float) -> None:
        self._began = self._clock()

    def before_io_wait(self, timeout: float) -> None:
        if self._began is not None:
            spent = self._clock() - self._began
            self.busy_seconds += spent
            self._longest = max(self._longest, spent)

    def take_longest(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest

    @contextmanager
    def watching(self) -> Iterator[None]:
        """For the length of the block."""
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)
