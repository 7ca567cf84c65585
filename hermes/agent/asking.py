"""One iteration's question to the model, until there is an answer that can be used.

Builds the request from the wire copy, calls through the retry engine, lets ``ReplyJudge`` look at each reply and does
what it says. Continuations, nudges and prefills live in the wire copy only; nothing of them is ever stored (TL-28).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from hermes.agent.ports import ModelFinished, ModelRequest, Redirected, ResolvedModel, ToolSpec, TurnPort
from hermes.agent.progress import TurnProgress
from hermes.agent.prompt_identity import with_model
from hermes.agent.responses import (
    Accept,
    AskAgain,
    Continue,
    FallBackOr,
    GiveUp,
    LargerLimit,
    ReplyJudge,
    Situation,
    UseEarlierText,
    continuation,
)
from hermes.agent.retries import CallFailed, Compress, ModelCaller, Reply, simplified
from hermes.agent.streaming import OverlapGate, ReplayGate
from hermes.agent.tokens import text_tokens
from hermes.agent.turn_setup import TurnSetup
from hermes.events import ReasoningAvailable, StatusUpdate, UsageUpdated
from hermes.messages import Row, ToolCall
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class Asking:
    """How the next request differs from the plain one. ``rows`` go behind the history."""

    rows: tuple[Row, ...] = ()
    output_limit: int | None = None
    no_reasoning: bool = False
    tool_choice: Literal["auto", "none"] = "auto"
    overlap_with: str = ""
    shown: str = ""

    def gate(self) -> ReplayGate | OverlapGate | None:
        if self.shown:
            return ReplayGate(self.shown)
        return OverlapGate(self.overlap_with) if self.overlap_with else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A usable answer. ``text`` is whole, whatever number of requests it took."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    finished: ModelFinished
    exit_reason: str | None
    streamed: bool
    issuer: str

    def row(self, calls: Sequence[ToolCall], now: float) -> Row:
        finished = self.finished
        signed = finished.reasoning_details is not None or finished.replay_items is not None
        return Row(
            "assistant",
            self.text or None,
            now,
            tool_calls=tuple(calls),
            reasoning=self.reasoning or None,
            reasoning_content=finished.reasoning_content,
            reasoning_details=finished.reasoning_details,
            replay_items=finished.replay_items,
            finish_reason=finished.finish_reason,
            # Opaque items are only valid for the endpoint that signed them.
            display_metadata={"issuer": self.issuer} if signed else None,
        )


AskEnd = Answer | Redirected | CallFailed | GiveUp | UseEarlierText


class Asker:
    """Asks for one turn. ``separate`` is true while the next shown text must begin with a blank line."""

    def __init__(self, port: TurnPort, setup: TurnSetup, caller: ModelCaller) -> None:
        self._port = port
        self._setup = setup
        self._caller = caller
        self._progress: TurnProgress = setup.progress
        self._specs: tuple[ToolSpec, ...] = setup.tools.specs()
        # A history given with the prompt stands for the stored one: of that, only this turn's rows are sent.
        self._own_rows_from = max(len(port.rows) - 1, 0) if setup.prompt.history is not None else 0
        self._memory = setup.row_memory
        self._spec_tokens = self._memory.spec_tokens(self._specs)
        self.system = setup.system
        self.separate = False

    async def ask(self, compress: Compress, *, earlier_text: str | None, asking: Asking | None = None) -> AskEnd:
        """Ask until there is something to do. The unfinished text is in ``progress`` all the time."""
        asking = asking or Asking()
        judge = ReplyJudge(self._setup.settings)
        self._progress.clear_partial()
        while True:
            start = len(self._progress.text_parts)
            build = partial(self.request, asking)
            end = await self._caller.call(build, asking.gate, compress, separate=self.separate)
            if not isinstance(end, Reply):
                return end
            self.separate = self.separate and not end.sink.showed
            self._note_usage(end.finished)
            situation = self._situation(end, start, asking, earlier_text)
            verdict = judge.judge(end.finished, situation)
            while isinstance(verdict, FallBackOr):
                if self._caller.fall_back(verdict.reason or "fallback"):
                    break
                verdict = verdict.otherwise
            match verdict:
                case Accept(exit_reason=reason):
                    return self._accept(end, situation, reason)
                case UseEarlierText() | GiveUp():
                    return verdict
                case FallBackOr(keep=True):
                    asking = Asking(rows=continuation(situation.said), overlap_with=situation.said)
                    judge = ReplyJudge(self._setup.settings)
                case FallBackOr():
                    asking = Asking(shown=(end.sink.shown_since(start) or asking.shown) if situation.calls else "")
                    del self._progress.text_parts[start:]
                    judge = ReplyJudge(self._setup.settings)
                case Continue(rows=rows):
                    self._status("the answer was cut off; asking for the rest")
                    asking = replace(asking, rows=rows, overlap_with=situation.said, shown="")
                case LargerLimit(max_output_tokens=limit, attempt=attempt):
                    self._status(f"a tool call was cut off; asking again with room for {limit} tokens ({attempt})")
                    shown = end.sink.shown_since(start) or asking.shown
                    del self._progress.text_parts[start:]
                    asking = replace(asking, output_limit=limit, shown=shown)
                case AskAgain():
                    asking = await self._again(verdict, start, asking)

    async def _again(self, verdict: AskAgain, start: int, asking: Asking) -> Asking:
        del self._progress.text_parts[start:]
        self._progress.reasoning_parts.clear()
        self._status(verdict.why, delay=verdict.delay)
        if verdict.delay:
            await self._caller.pause(verdict.delay, why=verdict.why)
        return replace(asking, rows=verdict.rows, no_reasoning=verdict.no_reasoning)

    def _situation(self, reply: Reply, start: int, asking: Asking, earlier_text: str | None) -> Situation:
        parts = self._progress.text_parts
        rows = self._port.rows
        # A request that forbade calls gets none, whatever the model wrote.
        calls = () if asking.tool_choice == "none" else reply.finished.tool_calls
        return Situation(
            piece="".join(parts[start:]),
            said="".join(parts),
            calls=calls,
            prompt_tokens=reply.prompt_tokens,
            model=self._caller.resolved,
            output_limit=asking.output_limit or self._setup.settings.max_output_tokens,
            tail_is_tool=bool(rows) and rows[-1].role == "tool",
            earlier_text=earlier_text,
            dropped=reply.dropped is not None,
        )

    def _accept(self, reply: Reply, situation: Situation, exit_reason: str | None) -> Answer:
        progress = self._progress
        reasoning = progress.partial_reasoning
        if reasoning:
            progress.last_reasoning = reasoning
            self._port.emit(ReasoningAvailable(self._port.turn_id, reasoning))
        sink = reply.sink
        return Answer(
            text=situation.said,
            reasoning=reasoning,
            calls=tuple(situation.calls),
            finished=reply.finished,
            exit_reason=exit_reason,
            streamed=not sink.kept_back and (sink.showed or len(situation.said) > len(situation.piece)),
            issuer=issuer_of(self._caller.resolved),
        )

    # --- the request -------------------------------------------------------------------------------------------------

    def context_rows(self) -> Sequence[Row]:
        rows = self._port.rows
        history = self._setup.prompt.history
        return rows if history is None else [*history, *rows[self._own_rows_from :]]

    def size(self) -> int:
        """About how many tokens the next plain request has: from the provider's own count on, if it has given one."""
        rows = self.context_rows()
        estimate = sum(map(text_tokens, self.system)) + self._spec_tokens + self._memory.tokens(rows)
        return max(estimate, self._memory.counted(rows) or 0)

    def request(self, asking: Asking, resolved: ResolvedModel) -> ModelRequest:
        setup, repairs = self._setup, self._caller.repairs
        vision = {"native": True, "text": False}.get(setup.settings.image_input, resolved.vision)
        options = replace(repairs.wire, vision=vision, issuer=issuer_of(resolved))
        specs = self._specs
        if repairs.simplify_schemas:
            specs = tuple(replace(spec, parameters=simplified(spec.parameters)) for spec in specs)
        chosen: dict[str, Any] = dict(setup.prompt.model_options or {})
        effort = chosen.get("reasoning_effort") or setup.settings.reasoning_effort
        if asking.no_reasoning:
            effort = "none"
        elif repairs.require_reasoning and effort in (None, "none"):
            effort = "low"
        limit = asking.output_limit or chosen.get("max_output_tokens") or setup.settings.max_output_tokens
        wire = self._memory.wire(self.context_rows(), options, asking.rows)
        return ModelRequest(
            request_id=f"{self._port.turn_id}:api:{self._progress.api_calls + 1}",
            model=resolved.model,
            messages=wire.rows,
            system=self._system_for(resolved),
            tools=specs,
            max_output_tokens=limit,
            reasoning_effort=effort,
            temperature=chosen.get("temperature", setup.settings.temperature),
            tool_choice=asking.tool_choice if specs else "auto",
            session_key=self._port.session_key,
            extra_body=setup.settings.extra_body,
            message_tokens=wire.tokens,
            tool_tokens=self._spec_tokens if specs is self._specs else None,
            settled=wire.settled,
        )

    def _system_for(self, resolved: ResolvedModel) -> tuple[str, ...]:
        system = self.system
        if resolved is not self._setup.resolved:
            system = with_model(system, resolved.model, resolved.provider)
        extra = self._setup.prompt.system_extra
        return (*system, extra) if extra else system

    # --- events ------------------------------------------------------------------------------------------------------

    def _note_usage(self, finished: ModelFinished) -> None:
        progress = self._progress
        if finished.usage is not None and not finished.usage.estimated and finished.usage.prompt_tokens:
            self._memory.anchor(self.context_rows(), finished.usage.prompt_tokens)
        self._port.emit(
            UsageUpdated(
                self._port.turn_id,
                progress.usage,
                context_used=progress.last_prompt_tokens,
                context_max=self._caller.resolved.context_length,
            )
        )

    def _status(self, text: str, *, delay: float = 0.0) -> None:
        details = {"class": "abnormal_response", "delay_s": delay, "provider": self._caller.resolved.provider}
        self._port.emit(StatusUpdate(self._port.turn_id, "status", text, details))


def issuer_of(resolved: ResolvedModel) -> str:
    return f"{resolved.api_mode}:{resolved.provider}"
