"""Lives of one server over one store: each is a registry of its own with an owner of its own, and may crash.

A crash is an end without clean-up: from that moment nothing the dead life does reaches the store.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

import trio

from hermes.agent.ports import DeltaKind, DeltaSink, LeaseOwner, ModelFinished, ModelRequest, ToolContext
from hermes.agent.store.memory import MemoryStore
from hermes.errors import ProviderError, StoreUnavailable
from hermes.events import SessionEvent
from hermes.messages import Question
from hermes.nurseries.client_requests import Attachment
from hermes.nurseries.event_log import Lagged, LogClosed, LogEntry, Subscription
from hermes.nurseries.ids import counting_ids
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.session import Session
from hermes.outcomes import Usage
from hermes.settings import LimitSettings, Settings
from tests.support.core import PlainTool, call, clock, make_services
from tests.support.guest import GuestWorld

REPLAY = 96
MAX_QUEUED = 4
SUMMARY = "Goal now: go on. Done: everything that was asked."
ANSWER = " It is long enough that a summary of it is shorter." * 40
NO_SUCH_PID = 1 << 23


class ModelByText:
    """A model that does what the newest words say, and refuses a history that a strict provider would refuse."""

    name = "by text"
    base_url = ""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.calls = 0

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        await trio.lowlevel.checkpoint()
        if ":aux:" in request.request_id:
            return _finished(SUMMARY)
        self._check(request)
        last = request.messages[-1]
        # Behind a summary, which is the user's too, the prompt is the last line of one message.
        kind = last.text.splitlines()[-1].split()[0] if last.role == "user" else "quick"
        self.calls += 1
        if kind == "fail":
            raise ProviderError("the request is wrong", error_class="format_error")
        if kind in ("tool", "ask"):
            calls = [call(f"{kind}_it", f"c{self.calls}-{number}", number=number) for number in range(2)]
            return _finished("", *(calls if kind == "tool" else calls[:1]))
        on_delta(DeltaKind.TEXT, "Well, ")
        await trio.lowlevel.checkpoint()
        if kind == "slow":
            await trio.sleep(2)
        if kind == "hang":
            await trio.sleep_forever()
        on_delta(DeltaKind.TEXT, last.text + ANSWER)
        return _finished("Well, " + last.text + ANSWER)

    def _check(self, request: ModelRequest) -> None:
        open_calls: list[str] = []
        for row in request.messages:
            if row.role == "tool":
                if row.tool_call_id not in open_calls:
                    self.problems.append(f"a result without its call: {row}")
                    return
                open_calls.remove(row.tool_call_id)
            elif open_calls:
                self.problems.append(f"calls without results before {row}")
            if row.role == "assistant":
                open_calls = [one.id for one in row.tool_calls]
        if open_calls:
            self.problems.append("calls without results at the end")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def _finished(text: str, *calls: Any) -> ModelFinished:
    reason = "tool_calls" if calls else "stop"
    usage = Usage(input_tokens=10, output_tokens=5, calls=1)
    return ModelFinished(text=text, tool_calls=tuple(calls), finish_reason=reason, usage=usage)


class Mortal:
    """The store as one life sees it: gone with it."""

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner
        self.dead = False

    def stop_waiting(self) -> None:
        self._inner.stop_waiting()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def reach(*args: Any, **options: Any) -> Any:
            if self.dead:
                await trio.lowlevel.checkpoint()
                raise StoreUnavailable("this life is over")
            return await method(*args, **options)

        return reach


class Watcher:
    """A client that reads events; it may stop, and come back with the number of the last event it has seen."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.subscription: Subscription[SessionEvent] | None = session.log.subscribe(0)
        self.cursor = 0
        self.lags = 0

    def leave(self) -> None:
        if self.subscription is not None:
            self.subscription.close()
        self.subscription = None

    def come_back(self) -> None:
        if self.subscription is None:
            self.subscription = self.session.log.subscribe(self.cursor)

    def read(self) -> list[LogEntry[SessionEvent]]:
        """What is new. Checks that nothing is missing and nothing comes twice, unless it is told so."""
        if self.subscription is None:
            return []
        log = self.session.log
        try:
            entries: list[LogEntry[SessionEvent]] = []
            while batch := self.subscription.next_nowait(limit=7):
                entries += batch
        except Lagged as lagged:
            assert self.cursor + 1 < lagged.oldest, "told that it lags although everything is there"
            self.lags += 1
            self.cursor = log.latest_seq
            self.subscription = log.subscribe(self.cursor)
            return []
        except LogClosed:
            return []
        numbers = [entry.seq for entry in entries]
        assert numbers == list(range(self.cursor + 1, log.latest_seq + 1)), f"a gap or a duplicate: {numbers}"
        self.cursor = log.latest_seq
        return entries


class ServerLife:
    """One life. ``sessions`` are its live sessions by key; ``told`` every event of each, by runtime id."""

    def __init__(self, world: GuestWorld, store: MemoryStore, ids: Any, number: int) -> None:
        self.world = world
        self.store = Mortal(store)
        self.model = ModelByText()
        self.ended = False
        tools = [PlainTool("tool_it", self._work), PlainTool("ask_it", self._ask)]
        settings = Settings(limits=LimitSettings(replay_events=REPLAY, max_queued_prompts=MAX_QUEUED))
        services, _ = make_services(store=self.store, tools=tools, settings=settings, model=self.model)  # type: ignore[arg-type]
        owner = LeaseOwner(platform.node(), NO_SUCH_PID + number, 1, f"life {number}")
        self.services = replace(services, owner=owner, ids=ids)
        self.told: dict[str, list[SessionEvent]] = {}
        self._scope = trio.CancelScope()
        self._running = world.do(self._run)
        assert not self._running.done, self._running.result

    async def _run(self) -> None:
        self.tree = ServerTree(self.services)
        with self._scope:
            await self.tree.registry.run()
        self.ended = True

    async def _work(self, ctx: ToolContext, arguments: Any) -> str:
        await trio.sleep(2)
        return f"worked {arguments['number']}"

    async def _ask(self, ctx: ToolContext, arguments: Any) -> str:
        return repr(await ctx.ask(Question("approval", {"command": "x"}, choices=("once", "deny"), timeout=3000)))

    def adopt(self, session: Session) -> Session:
        """Listen to a session from its first event on."""
        told = self.told.setdefault(session.runtime_id, [])
        session.log.observers.append(told.append)
        session.attach(Attachment("host", lambda method: True))
        return session

    def crash(self) -> None:
        self.store.dead = True
        self._scope.cancel()
        # Its clean-up waits for nothing but the store, which refuses at once.
        self.world.settle()
        assert self.ended, "a task of the dead server still waits"


def new_store(world: GuestWorld) -> MemoryStore:
    return world.call(lambda: MemoryStore(now=clock, host=platform.node()))


def new_ids() -> Any:
    return counting_ids()
