"""The cancel sweep itself: it visits every step, finds planted bugs, and repeats a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, InScope, Reply, Script, SweepFailed, SweepRun, cancel_at_every_step
from tests.support.raw_http import HELLO


async def three_waits() -> str:
    for _ in range(3):
        await trio.sleep(100)
    return "done"


def test_every_step_is_cancelled_once_and_the_undisturbed_run_is_checked_too() -> None:
    seen: list[tuple[int, str | None]] = []

    def check(run: SweepRun[InScope[str], str | None]) -> None:
        seen.append((run.step, run.result))

    report = cancel_at_every_step(lambda: InScope(three_waits), check=check)
    steps = report.steps[0]
    assert [step for step, _ in seen] == list(range(steps + 1))
    assert seen[0] == (0, "done")
    assert seen[1] == (1, None)
    assert report.runs == steps + 1


class Lease:
    """A scenario with a bug: the lease is given back only if nobody cancels while it is held."""

    def __init__(self, *, careful: bool) -> None:
        self.held = False
        self._careful = careful
        self._scopes: dict[str, trio.CancelScope] = {}

    async def run(self) -> bool:
        with trio.CancelScope() as self._scopes["session"]:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1)
                with trio.CancelScope() as self._scopes["turn"]:
                    await self._work()
                del self._scopes["turn"]
        self._scopes.clear()
        return self.held

    async def _work(self) -> None:
        self.held = True
        try:
            await trio.sleep(5)
        finally:
            if self._careful:
                self.held = False
        self.held = False

    def canceller(self, level: str) -> Callable[[], None] | None:
        scope = self._scopes.get(level)
        return None if scope is None else scope.cancel


def nothing_held(run: SweepRun[Lease, bool]) -> None:
    assert not run.result, run.where


@pytest.mark.parametrize("level", ["turn", "session"])
def test_a_leak_on_cancellation_is_found_and_its_repair_passes(level: str) -> None:
    cancel_at_every_step(lambda: Lease(careful=True), check=nothing_held, level=level, seeds=range(3))
    with pytest.raises(SweepFailed, match=rf"{level} cancelled, only=\(0, \d+\)") as caught:
        cancel_at_every_step(lambda: Lease(careful=False), check=nothing_held, level=level)
    assert caught.value.report.failures


def test_one_failure_can_be_repeated() -> None:
    seen: list[int] = []

    def check(run: SweepRun[Any, Any]) -> None:
        seen.append(run.step)

    cancel_at_every_step(lambda: InScope(three_waits), check=check, only=(0, 2))
    assert seen == [2]


def test_a_sample_is_a_share_of_the_steps_and_the_same_each_time() -> None:
    def steps_tried() -> list[int]:
        tried: list[int] = []
        cancel_at_every_step(lambda: InScope(three_waits), check=lambda run: tried.append(run.step), sample=0.5)
        return tried

    first = steps_tried()
    assert first == steps_tried()
    assert (
        1 < len(first) <= 1 + cancel_at_every_step(lambda: InScope(three_waits), check=lambda run: None).steps[0] // 2
    )


def test_a_scenario_that_hangs_after_its_cancellation_is_a_failure() -> None:
    class Forgetful(InScope[str]):
        """Waits for word of an end that a cancelled task no longer sends."""

        async def run(self) -> str | None:
            told = trio.Event()

            async def work() -> None:
                await trio.sleep(1)
                told.set()

            self._function = work  # type: ignore[assignment]
            await super().run()
            await told.wait()
            return None

    with pytest.raises(SweepFailed, match="TooSlowError"):
        cancel_at_every_step(lambda: Forgetful(three_waits), check=lambda run: None)


def test_an_exception_that_only_cancellation_brings_out_is_a_failure() -> None:
    async def stumbles() -> None:
        finished = False
        try:
            await trio.sleep(1)
            finished = True
        finally:
            if not finished:
                raise LookupError("in clean-up")

    with pytest.raises(SweepFailed, match="in clean-up") as caught:
        cancel_at_every_step(lambda: InScope(stumbles), check=lambda run: None)
    assert caught.value.report.failures[0].where.startswith("scope cancelled")


def test_a_canceller_that_raises_is_reported() -> None:
    class Broken(InScope[str]):
        def canceller(self, level: str) -> Callable[[], None] | None:
            raise LookupError

    with pytest.raises(SweepFailed, match="the canceller raised"):
        cancel_at_every_step(lambda: Broken(three_waits), check=lambda run: None)


def test_one_seed_gives_one_order_of_tasks_and_seeds_differ() -> None:
    def order(seed: int) -> str:
        async def race() -> str:
            finished: list[str] = []

            async def runner(name: str) -> None:
                await trio.lowlevel.checkpoint()
                finished.append(name)

            async with trio.open_nursery() as nursery:
                for name in "abcdef":
                    nursery.start_soon(runner, name)
            return "".join(finished)

        orders: list[str] = []
        only = (seed, 0)
        cancel_at_every_step(lambda: InScope(race), check=lambda run: orders.append(run.result), only=only)
        return orders[0]

    assert [order(seed) for seed in range(5)] == [order(seed) for seed in range(5)]
    assert len({order(seed) for seed in range(20)}) > 1


def test_a_client_cancelled_at_any_step_leaves_no_open_request() -> None:
    class OneRequest:
        """The sweep over real sockets, served in the same loop: the provider must outlive the cancelled client."""

        def __init__(self) -> None:
            self._scope: trio.CancelScope | None = None

        async def run(self) -> tuple[int, list[str | None]]:
            script = Script.of(Reply.of({"text": "a"}, {"delay": 60}, {"text": "b"}))
            async with FakeProvider(script) as provider:
                with trio.CancelScope() as self._scope:
                    async with httpx2.AsyncClient(timeout=None) as client:
                        await client.post(f"{provider.base_url}/chat/completions", json=HELLO)
                self._scope = None
                if provider.requests:
                    await provider.wait_closed(1)
                return provider.open_requests, [record.closed_by for record in provider.requests]

        def canceller(self, level: str) -> Callable[[], None] | None:
            return None if self._scope is None else self._scope.cancel

    ends: list[str | None] = []

    def check(run: SweepRun[OneRequest, tuple[int, list[str | None]]]) -> None:
        still_open, closed_by = run.result
        assert still_open == 0, run.where
        ends.extend(closed_by)

    cancel_at_every_step(OneRequest, check=check, sample=0.3)
    assert {"client", "server"} <= set(ends)
