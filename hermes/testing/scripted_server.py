"""A whole server in a test, in one line: sessions, turns, questions and processes, with a model that follows a script.

    async with testing.server("hello there") as server:
        record = await server.say("hi")
        assert record.text == "hello there"

Nothing is stored on disk and nothing goes over a network. Time is Trio's: under ``trio.testing.MockClock`` a
conversation of an hour takes milliseconds. Ids are counted and the wall clock is fixed, so that two runs give the same
events, byte for byte.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from hermes.agent.ports import LeaseOwner, ParallelClass, Tool, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.ports import TranscriptStore as Store
from hermes.agent.store.memory import MemoryStore
from hermes.agent.tools.registry import Tools
from hermes.config import with_setting
from hermes.events import ServerEvent, SessionEvent, TextDelta, event_cost
from hermes.messages import Prompt, Row
from hermes.nurseries.event_log import EventLog
from hermes.nurseries.ids import counting_ids
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.nurseries.server_tree import ServerTree, open_tree
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.nurseries.turn import Turn
from hermes.outcomes import TurnRecord
from hermes.settings import Settings
from hermes.testing.scripted_model import AnyScript, ScriptedModel

FIRST_DAY = 1_767_225_600.0
"""Midnight of 2026-01-01, UTC: where the wall clock of a scripted server begins."""

PERMANENT = frozenset({"server", "sessions", "session", "surface"})

RunTool = Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolOutput | str]]


class FunctionTool:
    """A tool out of an async function ``(context, arguments) -> text``."""

    def __init__(
        self,
        name: str,
        run: RunTool,
        *,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        parallel: ParallelClass = ParallelClass.BARRIER,
    ) -> None:
        schema = parameters or {"type": "object", "additionalProperties": True}
        self.spec = ToolSpec(name, description or f"the tool {name}", schema)
        self.flags = ToolFlags(parallel=parallel)
        self._run = run

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str:
        return await self._run(ctx, arguments)

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return self.spec.name

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return ()


class ScriptedServer:
    """What ``server`` gives: the tree itself, the model, and short ways to what tests do all the time."""

    def __init__(self, tree: ServerTree, model: ScriptedModel) -> None:
        self.tree = tree
        self.model = model
        self._first: Session | None = None

    @property
    def services(self) -> Services:
        return self.tree.services

    def session(self, *, source: str = "test", cwd: str = "/", **options: Any) -> Session:
        """A new session; the options are those of ``SessionRegistry.create``."""
        return self.tree.registry.create(source=source, cwd=cwd, **options)

    async def start(self, text: str, session: Session | None = None, **options: Any) -> Turn:
        """Submit a prompt and wait until its turn runs or waits behind another; options are those of ``Prompt``."""
        submission = self._session(session).submit_nowait(Prompt(text, **options))
        await submission.wait_accepted()
        turn = await submission.wait_turn()
        if turn is None:
            raise LookupError(f"the prompt was {submission.status}, it has no turn of its own")
        return turn

    async def say(self, text: str, session: Session | None = None, **options: Any) -> TurnRecord:
        """Submit a prompt and wait for the end of its turn. Without a session: in the same one each time."""
        turn = await self.start(text, session, **options)
        return await turn.wait_ended()

    def events(self, session: Session | None = None, after: int = 0) -> list[SessionEvent]:
        """What the session has told so far."""
        entries, truncated = self._session(session).log.since(after)
        if truncated:
            raise LookupError("the first events are gone; raise limits.replay_events")
        return [entry.event for entry in entries]

    def session_rows(self, session: Session | None = None) -> Sequence[Row]:
        """The stored conversation."""
        return tuple(self._session(session).rows)

    def said(self, session: Session | None = None) -> str:
        """All the text that was streamed, of all turns."""
        return "".join(event.text for event in self.events(session) if isinstance(event, TextDelta))

    def leftovers(self) -> list[str]:
        """What a stop should have ended and has not: nodes of the live tree and model calls. Empty is good."""
        nodes: list[ReasonScope] = [node for node in self.tree.scope.walk() if node.kind not in PERMANENT]
        calls = ["an open model call"] * self.model.open_calls
        return [f"{node.kind} {node.name}" for node in nodes] + calls

    def _session(self, session: Session | None) -> Session:
        if session is not None:
            return session
        if self._first is None or self._first.closing:
            self._first = self.session()
        return self._first


@asynccontextmanager
async def server(
    script: AnyScript = (),
    *,
    tools: Sequence[Tool] = (),
    settings: Mapping[str, Any] | None = None,
    store: Store | None = None,
    home: Path = Path("."),
) -> AsyncIterator[ScriptedServer]:
    """A running server for the length of the block. Leaving it stops everything, in order.

    Parameters: ``script``, what the model says (a ``Script``, its text, a file, replies, or one line of text);
    ``tools``, all the tools there are; ``settings``, dotted keys and values, as ``{"limits.max_sessions": 2}``;
    ``store``, another one than a fresh store in memory.
    """
    chosen = Settings()
    for key, value in (settings or {}).items():
        chosen = with_setting(chosen, key, value)
    model = ScriptedModel(script)
    async with open_tree(scripted_services(model, tools, chosen, store or MemoryStore(now=wall_clock), home)) as tree:
        yield ScriptedServer(tree, model)


async def until(condition: Callable[[], bool], *, within: float = 60.0) -> None:
    """Wait until something has become true, looking whenever everything else waits. Raises ``TooSlowError``."""
    with trio.fail_after(within):
        while not condition():  # noqa: ASYNC110 (any condition, also one without an event)
            await trio.sleep(0.001)


def prompt(text: str, **options: Any) -> Prompt:
    """A prompt for ``Session.submit_nowait``."""
    return Prompt(text, **options)


def wall_clock() -> float:
    """Trio's time, counted from a fixed day."""
    return FIRST_DAY + trio.current_time()


def scripted_services(
    model: ScriptedModel, tools: Sequence[Tool], settings: Settings, store: Store, home: Path
) -> Services:
    """The adapters of a scripted server; ``dataclasses.replace`` changes one of them."""

    async def build_prompt(session: Session, **_: Any) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return ("You are being tested.",)

    return Services(
        store=store,
        models=model,
        settings=lambda: settings,
        home=home,
        supervisor=ProcessSupervisor(owner_tag(str(home.absolute())), kill_grace=settings.limits.kill_grace),
        ids=counting_ids(),
        clock=wall_clock,
        random=lambda: 0.5,
        owner=LeaseOwner("scripted", 1, 1, "nonce"),
        tree=LiveTree(),
        build_tools=lambda session, **_: Tools([*tools, *session.extra_tools]),
        build_prompt=build_prompt,
        announce=EventLog[ServerEvent](cost=event_cost, clock=wall_clock, max_events=1024),
    )
