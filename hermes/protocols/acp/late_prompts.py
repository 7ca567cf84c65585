"""Prompts whose session is being loaded: what a cancel that comes meanwhile finds, and in which order they begin."""

from __future__ import annotations

from collections.abc import Callable

import trio


class LatePrompt:
    """One such prompt. ``on_cancel`` is what stops it once its session is there."""

    def __init__(self, session_id: str, before: LatePrompt | None) -> None:
        self.session_id = session_id
        self.closed = trio.Event()
        self._before = before
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None

    def cancel(self) -> None:
        self.cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()

    async def wait_turn(self) -> None:
        """Wait until the one that came before it, for the same session, has begun or failed."""
        if self._before is not None:
            await self._before.closed.wait()
            self._before = None


class LatePrompts:
    """Those of one connection."""

    def __init__(self) -> None:
        self._open: list[LatePrompt] = []

    def open(self, session_id: str) -> LatePrompt:
        late = LatePrompt(session_id, self.last(session_id))
        self._open.append(late)
        return late

    def last(self, session_id: str) -> LatePrompt | None:
        """The one that the next prompt for this session comes behind."""
        return next((late for late in reversed(self._open) if late.session_id == session_id), None)

    def close(self, late: LatePrompt) -> None:
        self._open.remove(late)
        late.closed.set()

    def cancel(self, session_id: str) -> None:
        """Every prompt that waits for this session."""
        for late in self._open:
            if late.session_id == session_id:
                late.cancel()
