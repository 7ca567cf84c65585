"""Turn: one prompt until its one outcome. Implements ``TurnPort`` for the loop.

The turn's scope owns everything the turn does. ``cancel`` is the single door for every stop; what really ended the turn
is decided in ``turn_end.py`` when the scope has been left, is stored, and is told as the turn's last event.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from hermes.agent.loop import run_turn
from hermes.agent.ports import (
    DeltaSink,
    ModelFinished,
    ModelRequest,
    PlannedCall,
    Provider,
    Redirected,
    ToolContext,
)
from hermes.agent.progress import TurnProgress
from hermes.agent.redaction import redact_value
from hermes.agent.turn_setup import LoopEnd
from hermes.errors import HermesError, SessionOwnedElsewhere, StoredSessionNotFound, StoreUnavailable
from hermes.events import (
    RedirectApplied,
    SessionEvent,
    SteerAccepted,
    SteerDelivered,
    TextDelta,
    TurnStarted,
    TurnStopping,
    UsageUpdated,
)
from hermes.logs import current_log_fields, log_fields
from hermes.messages import Content, Prompt, RewindIntent, Row, ToolResult
from hermes.nurseries import turn_end, turn_store
from hermes.nurseries.client_requests import WITHDRAWAL_WORDS
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.liveness import watch_turn
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.settlement import Settlement
from hermes.nurseries.tool_batch import ToolBatch
from hermes.nurseries.tool_context import CallContext
from hermes.nurseries.tool_runs import ToolEvent, ToolRuns
from hermes.nurseries.turn_slot import Accepted, Submission
from hermes.outcomes import TURN_TRANSITIONS, CancelReason, Cause, TurnPhase, TurnRecord, Usage

if TYPE_CHECKING:
    from hermes.nurseries.session import Session

T = TypeVar("T")

log = logging.getLogger(__name__)

USAGE_EVERY = 1.0
"""Seconds between two reports of what a turn has used, for those who want them no more often."""
MAX_STEERS = 256
"""Steers that wait for one tool boundary; more are rejected, so that a busy host cannot fill the memory."""


class IllegalTransition(RuntimeError):
    """A phase change that the table does not allow: a bug of ours, never a client's."""


