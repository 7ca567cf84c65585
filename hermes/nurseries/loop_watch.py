"""How long the event loop works between two looks at the world: the one figure that says whether a server is stuck.

A Trio instrument; it costs two readings of a clock for each round of the loop. A long round is a call that should
have been in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

WINDOW = 10.0


class LoopWatch(trio.abc.Instrument):
    """``busy_seconds`` only grows; ``take_longest`` gives the longest round since it was last asked, ``lag`` that of
    the last ten to twenty seconds, however often it is asked."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.busy_seconds = 0.0
        self._clock = clock
        self._longest = 0.0
        self._began: float | None = None
        self._window = clock()
        self._now = self._before = 0.0

    def after_io_wait(self, timeout: float) -> None:
        self._began = self._clock()

    def before_io_wait(self, timeout: float) -> None:
        if self._began is not None:
            spent = self._clock() - self._began
            self.busy_seconds += spent
            if spent > self._longest:
                self._longest = spent
            if self._began - self._window > WINDOW:
                self._turn_window(self._began)
            if spent > self._now:
                self._now = spent

    @property
    def lag(self) -> float:
        self._turn_window(self._clock())
        return max(self._now, self._before)

    def _turn_window(self, now: float) -> None:
        passed = now - self._window
        if passed > WINDOW:
            self._before = self._now if passed <= 2 * WINDOW else 0.0
            self._window, self._now = now, 0.0

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
