"""A cell that is filled exactly once and can be awaited.

Every "who was first?" question (answer against timeout, stop against natural end) is decided by the boolean that
``settle`` returns. It is synchronous, so nothing can come between the question and its answer; no lock is needed.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

import trio

T = TypeVar("T")

_EMPTY = object()


class Settlement(Generic[T]):
    """One value, given once."""

    __slots__ = ("_event", "_value")

    def __init__(self) -> None:
        self._value: object = _EMPTY
        # Made when somebody waits: most settlements are filled before anybody does.
        self._event: trio.Event | None = None

    @property
    def settled(self) -> bool:
        return self._value is not _EMPTY

    @property
    def value(self) -> T | None:
        """The value, or None while there is none."""
        return None if self._value is _EMPTY else cast(T, self._value)

    def settle(self, value: T) -> bool:
        """Fill the cell. True only for the first caller; every later call changes nothing."""
        if self._value is not _EMPTY:
            return False
        self._value = value
        if self._event is not None:
            self._event.set()
        return True

    async def wait(self) -> T:
        """The value, as soon as there is one."""
        if self._value is _EMPTY:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()
        return cast(T, self._value)

    async def wait_at_most(self, seconds: float) -> bool:
        """Wait for the value, but not longer; true if it is there."""
        with trio.move_on_after(seconds):
            await self.wait()
        return self.settled
