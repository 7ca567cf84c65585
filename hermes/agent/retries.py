"""One model call that does not give up easily: reopen, repair, retry, fall back, wait (agent-core §1.13).

``ModelCaller`` lives as long as a turn and remembers which model is in use and which repairs were needed. What to do
about an error stands in ``error_classes.py``; here stands in which order, and how often. Waits go through the port, so
a cancelled turn leaves them at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from hermes.agent.cooldowns import Cooldowns
from hermes.agent.error_classes import ErrorAction, Repair, action_for
from hermes.agent.loop_settings import RetrySettings
from hermes.agent.ports import ModelFinished, ModelGateway, ModelRequest, Provider, Redirected, ResolvedModel, TurnPort
from hermes.agent.progress import LoopPhase, TurnProgress
from hermes.agent.responses import repeats_itself
from hermes.agent.streaming import OverlapGate, ReplayGate, StreamSink
from hermes.agent.tokens import call_usage, request_tokens
from hermes.agent.wire_copy import WireOptions
from hermes.errors import HermesError, ProviderError
from hermes.events import StatusUpdate
from hermes.records import dataclass

LADDER = (15.0, 30.0, 60.0, 60.0, 60.0)
SMALLEST_FALLBACK_WINDOW = 64_000
RUNAWAY_TIMES, RUNAWAY_CHARS = 16, 1_200

Gate = Callable[[], ReplayGate | OverlapGate | None]


@dataclass(frozen=True, slots=True)
class Repairs:
    """Changes of the request that errors have asked for; they stay for the rest of the turn."""

    wire: WireOptions = WireOptions()
    require_reasoning: bool = False
    simplify_schemas: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the model. ``dropped`` is set when the connection broke after text had been shown."""

    finished: ModelFinished
    sink: StreamSink
    prompt_tokens: int
    dropped: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class CallFailed:
    """Everything was tried."""

    error: ProviderError


CallEnd = Reply | Redirected | CallFailed
BuildRequest = Callable[[ResolvedModel], ModelRequest]
Compress = Callable[[ProviderError], Awaitable[bool]]


class _Tries:
    """Counters of one call."""

    def __init__(self) -> None:
        self.reopened = 0
        self.attempt = 1
        self.rebuilt = False
        self.refreshed = False
        self.cycle = 0

    def again(self) -> None:
        self.reopened = 0
        self.attempt = 1


