"""Answers that are not plain: cut off, empty, refused, repeating (agent-core §1.14).

``ReplyJudge`` looks at one reply and says what comes next. It is pure: it counts, the loop acts. One judge serves one
iteration, so the bounds on everything it allows are per iteration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes.agent.loop_settings import LoopSettings
from hermes.agent.ports import ModelFinished, ResolvedModel
from hermes.agent.tool_arguments import CutArguments, read_arguments
from hermes.messages import Row, ToolCall
from hermes.records import dataclass

CONTINUE_PROMPT = (
    "[Your answer was cut off. Continue exactly where it ends, without repeating anything and without remarks.]"
)
NUDGE_PROMPT = "[The tool results are above. Go on with the task, or give your answer if it is done.]"
PREFILL_PROMPT = "[You have thought about it. Now give the answer itself.]"

DEFAULT_OUTPUT_LIMIT = 8_192
OUTPUT_CEILING = 32_768
SMALLEST_ROOM = 512
LARGE_PROMPT = 100_000
MOST_INCOMPLETE = 3


@dataclass(frozen=True, slots=True)
class Accept:
    """The reply stands: run its calls, or end with its text."""

    exit_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Continue:
    """The text was cut off: ask for the rest. ``rows`` go into the wire copy only."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class LargerLimit:
    """A tool call was cut off: ask again with room for it."""

    max_output_tokens: int
    attempt: int


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Nothing usable came. ``delay`` seconds first; ``rows`` go into the wire copy only."""

    why: str
    delay: float = 0.0
    rows: tuple[Row, ...] = ()
    no_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class UseEarlierText:
    """The answer had been given in the round before, beside calls that only kept house."""

    text: str


@dataclass(frozen=True, slots=True)
class FallBackOr:
    """Try the next model; if there is none, this is what comes next. ``keep``: the text so far is continued there."""

    reason: str
    otherwise: Verdict
    keep: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    error: str
    failure_reason: str
    exit_reason: str
    incomplete: bool = True


Verdict = Accept | Continue | LargerLimit | AskAgain | UseEarlierText | FallBackOr | GiveUp


@dataclass(frozen=True, slots=True)
class Situation:
    """What the judge must know besides the reply. ``said`` is the text so far, this piece included."""

    piece: str
    said: str
    calls: Sequence[ToolCall]
    prompt_tokens: int
    model: ResolvedModel
    output_limit: int | None
    tail_is_tool: bool
    earlier_text: str | None
    dropped: bool = False


class ReplyJudge:
    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        self._continuations = 0
        self._cut_calls = 0
        self._base: int | None = None
        self._only_reasoning = 0
        self._nudged = False
        self._prefills = 0
        self._empty = 0
        self._empty_shape: tuple[str, str | None] | None = None
        self._same_shape = 0
        self._incomplete = 0

    def judge(self, finished: ModelFinished, situation: Situation) -> Verdict:
        verdict = self._judge(finished, situation)
        if not finished.incomplete or isinstance(verdict, Accept | UseEarlierText):
            return verdict
        self._incomplete += 1
        if self._incomplete < MOST_INCOMPLETE:
            return verdict
        said = bool(situation.said.strip())
        if not said and not situation.calls:
            error = f"the provider gave {self._incomplete} incomplete answers in a row"
            verdict = GiveUp(error, "incomplete_response", "provider_error(incomplete_response)", incomplete=False)
        return FallBackOr("incomplete_response", verdict, keep=said and not situation.calls)

    def _judge(self, finished: ModelFinished, situation: Situation) -> Verdict:
        if finished.finish_reason == "content_filter" and not situation.calls:
            refusal = GiveUp(
                "the provider's content policy blocked the answer",
                "content_policy_blocked",
                "content_policy_blocked",
                incomplete=False,
            )
            return FallBackOr("content_policy_blocked", refusal)
        if situation.calls:
            return self._calls(finished, situation)
        if situation.said.strip() and is_cut(finished, situation):
            return self._cut_text(situation)
        # An answer that is called incomplete and holds nothing has not been thinking either.
        thought = bool(finished.reasoning.strip()) or not finished.incomplete
        if finished.finish_reason == "length" and not situation.said.strip() and thought:
            return self._only_thought(finished)
        if situation.piece.strip():
            return Accept()
        return self._nothing(finished, situation)

    # --- cut off -----------------------------------------------------------------------------------------------------

    def _calls(self, finished: ModelFinished, situation: Situation) -> Verdict:
        if not calls_cut(situation.calls, finished.finish_reason):
            return Accept()
        self._cut_calls += 1
        if self._cut_calls > self._settings.max_truncated_calls:
            return GiveUp("a tool call was cut off by the output limit again and again", "truncated", "truncated")
        base = self._base = self._base or (
            situation.output_limit or situation.model.max_output_tokens or DEFAULT_OUTPUT_LIMIT
        )
        ceiling = max(OUTPUT_CEILING, 2 * base)
        return LargerLimit(min(base * 2**self._cut_calls, ceiling), self._cut_calls)

    def _cut_text(self, situation: Situation) -> Verdict:
        room = situation.model.context_length - situation.prompt_tokens - len(situation.said) // 4
        if repeats_itself(situation.said):
            return GiveUp("the answer began to repeat itself and was cut", "truncated", "truncated")
        if not situation.piece.strip() and not situation.dropped:
            self._only_reasoning += 1
        if self._only_reasoning >= 2 or self._continuations >= self._settings.max_continuations:
            return GiveUp("the answer was cut off and could not be completed", "truncated", "truncated")
        if room < SMALLEST_ROOM:
            return GiveUp("the answer was cut off: the context window is full", "truncated", "truncated")
        self._continuations += 1
        return Continue(continuation(situation.said))

    def _only_thought(self, finished: ModelFinished) -> Verdict:
        self._only_reasoning += 1
        if self._only_reasoning >= 2:
            return GiveUp("the output limit was used up by reasoning", "truncated", "truncated")
        return AskAgain("the output limit was used up by reasoning; asking again without it", no_reasoning=True)

    # --- empty -------------------------------------------------------------------------------------------------------

    def _nothing(self, finished: ModelFinished, situation: Situation) -> Verdict:
        if situation.said.strip():
            return Accept("partial_stream_recovery")
        if situation.earlier_text:
            return UseEarlierText(situation.earlier_text)
        if situation.tail_is_tool and not self._nudged:
            self._nudged = True
            return AskAgain("the answer was empty; asking to go on", rows=(Row("user", NUDGE_PROMPT),))
        reasoning = finished.reasoning.strip()
        if reasoning and self._prefills < 2:
            self._prefills += 1
            rows = (Row("assistant", reasoning), Row("user", PREFILL_PROMPT))
            return AskAgain("there was reasoning but no answer; asking for the answer", rows=rows)
        return self._retry_empty(finished, situation)

    def _retry_empty(self, finished: ModelFinished, situation: Situation) -> Verdict:
        shape = (finished.reasoning, finished.finish_reason)
        self._same_shape = self._same_shape + 1 if shape == self._empty_shape else 1
        self._empty_shape = shape
        allowed = 1 if situation.prompt_tokens > LARGE_PROMPT else self._settings.max_empty_retries
        if self._empty < allowed and self._same_shape < 3:
            self._empty += 1
            delay = min(5.0 * 2 ** (self._empty - 1), 60.0)
            return AskAgain(f"the answer was empty; trying again ({self._empty}/{allowed})", delay=delay)
        self._empty = 0
        self._same_shape = 0
        end = GiveUp("the model gave no answer", "empty_response", "empty_response_exhausted")
        return FallBackOr("empty_response", end)


def continuation(said: str) -> tuple[Row, ...]:
    """What asks for the rest of a text, for the wire copy."""
    return Row("assistant", said), Row("user", CONTINUE_PROMPT)


def calls_cut(calls: Sequence[ToolCall], finish_reason: str | None) -> bool:
    """True if the output limit or a broken stream cut a call: it must not be run, nor guessed at (TL-18)."""
    limited = finish_reason in ("length", None)
    for call in calls:
        read = read_arguments(call.arguments)
        if isinstance(read, CutArguments):
            return True
        if limited and not _parses(call.arguments):
            return True
    return False


def _parses(text: str) -> bool:
    """Parses as written: with a cut possible, neither repair nor an empty text is trusted."""
    read = read_arguments(text)
    return bool(text.strip()) and getattr(read, "text", None) == text and not isinstance(read, CutArguments)


def is_cut(finished: ModelFinished, situation: Situation) -> bool:
    """Cut by the limit, by the connection, or by a local model that says ``stop`` in mid-word at its limit."""
    if situation.dropped or finished.finish_reason in ("length", None):
        return True
    if repeats_itself(situation.piece):
        return True
    limit = situation.output_limit or situation.model.max_output_tokens
    usage = finished.usage
    if limit is None or usage is None or usage.estimated:
        return False
    return usage.output_tokens >= 0.95 * limit and situation.said[-1:].isalnum()


def repeats_itself(text: str, *, least: int = 8, chars: int = 400) -> bool:
    """True if the text ends with one block, said at least eight times in a row over at least 400 characters."""
    tail = text[-4_000:]
    for length in range(4, len(tail) // least + 1):
        block = tail[-length:]
        if tail[-2 * length : -length] != block:
            continue
        times = max(least, -(-chars // length))
        # A rule of dashes or an empty table is no loop: the block must hold words.
        if len(tail) >= times * length and tail.endswith(block * times) and re.search(r"\w", block):
            return True
    return False
