"""Interrupt: one stop of a session, from the synchronous cancel to its confirmed end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes.outcomes import CancelReason

if TYPE_CHECKING:
    from hermes.nurseries.session import Session


@dataclass(frozen=True, slots=True)
class InterruptResult:
    """``status``: ``interrupted`` or ``idle``. ``settled``: the turn has ended, the next prompt is accepted."""

    status: str
    settled: bool
    stopped: tuple[dict[str, Any], ...] = ()
    dropped_prompts: tuple[dict[str, Any], ...] = ()
    pending_steer: str | None = None


class Interrupt:
    """Made by ``session.interrupt_nowait``: when the constructor returns, everything has been asked to stop."""

    def __init__(self, session: Session, reason: CancelReason) -> None:
        self.turn = turn = session.slot.turn
        self.stopped: tuple[dict[str, Any], ...] = ()
        if turn is None:
            # Idle: nothing else changes. A queue without a turn exists only while the slot is held.
            self.dropped = session.drop_queue()
            return
        self.stopped = tuple(
            {"node_id": node.node_id, "kind": node.kind, "name": node.name} for node in turn.scope.walk()
        )
        self.dropped = session.drop_queue()
        turn.cancel(reason)

    async def wait_settled(self, within: float) -> InterruptResult:
        """Wait for the turn's end, at most ``within`` seconds."""
        dropped = tuple(_dropped(submission.prompt) for submission in self.dropped)
        if self.turn is None:
            return InterruptResult("interrupted" if dropped else "idle", True, dropped_prompts=dropped)
        settled = await self.turn.ended.wait_at_most(within)
        record = self.turn.ended.value
        return InterruptResult(
            "interrupted", settled, self.stopped, dropped, record.pending_steer if record is not None else None
        )


def _dropped(prompt: Any) -> dict[str, Any]:
    item = {"text": prompt.text}
    if prompt.client_message_id is not None:
        item["client_message_id"] = prompt.client_message_id
    return item
