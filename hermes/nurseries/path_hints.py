"""Instruction files near the paths that tools touch, read on a worker thread so that a slow disk stops nobody (TL-11).

A look is given up after a moment, and the result of the tool goes without it. A thread that hangs is one per session;
while it does, nothing more is looked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from hermes.agent.context_files import DirectoryHints
from hermes.nurseries.session_memory import SessionMemory

T = TypeVar("T")

LOOK_WITHIN = 0.5
"""Seconds that one look may take. A directory that was too slow is not looked at again."""


class SessionHints:
    """The finder of one session that works in one directory. Relative paths are meant from where the tools are."""

    def __init__(self, make: Callable[[str], DirectoryHints | None], place: str, memory: SessionMemory) -> None:
        self.place = place
        self._make = make
        self._memory = memory
        self._made = False
        self._finder: DirectoryHints | None = None
        self._limiter = trio.CapacityLimiter(1)

    async def __call__(self, paths: Sequence[str]) -> str | None:
        if not paths or self._limiter.available_tokens < 1:
            await trio.lowlevel.checkpoint()
            return None
        with trio.move_on_after(LOOK_WITHIN):
            return await self._look([os.path.join(self._memory.cwd, os.path.expanduser(path)) for path in paths])
        return None

    async def _look(self, paths: Sequence[str]) -> str | None:
        if not self._made:
            self._finder = await self._in_thread(lambda: self._make(self.place))
            self._made = True
        finder = self._finder
        directories = finder.unseen(paths) if finder is not None else []
        if finder is None or not directories:
            await trio.lowlevel.checkpoint()
            return None
        return finder.tell(await self._in_thread(lambda: finder.read(directories)))

    async def _in_thread(self, read: Callable[[], T]) -> T:
        # Abandoned when it is too slow: it only reads.
        return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._limiter)
