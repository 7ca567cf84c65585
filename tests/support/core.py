"""A whole server core without surfaces: memory store, scripted model, plain tools, counted ids, a fixed clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from hermes.agent.ports import (
    DeltaKind,
    DeltaSink,
    LeaseOwner,
    ModelFinished,
    ModelRequest,
    ParallelClass,
    Provider,
    ResolvedModel,
    Tool,
    ToolContext,
    ToolFlags,
    ToolOutput,
    ToolSpec,
)
from hermes.agent.store.memory import MemoryStore
from hermes.events import ServerEvent, SessionEvent, event_cost
from hermes.messages import Question, ToolCall
from hermes.nurseries.event_log import EventLog
from hermes.nurseries.ids import counting_ids
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import LiveTree
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.outcomes import Usage
from hermes.settings import Settings

Reply = Callable[[ModelRequest, DeltaSink], Awaitable[ModelFinished]]


def say(*pieces: str, calls: Sequence[ToolCall] = (), pause: float = 0.0) -> Reply:
    """A model reply: text in pieces (with a pause before each), then tool calls."""

    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        for piece in pieces:
            await trio.sleep(pause)
            on_delta(DeltaKind.TEXT, piece)
        await trio.lowlevel.checkpoint()
        for call in calls:
            on_delta(DeltaKind.TOOL_NAME, call.name)
        return ModelFinished(
            text="".join(pieces),
            tool_calls=tuple(calls),
            finish_reason="tool_calls" if calls else "stop",
            usage=Usage(input_tokens=10, output_tokens=5, calls=1),
        )

    return reply


def hang() -> Reply:
    """A model that accepts the request and never says anything."""

    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        await trio.sleep_forever()
        raise AssertionError

    return reply


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


class ScriptedModel:
    """A Provider that answers from a list of replies; after the last one it says "done"."""

    name = "scripted"
    base_url = ""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.open = 0

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        self.requests.append(request)
        reply = self.replies.pop(0) if self.replies else say("done")
        self.open += 1
        try:
            return await reply(request, on_delta)
        finally:
            self.open -= 1

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class OneModel:
    """A ModelGateway with a single model."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel:
        await trio.lowlevel.checkpoint()
        return ResolvedModel(model or "scripted-1", provider or "custom", context_length=1_000_000)

    def provider_for(self, resolved: ResolvedModel) -> Provider:
        return self.provider

    def fallbacks(self) -> Sequence[ResolvedModel]:
        return ()

    def auxiliary(self, current: ResolvedModel) -> ResolvedModel:
        return current

    def default_provider(self, model: str | None = None) -> str:
        return "custom"

    def has_credentials(self, provider: str) -> bool:
        return True

    def authenticated_providers(self) -> frozenset[str]:
        return frozenset({"custom"})


@dataclass
class PlainTool:
    """A tool out of a function."""

    name: str
    run_it: Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolOutput | str]]
    parallel: ParallelClass = ParallelClass.FREE
    spec: ToolSpec = field(init=False)
    flags: ToolFlags = field(init=False)

    def __post_init__(self) -> None:
        self.spec = ToolSpec(self.name, f"the tool {self.name}", {"type": "object", "additionalProperties": True})
        self.flags = ToolFlags(parallel=self.parallel, read_only=self.parallel is ParallelClass.FREE)

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str:
        return await self.run_it(ctx, arguments)

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return self.name

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return ()


async def _nap(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    await trio.sleep(float(arguments.get("seconds", 1)))
    return "rested"


async def _ask(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    answer = await ctx.ask(
        Question("approval", {"command": "rm -rf x"}, choices=("once", "session", "always", "deny"), timeout=300)
    )
    return repr(answer)


async def _fail(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("broken tool")


def plain_tools() -> list[PlainTool]:
    return [
        PlainTool("nap", _nap),
        PlainTool("ask", _ask, ParallelClass.BARRIER),
        PlainTool("fail", _fail),
    ]


class PlainToolSet:
    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def names(self) -> Sequence[str]:
        return tuple(self._tools)


def clock() -> float:
    """Wall clock of a test: the virtual clock, counted from a fixed day."""
    return 1_780_000_000.0 + trio.current_time()


def make_services(
    *replies: Reply,
    home: Path = Path("."),
    tools: Sequence[Tool] = (),
    settings: Settings | None = None,
    store: Any = None,
    model: ScriptedModel | None = None,
) -> tuple[Services, ScriptedModel]:
    chosen = settings or Settings()
    model = model or ScriptedModel(*replies)
    all_tools = [*plain_tools(), *tools]

    async def build_prompt(session: Session, **_: Any) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return ("You are a test.",)

    services = Services(
        store=store or MemoryStore(now=clock),
        models=OneModel(model),
        settings=lambda: chosen,
        home=home,
        supervisor=ProcessSupervisor(owner_tag(str(home)), kill_grace=chosen.limits.kill_grace),
        ids=counting_ids(),
        clock=clock,
        random=lambda: 0.5,
        owner=LeaseOwner("test", 1, 1, "nonce"),
        tree=LiveTree(),
        build_tools=lambda session, **_: PlainToolSet([*all_tools, *session.extra_tools]),
        build_prompt=build_prompt,
        announce=EventLog[ServerEvent](cost=event_cost, clock=clock, max_events=1024),
    )
    return services, model


@asynccontextmanager
async def running_tree(services: Services) -> AsyncIterator[ServerTree]:
    """A ServerTree with its registry running; everything is cancelled at the end."""
    tree = ServerTree(services)
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.registry.run)
        yield tree
        nursery.cancel_scope.cancel()


def events_of(session: Session, after: int = 0) -> list[SessionEvent]:
    return [entry.event for entry in session.log.since(after)[0]]
