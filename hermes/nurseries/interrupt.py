"""Interrupt: one stop of a session, from the synchronous cancel to its confirmed end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from hermes.events import ApprovalsCancelled
from hermes.outcomes import CancelReason
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.scopes import ReasonScope
    from hermes.nurseries.session import Session
    from hermes.nurseries.turn_slot import Stoppable


@dataclass(frozen=True, slots=True)
class InterruptResult:
    """``status``: ``interrupted`` or ``idle``. ``settled``: all of it has ended, the next prompt is accepted."""

    status: str
    settled: bool
    stopped: tuple[dict[str, Any], ...] = ()
    dropped_prompts: tuple[dict[str, Any], ...] = ()
    pending_steer: str | None = None


class Interrupt:
    """Made by ``session.interrupt_nowait``: when the constructor returns, everything has been asked to stop.

    It reaches the turn with all below it, work that holds the slot instead of a turn, and background delegations;
    background processes and background prompts go on. ``clear_queue`` false: the prompts that wait are not handed back;
    the first of them runs when the turn has ended.
    """

    def __init__(self, session: Session, reason: CancelReason, *, clear_queue: bool = True) -> None:
        self.turn = turn = session.slot.turn
        self._others: list[Stoppable] = [work for work in session.side_work.values() if work.interruptible]
        if session.slot.holder is not None:
            self._others.append(session.slot.holder)
        nodes = [node for work in self._others for node in work.node.walk()]
        if turn is not None:
            nodes = [*turn.scope.walk(), *nodes]
        self.stopped = tuple(_shown(node) for node in nodes)
        self.dropped = session.drop_queue(keep_notices=True) if clear_queue else []
        if turn is not None:
            approvals = session.requests.open_requests(method="approval", turn_id=turn.turn_id)
            turn.cancel(reason)
            if approvals:
                _tell_cancelled(session, [one.approval_id or one.request_id for one in approvals])
        for work in self._others:
            work.node.request_cancel(reason)

    async def wait_settled(self, within: float) -> InterruptResult:
        """Wait for the end of everything that was stopped, at most ``within`` seconds."""
        dropped = tuple(_dropped(submission.prompt) for submission in self.dropped)
        if self.turn is None and not self._others:
            return InterruptResult("interrupted" if dropped else "idle", True, dropped_prompts=dropped)
        with trio.move_on_after(within):
            if self.turn is not None:
                await self.turn.ended.wait()
            for work in self._others:
                await work.ended.wait()
        settled = (self.turn is None or self.turn.ended.settled) and all(work.ended.settled for work in self._others)
        record = self.turn.ended.value if self.turn is not None else None
        return InterruptResult(
            "interrupted", settled, self.stopped, dropped, record.pending_steer if record is not None else None
        )


def _tell_cancelled(session: Session, request_ids: list[str]) -> None:
    """Whoever shows approvals anywhere hears that these need no answer any more (gateway §4.6)."""
    session.services.announce.append(
        ApprovalsCancelled(session.runtime_id, session.key, "interrupted", tuple(request_ids))
    )


def _shown(node: ReasonScope) -> dict[str, Any]:
    return {"node_id": node.node_id, "kind": node.kind, "name": node.name}


def _dropped(prompt: Any) -> dict[str, Any]:
    item = {"text": prompt.text}
    if prompt.client_message_id is not None:
        item["client_message_id"] = prompt.client_message_id
    return item