class ModelCaller:
    """Model calls of one turn. ``resolved`` is the model in use; it changes when a fallback is taken."""

    def __init__(
        self,
        port: TurnPort,
        models: ModelGateway,
        resolved: ResolvedModel,
        settings: RetrySettings,
        progress: TurnProgress,
        cooldowns: Cooldowns,
        refresh_credentials: Callable[[], Awaitable[None]] | None = None,
        *,
        may_fall_back: bool = True,
    ) -> None:
        self._port = port
        self._models = models
        self._settings = settings
        self._progress = progress
        self._cooldowns = cooldowns
        self._refresh_credentials = refresh_credentials
        self._fallbacks: list[ResolvedModel] | None = None if may_fall_back else []
        self.resolved = resolved
        self.repairs = Repairs()
        self._note_model()

    async def call(self, build: BuildRequest, gate: Gate, compress: Compress, *, separate: bool) -> CallEnd:
        """Ask until there is an answer. ``build`` is called for every try, because a try may follow a repair."""
        tries = _Tries()
        while True:
            request = build(self.resolved)
            thought_before = len(self._progress.reasoning_parts)
            sink = StreamSink(
                self._port.emit, self._port.turn_id, self._progress, separate=separate, gate=gate(), watch=self._watch
            )
            try:
                provider = self._models.provider_for(self.resolved)
                return await self._once(provider, request, sink)
            except ProviderError as error:
                if sink.received and action_for(error.error_class).retryable:
                    # Shown text is never shown again: it is continued like a truncated answer (TL-25).
                    return self._dropped(sink, error, request)
                sink.finish()
                del self._progress.reasoning_parts[thought_before:]
                if not await self._recover(error, tries, compress, delivered=sink.received):
                    return CallFailed(error)

    def _watch(self, tail: str) -> None:
        """An answer that goes round in circles is not waited for (§1.14): what there is counts as cut off."""
        if repeats_itself(tail, least=RUNAWAY_TIMES, chars=RUNAWAY_CHARS):
            self._port.cut_answer()

    async def _once(self, provider: Provider, request: ModelRequest, sink: StreamSink) -> CallEnd:
        progress = self._progress
        tokens = request_tokens(request)
        progress.begin_call(tokens)
        sink.wait_begins()
        try:
            finished = await self._port.call_model(provider, request, sink)
        except ProviderError as error:
            if error.reached_provider:
                progress.end_unanswered_call()
            else:
                progress.call_not_sent()
            raise
        if isinstance(finished, Redirected):
            sink.finish()
            progress.end_unanswered_call()
            return finished
        self._complete(sink, finished)
        usage = call_usage(finished, tokens, self.resolved)
        progress.last_prompt_tokens = usage.prompt_tokens
        progress.served_model = finished.served_model or self.resolved.model
        progress.end_call(usage)
        return Reply(finished, sink, tokens)

    def _complete(self, sink: StreamSink, finished: ModelFinished) -> None:
        """Text that came whole, without deltas, goes the same way as streamed text."""
        from_deltas = sink.received
        if not sink.received_reasoning and finished.reasoning:
            sink.take_reasoning(finished.reasoning)
        text = finished.text or finished.refusal
        if not from_deltas and text:
            sink.take_text(text)
        sink.finish()

    def _dropped(self, sink: StreamSink, error: ProviderError, request: ModelRequest) -> Reply:
        sink.finish()
        self._status(error, "the connection broke; the answer is continued", delay=0.0)
        return Reply(ModelFinished(finish_reason=None), sink, request_tokens(request), dropped=error)

    # --- recovery ----------------------------------------------------------------------------------------------------

    async def _recover(self, error: ProviderError, tries: _Tries, compress: Compress, *, delivered: bool) -> bool:
        """Do the next thing that may help. False: nothing is left."""
        action = action_for(error.error_class)
        settings = self._settings
        if action.reopen and not delivered and tries.reopened < settings.stream_retries:
            tries.reopened += 1
            self._status(error, "the connection was lost; opening it again", delay=0.0, n=tries.reopened)
            return True
        if action.repair is not None and self._repair(action.repair):
            self._status(error, f"the request is changed ({action.repair}) and sent again", delay=0.0)
            return True
        if action.refresh and not tries.refreshed and not action.retry:
            tries.refreshed = True
            if self._refresh_credentials is not None:
                await self._refresh_credentials()
            self._status(error, "trying again with fresh credentials", delay=0.0)
            return True
        if action.compress:
            self._status(error, "the conversation is too long for the model", delay=0.0)
            return await compress(error)
        if action.retry and tries.attempt < settings.api_max_retries:
            return await self._retry(error, tries)
        if action.rebuild and not tries.rebuilt:
            tries.rebuilt = True
            tries.again()
            self._status(error, "trying again over a new connection", delay=0.0)
            return True
        if action.fall_back and self.fall_back(error.error_class, error):
            tries.again()
            return True
        return await self._climb(error, action, tries, delivered)

    async def _retry(self, error: ProviderError, tries: _Tries) -> bool:
        settings = self._settings
        if error.retry_after is not None:
            delay = min(max(error.retry_after, 0.0), settings.retry_after_cap)
        else:
            base = min(settings.first_delay * 2 ** (tries.attempt - 1), settings.delay_cap)
            delay = base * (1 + self._port.random() / 2)
        tries.attempt += 1
        self._status(error, "trying again", delay=delay, n=tries.attempt, of=settings.api_max_retries)
        await self.pause(delay, why=f"retry after {error.error_class}")
        return True

    async def _climb(self, error: ProviderError, action: ErrorAction, tries: _Tries, delivered: bool) -> bool:
        if not action.ladder or delivered or tries.cycle >= self._settings.recovery_cycles:
            return False
        wait = LADDER[min(tries.cycle, len(LADDER) - 1)]
        delay = wait * (0.8 + 0.4 * self._port.random())
        tries.cycle += 1
        self._status(error, "waiting for the provider", delay=delay, n=tries.cycle, of=self._settings.recovery_cycles)
        await self.pause(delay, why=f"recovery after {error.error_class}")
        return True

    async def pause(self, seconds: float, *, why: str) -> None:
        self._progress.phase = LoopPhase.BACKOFF
        await self._port.pause(seconds, why=why)
        self._progress.phase = LoopPhase.BETWEEN

    def _repair(self, repair: Repair) -> bool:
        """Apply a repair; False if it had been applied before and did not help."""
        old = self.repairs
        match repair:
            case "merge_roles":
                new = replace(old, wire=replace(old.wire, merge_all_roles=True))
            case "drop_signed_reasoning":
                new = replace(old, wire=replace(old.wire, drop_signed_reasoning=True))
            case "drop_replay_items":
                new = replace(old, wire=replace(old.wire, drop_replay_items=True))
            case "require_reasoning":
                new = replace(old, require_reasoning=True)
            case "simplify_schemas":
                new = replace(old, simplify_schemas=True)
            case "strip_images":
                new = replace(old, wire=replace(old.wire, strip_images=True))
            case "flatten_tool_content":
                new = replace(old, wire=replace(old.wire, flatten_tool_content=True))
        self.repairs = new
        return new != old

    # --- fallback chain ----------------------------------------------------------------------------------------------

    def leave_cooling(self) -> None:
        """Begin the turn with a fallback if the model has just failed; without one it is tried all the same."""
        left = self._cooldowns.left(self.resolved, self._port.monotonic())
        if left:
            self.fall_back(f"cooldown, {left:.0f} s left")

    def fall_back(self, reason: str, error: ProviderError | None = None) -> bool:
        """Change to the next model that can hold the conversation. False if there is none left."""
        if self._fallbacks is None:
            self._fallbacks = list(self._models.fallbacks())
        needed = max(SMALLEST_FALLBACK_WINDOW, self._progress.last_prompt_tokens)
        while self._fallbacks:
            candidate = self._fallbacks.pop(0)
            if candidate.context_length < needed or not self._available(candidate):
                continue
            old, self.resolved = self.resolved, candidate
            if error is not None:
                self._cooldowns.begin(old, error, self._port.monotonic())
            self._progress.fallback_models.append(candidate.model)
            self._note_model()
            details = {
                "class": reason,
                "from": {"model": old.model, "provider": old.provider},
                "to": {"model": candidate.model, "provider": candidate.provider},
                "status": error.status if error else None,
            }
            text = f"{old.model} failed ({reason}); using {candidate.model} for this turn"
            self._port.emit(StatusUpdate(self._port.turn_id, "lifecycle", text, details))
            return True
        return False

    def _available(self, candidate: ResolvedModel) -> bool:
        try:
            self._models.provider_for(candidate)
        except ProviderError:
            return False
        except HermesError:
            # No credentials for it, or its provider does not serve it: the next one may do.
            return False
        return True

    def _note_model(self) -> None:
        progress = self._progress
        progress.model, progress.provider = self.resolved.model, self.resolved.provider
        progress.base_url = self.resolved.base_url

    def _status(
        self, error: ProviderError, what: str, *, delay: float, n: int | None = None, of: int | None = None
    ) -> None:
        """Every hidden retry is seen (TL-24)."""
        details: dict[str, Any] = {
            "class": error.error_class,
            "status": error.status,
            "attempt": n,
            "attempts": of,
            "delay_s": round(delay, 3),
            "provider": error.provider or self.resolved.provider,
            "model": self.resolved.model,
        }
        count = f", {n}/{of}" if n is not None and of is not None else ""
        wait = f" in {delay:.0f} s" if delay else ""
        text = f"{self.resolved.provider or 'provider'}: {error.error_class}{count}; {what}{wait}"
        self._port.emit(StatusUpdate(self._port.turn_id, "status", text, details))


def simplified(schema: Any) -> Any:
    """A JSON schema without ``pattern`` and ``format``, for grammar compilers that choke on them."""
    if isinstance(schema, dict):
        return {
            key: {name: simplified(value) for name, value in entry.items()}
            if key == "properties"
            else simplified(entry)
            for key, entry in schema.items()
            if key not in ("pattern", "format") or not isinstance(entry, str)
        }
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return [simplified(entry) for entry in schema]
    return schema
