"""Every path that can be stopped, stopped once after each of its steps, at each level; then everything must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from hermes.agent.ports import ParallelClass, ToolContext
from hermes.events import ClientRequestOpened, SessionEvent, TurnEnded, TurnRefused
from hermes.messages import Prompt, Question, RewindIntent, Row
from hermes.nurseries.event_log import LogClosed, LogEntry
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.testing import SweepRun, cancel_at_every_step
from tests.support.core import PlainTool, Reply, ScriptedModel, call, hang, make_services, running_tree, say
from tests.support.invariants import (
    assert_events_are_well_formed,
    assert_history_is_whole,
    assert_replay_equals_live,
)

SECONDS = 1


def streaming() -> list[Reply]:
    return [say("a", "b", "c", pause=SECONDS)]


def one_tool() -> list[Reply]:
    return [say("look", calls=[call("nap", seconds=3)]), say("done")]


def two_parallel_tools() -> list[Reply]:
    return [say("", calls=[call("nap", "c1", seconds=2), call("nap", "c2", seconds=4)]), say("done")]


def open_question() -> list[Reply]:
    return [say("", calls=[call("ask")]), say("done")]


def answered_question() -> list[Reply]:
    return [say("", calls=[call("ask", "c1"), call("nap", "c2")]), say("done")]


def stubborn_tool() -> list[Reply]:
    return [say("", calls=[call("stubborn")]), say("done")]


def failing_tool() -> list[Reply]:
    return [say("", calls=[call("fail"), call("nap", "c2")]), say("done")]


def two_rounds() -> list[Reply]:
    return [say("a", calls=[call("nap")]), say("b", calls=[call("nap", "c2")]), say("c", "d", pause=SECONDS)]


def unanswered_questions() -> list[Reply]:
    """A password, a secret and a login that nobody gives: the time of each runs out, and the next one is asked."""
    calls = [call("demand", f"c{number}", kind=kind) for number, kind in enumerate(("sudo", "secret", "vault.code"))]
    return [say("", calls=calls), say("done")]


SCENARIOS: dict[str, Callable[[], list[Reply]]] = {
    "streaming": streaming,
    "before the first byte": lambda: [hang()],
    "a tool": one_tool,
    "two parallel tools": two_parallel_tools,
    "an open question": open_question,
    "an answered question": answered_question,
    "questions whose time runs out": unanswered_questions,
    "a tool that cleans up slowly": stubborn_tool,
    "a tool that breaks": failing_tool,
    "two rounds": two_rounds,
}
LEVELS = ("tool_call", "turn", "session", "server")


async def _stubborn(ctx: ToolContext, arguments: Any) -> str:
    try:
        await trio.sleep(5)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.4)
    return "late"


async def _demand(ctx: ToolContext, arguments: Any) -> str:
    return type(await ctx.ask(Question(arguments["kind"], {}, timeout=3))).__name__


TOOLS = (
    PlainTool("stubborn", _stubborn, ParallelClass.BARRIER),
    PlainTool("demand", _demand, ParallelClass.BARRIER),
)


@dataclass
class Played:
    """What a run left behind."""

    live: list[LogEntry[SessionEvent]] = field(default_factory=list)
    retained: Sequence[LogEntry[SessionEvent]] = ()
    rows: Sequence[Row] = ()
    stored: Sequence[Row] = ()
    nodes: list[str] = field(default_factory=list)
    open_models: int = -1
    second_text: str | None = None
    leases: bool = False


class TurnScenario:
    """One turn, watched by a subscriber, and a second prompt behind it if the session lives."""

    def __init__(self, replies: Callable[[], list[Reply]], *, steer: bool, rewind: bool, answers: bool) -> None:
        self._replies = replies
        self._steer = steer
        self._rewind = rewind
        self._answers = answers
        self.session: Session | None = None
        self.tree: ServerTree | None = None
        self.armed = not rewind
        self.first_over = False
        self.cancelled = False

    async def run(self) -> Played:
        played = Played()
        model = ScriptedModel(*self._replies())
        services, _ = make_services(model=model, tools=TOOLS)
        async with running_tree(services) as tree:
            self.tree = tree
            session = self.session = tree.registry.create(source="test", cwd="/")
            if self._rewind:
                model.replies.insert(0, say("before"))
                submission = session.submit_nowait(Prompt("before"))
                turn = await submission.wait_turn()
                assert turn is not None
                await turn.wait_ended()
                self.armed = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, session, played)
                rewind = RewindIntent(ordinal=0, confirm_empty=True) if self._rewind else None
                submission = session.submit_nowait(Prompt("first"), rewind=rewind)
                if self._steer:
                    nursery.start_soon(self._steer_soon, session)
                if self._answers:
                    nursery.start_soon(self._answer_soon, session)
                turn = await submission.wait_turn()
                assert turn is not None
                with trio.move_on_after(60):
                    await turn.wait_ended()
                if not turn.ended.settled:
                    # A scenario that never ends by itself, in the run that nobody cancelled.
                    turn.cancel(CancelReason(Cause.USER_INTERRUPT))
                    await turn.wait_ended()
                self.first_over = True
                if not session.closing:
                    assert not session.slot.taken
                    model.replies[:] = [say("second")]
                    again = session.submit_nowait(Prompt("second"))
                    assert again.status == "streaming"
                    second = await again.wait_turn()
                    assert second is not None
                    played.second_text = (await second.wait_ended()).text
                else:
                    await session.wait_closed()
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            played.retained, _ = session.log.since(0)
            played.rows = tuple(session.rows)
            played.stored = await services.store.load_rows(session.key) if session.is_stored else ()
            played.nodes = [node.kind for node in tree.scope.walk()]
            played.open_models = model.open
            if session.is_stored:
                # Somebody else can take the lease: nobody holds it any more.
                await services.store.acquire_lease(session.key, services.owner.__class__("x", 2, 2, "n"), ttl=1)
        return played

    async def _watch(self, session: Session, played: Played) -> None:
        subscription = session.log.subscribe(0)
        try:
            while True:
                played.live.extend(await subscription.next())
        except LogClosed:
            return

    async def _steer_soon(self, session: Session) -> None:
        await trio.sleep(SECONDS / 2)
        session.steer("mind the gap")

    async def _answer_soon(self, session: Session) -> None:
        subscription = session.log.subscribe(0)
        while True:
            try:
                entries = await subscription.next()
            except LogClosed:
                return
            for entry in entries:
                if isinstance(entry.event, ClientRequestOpened):
                    await trio.sleep(SECONDS)
                    session.requests.answer_response(entry.event.request_id, {"choice": "once"}, by="test")

    def canceller(self, level: str) -> Callable[[], None] | None:
        session = self.session
        if session is None or not self.armed or self.first_over or self.cancelled:
            return None
        turn = session.slot.turn
        if turn is None:
            return None
        if level == "tool_call":
            node = _first(turn.scope, "tool_call")
            return None if node is None else self._once(lambda: node.request_cancel(CancelReason(Cause.NODE_CANCEL)))
        if level == "turn":
            return self._once(lambda: session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "sweep")))
        assert self.tree is not None
        registry = self.tree.registry
        if level == "session":
            return self._once(lambda: registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED)))
        return self._once(lambda: registry.scope.cancel(CancelReason(Cause.SHUTDOWN)))

    def _once(self, cancel: Callable[[], object]) -> Callable[[], None]:
        def do() -> None:
            self.cancelled = True
            cancel()

        return do


def _first(scope: ReasonScope, kind: str) -> ReasonScope | None:
    return next((node for node in scope.walk() if node.kind == kind and node.entered), None)


def check(run: SweepRun[TurnScenario, Played]) -> None:
    played = run.result
    events = [entry.event for entry in played.retained]
    assert_events_are_well_formed(events)
    assert_history_is_whole(played.rows)
    assert tuple(played.rows) == tuple(played.stored), "memory and store differ"
    assert_replay_equals_live(played.live, played.retained)
    assert played.open_models == 0
    left = {"session": ["server", "sessions"], "server": ["server"]}.get(run.level if run.step else "")
    assert played.nodes == (left or ["server", "sessions", "session"])
    if run.level in ("tool_call", "turn"):
        assert played.second_text == "second"
    if not run.step and run.scenario._replies is unanswered_questions:
        assert [row.text for row in played.rows if row.role == "tool"] == ["TimedOut"] * 3
    terminals = [event for event in events if isinstance(event, (TurnEnded, TurnRefused))]
    if run.step and run.level == "turn":
        assert terminals[0 if not run.scenario._rewind else 1].record.interrupted or run.scenario.first_over


def sweep(
    name: str, level: str, *, steer: bool = False, rewind: bool = False, answers: bool = False, seeds: Any = (0, 1)
) -> None:
    report = cancel_at_every_step(
        lambda: TurnScenario(SCENARIOS[name], steer=steer, rewind=rewind, answers=answers),
        check=check,
        level=level,
        seeds=seeds,
    )
    assert report.runs > 0


@pytest.mark.fault("B-028")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_stop_after_any_step_ends_well(name: str, level: str) -> None:
    if level == "tool_call" and name in ("streaming", "before the first byte"):
        level = "turn"
    sweep(name, level, answers=name == "an answered question")


@pytest.mark.parametrize("level", ("turn", "session"))
def test_a_stop_of_a_steered_turn_ends_well(level: str) -> None:
    sweep("a tool", level, steer=True)


@pytest.mark.parametrize("level", ("turn", "session", "server"))
def test_a_stop_of_a_rewinding_turn_ends_well(level: str) -> None:
    sweep("streaming", level, rewind=True)


def test_the_answer_is_not_lost_when_the_stop_comes_in_the_same_tick() -> None:
    sweep("an answered question", "turn", answers=True, seeds=range(6))
