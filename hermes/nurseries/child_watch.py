"""Ends a child agent that shows no sign of life: the limit of a child whose time is not limited (agent-core §7.1).

Whatever the child's session tells is a sign of life. Inside a tool it may be silent for longer; while children of its
own work it may be silent for as long as they do, because they are watched themselves.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from hermes.agent_settings import DelegationSettings
from hermes.events import SessionEvent, ToolEnded, ToolStarted
from hermes.nurseries.children import Child
from hermes.nurseries.scopes import ReasonScope
from hermes.outcomes import CancelReason, Cause

log = logging.getLogger(__name__)


class ChildWatch:
    """What is known of one child's signs of life."""

    def __init__(self, child: Child, settings: DelegationSettings) -> None:
        self._child = child
        self._idle = settings.stale_idle_seconds or math.inf
        self._in_tool = settings.stale_tool_seconds or math.inf
        self._grace = settings.stale_grace_seconds
        self._last = trio.current_time()
        self._tools = 0

    def seen(self, event: SessionEvent) -> None:
        self._last = trio.current_time()
        match event:
            case ToolStarted():
                self._tools += 1
            case ToolEnded():
                self._tools -= 1
            case _:
                return

    async def run(self, node: ReasonScope) -> None:
        """Wait until the child has been silent for too long, then stop it; until cancelled."""
        shortest = min(self._idle, self._in_tool)
        while True:
            agent = self._child.agent
            if agent is not None and agent.session.children.live():
                self._last = trio.current_time()
            limit = self._in_tool if self._tools > 0 else self._idle
            left = self._last + limit - trio.current_time()
            if left > 0:
                await trio.sleep(min(left, shortest))
                continue
            log.warning("child agent %s shows no sign of life for %g s", self._child.subagent_id, limit)
            silent_since = self._last
            await trio.sleep(self._grace)
            if self._last == silent_since:
                node.request_cancel(CancelReason(Cause.DEADLINE, f"no sign of life for {limit + self._grace:g} s"))
                return


@asynccontextmanager
async def watched(child: Child, node: ReasonScope, settings: DelegationSettings) -> AsyncIterator[ChildWatch]:
    """The child is watched for as long as the block lasts."""
    watch = ChildWatch(child, settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run, node, name=f"watch of {child.subagent_id}")
        yield watch
        nursery.cancel_scope.cancel(reason="the child has ended")
