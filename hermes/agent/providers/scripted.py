"""A provider that says what it is told: typed steps, no network, no clock of its own.

Waiting is injected, so that the same script runs in a test without time and in a demonstration at a visible pace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator

from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest
from hermes.errors import ProviderError
from hermes.messages import ToolCall
from hermes.outcomes import Usage
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; ``arguments`` is sent exactly as it stands, also if it is broken JSON."""

    name: str
    arguments: str = "{}"
    id: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    text: str


@dataclass(frozen=True, slots=True)
class Delay:
    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing more until the injected wait ends, or for ever."""


@dataclass(frozen=True, slots=True)
class Fail:
    error: ProviderError


@dataclass(frozen=True, slots=True)
class Finish:
    """How the answer ends. Without one it ends with the natural reason. ``reason`` None: the stream just closes."""

    reason: str | None = "stop"
    usage: Usage | None = None


Step = Text | Reasoning | Call | Refusal | Delay | Hang | Fail | Finish
Answer = Iterable[Step]
AnswerSource = Callable[[ModelRequest], Answer]


class ScriptedProvider:
    """Gives one answer per call: the next of ``answers``, or what ``answers(request)`` gives.

    ``requests`` holds every request, in order. A call beyond the script raises ``ProviderError`` of class ``unknown``.
    """

    def __init__(
        self,
        answers: Iterable[Answer] | AnswerSource,
        *,
        sleep: Callable[[float], Awaitable[None]],
        hang: Callable[[], Awaitable[None]] | None = None,
        name: str = "scripted",
        base_url: str = "",
    ) -> None:
        self.name = name
        self.base_url = base_url
        self.requests: list[ModelRequest] = []
        self.cancelled_calls = 0
        self._source: AnswerSource | None = answers if callable(answers) else None
        self._answers: Iterator[Answer] = iter(()) if callable(answers) else iter(answers)
        self._sleep = sleep
        self._hang = hang

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        self.requests.append(request)
        answer = self._source(request) if self._source is not None else next(self._answers, None)
        if answer is None:
            raise ProviderError("the script has no further answer", error_class="unknown", provider=self.name)
        ended = False
        try:
            finished = await self._play(request, answer, on_delta)
            ended = True
        except ProviderError:
            ended = True
            raise
        finally:
            self.cancelled_calls += not ended
        return finished

    async def aclose(self) -> None:
        """Nothing to close."""

    async def _play(self, request: ModelRequest, answer: Answer, on_delta: DeltaSink) -> ModelFinished:
        # A call is a checkpoint even if the script never waits, as every real call is.
        await self._sleep(0)
        text: list[str] = []
        reasoning: list[str] = []
        refusal: list[str] = []
        calls: list[ToolCall] = []
        finish: Finish | None = None
        for step in answer:
            match step:
                case Text(text=piece):
                    text.append(piece)
                    on_delta(DeltaKind.TEXT, piece)
                case Reasoning(text=piece):
                    reasoning.append(piece)
                    on_delta(DeltaKind.REASONING, piece)
                case Call(name=name, arguments=arguments, id=call_id):
                    on_delta(DeltaKind.TOOL_NAME, name)
                    calls.append(ToolCall(call_id or f"call_{len(self.requests)}_{len(calls)}", name, arguments))
                case Refusal(text=piece):
                    refusal.append(piece)
                case Delay(seconds=seconds):
                    await self._sleep(seconds)
                case Hang():
                    await self._wait_for_ever()
                case Fail(error=error):
                    raise error
                case Finish():
                    finish = step
        natural = "content_filter" if refusal else "tool_calls" if calls else "stop"
        spoken = sum(map(len, (*text, *reasoning)))
        return ModelFinished(
            text="".join(text),
            reasoning="".join(reasoning),
            tool_calls=tuple(calls),
            finish_reason=natural if finish is None else finish.reason,
            usage=finish.usage if finish is not None and finish.usage is not None else estimated_usage(request, spoken),
            refusal="".join(refusal) or None,
            served_model=request.model,
        )

    async def _wait_for_ever(self) -> None:
        if self._hang is not None:
            await self._hang()
            return
        while True:
            await self._sleep(86_400)


def estimated_usage(request: ModelRequest, characters_out: int) -> Usage:
    characters_in = sum(map(len, request.system)) + sum(len(row.text) for row in request.messages)
    return Usage(
        input_tokens=max(1, characters_in // 4), output_tokens=max(1, characters_out // 4), calls=1, estimated=True
    )
