"""Signals that need a look before they mean something: those that come while the server is loaded, and echoes.

While it is loaded nothing has been started or accepted, so the process just ends, and says so with exit code 0 as a
stopped server does. The tree's own signal handling takes over from these handlers (``nurseries.server_tree``).
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EARLY_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")


def end_at_once_on_signals() -> None:
    """Call first thing; cheap. Without it Python dies of the signal, which looks like a crash to whoever waits."""
    for name in EARLY_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


# How much later the launcher of a one-file build passes on what the terminal has sent to both of us.
ECHO_SECONDS = 0.1


class Echoes:
    """Tells a second signal from the echo of the first. A one-file build is two processes in one group: a Ctrl-C
    reaches this one from the terminal and again from the launcher, and must not count as the impatient second."""

    def __init__(self, *, launched: bool | None = None) -> None:
        self._launched = bool(getattr(sys, "frozen", False)) if launched is None else launched
        self._last: tuple[int, float] | None = None

    def is_echo(self, number: int, now: float) -> bool:
        """Call once for each signal that has come; ``now`` is any clock that only runs forward."""
        last, self._last = self._last, (number, now)
        if self._launched and last is not None and last[0] == number and now - last[1] < ECHO_SECONDS:
            self._last = None
            return True
        return False
