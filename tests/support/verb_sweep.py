"""A few turns, then a verb that is stopped after any of its steps, on virtual time; and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import trio

from hermes.agent.ports import LeaseOwner
from hermes.errors import HermesError
from hermes.events import SessionEvent, SubagentProgress
from hermes.messages import Prompt, Row
from hermes.nurseries.question_log import KIND
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from hermes.testing import SweepRun, cancel_at_every_step
from tests.support.child_agents import DELEGATE, ModelByTask
from tests.support.core import PlainTool, Reply, call, make_services, running_tree, say
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole

LONG = "word " * 300
Act = Callable[["VerbScenario", Session], Awaitable[None]]


@dataclass
class Left:
    """What a run left behind."""

    events: Sequence[SessionEvent] = ()
    rows: Sequence[Row] = ()
    stored: Sequence[Row] = ()
    before: Sequence[Row] = ()
    nodes: list[str] = field(default_factory=list)
    open_models: int = -1
    second_text: str | None = None
    questions: int = 0
    sessions: int = 0


def child_with_tool() -> Reply:
    replies = [say("looking", calls=[call("nap")]), say("found")]

    async def reply(request: Any, on_delta: Any) -> Any:
        return await (replies.pop(0) if replies else say("again"))(request, on_delta)

    return reply


class VerbScenario:
    """A few turns of history, then the verb, then a prompt if the session lives."""

    def __init__(
        self,
        act: Act,
        replies: Callable[[], list[Reply]],
        *,
        child_kind: str = "subagent",
        turns: int = 2,
        settings: Settings | None = None,
        tools: Sequence[PlainTool] = (),
        deeper: Mapping[str, Callable[[], Reply]] = MappingProxyType({}),
    ) -> None:
        self._act = act
        self._replies = replies
        self._child_kind = child_kind
        self._turns = turns
        self._settings = settings
        self._tools = tools
        self._deeper = deeper
        self.session: Session | None = None
        self.tree: ServerTree | None = None
        self.caller: trio.CancelScope | None = None
        self.armed = False
        self.cancelled = False
        self.made: list[Session] = []

    async def run(self) -> Left:
        left = Left()
        said = [say(f"answer {number} {LONG}") for number in range(self._turns)]
        children = {goal: make() for goal, make in self._deeper.items()}
        model = ModelByTask(*said, **{"one": child_with_tool(), "two": say("t", pause=2), **children})
        services, _ = make_services(model=model, tools=[DELEGATE, *self._tools], settings=self._settings)
        async with running_tree(services) as tree:
            self.tree = tree
            session = self.session = tree.registry.create(source="test", cwd="/")
            for number in range(self._turns):
                turn = await session.submit_nowait(Prompt(f"prompt {number}")).wait_turn()
                assert turn is not None
                await turn.wait_ended()
            left.before = tuple(session.rows)
            model.replies[:] = self._replies()
            self.armed = True
            with trio.CancelScope() as self.caller:
                try:
                    await self._act(self, session)
                except HermesError:
                    assert self.cancelled, "refused without a stop"
            # What a caller who left had begun ends by itself.
            with trio.fail_after(120):
                while not session.closing and (session.slot.taken or session.side_work):
                    await trio.sleep(0.5)
            self.armed = False
            if session.closing:
                await session.wait_closed()
            else:
                model.replies[:] = [say("second")]
                again = session.submit_nowait(Prompt("second"))
                assert again.status == "streaming"
                second = await again.wait_turn()
                assert second is not None
                left.second_text = (await second.wait_ended()).text
                with trio.fail_after(120):
                    while session.slot.taken:
                        await trio.sleep(0.5)
            await trio.testing.wait_all_tasks_blocked()
            left.events = [entry.event for entry in session.log.since(0)[0]]
            left.rows, left.stored = tuple(session.rows), await services.store.load_rows(session.key)
            left.nodes = sorted(node.kind for node in tree.scope.walk())
            left.open_models = model.open
            left.questions = len(await services.store.list_records(KIND))
            left.sessions = len(tree.registry)
            await services.store.acquire_lease(session.key, LeaseOwner("x", 2, 2, "n"), ttl=1)
        return left

    def canceller(self, level: str) -> Callable[[], None] | None:
        session = self.session
        if session is None or not self.armed or self.cancelled:
            return None
        assert self.tree is not None
        registry = self.tree.registry
        match level:
            case "caller":
                caller = self.caller
                return None if caller is None else self._once(caller.cancel)
            case "interrupt":
                return self._once(lambda: session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "sweep")))
            case "child":
                node = _first(session.scope, self._child_kind)
                reason = CancelReason(Cause.NODE_CANCEL)
                return None if node is None else self._once(lambda: node.request_cancel(reason))
            case "session":
                return self._once(lambda: registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED)))
            case _:
                return self._once(lambda: registry.scope.cancel(CancelReason(Cause.SHUTDOWN)))

    def _once(self, cancel: Callable[[], object]) -> Callable[[], None]:
        def do() -> None:
            self.cancelled = True
            cancel()

        return do


def _first(scope: ReasonScope, kind: str) -> ReasonScope | None:
    return next((node for node in scope.walk() if node.kind == kind and node.entered), None)


def check(run: SweepRun[VerbScenario, Left]) -> None:
    left = run.result
    assert_events_are_well_formed(left.events)
    assert_history_is_whole(left.rows)
    assert tuple(left.rows) == tuple(left.stored), "memory and store differ"
    assert left.open_models == 0
    stopped = run.step and run.level in ("session", "server")
    if not stopped:
        assert left.second_text == "second"
    expected = ["server", "sessions", *(["session"] * left.sessions)] if run.level != "server" else None
    assert expected is None or left.nodes == sorted(expected)
    children: dict[str, list[str]] = {}
    for event in left.events:
        if isinstance(event, SubagentProgress):
            children.setdefault(event.payload["subagent_id"], []).append(event.kind)
    for kinds in children.values():
        assert kinds[0] == "spawn_requested" and kinds[-1] == "complete" and kinds.count("complete") == 1


def sweep(act: Act, replies: Callable[[], list[Reply]], level: str, extra: Any = None, **options: Any) -> None:
    def check_all(run: SweepRun[VerbScenario, Left]) -> None:
        check(run)
        if extra is not None:
            extra(run)

    report = cancel_at_every_step(
        lambda: VerbScenario(act, replies, **options), check=check_all, level=level, seeds=(0, 1)
    )
    assert report.runs > 1


async def one_turn(_scenario: VerbScenario, session: Session) -> None:
    turn = await session.submit_nowait(Prompt("go")).wait_turn()
    if turn is not None:
        await turn.wait_ended()
