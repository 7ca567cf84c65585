"""Compression inside a turn: when it is due, the call of the summarizing model, and the one write that makes it real.

Old tool results go first: if that makes room enough, no model is asked and the system prompt stays as it is.

A cancel before the write leaves the transcript as it was. A redirect that meets the summary call becomes a steer,
because there is no answer yet that it could correct.
"""

from __future__ import annotations

from dataclasses import replace

from hermes.agent.asking import Asker
from hermes.agent.compression import (
    Compressed,
    CompressionGate,
    SummaryRequest,
    compress,
    learned_window,
    plan_compression,
    tail_begin,
    threshold_tokens,
)
from hermes.agent.ports import DeltaKind, ModelFinished, ModelRequest, Redirected, ResolvedModel, TurnPort
from hermes.agent.progress import LoopPhase
from hermes.agent.pruning import plan_pruning
from hermes.agent.retries import ModelCaller
from hermes.agent.tokens import call_usage, request_tokens, rows_tokens
from hermes.agent.turn_setup import TurnSetup
from hermes.errors import ProviderError
from hermes.events import HistoryCompressed, StatusUpdate
from hermes.messages import Row


class TurnCompressor:
    """The compressions of one turn. A turn whose history was given with its prompt is never compressed."""

    def __init__(self, port: TurnPort, setup: TurnSetup, caller: ModelCaller, asker: Asker) -> None:
        self._port = port
        self._setup = setup
        self._caller = caller
        self._asker = asker
        self._settings = setup.settings.compression
        self._gate = CompressionGate(self._settings)
        self._possible = setup.prompt.history is None

    async def before_request(self, tokens: int) -> None:
        """Compress if a request of this size is over the threshold."""
        model = self._caller.resolved
        size = max(tokens, self._setup.progress.last_prompt_tokens)
        if self._possible and self._gate.due(size, threshold_tokens(self._settings, model), self._port.monotonic()):
            await self._make_room(size)

    async def after_overflow(self, error: ProviderError) -> bool:
        """The provider refused the size: make room, whatever the estimate says. False: there is no more to gain."""
        window = learned_window(error.details)
        if window is not None and window < self._caller.resolved.context_length:
            self._caller.resolved = replace(self._caller.resolved, context_length=window)
        if not (self._possible and self._settings.enabled and self._gate.left):
            self._setup.progress.compression_exhausted = self._possible and not self._gate.left
            return False
        return await self._make_room(self._asker.size())

    async def _make_room(self, size: int) -> bool:
        return await self._prune(size) or await self._compress()

    async def _prune(self, size: int) -> bool:
        """Leave old results out, if that is enough; else nothing is changed, and it is no attempt."""
        port, progress, model = self._port, self._setup.progress, self._caller.resolved
        rows = tuple(port.rows)
        pruning = plan_pruning(rows, tail_begin(rows, self._settings, model.context_length))
        if not pruning.is_enough(size, threshold_tokens(self._settings, model)):
            return False
        former, progress.phase = progress.phase, LoopPhase.COMPRESSING
        port.emit(StatusUpdate(port.turn_id, "compressing", "leaving old tool results out"))
        await port.shorten_rows(pruning.contents)
        progress.last_prompt_tokens = 0
        before = rows_tokens(rows)
        port.emit(HistoryCompressed(len(rows), len(rows), before, before - pruning.saved))
        progress.phase = former
        port.emit(StatusUpdate(port.turn_id, "status", "ready"))
        return True

    async def _compress(self) -> bool:
        port, progress = self._port, self._setup.progress
        rows = tuple(port.rows)
        plan = plan_compression(rows, self._settings, self._caller.resolved.context_length)
        if plan is None:
            return False
        self._gate.attempted()
        former, progress.phase = progress.phase, LoopPhase.COMPRESSING
        port.emit(StatusUpdate(port.turn_id, "compressing", "compressing the conversation"))
        outcome = await compress(rows, plan, self._ask, self._settings, port.now(), redact=self._setup.redact)
        if isinstance(outcome, Compressed):
            await port.replace_with_summary(outcome.summarized_ids, outcome.rows)
            await self._store_refreshed(rows, outcome)
        else:
            self._gate.failed(port.monotonic())
        progress.phase = former
        text = "ready" if isinstance(outcome, Compressed) else f"not compressed: {outcome.note}"
        port.emit(StatusUpdate(port.turn_id, "status", text))
        return isinstance(outcome, Compressed)

    async def _store_refreshed(self, before: tuple[Row, ...], outcome: Compressed) -> None:
        port = self._port
        self._setup.progress.last_prompt_tokens = 0
        port.emit(HistoryCompressed(len(before), len(port.rows), outcome.before_tokens, outcome.after_tokens))
        if self._setup.refresh_system is not None:
            self._asker.system = await self._setup.refresh_system()

    async def _ask(self, system: str, user: SummaryRequest, max_tokens: int) -> ModelFinished:
        """One question to the auxiliary model; to the main model if that fails."""
        main = self._caller.resolved
        auxiliary = self._setup.models.auxiliary(main)
        try:
            return await self._ask_one(auxiliary, system, user, max_tokens)
        except ProviderError:
            if (auxiliary.model, auxiliary.provider) == (main.model, main.provider):
                raise
        return await self._ask_one(main, system, user, max_tokens)

    async def _ask_one(self, model: ResolvedModel, system: str, user: SummaryRequest, max_tokens: int) -> ModelFinished:
        port, progress = self._port, self._setup.progress
        request = ModelRequest(
            request_id=f"{port.turn_id}:api:{progress.api_calls + 1}",
            model=model.model,
            messages=(Row("user", user(model.context_length)),),
            system=(system,),
            max_output_tokens=max_tokens,
            session_key=port.session_key,
        )
        tokens = request_tokens(request)
        provider = self._setup.models.provider_for(model)
        progress.api_calls += 1
        try:
            finished = await port.call_model(provider, request, _ignore)
        except ProviderError as error:
            progress.api_calls -= 0 if error.reached_provider else 1
            raise
        if isinstance(finished, Redirected):
            port.give_back_steers(finished.text)
            raise ProviderError("the summary was interrupted by a correction", error_class="unknown")
        progress.spend(call_usage(finished, tokens, model))
        return finished


def _ignore(kind: DeltaKind, text: str) -> None:
    """Nobody watches a summary being written."""
