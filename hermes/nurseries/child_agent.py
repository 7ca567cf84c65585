"""ChildAgent: a session that lives for one turn, below the node that wanted it.

Delegated agents, background prompts and side questions are all of this kind. The child's session is hidden, has its own
rows, log and slot, and ends with its turn; whatever stops the node above stops it too, and is called ``parent`` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from hermes.agent.ports import StoredSession, Tool, ToolSet, ToolSpec
from hermes.events import SessionEvent
from hermes.messages import Prompt
from hermes.nurseries.scopes import ReasonScope
from hermes.outcomes import CancelReason, Cause, TurnRecord
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.session import Session
    from hermes.nurseries.turn import Turn

AllowTool = Callable[[Tool], bool]


@dataclass(frozen=True, slots=True)
class AllowedTools:
    """A part of a tool set. Implements ``ports.ToolSet``."""

    tools: ToolSet
    allow: AllowTool

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in self.tools.specs() if self.find(spec.name) is not None)

    def find(self, name: str) -> Tool | None:
        tool = self.tools.find(name)
        return tool if tool is not None and self.allow(tool) else None

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.tools.names() if self.find(name) is not None)


def below(parent: ReasonScope, kind: str, name: str, *, details: Mapping[str, Any]) -> ReasonScope:
    """A node for a child agent: what stops its parent is called so below it."""
    node = ReasonScope(kind, name, parent, details=details)
    node.seen_from_below = _from_parent
    return node


def _from_parent(reason: CancelReason) -> CancelReason:
    # A shutdown stays one: runs and stored turns tell it apart from a stop that somebody wanted.
    return reason if reason.cause is Cause.SHUTDOWN else CancelReason(Cause.PARENT, str(reason))


class ChildAgent:
    """One child session from its birth to the end of its one turn.

    ``owner`` is the session it works for, ``node`` where it lives. The cancel of ``node`` stops the child's turn first,
    so that what was said is kept and told.
    """

    def __init__(
        self,
        owner: Session,
        node: ReasonScope,
        *,
        source: str,
        depth: int,
        allow: AllowTool,
        key: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        marks: Mapping[str, Any] | None = None,
    ) -> None:
        services = owner.services
        now = services.clock()
        inherited = model is None and provider is None
        stored = StoredSession(
            key=key or services.ids("session"),
            source=source,
            model=owner.stored.model if inherited else model,
            provider=owner.stored.provider if inherited else provider,
            model_config={**(marks or {}), **_kept_choices(owner)},
            cwd=owner.memory.cwd,
            parent_key=owner.key,
            started_at=now,
            last_activity_at=now,
            hidden=True,
            principal=owner.stored.principal,
        )
        self.owner = owner
        self.node = node
        self.session = owner.make_child(stored, node, depth=depth, resolved=owner.resolved if inherited else None)
        self.session.allowed_tools = allow
        self.turn: Turn | None = None
        node.on_cancel = self.cancel

    def cancel(self, reason: CancelReason) -> bool:
        """The door of the node: the turn, if there is one, else everything."""
        if self.turn is not None and not self.turn.ended.settled:
            return self.turn.cancel(reason)
        return self.node.cancel(reason)

    async def run(
        self, prompt: Prompt, *, started: Callable[[Turn], None], on_event: Callable[[SessionEvent], None] | None = None
    ) -> TurnRecord:
        """Play the turn; returns its record. Raises what refuses the prompt, and ``Cancelled``.

        Must be called inside ``with node``; when it returns or raises nothing of the child is left.
        """
        child = self.session
        if on_event is not None:
            child.log.observers.append(on_event)
        self.owner.family.child_born(child)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child.run, name=f"child {child.key}")
                try:
                    self.turn = child.submit_nowait(prompt).turn.value
                    assert self.turn is not None
                    started(self.turn)
                    record = await self.turn.wait_ended()
                finally:
                    # A turn that is being stopped from above keeps that reason; its session ends by itself then.
                    if self.turn is None or self.turn.ended.settled:
                        child.cancel(CancelReason(Cause.SESSION_CLOSED, "agent_close"))
            return record
        finally:
            self.owner.family.child_gone(child)

    @property
    def record(self) -> TurnRecord | None:
        return self.turn.ended.value if self.turn is not None else None


def _kept_choices(owner: Session) -> dict[str, Any]:
    config = owner.stored.model_config
    return {name: config[name] for name in ("reasoning_effort",) if name in config}
