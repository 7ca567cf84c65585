"""A turn port without a tree, and a provider that says what a test wrote down: the loop's own testing ground.

Nothing here waits. Every request is checked against the strict grammar of the wire before it is answered, so a test
fails at the request that a real service would have refused.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hermes.agent.loop import LoopEnd, TurnSetup, run_turn
from hermes.agent.loop_settings import LoopSettings
from hermes.agent.ports import (
    DeltaKind,
    DeltaSink,
    ModelFinished,
    ModelRequest,
    ParallelClass,
    PlannedCall,
    Provider,
    Redirected,
    ResolvedModel,
    ToolContext,
    ToolFlags,
    ToolOutput,
    ToolSpec,
)
from hermes.agent.progress import TurnProgress
from hermes.errors import ProviderError, StoreUnavailable
from hermes.events import SessionEvent, TextDelta, ToolEnded, ToolStarted
from hermes.messages import Content, ImagePart, Prompt, Row, ToolCall, ToolResult
from hermes.outcomes import Usage
from hermes.testing.strict import check_request
from hermes.testing.wire_frames import WireFormat

T = TypeVar("T")

MODEL = ResolvedModel("model-1", "provider-1", context_length=200_000)


class Stopped(BaseException):
    """Stands for the cancellation of a turn."""


@dataclass
class Say:
    """One answer: deltas first, then how the call ended."""

    text: str = ""
    calls: Sequence[ToolCall] = ()
    finish: str | None = ""
    reasoning: str = ""
    deltas: Sequence[str] | None = None
    usage: Usage | None = None
    error: ProviderError | None = None
    redirect: str | None = None
    stop: bool = False
    streamed: bool = True
    refusal: str | None = None
    meanwhile: Callable[[], object] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def call(name: str, arguments: Mapping[str, Any] | str | None = None, call_id: str = "") -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(call_id, name, text)


def failing(error_class: str, **details: Any) -> Say:
    return Say(error=ProviderError(f"it failed: {error_class}", error_class=error_class, **details))


class ScriptedModel:
    """Provider and gateway in one. Steps are used up in order; asking for more is an error of the test."""

    name = "scripted"
    base_url = "http://model.test"

    def __init__(self, *steps: Say, fallbacks: Sequence[ResolvedModel] = (), tail: Say | None = None) -> None:
        self.steps = list(steps)
        self.tail = tail
        self.requests: list[ModelRequest] = []
        self._fallbacks = fallbacks

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        raise AssertionError("the port plays the steps itself")

    async def aclose(self) -> None: ...

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel:
        return MODEL

    def provider_for(self, resolved: ResolvedModel) -> Provider:
        return self

    def fallbacks(self) -> Sequence[ResolvedModel]:
        return self._fallbacks

    def auxiliary(self, current: ResolvedModel) -> ResolvedModel:
        return current

    def default_provider(self, model: str | None = None) -> str:
        return "custom"

    def has_credentials(self, provider: str) -> bool:
        return True

    def authenticated_providers(self) -> frozenset[str]:
        return frozenset({"custom"})

    def next_step(self, request: ModelRequest) -> Say:
        self.requests.append(request)
        check_request(WireFormat.CHAT, chat_body(request))
        if self.steps:
            return self.steps.pop(0)
        assert self.tail is not None, f"unexpected request {len(self.requests)}"
        return self.tail


@dataclass
class FakeTool:
    spec: ToolSpec
    flags: ToolFlags = ToolFlags()
    result: Callable[[Mapping[str, Any]], ToolOutput] = lambda arguments: ToolOutput('{"ok": true}')

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str:
        return self.result(arguments)

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return self.spec.name

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return [arguments["path"]] if "path" in arguments else []


def tool(
    name: str,
    parallel: ParallelClass = ParallelClass.BARRIER,
    *,
    properties: Mapping[str, Any] | None = None,
    required: Sequence[str] = (),
    result: Callable[[Mapping[str, Any]], ToolOutput] | None = None,
    **flags: Any,
) -> FakeTool:
    schema = {
        "type": "object",
        "properties": dict(properties if properties is not None else {"path": {"type": "string"}}),
        "required": list(required),
    }
    made = FakeTool(ToolSpec(name, f"the tool {name}", schema), ToolFlags(parallel=parallel, **flags))
    if result is not None:
        made.result = result
    return made


READ = tool("read_file", ParallelClass.PATH_READ, read_only=True)
WRITE = tool("write_file", ParallelClass.PATH_WRITE)
TERMINAL = tool("terminal", properties={"command": {"type": "string"}})
TODO = tool("todo_list", properties={})


class FakeTools:
    def __init__(self, *tools: FakeTool) -> None:
        self.tools = tools or (READ, WRITE, TERMINAL, TODO)

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(one.spec for one in self.tools)

    def find(self, name: str) -> FakeTool | None:
        plain = name.lower().replace("-", "_")
        return next((one for one in self.tools if one.spec.name == plain), None)

    def names(self) -> Sequence[str]:
        return [one.spec.name for one in self.tools]


class FakePort:
    """A ``TurnPort`` in memory. ``stop_at`` raises ``Stopped`` at the n-th wait, which is what a cancel looks like."""

    turn_id = "s1:t1:00000001"
    session_key = "s1"

    def __init__(self, model: ScriptedModel, rows: Sequence[Row] = ()) -> None:
        self.model = model
        self._rows: list[Row] = []
        self.events: list[SessionEvent] = []
        self.pauses: list[float] = []
        self.steers: list[str] = []
        self.closing = False
        self.clock = 0.0
        self.redirect_waiting: str | None = None
        self.progress = TurnProgress()
        self.cuts = 0
        self.store_fails_after: int | None = None
        self.segments: list[list[str]] = []
        self.ran: list[str] = []
        self.limits_checked: list[tuple[Usage, int]] = []
        self.stored_usage = Usage()
        self.stop_at: int | None = None
        self.waits = 0
        self.during_tools: Callable[[ToolCall], object] = lambda call: None
        for row in rows:
            self._append(row)

    @property
    def rows(self) -> Sequence[Row]:
        return tuple(self._rows)

    def _append(self, row: Row) -> Row:
        stored = row.with_id(len(self._rows) + 1 if row.row_id is None else row.row_id)
        self._rows.append(stored)
        return stored

    def _wait(self) -> None:
        self.waits += 1
        if self.stop_at is not None and self.waits >= self.stop_at:
            raise Stopped

    def emit(self, event: SessionEvent) -> None:
        self.events.append(event)

    async def store(self, rows: Sequence[Row], *, usage: Usage | None = None) -> tuple[Row, ...]:
        self._wait()
        if self.store_fails_after is not None:
            if self.store_fails_after == 0:
                raise StoreUnavailable("the disk is full", cause="full")
            self.store_fails_after -= 1
        self.stored_usage = self.stored_usage.plus(usage or Usage())
        next_id = max((row.row_id or 0 for row in self._rows), default=0) + 1
        return tuple(self._append(replace(row, row_id=next_id + index)) for index, row in enumerate(rows))

    async def replace_with_summary(self, summarized_ids: Sequence[int], summary_rows: Sequence[Row]) -> None:
        self._wait()
        first = next(index for index, row in enumerate(self._rows) if row.row_id in set(summarized_ids))
        kept = [row for row in self._rows if row.row_id not in set(summarized_ids)]
        kept[first:first] = [row.with_id(1000 + number) for number, row in enumerate(summary_rows)]
        self._rows = kept

    async def shorten_rows(self, contents: Mapping[int, Content]) -> None:
        self._wait()
        self._rows = [
            row if row.row_id not in contents else replace(row, api_content=contents[row.row_id]) for row in self._rows
        ]

    async def call_model(
        self, provider: Provider, request: ModelRequest, on_delta: DeltaSink
    ) -> ModelFinished | Redirected:
        self._wait()
        if self.redirect_waiting is not None:
            text, self.redirect_waiting = self.redirect_waiting, None
            return Redirected(text, "", "")
        step = self.model.next_step(request)
        if step.streamed:
            self._stream(step, on_delta)
        if step.meanwhile is not None:
            step.meanwhile()
        if step.stop:
            raise Stopped
        if step.redirect is not None:
            return Redirected(step.redirect, step.text, step.reasoning)
        if step.error is not None:
            raise step.error
        finish = step.finish if step.finish != "" else ("tool_calls" if step.calls else "stop")
        return ModelFinished(
            step.text,
            step.reasoning,
            tuple(step.calls),
            finish,
            step.usage,
            refusal=step.refusal,
            **step.extra,
        )

    def _stream(self, step: Say, on_delta: DeltaSink) -> None:
        if step.reasoning:
            on_delta(DeltaKind.REASONING, step.reasoning)
        for delta in step.deltas if step.deltas is not None else _pieces(step.text):
            on_delta(DeltaKind.TEXT, delta)
        for one in step.calls:
            on_delta(DeltaKind.TOOL_NAME, one.name)

    def cut_answer(self) -> None:
        self.cuts += 1

    async def run_tools(
        self,
        segments: Sequence[Sequence[PlannedCall]],
        finish: Callable[[ToolResult], ToolResult],
        prepare: Callable[[ToolResult], Awaitable[None]] | None = None,
    ) -> Sequence[ToolResult]:
        self.segments += [[one.call.name for one in segment] for segment in segments]
        results: list[ToolResult] = []
        for planned in (one for segment in segments for one in segment):
            self._wait()
            self.emit(ToolStarted(self.turn_id, planned.call.id, planned.call.name, {}, ""))
            self.during_tools(planned.call)
            result = await self._run(planned)
            if prepare is not None:
                await prepare(result)
            result = finish(result)
            row = Row("tool", result.content, tool_call_id=result.call_id, tool_name=result.name)
            await self.store([row])
            self.emit(ToolEnded(self.turn_id, result.call_id, result.name, {}, result, 0.0))
            results.append(result)
        return results

    async def _run(self, planned: PlannedCall) -> ToolResult:
        if planned.error is not None or planned.tool is None:
            assert planned.error is not None
            return planned.error
        self.ran.append(planned.call.name)
        output = await planned.tool.run(None, planned.arguments)  # type: ignore[arg-type]
        assert isinstance(output, ToolOutput)
        return ToolResult(
            planned.call.id, planned.tool.spec.name, output.content, is_error=output.is_error, status=output.status
        )

    async def attempt(self, step: Callable[[], Awaitable[T]]) -> T | Exception:
        try:
            return await step()
        except Exception as error:
            return error

    async def pause(self, seconds: float, *, why: str) -> None:
        self._wait()
        self.pauses.append(seconds)

    def spent(self) -> Usage:
        return self.progress.usage

    def steer(self, text: str) -> bool:
        if self.closing:
            return False
        self.steers.append(text)
        return True

    def take_steers(self) -> str | None:
        text = "\n".join(self.steers) or None
        self.steers.clear()
        return text

    def give_back_steers(self, text: str) -> None:
        self.steers.insert(0, text)

    def has_redirect(self) -> bool:
        return self.redirect_waiting is not None

    def begin_closing(self) -> str | None:
        self.closing = True
        return self.take_steers()

    def now(self) -> float:
        return 1_000.0

    def monotonic(self) -> float:
        return self.clock

    def random(self) -> float:
        return 0.5

    async def check_limits(self, usage: Usage, iterations: int) -> None:
        self.limits_checked.append((usage, iterations))

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    def named(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]


def _pieces(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


@dataclass
class Played:
    end: LoopEnd
    port: FakePort
    model: ScriptedModel
    setup: TurnSetup

    @property
    def rows(self) -> Sequence[Row]:
        return self.port.rows


def make(
    *steps: Say,
    history: Sequence[Row] = (),
    tools: FakeTools | None = None,
    settings: LoopSettings | None = None,
    prompt: Prompt | None = None,
    tail: Say | None = None,
    fallbacks: Sequence[ResolvedModel] = (),
    resolved: ResolvedModel = MODEL,
    **setup: Any,
) -> tuple[FakePort, TurnSetup]:
    model = ScriptedModel(*steps, fallbacks=fallbacks, tail=tail)
    prompt = prompt or Prompt("do it")
    port = FakePort(model, [*history, Row("user", prompt.content)])
    made = TurnSetup(
        models=model,
        resolved=resolved,
        tools=tools or FakeTools(),
        prompt=prompt,
        system=("You are a test.", "Model: model-1\nProvider: provider-1"),
        settings=settings or LoopSettings(),
        **setup,
    )
    port.progress = made.progress
    return port, made


async def finish(port: FakePort, setup: TurnSetup) -> Played:
    end = await run_turn(port, setup)
    assert_stored_grammar(port.rows)
    return Played(end, port, port.model, setup)


async def play(*steps: Say, **options: Any) -> Played:
    port, setup = make(*steps, **options)
    return await finish(port, setup)


def assert_stored_grammar(rows: Sequence[Row], *, open_end: bool = False) -> None:
    """The grammar of stored histories (TL-5)."""
    waiting: list[str] = []
    previous = ""
    for row in rows:
        if row.role == "tool":
            assert row.tool_call_id in waiting, f"result without a call: {row}"
            waiting.remove(row.tool_call_id)
        else:
            assert not waiting, f"calls without a result before {row}"
            assert not (row.role == previous == "assistant"), f"two assistant rows in a row: {row}"
            waiting = [one.id for one in row.tool_calls]
            assert len(set(waiting)) == len(waiting)
        previous = row.role
    assert not waiting
    if not open_end:
        assert rows[-1].role == "assistant" and not rows[-1].tool_calls, f"the turn is not closed: {rows[-1]}"


# --- the wire --------------------------------------------------------------------------------------------------------


def chat_body(request: ModelRequest) -> dict[str, Any]:
    """The request as a chat completion body, with nothing hidden."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "\n\n".join(request.system)}]
    messages += [chat_message(row) for row in request.messages]
    return {"model": request.model, "messages": messages}


def chat_message(row: Row) -> dict[str, Any]:
    message: dict[str, Any] = {"role": row.role, "content": _content(row.content)}
    if row.tool_calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in row.tool_calls
        ]
    if row.role == "tool":
        message["tool_call_id"] = row.tool_call_id
    return message


def _content(content: Content) -> Any:
    if not isinstance(content, tuple):
        return content
    return [
        {"type": "image_url", "image_url": {"url": part.url or part.data}}
        if isinstance(part, ImagePart)
        else {"type": "text", "text": part.text}
        for part in content
    ]


def wire_bytes(request: ModelRequest) -> bytes:
    """Serialized so that "is a prefix of" means what it means for a provider's cache."""
    return "\n".join(json.dumps(message, sort_keys=True) for message in chat_body(request)["messages"]).encode()
