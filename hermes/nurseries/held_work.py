"""Work that holds the turn slot instead of a turn: an undo, a compression by hand.

It is a task of the session below a node of its own, so whoever may stop a turn may stop it, and the caller who waits
for it may leave. It has the turn lease, and starts from the history as the store has it. Prompts that come meanwhile
wait in the queue and start when the slot is free again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from hermes.errors import CommandFailed, HermesError, SessionClosing, WorkStopped
from hermes.nurseries import turn_lease, turn_start
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.settlement import Settlement
from hermes.outcomes import CancelReason, Cause

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

log = logging.getLogger(__name__)

T = TypeVar("T")
RELEASE_WITHIN = 5.0


class HeldWork(Generic[T]):
    """One such piece of work. ``ended`` is filled when the slot is free again."""

    def __init__(self, session: Session, word: str) -> None:
        self.node = ReasonScope("held", word, session.scope)
        self.word = word
        self.result: Settlement[T | HermesError] = Settlement()
        self.ended: Settlement[None] = Settlement()

    async def wait(self) -> T:
        """The result; raises the domain error that ended the work, ``WorkStopped`` if it was cancelled."""
        outcome = await self.result.wait()
        if isinstance(outcome, HermesError):
            raise outcome
        return outcome


def start_held(session: Session, word: str, work: Callable[[ReasonScope], Awaitable[T]]) -> HeldWork[T]:
    """Take the slot and start. Synchronous; raises ``SessionBusy``, ``SessionClosing`` or ``Draining``."""
    session.refuse_when_closing()
    if session.slot.taken:
        raise session.slot.busy()
    held: HeldWork[T] = HeldWork(session, word)
    session.slot.held, session.slot.holder = word, held
    session.start_soon(_run, session, held, work, name=word)
    return held


async def _run(session: Session, held: HeldWork[T], work: Callable[[ReasonScope], Awaitable[T]]) -> None:
    outcome: T | HermesError = WorkStopped()
    try:
        with held.node:
            done = await contained(held.word, _with_lease, session, held.node, work, log=False)
            outcome = _failure(held.word, done.error) if isinstance(done, Crash) else done
    finally:
        if isinstance(outcome, WorkStopped):
            outcome = SessionClosing() if session.closing else WorkStopped(f"{held.word} was stopped")
        session.slot.held = session.slot.holder = None
        held.result.settle(outcome)
        held.ended.settle(None)
        session.idle_since = trio.current_time()
        if session.closing:
            session.drop_queue()
        else:
            session.start_next_queued()


def _failure(word: str, error: Exception) -> HermesError:
    if isinstance(error, HermesError):
        return error
    log.error("%s failed", word, exc_info=error)
    return CommandFailed(f"{word} failed because of an error in the server; its log has the details")


async def _with_lease(session: Session, node: ReasonScope, work: Callable[[ReasonScope], Awaitable[T]]) -> T:
    ttl = session.services.settings().limits.lease_ttl
    if not session.is_stored:
        return await work(node)

    def lost() -> None:
        node.cancel(CancelReason(Cause.LEASE_LOST))

    version = await session.services.store.acquire_lease(session.key, session.services.owner, ttl=ttl)
    try:
        if version != session.history_version:
            await turn_start.reload(session)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn_lease.keep, session, ttl, lost, name="lease")
            result = await work(node)
            nursery.cancel_scope.cancel()
        return result
    finally:
        with trio.CancelScope(deadline=trio.current_time() + RELEASE_WITHIN, shield=True):
            await turn_lease.release(session)
