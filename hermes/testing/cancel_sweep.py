"""Cancel a scenario at every step at which it can be cancelled, and check after each what must always hold.

A Trio program can be interrupted only between two steps of its tasks. A scenario of a few hundred steps can therefore
be tried completely: run it once undisturbed and count, then once for each step, cancelling right after it.

    class InterruptedTurn:
        '''One turn with one tool call; what is cancelled depends on the level.'''

        async def run(self) -> Server:
            async with open_server(provider=scripted) as self.server:
                self.session = await self.server.create_session()
                await self.session.submit("list the files")
                await self.session.idle()
            return self.server

        def canceller(self, level: str) -> Callable[[], None] | None:
            turn = self.session.turn if hasattr(self, "session") else None
            if turn is None:
                return None                     # nothing to cancel yet: such steps are not counted
            return {"turn": lambda: turn.cancel(USER_INTERRUPT), "session": self.session.close_nowait}[level]

    def check(run: SweepRun[InterruptedTurn, Server]) -> None:
        assert run.result.leftover_tasks() == [], run.where

    def test_every_interrupt_ends_well() -> None:
        cancel_at_every_step(InterruptedTurn, check=check, level="turn", seeds=range(4))

Time is virtual and jumps as soon as all tasks wait, so a scenario may use sockets served in the same loop, but no
threads and no child processes: with those the clock would jump while they still work. Scheduling is seeded: one seed,
one order of tasks, so that a failure is repeated with `only=(seed, step)`.

A run that waits for ever fails when the virtual deadline has passed. The exception is a wait inside a shield that
nothing bounds: nothing in Trio can end it, so the sweep hangs with it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import outcome
import trio
from trio._core import _run as trio_run_module
from trio.testing import MockClock

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)
ScenarioT = TypeVar("ScenarioT", bound="Scenario[Any]")

SHOWN_FAILURES = 5


class Scenario(Protocol[ResultT_co]):
    """A fresh one is made for each run."""

    async def run(self) -> ResultT_co:
        """Play the scenario to its end, cancelled or not. An exception that comes out of it is a failure of the run."""
        ...

    def canceller(self, level: str) -> Callable[[], None] | None:
        """How to cancel at this level now, or None while there is nothing to cancel.

        Asked after every step; steps with None are not counted. What is returned is called inside the scheduler: it
        must not raise and cannot wait. Cancelling a scope, setting an event, starting a task are all allowed there."""
        ...


@dataclass(frozen=True, slots=True)
class SweepRun(Generic[ScenarioT, ResultT]):
    """One run, as `check` sees it. `step` is 0 for the undisturbed run."""

    scenario: ScenarioT
    result: ResultT
    level: str
    seed: int
    step: int
    task_name: str | None
    steps_seen: int

    @property
    def where(self) -> str:
        return _where(self.level, self.seed, self.step, self.task_name)


@dataclass(frozen=True, slots=True)
class SweepFailure:
    where: str
    error: BaseException


@dataclass(slots=True)
class SweepReport:
    """What was tried. `steps` are the counted steps of the undisturbed run, by seed."""

    level: str
    runs: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    failures: list[SweepFailure] = field(default_factory=list)


class SweepFailed(AssertionError):
    """At least one run broke a promise. `report` holds all of them."""

    def __init__(self, report: SweepReport) -> None:
        shown = [f"  {failure.where}: {failure.error!r}" for failure in report.failures[:SHOWN_FAILURES]]
        super().__init__("\n".join([f"{len(report.failures)} of {report.runs} runs failed:", *shown]))
        self.report = report


def cancel_at_every_step(
    make: Callable[[], ScenarioT],
    *,
    check: Callable[[SweepRun[ScenarioT, Any]], None],
    level: str = "scope",
    seeds: Sequence[int] = (0,),
    sample: float = 1.0,
    only: tuple[int, int] | None = None,
    virtual_deadline: float = 3600.0,
) -> SweepReport:
    """Run the sweep; raise SweepFailed if a run raised, hung (in virtual time) or failed its check.

    `sample` tries only that share of the steps, chosen by the seed, at least one: for a quick suite. `only` repeats one
    run. Call it from a plain function: it starts one Trio run after the other."""
    sweep = _Sweep(make, check, level, virtual_deadline)
    if only is not None:
        sweep.one_run(*only)
    for seed in seeds if only is None else ():
        steps = sweep.one_run(seed, 0)
        sweep.report.steps[seed] = steps
        for step in _chosen(steps, sample, seed):
            sweep.one_run(seed, step)
    if sweep.report.failures:
        raise SweepFailed(sweep.report)
    return sweep.report


def run_seeded(function: Callable[[], Awaitable[ResultT]], seed: int, *, virtual_deadline: float = 3600.0) -> ResultT:
    """Run an async function on virtual time with the one order of tasks that belongs to the seed.

    For races: draw the moments from the same seed, and a failing schedule can be played again."""

    async def play() -> ResultT:
        with trio.fail_after(virtual_deadline):
            return await function()

    with _seeded_scheduling(seed):
        return trio.run(play, clock=MockClock(autojump_threshold=0))


class InScope(Generic[ResultT]):
    """The simplest scenario: an async function inside one cancel scope. The result is None if it was cancelled.

    `cancel_at_every_step(lambda: InScope(my_function), check=check)`"""

    def __init__(self, function: Callable[[], Awaitable[ResultT]]) -> None:
        self._function = function
        self._scope: trio.CancelScope | None = None

    async def run(self) -> ResultT | None:
        result = None
        with trio.CancelScope() as self._scope:
            result = await self._function()
        self._scope = None
        return result

    def canceller(self, level: str) -> Callable[[], None] | None:
        return None if self._scope is None else self._scope.cancel


class StepCanceller(trio.abc.Instrument):
    """Counts the steps at which something can be cancelled, and cancels after one of them (0: after none)."""

    def __init__(self, scenario: Scenario[Any], level: str, cancel_after: int) -> None:
        self._scenario = scenario
        self._level = level
        self._cancel_after = cancel_after
        self._attempting = False
        self.seen = 0
        self.task_name: str | None = None

    @property
    def broken(self) -> bool:
        """A callback raised: Trio has logged it and thrown this instrument out."""
        return self._attempting

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._attempting = True
        cancel = self._scenario.canceller(self._level)
        if cancel is not None:
            self.seen += 1
            if self.seen == self._cancel_after:
                self.task_name = task.name
                cancel()
        self._attempting = False


class _Sweep:
    """The runs of one call, and what came of them."""

    def __init__(
        self,
        make: Callable[[], ScenarioT],
        check: Callable[[SweepRun[ScenarioT, Any]], None],
        level: str,
        virtual_deadline: float,
    ) -> None:
        self._make = make
        self._check: Callable[[SweepRun[Any, Any]], None] = check
        self._level = level
        self._deadline = virtual_deadline
        self.report = SweepReport(level)

    def one_run(self, seed: int, step: int) -> int:
        """Play, check, note. Returns the number of counted steps."""
        self.report.runs += 1
        scenario = self._make()
        canceller = StepCanceller(scenario, self._level, step)
        with _seeded_scheduling(seed):
            played = outcome.capture(lambda: self._play_once(scenario, canceller))
        where = _where(self._level, seed, step, canceller.task_name)
        if canceller.broken:
            self._failed(
                where, RuntimeError("the canceller raised; the log of `trio.abc.Instrument` has the traceback")
            )
        elif isinstance(played, outcome.Error):
            self._failed(where, played.error)
        elif step and canceller.task_name is None:
            # Not a pass: the scenario took another course than when it was counted, so it is not deterministic.
            self._failed(
                where, RuntimeError(f"the run had only {canceller.seen} steps; it differs from the counted one")
            )
        else:
            run = SweepRun(scenario, played.value, self._level, seed, step, canceller.task_name, canceller.seen)
            checked = outcome.capture(self._check, run)
            if isinstance(checked, outcome.Error):
                self._failed(where, checked.error)
        return canceller.seen

    def _play_once(self, scenario: Scenario[ResultT], canceller: StepCanceller) -> ResultT:
        async def play() -> ResultT:
            with trio.fail_after(self._deadline):
                return await scenario.run()

        return trio.run(play, clock=MockClock(autojump_threshold=0), instruments=[canceller])

    def _failed(self, where: str, error: BaseException) -> None:
        if not isinstance(error, Exception):
            raise error  # Ctrl-C and the like are for the person at the keyboard, not a finding
        self.report.failures.append(SweepFailure(where, error))


@contextmanager
def _seeded_scheduling(seed: int) -> Iterator[None]:
    """Make the order of runnable tasks a function of the seed.

    Trio has no public switch for this; pytest-trio sets the same two names, so they are as stable as such get."""
    names = vars(trio_run_module)
    before = {name: names[name] for name in ("_ALLOW_DETERMINISTIC_SCHEDULING", "_r")}
    names |= {"_ALLOW_DETERMINISTIC_SCHEDULING": True, "_r": random.Random(seed)}
    try:
        yield
    finally:
        names |= before


def _chosen(steps: int, sample: float, seed: int) -> list[int]:
    everything = range(1, steps + 1)
    if sample >= 1 or not steps:
        return list(everything)
    return sorted(random.Random(seed).sample(everything, max(1, int(steps * sample))))


def _where(level: str, seed: int, step: int, task_name: str | None) -> str:
    if step == 0:
        return f"undisturbed, seed {seed}"
    return f"{level} cancelled, only=({seed}, {step}), after a step of {task_name}"
