"""How a turn ends: the one place that decides its outcome, stores what is left to store, and tells everybody.

Reached on every path out of the turn's scope: finished, failed, crashed, stopped by itself or by anything above it. The
waiting part is shielded and bounded; the telling part is synchronous and always happens.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVarTuple, Unpack

import trio

from hermes.agent.interruption import closing_rows, exit_reason, failure_row
from hermes.errors import HermesError, ProviderError, StoreUnavailable
from hermes.events import SessionEvent, SessionTitled, TurnEnded, TurnRefused
from hermes.logs import log_fields
from hermes.messages import Row
from hermes.nurseries import turn_store
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.turn_slot import Accepted
from hermes.outcomes import Cancelled, CancelReason, Cause, Completed, Failed, TurnOutcome, TurnRecord
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.session import Session
    from hermes.nurseries.turn import Turn

Ts = TypeVarTuple("Ts")

log = logging.getLogger(__name__)

STORE_WITHIN = 10.0
"""Seconds that the last writes of a turn may take, whatever else is cancelled."""

REFUSAL_CODES = {
    "ProviderNotConfigured": "provider_not_configured",
    "ModelNotServed": "model_not_served",
    "StoreUnavailable": "session_persistence_failed",
    "ChangeNotStored": "session_persistence_failed",
    "SessionOwnedElsewhere": "session_busy",
}


@dataclass(slots=True)
class Ending:
    """What is known of a turn's end while it is being settled."""

    outcome: TurnOutcome
    exit_reason: str
    pending_steer: str | None = None
    errors: list[str] = field(default_factory=list)


def decide(turn: Turn) -> Ending:
    """What happened, not what was asked for: a turn that had finished when the stop came is finished (rule 6).

    From here on the turn takes no steers: what was accepted and not delivered is part of the ending.
    """
    ending = _decide(turn)
    turn.begin_closing()
    ending.pending_steer = "\n".join(turn.undelivered) or None
    return ending


def _decide(turn: Turn) -> Ending:
    if turn.end is not None:
        return Ending(turn.end.outcome, turn.end.exit_reason)
    if turn.refusal is not None:
        error = turn.refusal
        code = REFUSAL_CODES.get(type(error).__name__, "refused")
        failure = f"{code}:{error.cause}" if isinstance(error, StoreUnavailable) else code
        return Ending(Failed(error.message, failure, retryable=True), code)
    if turn.crash is not None:
        return _crashed(turn, turn.crash.error)
    reason = turn.scope.reason or CancelReason(Cause.SHUTDOWN)
    text = turn.progress.partial_text or None
    return Ending(Cancelled(reason, text), exit_reason(turn.progress.phase, reason))


def _crashed(turn: Turn, error: Exception) -> Ending:
    text = turn.progress.partial_text or None
    if isinstance(error, StoreUnavailable):
        failed = Failed(error.message, f"session_persistence_failed:{error.cause}", text, retryable=True)
        return Ending(failed, "session_persistence_failed")
    if isinstance(error, ProviderError):
        failed = Failed(error.message, error.error_class, text, retryable=True)
        return Ending(failed, f"provider_error({error.error_class})")
    failed = Failed("the turn failed because of an error in the server; its log has the details", "loop_error", text)
    return Ending(failed, f"local_processing_error({type(error).__name__})")


async def store_rest(session: Session, turn: Turn, ending: Ending) -> None:
    """Results for every open call, the closing row, the title and the lease in one transaction; then the processes.

    The lease outlives the processes. Each step is tried whatever became of the one before; what failed is in the log
    and in the record.
    """
    error = await _failure(turn, ending, "its last rows", _store_rows, session, turn, ending)
    if error is not None and isinstance(ending.outcome, Completed):
        text = ending.outcome.text
        code = f"session_persistence_failed:{getattr(error, 'cause', 'io')}"
        ending.outcome = Failed(ending.errors[-1], code, text, retryable=True)
        ending.exit_reason = "session_persistence_failed"
    if isinstance(ending.outcome, Cancelled) and turn.prompt.owns_processes:
        await _failure(turn, ending, "the end of its processes", session.processes.stop_turn, turn.turn_id)
    # What could not be stored a moment ago waits as long for each further try: then the lease alone is worth one.
    unstorable = error is not None or ending.exit_reason == "session_persistence_failed"
    if turn.holds_lease and not unstorable:
        error = await _failure(turn, ending, "its title and its lease", turn_store.finish, session, turn, ())
    if turn.holds_lease and (unstorable or error is not None):
        store, owner = session.services.store, session.services.owner
        await _failure(turn, ending, "the release of its lease", store.release_lease, session.key, owner)
    turn.holds_lease = False
    if turn.new_title is not None:
        session.announce_info()
        session.emit(SessionTitled(session.key, turn.new_title))


