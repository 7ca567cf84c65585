"""A Trio world that synchronous code drives: for stateful tests, whose rules are plain functions.

The loop runs as a guest on a clock that stands still. Nothing happens between two calls; ``settle`` runs until every
task waits for something outside, ``tick`` runs a few scheduling passes and stops in the middle, ``jump`` moves time.
Tasks are scheduled in an order that the seed decides, so the same calls give the same run.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import outcome
import trio
import trio._core._run as scheduler
from trio.testing import MockClock

T = TypeVar("T")
PASSES = 100_000
STUCK_AFTER = 30.0


class Doing(Generic[T]):
    """A call that runs in the world. ``result`` is None while it waits."""

    def __init__(self) -> None:
        self.result: outcome.Outcome[T] | None = None

    @property
    def done(self) -> bool:
        return self.result is not None

    def value(self) -> T:
        """What it returned; raises what it raised. Fails if it still waits."""
        assert self.result is not None, "the call still waits although nothing more happens"
        return self.result.unwrap()

    def error(self) -> Exception | None:
        """What it raised, or None."""
        assert self.result is not None, "the call still waits although nothing more happens"
        raised = self.result.error if isinstance(self.result, outcome.Error) else None
        if raised is not None and not isinstance(raised, Exception):
            raise raised
        return raised


class GuestWorld:
    """One run of Trio. ``close`` ends it and raises what went wrong in it."""

    def __init__(self, seed: int = 0) -> None:
        self._before = (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r)
        _schedule_by(True, random.Random(seed))
        self._passes: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._ended: outcome.Outcome[None] | None = None
        self._nursery: trio.Nursery | None = None
        self.clock = MockClock()
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._passes.put,
            done_callback=self._finished,
            clock=self.clock,
        )
        self._run_until(lambda: self._nursery is not None)

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def _finished(self, result: outcome.Outcome[None]) -> None:
        self._ended = result

    def _run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(PASSES):
            if condition():
                return
            if self._ended is not None:
                self._ended.unwrap()
                raise AssertionError("the world has ended")
            self._passes.get(timeout=STUCK_AFTER)()
        raise AssertionError("the world does not come to rest")

    def start(self, fn: Callable[..., Awaitable[T]], *args: Any) -> Doing[T]:
        """Begin a call; nothing of it has run when this returns."""
        assert self._nursery is not None
        doing: Doing[T] = Doing()

        async def run() -> None:
            doing.result = await outcome.acapture(fn, *args)

        self._nursery.start_soon(run)
        return doing

    def do(self, fn: Callable[..., Awaitable[T]], *args: Any) -> Doing[T]:
        """Begin a call and let everything come to rest."""
        doing = self.start(fn, *args)
        self.settle()
        return doing

    def call(self, fn: Callable[..., T], *args: Any) -> T:
        """The result of a synchronous function, called inside the world."""

        async def run() -> T:
            return fn(*args)

        return self.do(run).value()

    def tick(self, passes: int) -> None:
        """Run so many scheduling passes, or fewer if everything rests before."""
        at_rest = self.start(trio.testing.wait_all_tasks_blocked)
        left = passes
        while left > 0 and not at_rest.done and self._ended is None:
            self._passes.get(timeout=STUCK_AFTER)()
            left -= 1

    def settle(self) -> None:
        at_rest = self.start(trio.testing.wait_all_tasks_blocked)
        self._run_until(lambda: at_rest.done)

    def jump(self, seconds: float) -> None:
        self.clock.jump(seconds)
        self.settle()

    def close(self) -> None:
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
        try:
            while self._ended is None:
                self._passes.get(timeout=STUCK_AFTER)()
            self._ended.unwrap()
        finally:
            _schedule_by(*self._before)


def _schedule_by(deterministic: bool, dice: random.Random) -> None:
    vars(scheduler).update(_ALLOW_DETERMINISTIC_SCHEDULING=deterministic, _r=dice)
