"""Prompts whose session is being loaded: what a cancel that comes meanwhile finds. Synchronous."""

from __future__ import annotations

from collections.abc import Callable


class LatePrompt:
    """One such prompt. ``on_cancel`` is what stops it once its session is there."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None

    def cancel(self) -> None:
        self.cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()


class LatePrompts:
    """Those of one connection."""

    def __init__(self) -> None:
        self._open: list[LatePrompt] = []

    def open(self, session_id: str) -> LatePrompt:
        late = LatePrompt(session_id)
        self._open.append(late)
        return late

    def close(self, late: LatePrompt) -> None:
        self._open.remove(late)

    def cancel(self, session_id: str) -> None:
        """Every prompt that waits for this session."""
        for late in self._open:
            if late.session_id == session_id:
                late.cancel()
