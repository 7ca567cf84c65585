"""A signal that comes while the server is still being loaded.

Nothing has been started or accepted then, so the process just ends, and says so with exit code 0 as a stopped server
does. The tree's own signal handling takes over from these handlers (``nurseries.server_tree``).
"""

from __future__ import annotations

import os
import signal
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
