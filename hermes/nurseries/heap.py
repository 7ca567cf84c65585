"""Keeps the memory of a long-running server small: circles are looked for in moderation, what was freed is given back.

The C library keeps what was freed in between what is still used: a server that was busy once would hold tens of
megabytes for ever that nobody uses (measured: 97 MiB after 500 turns, 77 after this). Only for a process of our own.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Final

import trio

EVERY: Final = 60.0

COLLECT_LOOK: Final = 1.0
COLLECT_SHARE: Final = 0.01
"""Of the time may go into walks through all objects; everything waits meanwhile."""
COLLECT_WITHIN: Final = 60.0
"""Seconds within which a walk comes, whatever it costs, if there is anything to look through."""
LARGE: Final = 0.1
"""Seconds. Where a walk takes longer, what it has found alive is left out of the next ones: a thousand sessions that
stream are walked through in 440 ms, and a stop in the middle of that waited for it."""
THOROUGH_SHARE: Final = 0.001
"""Of the time may go into walks through what was left out, too."""
THOROUGH_WITHIN: Final = 600.0
NEVER: Final = 1_000_000


async def collect_in_moderation() -> None:
    """Runs until cancelled: takes over when the collector walks through all objects.

    By itself it goes by the number of new objects, not by time. A crowd of 200 clients made it walk for 50 to 90 ms in
    the middle of the answer that came next: that was the delay of the slowest hundredth, ten times what writes cost.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    due = thorough_due = trio.current_time()
    large = False
    try:
        while True:
            await trio.sleep(COLLECT_LOOK)
            began = trio.current_time()
            if began < due or not _has_old(old):
                continue
            thorough = not large or began >= thorough_due
            if large and thorough:
                gc.unfreeze()
            gc.collect()
            ended = trio.current_time()
            due = ended + min((ended - began) / COLLECT_SHARE, COLLECT_WITHIN)
            if thorough:
                thorough_due = ended + min((ended - began) / THOROUGH_SHARE, THOROUGH_WITHIN)
            if large := large or ended - began > LARGE:
                gc.freeze()
    finally:
        gc.set_threshold(young, middle, old)


def _has_old(threshold: int) -> bool:
    """Whether the collector itself would look through the old objects now."""
    return gc.get_count()[2] >= threshold


async def keep_heap_small() -> None:
    """Runs until cancelled; returns at once where the C library cannot do it. In a thread: it takes milliseconds."""
    trim = _trim()
    while trim is not None:
        await trio.sleep(EVERY)
        await trio.to_thread.run_sync(trim, 0, abandon_on_cancel=True)


def _trim() -> Callable[[int], object] | None:
    trim: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