async def _failure(
    turn: Turn, ending: Ending, what: str, fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts
) -> Exception | None:
    """Take one step of the end; returns what went wrong with it, after noting it."""
    result = await contained(f"turn {turn.turn_id}: {what}", fn, *args, log=False)
    if not isinstance(result, Crash):
        return None
    error = result.error
    known = isinstance(error, HermesError)
    log.error("turn %s: %s: %s", turn.turn_id, what, error, exc_info=None if known else error)
    ending.errors.append(error.message if isinstance(error, HermesError) else f"{what}: an error in the server")
    return error


async def _store_rows(session: Session, turn: Turn, ending: Ending) -> None:
    if not turn.holds_lease or (turn.user_row is None and not turn.rows_stored):
        return
    reason = ending.outcome.reason if isinstance(ending.outcome, Cancelled) else None
    results = turn.batch.close_cancelled(reason) if turn.batch is not None else []
    turn.progress.end_unanswered_call()
    rows = [*session.rows[session.rows_before_turn :], *results]
    closing: list[Row] = []
    match ending.outcome:
        case Cancelled():
            assert reason is not None
            closing, _ = closing_rows(
                rows,
                turn.progress.partial_text,
                turn.progress.partial_reasoning,
                turn.progress.phase,
                reason,
                turn.now(),
            )
        case Failed(error=error) if turn.end is None:
            surface = {"layer": "server", "code": ending.exit_reason, "retryable": ending.outcome.retryable}
            closing, _ = closing_rows(rows, turn.progress.partial_text, "", turn.progress.phase, _SERVER, turn.now())
            if not turn.progress.partial_text:
                row = failure_row((*rows, *closing[:-1]), error, surface, turn.now())
                closing = [*closing[:-1], *([row] if row is not None else [])]
        case _ if not results:
            return
    if results or closing or turn.progress.unstored_usage.calls:
        usage = turn.progress.take_unstored_usage()
        waits = turn.prompt.owns_processes and session.processes.has_of_turn(turn.turn_id)
        await turn.store([*results, *closing], usage=usage, last=not waits)
    if turn.batch is not None:
        turn.batch.announce_closed()
        turn.batch = None
    turn.progress.clear_partial()


_SERVER = CancelReason(Cause.SHUTDOWN)


def conclude(session: Session, turn: Turn, ending: Ending, *, in_time: bool) -> None:
    """Free the slot, append the turn's last event, fill its settlement: one breath, in this order."""
    if not in_time:
        log.error("turn %s: the last rows could not be stored within %g s", turn.turn_id, STORE_WITHIN)
        ending.errors.append("the last rows could not be stored in time")
    session.requests.withdraw("interrupted", turn_id=turn.turn_id)
    session.question_log.start_writing()
    if turn.batch is not None:
        # Its results could not be stored; whoever saw the calls begin sees them end.
        turn.batch.announce_unstored(turn.scope.reason)
        turn.batch = None
    record = build_record(session, turn, ending)
    was_started = turn.started_at is not None
    told = False
    if turn.refusal is not None:
        told = turn.refuse(turn.refusal)
    else:
        turn.accept(Accepted(None))
    turn.move_to_ended()
    if session.slot.turn is turn:
        session.slot.release(turn)
    session.last_prompt_tokens = record.last_prompt_tokens or session.last_prompt_tokens
    session.last_active = session.services.clock()
    session.idle_since = trio.current_time()
    session.retained_failure = retained(turn, record) if isinstance(record.outcome, Failed) else None
    event: SessionEvent | None = None
    if was_started:
        event = TurnEnded(turn.turn_id, record)
    elif not told:
        message = record.error or f"the turn was stopped before it began ({record.cause.value if record.cause else ''})"
        code = turn.refusal and REFUSAL_CODES.get(type(turn.refusal).__name__)
        event = TurnRefused(turn.turn_id, message, code or None, record)
    if event is not None:
        session.emit(event)
    turn.ended.settle(record)
    outcome = record.outcome
    turn.scope.tell_end(record.run_status.value, outcome.reason if isinstance(outcome, Cancelled) else None)
    for observer in session.services.turn_observers:
        observer(record)
    for hook in list(session.on_turn_end):
        hook(turn, record)
    session.announce_info()
    if session.closing:
        session.drop_queue()
    else:
        # Its request is another one than this turn's.
        with log_fields(request=""):
            session.start_next_queued()


