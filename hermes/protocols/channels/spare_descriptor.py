"""One descriptor held back: when there are no more, whoever knocks can still be told so."""

from __future__ import annotations

import contextlib
import os
import socket


class SpareDescriptor:
    """Held from the start; lent for the length of one refusal."""

    def __init__(self) -> None:
        self._held: int | None = _any()

    def accept_nowait(self, listener: socket.socket) -> socket.socket | None:
        """The next client that waits, on the descriptor held back. The caller closes it and then calls ``hold``.

        None when nobody waits, and when there are descriptors again: then nobody is to be refused.
        """
        if (free := _any()) is not None:
            os.close(free)
            self.hold()
            return None
        if self._held is None:
            return None
        os.close(self._held)
        self._held = None
        with contextlib.suppress(OSError):
            return listener.accept()[0]
        self.hold()
        return None

    def hold(self) -> None:
        """Take it back. When somebody else was faster, with the next call."""
        if self._held is None:
            self._held = _any()

    def close(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _any() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None
