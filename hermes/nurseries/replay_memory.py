"""ReplayMemory: what all event logs together may keep for reconnects.

Each log has its own window; this is the bound over all of them, in bytes and in logs. When it is exceeded, the log that
has been silent for longest forgets its events first: its readers that were up to date notice nothing, a reader that
comes back later is told to take a snapshot. The number of logs is a bound for replays only: what somebody who is there
has still to read stays until then, or more live sessions than that could not be followed at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Forgetful(Protocol):
    """A log that can let go of what it keeps."""

    def forget_all(self) -> None: ...

    def forget_read(self) -> None:
        """All but what its readers have not read yet."""


class ReplayMemory:
    """The bytes kept by each log, least recently written first. Everything is synchronous."""

    def __init__(self, max_bytes: int = 64 << 20, max_logs: int = 64) -> None:
        self.max_bytes = max_bytes
        self.max_logs = max_logs
        self.total = 0
        self._kept: OrderedDict[Forgetful, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def changed(self, log: Forgetful, kept: int) -> None:
        """``log`` was written to and keeps so many bytes now; the oldest others give way if that is too much."""
        self.total += kept - self._kept.get(log, 0)
        self._kept[log] = kept
        self._kept.move_to_end(log)
        while (self.total > self.max_bytes or len(self._kept) > self.max_logs) and len(self._kept) > 1:
            oldest, size = self._kept.popitem(last=False)
            is_full = self.total > self.max_bytes
            self.total -= size
            if is_full:
                oldest.forget_all()
            else:
                oldest.forget_read()

    def gone(self, log: Forgetful) -> None:
        """The log is closed: whoever still reads it keeps it alive for a moment, nobody else does."""
        self.total -= self._kept.pop(log, 0)