def retained(turn: Turn, record: TurnRecord) -> dict[str, Any]:
    """The failed turn as ``inflight`` shows it until the next one starts (gateway §4.9)."""
    snapshot = turn.inflight()
    failed = record.outcome
    assert isinstance(failed, Failed)
    snapshot.update(
        streaming=False,
        tools=[],
        error=failed.error,
        status="error",
        recoverable=failed.retryable,
        error_surface=error_surface(record),
    )
    return snapshot


def error_surface(record: TurnRecord) -> dict[str, Any]:
    """``{layer, code, retryable, provider?, model?, resets_at?}`` of a failed turn (gateway §6.1)."""
    failed = record.outcome
    assert isinstance(failed, Failed)
    layer = "provider" if record.exit_reason.startswith("provider_error") else "turn"
    surface: dict[str, Any] = {"layer": layer, "code": failed.failure_reason, "retryable": failed.retryable}
    if record.provider:
        surface["provider"] = record.provider
    if record.model:
        surface["model"] = record.model
    if failed.resets_at is not None:
        surface["resets_at"] = failed.resets_at
    return surface


def build_record(session: Session, turn: Turn, ending: Ending) -> TurnRecord:
    """The full result record of agent-core §1.17: the same keys on every exit path."""
    progress = turn.progress
    resolved = session.resolved
    final_row = next(
        (
            row
            for row in reversed(session.rows[session.rows_before_turn :])
            if row.role == "assistant" and row.display_kind is None
        ),
        None,
    )
    model = progress.model or (resolved.model if resolved else "")
    return TurnRecord(
        turn_id=turn.turn_id,
        session_key=session.key,
        outcome=ending.outcome,
        exit_reason=ending.exit_reason,
        usage=progress.usage,
        session_usage=session.usage,
        api_calls=progress.api_calls,
        iterations=progress.iterations,
        last_reasoning=progress.last_reasoning,
        last_prompt_tokens=progress.last_prompt_tokens,
        context_length=resolved.context_length if resolved else None,
        pending_steer=ending.pending_steer,
        response_previewed=progress.response_previewed,
        model=model,
        requested_model=progress.requested_model or model,
        served_model=progress.served_model or model,
        provider=progress.provider or (resolved.provider if resolved else ""),
        base_url=progress.base_url or (resolved.base_url if resolved else ""),
        user_row_id=turn.user_row.row_id if turn.user_row is not None else None,
        final_row_id=final_row.row_id if final_row is not None else None,
        row_ids=tuple(turn.row_ids),
        user_intervened=progress.user_intervened,
        guardrail=progress.guardrail,
        compression_exhausted=progress.compression_exhausted,
        billing_block=progress.billing_block,
        cleanup_errors=tuple(ending.errors),
        warning=progress.warning,
        started_at=turn.started_at or turn.accepted_at,
        ended_at=turn.now(),
        extras={"children_usage": turn.children_usage} if turn.children_usage.calls else {},
    )


async def close_stored(session: Session, reason: CancelReason) -> None:
    """Mark the stored session as ended; a failure is only logged, the transcript is complete without it."""
    if not session.is_stored:
        return
    word = {Cause.SHUTDOWN: "tui_shutdown", Cause.SESSION_CLOSED: reason.text or "tui_close"}.get(
        reason.cause, "agent_close"
    )
    store, now = session.services.store, session.services.clock()
    mark = functools.partial(store.update_session, session.key, ended_at=now, end_reason=word)
    result = await contained(f"the end of session {session.key}", mark, log=False)
    if isinstance(result, Crash):
        log.warning("cannot mark session %s as ended: %s", session.key, result.error)
