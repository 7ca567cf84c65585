"""Work outside the loop, stopped at each level after many of its steps; the processes, threads and clock are real."""

from __future__ import annotations

import gc
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from hermes.messages import Prompt, ToolCall
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.settings import LimitSettings, Settings
from hermes.testing.cancel_sweep import _seeded_scheduling
from tests.support.core import ScriptedModel, events_of, make_services, running_tree, say
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole
from tests.support.process_probe import (
    PATH,
    Marks,
    no_longer_subreaper,
    open_descriptors,
    running_with,
    zombie_children,
)

MARKS = Marks()
LEVELS = ("tool_call", "turn", "session", "server")
SETTINGS = Settings(limits=LimitSettings(kill_grace=0.1))
SEEDS = (0, 1)
WITHIN = 30.0


@dataclass
class Stage:
    """Where one run plays."""

    home: Path
    services: Services
    mark: str
    tree: ServerTree | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": PATH, "PYTHONPATH": ":".join(sys.path), "LC_ALL": "C.UTF-8"}


Play = Callable[[Stage], Any]
"""An async context manager that gives the one tool of the turn, called ``outside``, and its arguments."""


@dataclass(frozen=True)
class Outside:
    """What is played, and what the model reads in the run that nobody stops."""

    play: Play
    reads: str
    endless: bool = False
    """It has a limit of many seconds: a run that is not stopped by then, is stopped after a second."""
    garbage: bool = False
    """Its library leaves something to the garbage collector, which is no leak of ours."""


class StepCanceller(trio.abc.Instrument):
    """Stops the turn at a level after a step of this number, counted while there is something to stop."""

    def __init__(self, session: Session, tree: ServerTree, level: str, step: int) -> None:
        self.seen = 0
        self.fired = False
        self._session, self._tree, self._level, self._step = session, tree, level, step

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        cancel = self._cancel()
        if cancel is None or self.fired:
            return
        self.seen += 1
        if self.seen == self._step:
            self.fired = True
            cancel()

    def _cancel(self) -> Callable[[], object] | None:
        session, registry = self._session, self._tree.registry
        turn = session.slot.turn
        if turn is None:
            return None
        match self._level:
            case "tool_call":
                node = next((one for one in turn.scope.walk() if one.kind == "tool_call" and one.entered), None)
                return None if node is None else lambda: node.request_cancel(CancelReason(Cause.NODE_CANCEL))
            case "turn":
                return lambda: session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "sweep"))
            case "session":
                return lambda: registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
            case _:
                return lambda: registry.scope.cancel(CancelReason(Cause.SHUTDOWN))


async def one_run(home: Path, outside: Outside, level: str, step: int) -> tuple[int, bool]:
    """Play once, stop after this step, and look at everything that is left. Returns the steps, and whether it was."""
    home.mkdir()
    model = ScriptedModel(say(""), say("done"))
    services, _ = make_services(model=model, home=home, settings=SETTINGS)
    stage = Stage(home, services, MARKS.next())
    with trio.fail_after(WITHIN):
        async with running_tree(services) as tree:
            stage.tree = tree
            async with outside.play(stage) as (tool, arguments):
                session = tree.registry.create(source="test", cwd=str(home))
                session.extra_tools[:] = [tool]
                model.replies[0] = say("", calls=[ToolCall("c1", "outside", json.dumps(arguments))])
                canceller = StepCanceller(session, tree, level, step)
                trio.lowlevel.add_instrument(canceller)
                try:
                    await _turn(session, outside.endless)
                finally:
                    trio.lowlevel.remove_instrument(canceller)
                if not step:
                    assert session.rows[2].role == "tool" and outside.reads in session.rows[2].text
                if session.closing:
                    await session.wait_closed()
                else:
                    model.replies[:] = [say("second")]
                    again = session.submit_nowait(Prompt("second"))
                    assert again.status == "streaming"
                    second = await again.wait_turn()
                    assert second is not None
                    record = await second.wait_ended()
                    assert record.text == "second", record
                # The turn has ended, so all its work has: nothing needs the end of the server.
                assert running_with(stage.mark) == []
                limiter = trio.to_thread.current_default_thread_limiter()
                assert limiter.statistics().tasks_waiting == 0
                assert_events_are_well_formed(events_of(session))
                assert_history_is_whole(session.rows)
                assert tuple(session.rows) == tuple(await services.store.load_rows(session.key))
                assert model.open == 0
                kinds = [node.kind for node in tree.scope.walk()]
                closed = {"session": ["server", "sessions"], "server": ["server"]}
                fired = canceller.fired
                assert kinds == (closed.get(level if fired else "") or ["server", "sessions", "session"])
    assert services.supervisor.live() == []
    assert zombie_children() == []
    return canceller.seen, canceller.fired


async def _turn(session: Session, stop: bool) -> None:
    turn = await session.submit_nowait(Prompt("first")).wait_turn()
    assert turn is not None
    if stop:
        await turn.ended.wait_at_most(1)
        session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
    await turn.wait_ended()


def sweep(home: Path, outside: Outside, level: str, *, runs: int) -> None:
    """``runs`` of each seed, stopped after steps that the seed draws."""
    with no_longer_subreaper():
        hits = 0
        for seed in SEEDS:
            drawn = random.Random(f"{seed} {outside.reads} {level}")
            with _seeded_scheduling(seed):
                steps = _steps(home, outside, level, seed)
                assert steps > 3
                before = open_descriptors()
                for number in range(runs):
                    # Real work has not the same number of steps each time: the last ones may not come.
                    step = drawn.randint(1, max(1, steps * 9 // 10))
                    _, fired = _started(home / f"{seed}-{number}", outside, level, step)
                    hits += fired
                    assert open_descriptors() == before, f"stopped after step {step} of {steps}, seed {seed}"
    assert hits * 2 >= runs * len(SEEDS), f"{hits} stops came in time"


_COUNTED: dict[tuple[Outside, bool, int], int] = {}
"""Steps of the run that nobody stops, by what is played, whether the call alone is stopped, and the seed."""


def _steps(home: Path, outside: Outside, level: str, seed: int) -> int:
    key = (outside, level == "tool_call", seed)
    if key not in _COUNTED:
        _COUNTED[key], _ = _started(home / f"{seed}", outside, level, 0)
    return _COUNTED[key]


def _started(home: Path, outside: Outside, level: str, step: int) -> tuple[int, bool]:
    async def main() -> tuple[int, bool]:
        return await one_run(home, outside, level, step)

    try:
        return trio.run(main)
    finally:
        if outside.garbage:
            gc.collect()
