"""The turn loop: ask the model, run the tools it asked for, hand it what the user said meanwhile, and ask again.

``run_turn`` is straight-line code over a ``TurnPort``. It knows no task, no socket and no clock; a cancelled turn
unwinds through it, and the tree finishes the history from ``TurnSetup.progress``. Every other ending is decided here,
with a closing row and a reason. The order of work is agent-core §1.2; nothing runs from a row that is not durable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from hermes.agent.asking import Answer, Asker, Asking
from hermes.agent.budgets import BudgetWatch
from hermes.agent.error_classes import action_for
from hermes.agent.guardrails import Guardrails
from hermes.agent.interruption import failure_row
from hermes.agent.ports import Redirected, TurnPort
from hermes.agent.progress import LoopPhase
from hermes.agent.responses import GiveUp, UseEarlierText
from hermes.agent.retries import CallFailed, ModelCaller
from hermes.agent.steering import notice_row, redirect_rows, steer_row
from hermes.agent.tool_calls import Batch, CallIds, only_these, prepare_batch
from hermes.agent.tool_plan import plan_segments
from hermes.agent.tool_results import ResultFinisher, ResultLimits
from hermes.agent.turn_compression import TurnCompressor
from hermes.agent.turn_setup import LoopEnd, TurnSetup
from hermes.errors import HermesError, ModelNotServed, ProviderError, ProviderNotConfigured, StoreUnavailable
from hermes.events import InterimText, RedirectApplied, StatusUpdate, SteerDelivered
from hermes.messages import Row, ToolResult
from hermes.outcomes import Completed, Failed

log = logging.getLogger(__name__)

__all__ = ["LoopEnd", "TurnSetup", "run_turn"]

SUMMARY_PROMPT: Final = (
    "[The limit of steps for this task is reached; no more tools can be used. Say what was done, what was found and "
    "what is left to do.]"
)
HOUSEKEEPING: Final = frozenset({"memory", "todo_list", "skill_manage", "session_search"})
PROGRAMMATIC: Final = frozenset({"execute_code"})
MAX_ERROR_CHARS: Final = 500
MAX_ERRORS: Final = 8


async def run_turn(port: TurnPort, setup: TurnSetup) -> LoopEnd:
    """Run one turn whose user row is stored already, to its end.

    Raises nothing of its own: a failing provider, a full budget or a store that refuses to write are endings. When the
    turn is cancelled the cancellation passes through, and ``setup.progress`` tells how far it had come.
    """
    return await _Turn(port, setup).run()


class _Turn:
    def __init__(self, port: TurnPort, setup: TurnSetup) -> None:
        self._port = port
        self._setup = setup
        self._settings = setup.settings
        self._progress = setup.progress
        self._progress.requested_model = setup.requested_model or setup.resolved.model
        self._progress.started_at = port.monotonic() if setup.started_at is None else setup.started_at
        self._caller = ModelCaller(
            port,
            setup.models,
            setup.resolved,
            setup.settings.retries,
            setup.progress,
            setup.cooldowns,
            setup.refresh_credentials,
            may_fall_back=setup.may_fall_back,
        )
        self._asker = Asker(port, setup, self._caller)
        self._compressor = TurnCompressor(port, setup, self._caller, self._asker)
        self._budget = BudgetWatch(setup.settings, setup.prompt.limits)
        self._guardrails = Guardrails(setup.settings.guardrails, unattended=setup.prompt.unattended)
        self._ids = CallIds(port.turn_id, lambda: setup.row_memory.call_ids(port.rows))
        self._pending: str | None = None
        self._earlier_text: str | None = None
        self._invalid_in_a_row = 0
        self._restarts = 0
        self._errors = 0
        self._shown = ""
        """Text of a step that is tried again: it was seen, and is not shown twice."""
        self._closed = False

    async def run(self) -> LoopEnd:
        self._caller.leave_cooling()
        try:
            return await self._iterate()
        except StoreUnavailable as error:
            return self._not_saved(error)
        except (ProviderNotConfigured, ModelNotServed) as error:
            code = "provider_not_configured" if isinstance(error, ProviderNotConfigured) else "model_not_found"
            try:
                return await self._fail(error.message, code, f"provider_error({code})", layer="provider")
            except StoreUnavailable as refused:
                return self._not_saved(refused)

    async def _iterate(self) -> LoopEnd:
        progress = self._progress
        while True:
            progress.phase = LoopPhase.BEFORE_CALL
            if progress.tools_ran:
                await self._deliver()
            if self._budget.iterations_spent(progress.iterations):
                end = await self._summarize()
            elif self._budget.seconds_spent(self._elapsed()):
                end = await self._give_up(
                    GiveUp("the time budget of this run is used up", "budget_exhausted", "budget_exhausted")
                )
            else:
                end = await self._guarded_iteration()
            if end is not None:
                return end

    async def _guarded_iteration(self) -> LoopEnd | None:
        """An error that nobody expected is outlived a few times (TL-27), while nothing runs and nothing has ended.

        Inside a batch it is not: what has been done by then is not known here, and the tree closes the calls.
        """
        progress = self._progress
        end = await self._port.attempt(self._iteration)
        if not isinstance(end, Exception):
            return end
        if isinstance(end, HermesError) or progress.phase is LoopPhase.TOOLS or self._closed:
            raise end
        self._errors += 1
        log.error("turn %s: unexpected error %d of %d", self._port.turn_id, self._errors, MAX_ERRORS, exc_info=end)
        progress.end_unanswered_call()
        kind = type(end).__name__
        if self._errors >= MAX_ERRORS:
            error = "the turn failed again and again because of an error in the server; its log has the details"
            return await self._fail(error, "loop_error", f"repeated_outer_errors({kind})", layer="server")
        progress.iterations = max(progress.iterations - 1, 0)
        self._shown = progress.partial_text
        details = {"class": "unexpected", "attempt": self._errors, "attempts": MAX_ERRORS, "delay_s": 0.0}
        text = f"an error in the server ({kind}); the step is tried again"
        self._port.emit(StatusUpdate(self._port.turn_id, "status", text, details))
        return None

    async def _iteration(self) -> LoopEnd | None:
        progress = self._progress
        await self._port.check_limits(progress.usage, progress.iterations)
        progress.iterations += 1
        await self._compressor.before_request(self._asker.size())
        asking, self._shown = Asking(shown=self._shown), ""
        result = await self._asker.ask(self._compressor.after_overflow, earlier_text=self._earlier_text, asking=asking)
        match result:
            case Redirected():
                return await self._redirected(result.text)
            case CallFailed(error=error):
                return await self._call_failed(error)
            case GiveUp():
                return await self._give_up(result)
            case UseEarlierText(text=text):
                return await self._use_earlier(text)
            case Answer():
                if self._port.has_redirect():
                    # It came too late to cut the request, and still before anything follows from the answer.
                    return await self._set_aside(result)
                return await (self._run_batch(result) if result.calls else self._complete(result))

    # --- a batch of tool calls ---------------------------------------------------------------------------------------

    async def _run_batch(self, answer: Answer) -> LoopEnd | None:
        port, progress, settings = self._port, self._progress, self._settings
        self._restarts = 0
        batch = prepare_batch(
            answer.calls,
            self._setup.tools,
            self._ids,
            iteration=progress.iterations,
            max_delegations=settings.max_delegate_calls,
        )
        (row,) = await self._store([answer.row(batch.calls, port.now())])
        if answer.text.strip():
            port.emit(InterimText(port.turn_id, answer.text, answer.streamed, row.row_id))
        progress.phase = LoopPhase.TOOLS
        segments = plan_segments(batch.planned, self._setup.resolve_path, limit=settings.max_parallel_tools)
        finisher = self._finisher(batch)
        results = await port.run_tools(segments, finisher, finisher.prepare)
        progress.phase = LoopPhase.BETWEEN
        progress.tools_ran = True
        self._asker.separate = True
        only_kept_house = only_these(batch.calls, HOUSEKEEPING) and bool(answer.text.strip())
        self._earlier_text = answer.text if only_kept_house else None
        if only_these(batch.calls, PROGRAMMATIC):
            progress.iterations -= 1
        return await self._after_batch(batch, results)

    async def _after_batch(self, batch: Batch, results: Sequence[ToolResult]) -> LoopEnd | None:
        """Endings first, steers after them: a steer is stored only if the model is going to read it."""
        self._invalid_in_a_row = self._invalid_in_a_row + 1 if batch.all_invalid else 0
        if self._guardrails.halted is not None:
            return await self._halt()
        if self._invalid_in_a_row >= self._settings.max_invalid_responses:
            error = f"the model wrote {self._invalid_in_a_row} invalid tool calls in a row"
            return await self._give_up(GiveUp(error, "invalid_tool_calls", "invalid_tool_calls"))
        if self._budget.seconds_spent(self._elapsed()):
            return None
        skipped = all(result.status == "skipped" for result in results)
        await self._deliver(steers=not skipped)
        return None

    def _finisher(self, batch: Batch) -> ResultFinisher:
        setup = self._setup
        return ResultFinisher(
            batch.planned,
            batch.notes,
            ResultLimits.for_window(self._settings, self._caller.resolved.context_length),
            self._guardrails,
            preview_chars=self._settings.spill_preview_chars,
            spill=setup.spill,
            hints=setup.hints,
        )

    # --- what the user says meanwhile --------------------------------------------------------------------------------

    async def _deliver(self, *, steers: bool = True) -> None:
        """Notices that are due, then the pending steer as the newest words."""
        port, progress = self._port, self._progress
        if not port.rows or port.rows[-1].role == "assistant":
            return
        now = port.now()
        due = self._budget.notices(progress.iterations, port.spent(), self._elapsed())
        rows = [notice_row(text, now) for text in due]
        text = port.take_steers() if steers else None
        if text:
            rows.append(steer_row(text, now))
        if not rows:
            return
        before = len(port.rows)
        try:
            stored = await self._store(rows)
        except BaseException:
            # Accepted words must not vanish: not stored means not delivered.
            if text and len(port.rows) == before:
                port.give_back_steers(text)
            raise
        if text:
            progress.user_intervened = True
            call_id = port.rows[before - 1].tool_call_id
            port.emit(SteerDelivered(port.turn_id, text, stored[-1].row_id, progress.iterations, call_id))

    async def _redirected(self, text: str) -> LoopEnd | None:
        """The request was cut by a correction: keep what was said, store the correction, ask again."""
        progress = self._progress
        partial = progress.partial_text
        rows = redirect_rows(text, partial, progress.partial_reasoning, self._port.now())
        before = len(self._port.rows)
        try:
            stored = await self._store(rows)
        except BaseException:
            if len(self._port.rows) == before:
                self._port.give_back_steers(text)
            raise
        progress.user_intervened = True
        progress.iterations = max(progress.iterations - 1, 0)
        self._asker.separate = self._asker.separate or bool(partial.strip())
        self._port.emit(RedirectApplied(self._port.turn_id, text, partial, stored[-1].row_id))
        self._restarts += 1
        if self._restarts > self._settings.max_restarts:
            error = "the answer was corrected too often before it was finished"
            return await self._give_up(GiveUp(error, "loop_error", "redirect_restart_limit_exceeded"))
        return None

    async def _set_aside(self, answer: Answer) -> LoopEnd | None:
        """A correction has overtaken this answer: its text is kept, its calls are not; the next call is redirected."""
        self._progress.iterations -= 1
        if answer.text.strip():
            await self._store([answer.row((), self._port.now())])
            self._asker.separate = True
        self._progress.clear_partial()
        return None

    # --- endings -----------------------------------------------------------------------------------------------------

    async def _complete(self, answer: Answer) -> LoopEnd:
        self._close()
        (row,) = await self._store([answer.row((), self._port.now())])
        reason = answer.exit_reason or f"text_response(finish_reason={answer.finished.finish_reason})"
        return self._end(Completed(answer.text), reason, row)

    async def _use_earlier(self, text: str) -> LoopEnd:
        """The answer stands in the round before; a hidden row closes the sequence."""
        self._close()
        self._progress.response_previewed = True
        (row,) = await self._store([Row("assistant", text, self._port.now(), display_kind="hidden")])
        return self._end(Completed(text), "fallback_prior_turn_content", row)

    async def _summarize(self) -> LoopEnd | None:
        """Out of iterations: one more call, without tools, for a summary. Its request is never stored."""
        progress, limit = self._progress, self._settings.max_iterations
        await self._port.check_limits(progress.usage, progress.iterations)
        asking = Asking(rows=(Row("user", SUMMARY_PROMPT),), tool_choice="none")
        result = await self._asker.ask(self._compressor.after_overflow, earlier_text=None, asking=asking)
        if isinstance(result, Redirected):
            return await self._redirected(result.text)
        text = result.text if isinstance(result, Answer) else progress.partial_text
        reason = f"max_iterations_reached({progress.iterations}/{limit})"
        error = f"the limit of {limit} steps was reached"
        return await self._incomplete(error, "max_iterations", reason, text)

    async def _halt(self) -> LoopEnd:
        halted = self._guardrails.halted or {}
        self._progress.guardrail = halted
        text = f"I stopped because {halted.get('tool')} was called {halted.get('count')} times without progress."
        return await self._incomplete("the turn went in circles", "guardrail_halt", "guardrail_halt", text)

    async def _give_up(self, verdict: GiveUp) -> LoopEnd:
        text = self._progress.partial_text
        if not verdict.incomplete:
            code = verdict.failure_reason
            retryable = action_for(code).retryable
            return await self._fail(verdict.error, code, verdict.exit_reason, layer="provider", retryable=retryable)
        if verdict.failure_reason == "truncated":
            self._progress.warning = verdict.error
        return await self._incomplete(verdict.error, verdict.failure_reason, verdict.exit_reason, text)

    async def _incomplete(self, error: str, code: str, reason: str, text: str) -> LoopEnd:
        """Neither completed nor failed: the text so far is one closing row (TL-28)."""
        self._close()
        row = await self._store_closing(text, error, {"layer": "turn", "code": code, "retryable": False})
        return self._end(Failed(error, code, text=text, incomplete=True), reason, row)

    async def _call_failed(self, error: ProviderError) -> LoopEnd:
        action, code = action_for(error.error_class), error.error_class
        message = self._redacted(error.message)
        if action.hint:
            message = f"{message} ({action.hint})"
        if code == "billing":
            link = error.details.get("link")
            blocked = {"provider": error.provider or self._progress.provider, "message": message, "link": link}
            self._progress.billing_block = blocked
        reason = f"provider_error({code})"
        if code == "content_policy_blocked":
            reason = code
        elif action.compress:
            code = "context_overflow"
            if self._progress.compression_exhausted:
                reason = "context_compression_exhausted"
        return await self._fail(
            message, code, reason, layer="provider", retryable=action.retryable, resets_at=error.resets_at
        )

    async def _fail(
        self,
        error: str,
        code: str,
        reason: str,
        *,
        layer: str,
        retryable: bool = False,
        resets_at: float | None = None,
    ) -> LoopEnd:
        self._close()
        progress = self._progress
        text = progress.partial_text
        surface: dict[str, Any] = {"layer": layer, "code": code, "retryable": retryable}
        surface |= {"provider": progress.provider, "model": progress.model, "resets_at": resets_at}
        row = await self._store_closing(text, error, surface, left_out=code == "context_overflow")
        outcome = Failed(error, code, text=text or None, retryable=retryable, resets_at=resets_at)
        return self._end(outcome, reason, row)

    async def _store_closing(
        self, text: str, error: str, surface: dict[str, Any], *, left_out: bool = False
    ) -> Row | None:
        now = self._port.now()
        if text.strip():
            metadata = {"error": error, "error_surface": surface, "partial": True}
            row = Row("assistant", text, now, finish_reason="length", display_metadata=metadata)
        else:
            failure = failure_row(self._port.rows, error, surface, now, left_out=left_out)
            if failure is None:
                return None
            row = failure
        (stored,) = await self._store([row])
        return stored

    def _not_saved(self, error: StoreUnavailable) -> LoopEnd:
        """Nothing can be written any more. What was said is still told."""
        self._close()
        text = self._progress.partial_text or None
        message = self._redacted(f"the conversation could not be saved: {error.message}")
        outcome = Failed(message, f"session_persistence_failed:{error.cause}", text=text, retryable=True)
        return self._end(outcome, "session_persistence_failed", None)

    def _end(self, outcome: Completed | Failed, reason: str, row: Row | None) -> LoopEnd:
        return LoopEnd(outcome, reason, self._progress, self._pending, row)

    def _close(self) -> None:
        """From here on steers are refused. Synchronous with the decision, so none can fall between (TL-29)."""
        self._closed = True
        left = self._port.begin_closing()
        if left:
            self._pending = f"{self._pending}\n{left}" if self._pending else left

    # --- small things ------------------------------------------------------------------------------------------------

    async def _store(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """Append rows with the spending since the last time; what was being said is then no longer unfinished."""
        before = len(self._port.rows)
        usage = self._progress.take_unstored_usage()
        try:
            stored = await self._port.store(rows, usage=usage)
        except BaseException:
            if len(self._port.rows) == before:
                self._progress.give_back_usage(usage)
            else:
                self._progress.clear_partial()
            raise
        self._progress.clear_partial()
        return stored

    def _elapsed(self) -> float:
        return self._port.monotonic() - self._progress.started_at

    def _redacted(self, text: str) -> str:
        text = self._setup.redact(text).strip()
        return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"
