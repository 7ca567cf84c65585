"""Named conversations of responses: one response at a time, whoever comes first (api-server §3.3).

A request of a conversation continues the response before it, so it waits until that one is stored. Which session a
name belongs to is claimed in the store (``response_records``): two first requests find the same one, across processes.
"""

from __future__ import annotations

import trio


class ConversationOrder:
    """Who may go on with which conversation. Names are forgotten when nobody is there."""

    def __init__(self) -> None:
        self._busy: dict[str, ConversationTurn] = {}

    async def enter(self, name: str, turn: ConversationTurn) -> None:
        """Wait until the conversation is free, and take it for this turn."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while (before := self._busy.get(name)) is not None:
            await before.over.wait()
        self._busy[name] = turn

    def left(self, turn: ConversationTurn) -> None:
        for name in [name for name, holder in self._busy.items() if holder is turn]:
            del self._busy[name]


class ConversationTurn:
    """The place of one request in its conversation, if it has one."""

    def __init__(self, order: ConversationOrder) -> None:
        self._order = order
        self.over = trio.Event()

    async def wait_first(self, name: str) -> None:
        await self._order.enter(name, self)

    def leave(self) -> None:
        """The response is stored, or there will be none. Saying it again is harmless."""
        self._order.left(self)
        self.over.set()