class Turn:
    """One turn. ``ended`` is filled with the record, exactly once, after ``TurnEnded`` was appended."""

    def __init__(
        self, session: Session, prompt: Prompt, submissions: Sequence[Submission], rewind: RewindIntent | None
    ) -> None:
        services = session.services
        self.session = session
        self.session_key = session.key
        self.prompt = prompt
        self.rewind = rewind
        self.turn_id = f"{session.key}:{session.runtime_id}:{services.ids('turn')}"
        self.settings = services.settings()
        self.submissions = list(submissions)
        self.phase = TurnPhase.QUEUED
        self.progress = TurnProgress()
        self.ended: Settlement[TurnRecord] = Settlement()
        self.accepted_at = services.clock()
        self.accepted_monotonic = trio.current_time()
        self.started_at: float | None = None
        self.notes: tuple[Prompt, ...] = ()
        """Notices that are stored with its prompt, before it."""
        self.user_row: Row | None = None
        self.refusal: HermesError | None = None
        self.end: LoopEnd | None = None
        self.crash: Crash | None = None
        self.row_ids: list[int] = []
        self.batch: ToolBatch | None = None
        self.holds_lease = False
        self.lease_lost = False
        self.letting_go = False
        """The write that gives the lease back is on its way."""
        self.new_title: str | None = None
        """The title that this turn gave its session."""
        self.rows_stored = False
        self.last_event_at = self.accepted_monotonic
        self.stalled = False
        self.children_usage = Usage()
        """What its delegated agents have spent that have ended."""
        self.children_started = 0
        deadline = float("inf")
        if prompt.limits.deadline_s is not None:
            deadline = trio.current_time() + prompt.limits.deadline_s
        self.scope = ReasonScope("turn", self.turn_id, session.scope, deadline=deadline, phase=lambda: self.phase.value)
        self.scope.on_cancel = self.cancel
        self.scope.told_by_owner = True
        self._request = current_log_fields().request
        """Whose request it is, for the log: its task may be started by the session's."""
        self._usage_before = session.usage
        self._steers: list[str] = []
        self._tool_runs = ToolRuns()
        self._usage_told_at = float("-inf")
        self.undelivered: list[str] = []
        """Accepted, and not read by the model when the turn took no more."""
        self._closing = False
        self._said_all = False
        """What the loop stores from here on are its last rows."""
        self._redirect: str | None = None
        self._cut = False
        self._model_call: ReasonScope | None = None
        self._shown: list[str] = []
        self._corrections: list[tuple[str, int]] = []
        self._shown_length = 0

    # --- what others may do to a turn: all synchronous ---

    def cancel(self, reason: CancelReason) -> bool:
        """Ask the turn to stop. True if this call was the one that stopped it.

        Open questions are withdrawn before anybody is scheduled, so that their cancellation is told before any answer
        to the caller (gateway §4.6).
        """
        if self.phase is TurnPhase.ENDED or self.scope.own_reason is not None:
            return False
        self._move_to(TurnPhase.STOPPING)
        self._closing = True
        self.scope.cancel(reason)
        self.session.requests.withdraw(WITHDRAWAL_WORDS.get(reason.cause, "interrupted"), turn_id=self.turn_id)
        self.emit(TurnStopping(self.turn_id, reason.cause.value, reason.text))
        return True

    def steer(self, text: str) -> bool:
        """Text for the next tool boundary. False if the turn takes none any more (TL-29), or has many waiting."""
        if self._closing or self.phase in (TurnPhase.STOPPING, TurnPhase.ENDED) or len(self._steers) >= MAX_STEERS:
            return False
        self._steers.append(text)
        self.emit(SteerAccepted(self.turn_id, text))
        return True

    def redirect(self, text: str) -> bool:
        """Replace the model call in progress. False when none is: the caller steers or queues instead."""
        call = self._model_call
        if self._closing or call is None or call.cancelled:
            return False
        self._redirect = text
        return call.cancel(CancelReason(Cause.USER_INTERRUPT, "redirected"))

    def overtake(self, text: str) -> bool:
        """A correction while no model call can be replaced: a steer, for which a command in the foreground makes room.

        The command goes on in the background, so that the words need not wait for its end."""
        taken = self.steer(text)
        if taken:
            self.session.processes.move_to_background(self.turn_id)
        return taken

    def withdraw_steer(self, text: str) -> bool:
        """Take a pending steer back before it is delivered (TL-32)."""
        if text not in self._steers:
            return False
        self._steers.remove(text)
        return True

    @property
    def pending_steers(self) -> Sequence[str]:
        return tuple(self._steers)

    @property
    def in_tools(self) -> bool:
        return self.batch is not None

    async def wait_ended(self) -> TurnRecord:
        return await self.ended.wait()

    def inflight(self) -> dict[str, Any]:
        """The turn so far, for snapshots (gateway §4.9); consistent with the log at this very moment."""
        snapshot: dict[str, Any] = {
            "user": self.prompt.text,
            "assistant": "".join(self._shown),
            "streaming": True,
            "corrections": [text for text, _ in self._corrections],
            "correction_offsets": [offset for _, offset in self._corrections],
            "tools": self.batch.names() if self.batch is not None else [],
            "pending_steers": list(self._steers),
        }
        if self.prompt.display_kind is not None:
            snapshot["display_kind"] = self.prompt.display_kind
            snapshot["display_metadata"] = dict(self.prompt.display_metadata or {})
        return snapshot

    # --- the turn's own life ---

    async def run(self) -> None:
        """Run to the outcome. Never raises but ``Cancelled``; the slot is free when it returns."""
        with log_fields(session=self.session_key, turn=self.turn_id, request=self._request):
            await self._run_to_end()

    async def _run_to_end(self) -> None:
        try:
            with self.scope:
                result = await contained(f"turn {self.turn_id}", self._live, log=False)
                if isinstance(result, Crash):
                    self._take_crash(result)
        finally:
            ending = turn_end.decide(self)
            with trio.CancelScope(deadline=trio.current_time() + turn_end.STORE_WITHIN, shield=True) as patience:
                await turn_end.store_rest(self.session, self, ending)
            turn_end.conclude(self.session, self, ending, in_time=not patience.cancelled_caught)

    async def _live(self) -> None:
        session = self.session
        async with trio.open_nursery() as nursery:
            await session.begin_turn(self)
            nursery.start_soon(watch_turn, self, trio.current_time(), name="turn watch")
            setup = await session.prepare(self)
            self._move_to(TurnPhase.RUNNING)
            self.started_at = self.now()
            self.emit(
                TurnStarted(
                    self.turn_id,
                    self.prompt.text,
                    self.user_row.row_id if self.user_row else None,
                    self.prompt.source,
                    self.prompt.display_kind,
                    self.prompt.display_metadata,
                    self.prompt.client_message_id,
                    self.user_row,
                )
            )
            session.turn_started(self)
            self.end = await run_turn(self, setup)
            nursery.cancel_scope.cancel()

    def _take_crash(self, crash: Crash) -> None:
        error = crash.error
        if self.started_at is None and isinstance(error, HermesError):
            self.refusal = error
        elif isinstance(error, StoreUnavailable):
            self.crash = crash
        else:
            log.error("turn %s crashed", self.turn_id, exc_info=error)
            self.crash = crash

    def accept(self, accepted: Accepted) -> None:
        """The prompt is durable: tell whoever submitted it."""
        for submission in self.submissions:
            submission.accepted.settle(accepted)

    def refuse(self, error: HermesError) -> bool:
        """The prompt could not be stored. True if somebody was still waiting to hear it."""
        heard = False
        for submission in self.submissions:
            heard = submission.accepted.settle(error) or heard
        return heard

    def move_to_ended(self) -> None:
        self._move_to(TurnPhase.ENDED)

    def question_opened_or_closed(self) -> None:
        """Running and waiting follow the open questions."""
        self.last_event_at = trio.current_time()
        waiting = bool(self.session.requests.open_requests(turn_id=self.turn_id))
        if waiting and self.phase is TurnPhase.RUNNING:
            self._move_to(TurnPhase.WAITING_FOR_CLIENT)
        elif not waiting and self.phase is TurnPhase.WAITING_FOR_CLIENT:
            self._move_to(TurnPhase.RUNNING)

    def _move_to(self, phase: TurnPhase) -> None:
        if phase not in TURN_TRANSITIONS[self.phase]:
            raise IllegalTransition(f"turn {self.turn_id}: {self.phase.value} to {phase.value}")
        self.phase = phase
        self.scope.tree.touched()

    # --- TurnPort: what the loop may do ---

    @property
    def rows(self) -> Sequence[Row]:
        if self.prompt.history is not None:
            return (*self.prompt.history, *self.session.rows[self.session.rows_before_turn :])
        return self.session.rows

    def emit(self, event: SessionEvent) -> None:
        self.last_event_at = trio.current_time()
        if type(event) is TextDelta:
            self._shown.append(event.text)
            self._shown_length += len(event.text)
        elif type(event) is SteerDelivered or type(event) is RedirectApplied:
            self._corrections.append((event.text, self._shown_length))
        elif type(event) is UsageUpdated:
            soon = self.last_event_at - self._usage_told_at < USAGE_EVERY
            self._usage_told_at = self._usage_told_at if soon else self.last_event_at
            event = replace(event, session_usage=self._usage_before.plus(event.usage), soon=soon)
        elif isinstance(event, ToolEvent):
            event = self._tool_runs.marked(event)
        self.session.log.append(event)

    async def store(self, rows: Sequence[Row], *, usage: Usage | None = None, last: bool = True) -> tuple[Row, ...]:
        """``last``: rows that are stored when all has been said take the turn's lease along."""
        if self.lease_lost:
            # The history is somebody else's: they have seen what was there when they took it.
            await trio.lowlevel.checkpoint()
            return ()
        owner = self.session.services.owner if self.holds_lease else None
        try:
            if last and self._said_all and self.holds_lease:
                stored = await turn_store.finish(self.session, self, rows, usage=usage)
            else:
                stored = await turn_store.append(self.session, rows, usage=usage, owner=owner)
        except (SessionOwnedElsewhere, StoredSessionNotFound):
            # Deleted: by somebody whose clock has jumped, and for whom the lease had expired.
            self.lose_lease()
            await trio.lowlevel.checkpoint()
            return ()
        self.rows_stored = True
        self.row_ids.extend(row.row_id for row in stored if row.row_id is not None)
        return stored

    def lose_lease(self) -> None:
        """Somebody else runs a turn of this session now: this one stops and writes nothing more (TL-3)."""
        self.holds_lease, self.lease_lost = False, True
        self.cancel(CancelReason(Cause.LEASE_LOST))

    async def replace_with_summary(self, summarized_ids: Sequence[int], summary_rows: Sequence[Row]) -> None:
        await self.session.replace_with_summary(summarized_ids, summary_rows)

    async def shorten_rows(self, contents: Mapping[int, Content]) -> None:
        await turn_store.shorten(self.session, contents)

    async def call_model(
        self, provider: Provider, request: ModelRequest, on_delta: DeltaSink
    ) -> ModelFinished | Redirected:
        if self._redirect is not None:
            # It came while the former answer was complete already; the loop has set that answer aside.
            await trio.lowlevel.checkpoint()
            return self._redirected("", "")
        node = ReasonScope("model_call", request.model, self.scope, details={"request_id": request.request_id})
        self._model_call = node
        finished: ModelFinished | None = None
        try:
            with node:
                finished = await provider.call(request, on_delta)
        finally:
            self._model_call = None
        cut, self._cut = self._cut, False
        if finished is not None:
            # A redirect of the same tick stays: the loop asks ``has_redirect`` before it uses the answer.
            return finished
        if cut and self._redirect is None:
            return ModelFinished(self.progress.partial_text, finish_reason="length")
        if self._redirect is None:
            # Somebody cancelled this very node: without its model call the turn has nothing to go on with.
            reason = node.own_reason or CancelReason(Cause.NODE_CANCEL)
            self.cancel(reason)
            await trio.lowlevel.checkpoint()
            raise AssertionError("a cancelled turn goes on")
        return self._redirected(self.progress.partial_text, self.progress.partial_reasoning)

    def cut_answer(self) -> None:
        call = self._model_call
        if call is not None and call.cancel(CancelReason(Cause.NODE_CANCEL, "the answer repeats itself")):
            self._cut = True

    def _redirected(self, partial_text: str, partial_reasoning: str) -> Redirected:
        text, self._redirect = self._redirect, None
        assert text is not None
        return Redirected(text, partial_text, partial_reasoning)

    async def run_tools(
        self,
        segments: Sequence[Sequence[PlannedCall]],
        finish: Callable[[ToolResult], ToolResult],
        prepare: Callable[[ToolResult], Awaitable[None]] | None = None,
    ) -> Sequence[ToolResult]:
        deadline = self.settings.timeouts.tools.concurrent_batch or None
        batch = self.batch = ToolBatch(self, segments, finish, prepare, group_deadline=deadline)
        results = await batch.run()
        # Only here: a cancelled turn leaves the batch for its end, which gives every open call a result.
        self.batch = None
        return results

    async def attempt(self, step: Callable[[], Awaitable[T]]) -> T | Exception:
        result = await contained(f"turn {self.turn_id}", step, log=False)
        return result.error if isinstance(result, Crash) else result

    async def pause(self, seconds: float, *, why: str) -> None:
        node = ReasonScope("backoff", why, self.scope)
        with node:
            await trio.sleep(seconds)

    def take_steers(self) -> str | None:
        texts = self._taken_steers()
        return "\n".join(texts) if texts else None

    def _taken_steers(self) -> list[str]:
        texts = list(self._steers)
        self._steers.clear()
        return texts

    def give_back_steers(self, text: str) -> None:
        self._steers.insert(0, text)

    def has_redirect(self) -> bool:
        return self._redirect is not None

    def begin_closing(self) -> str | None:
        self._closing = self._said_all = True
        if self._redirect is not None:
            self._steers.append(self._redirect)
            self._redirect = None
        texts = self._taken_steers()
        # Kept here too: a stop may come before the loop has told in its end what it was given back.
        self.undelivered += texts
        return "\n".join(texts) if texts else None

    def now(self) -> float:
        return self.session.services.clock()

    def monotonic(self) -> float:
        return trio.current_time()

    def random(self) -> float:
        return self.session.services.random()

    async def check_limits(self, usage: Usage, iterations: int) -> None:
        limit = self.prompt.limits.max_iterations
        if self.over_budget() or (limit is not None and iterations >= limit):
            self.cancel(CancelReason(Cause.BUDGET))
        await trio.lowlevel.checkpoint_if_cancelled()

    def over_budget(self) -> bool:
        """Whether this turn, or one that it works for, has spent what its caller allowed. Children count."""
        limits = self.prompt.limits
        parent = self.session.parent_turn
        if parent is not None and parent.over_budget():
            return True
        if limits.max_tokens_total is None and limits.max_cost_usd is None:
            return False
        spent = self.spent()
        return (limits.max_tokens_total is not None and spent.total_tokens >= limits.max_tokens_total) or (
            limits.max_cost_usd is not None and (spent.cost_usd or 0.0) >= limits.max_cost_usd
        )

    def spent(self) -> Usage:
        """By this turn and by everybody that works for it."""
        total = self.progress.usage.plus(self.children_usage)
        for child in self.session.children.working_for(self):
            total = total.plus(child.spent())
        return total

    # --- BatchHost ---

    def tool_context(self, planned: PlannedCall, node: ReasonScope, batch: ToolBatch) -> ToolContext:
        return CallContext(self, planned.call.id, planned.call.name, node, batch)

    def shown_arguments(self, planned: PlannedCall) -> Mapping[str, Any]:
        shown: Mapping[str, Any] = redact_value(planned.arguments, self.session.services.redact)
        return shown

    def shown_summary(self, planned: PlannedCall) -> str:
        return self.session.services.tool_summary(planned.call.name, planned.arguments)
