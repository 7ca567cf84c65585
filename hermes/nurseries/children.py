"""The delegated agents of one session, live and finished: what they are asked to do, what became of them.

A child is below the tool call that wanted it, or below the session when it works in the background; this is only the
list by which people and the model find it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from hermes.outcomes import CancelReason, TurnRecord

if TYPE_CHECKING:
    from hermes.nurseries.child_agent import ChildAgent
    from hermes.nurseries.scopes import ReasonScope
    from hermes.nurseries.turn import Turn

KEPT_FINISHED = 200
TAIL_CHARS = 16 * 1024
KEPT_OUTPUTS = 8


class Child:
    """One delegated task and the agent that works on it. ``status``: queued, running, completed, failed, interrupted,
    timeout."""

    def __init__(
        self,
        subagent_id: str,
        goal: str,
        task: Mapping[str, Any],
        *,
        index: int,
        count: int,
        depth: int,
        parent_id: str | None,
        delegation_id: str,
        parent_turn: Turn | None,
        created_at: float,
        own_key: str,
    ) -> None:
        self.subagent_id = subagent_id
        self.goal = goal
        self.task = task
        self.index = index
        self.count = count
        self.depth = depth
        self.parent_id = parent_id
        self.delegation_id = delegation_id
        self.parent_turn = parent_turn
        self.created_at = created_at
        self.status = "queued"
        self.agent: ChildAgent | None = None
        """While it works; what a finished child keeps is its result, its rows are in the store."""
        self.own_key = own_key
        self.session_key: str | None = None
        """``own_key`` once there is such a session."""
        self.node: ReasonScope | None = None
        self.record: TurnRecord | None = None
        self.error: str | None = None
        self.result: dict[str, Any] | None = None
        self.model = ""
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.tool_count = 0
        self.last_tool: str | None = None
        self.outputs: list[dict[str, Any]] = []
        self.said = ""

    @property
    def live(self) -> bool:
        return self.status in ("queued", "running")

    @property
    def accepting_steer(self) -> bool:
        turn = self.agent.turn if self.agent is not None else None
        return self.live and turn is not None and not turn.ended.settled

    def cancel(self, reason: CancelReason) -> bool:
        """Stop this child alone. False if it has ended or was stopped before."""
        return self.live and self.node is not None and self.node.request_cancel(reason)

    def steer(self, text: str) -> bool:
        """Text for the child's next tool boundary. False if it takes none."""
        turn = self.agent.turn if self.agent is not None else None
        return self.live and turn is not None and turn.steer(text)

    def tail(self) -> tuple[str, bool]:
        """The newest of what the child has said, and whether something before it was left out."""
        turn = self.agent.turn if self.agent is not None else None
        text = self.said if turn is None or turn.ended.settled else str(turn.inflight()["assistant"])
        return text[-TAIL_CHARS:], len(text) > TAIL_CHARS

    def tool_used(self, name: str) -> None:
        self.tool_count += 1
        self.last_tool = name

    def tool_ended(self, name: str, preview: str, *, is_error: bool) -> None:
        self.outputs.append({"tool": name, "preview": preview, "is_error": is_error})
        del self.outputs[:-KEPT_OUTPUTS]


class Children:
    """The children of one session by id, oldest first. Live ones are bounded by ``room``, finished ones by age."""

    def __init__(self) -> None:
        self._all: dict[str, Child] = {}
        self.room: trio.Semaphore | None = None

    def add(self, child: Child) -> None:
        finished = [one.subagent_id for one in self._all.values() if not one.live]
        for subagent_id in finished[: max(0, len(finished) - KEPT_FINISHED)]:
            del self._all[subagent_id]
        self._all[child.subagent_id] = child

    def walk(self) -> Iterator[Child]:
        """All of them, and the children of the live ones."""
        for child in list(self._all.values()):
            yield child
            if child.agent is not None:
                yield from child.agent.session.children.walk()

    def find(self, subagent_id: str) -> Child | None:
        """Among the children and theirs."""
        return next((child for child in self.walk() if child.subagent_id == subagent_id), None)

    def live(self) -> Sequence[Child]:
        return [child for child in self.walk() if child.live]

    def working_for(self, turn: Turn) -> Iterator[Turn]:
        """The running turns of this turn's children."""
        for child in self._all.values():
            if child.parent_turn is turn and child.agent is not None and child.live and child.agent.turn is not None:
                yield child.agent.turn
