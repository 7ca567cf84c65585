"""A turn that waits for another process's lease, and the renewal of all leases, stopped after each of their steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from hermes.agent.ports import LeaseOwner
from hermes.errors import HermesError
from hermes.events import StatusUpdate, TurnEnded
from hermes.nurseries.session import Session
from hermes.nurseries.turn_lease import Leases
from hermes.testing import SweepRun, cancel_at_every_step
from tests.support.core import say
from tests.support.lease_ledger import TTL, Ledger
from tests.support.verb_sweep import Act, Left, VerbScenario, one_turn, sweep

ELSEWHERE = LeaseOwner("elsewhere", 2, 2, "nonce")


def held_elsewhere(seconds: float) -> Act:
    """A prompt while another process runs a turn of the session for so long."""

    async def act(scenario: VerbScenario, session: Session) -> None:
        store = session.services.store

        async def let_go() -> None:
            await trio.sleep(seconds)
            await store.release_lease(session.key, ELSEWHERE)

        await store.acquire_lease(session.key, ELSEWHERE, ttl=600)
        refused: list[HermesError] = []
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(let_go)
                try:
                    await one_turn(scenario, session)
                except HermesError as error:
                    refused.append(error)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await store.release_lease(session.key, ELSEWHERE)
        if refused:
            raise refused[0]

    return act


def waited_for(end: str) -> Callable[[SweepRun[VerbScenario, Left]], None]:
    """``end``: what is told behind the wait, in the run that nobody stops."""

    def check(run: SweepRun[VerbScenario, Left]) -> None:
        told = [
            (event.record.text if isinstance(event, TurnEnded) else event.text) or ""
            for event in run.result.events
            if isinstance(event, StatusUpdate | TurnEnded)
        ]
        waits = [at for at, text in enumerate(told) if "waiting up to" in text]
        assert len(waits) <= 1
        if not run.step:
            assert told[waits[0] + 1] == end

    return check


@pytest.mark.parametrize("level", ("caller", "interrupt", "session", "server"))
def test_a_stop_of_a_turn_that_waits_for_its_lease_ends_well(level: str) -> None:
    sweep(held_elsewhere(1.1), lambda: [say("my turn", pause=0.5)], level, waited_for("my turn"))


@pytest.mark.parametrize("level", ("caller", "interrupt", "session", "server"))
def test_a_stop_of_a_turn_that_waits_in_vain_for_its_lease_ends_well(level: str) -> None:
    sweep(held_elsewhere(60), list, level, waited_for("ready"))


class Renewals:
    """Three turns that come and go; each is stopped with its scope, or all of it together."""

    def __init__(self, delay: float) -> None:
        self.ledger = Ledger(delay)
        self.leases = Leases()
        self.lost: list[str] = []
        self._all: trio.CancelScope | None = None
        self._turns: dict[str, trio.CancelScope] = {}
        self.stopped = ""

    async def run(self) -> None:
        with trio.CancelScope() as self._all:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.ledger.run, self.leases)
                for key in ("first", "second", "third"):
                    nursery.start_soon(self._turn, key)
                    await trio.sleep(4)
                await trio.sleep(2 * TTL)
                # Whoever is still at it has a lease that has not expired.
                for key in self._turns:
                    assert trio.current_time() <= self.ledger.until[key], f"{key} has expired"
                nursery.cancel_scope.cancel()

    async def _turn(self, key: str) -> None:
        with trio.CancelScope() as self._turns[key]:
            try:
                await self.ledger.hold(self.leases, key, self.lost)
            finally:
                del self._turns[key]

    def canceller(self, level: str) -> Callable[[], None] | None:
        scope = self._all if level == "all" else self._turns.get(level)
        if scope is None or self.stopped:
            return None

        def cancel() -> None:
            self.stopped = level
            scope.cancel()

        return cancel


def nobody_lost(run: SweepRun[Renewals, None]) -> None:
    scenario = run.scenario
    assert scenario.lost == []
    assert not scenario.leases._held
    if run.step == 0:
        assert sum(scenario.ledger.writes) >= 9


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("level", ["first", "second", "third", "all"])
def test_a_stop_at_any_step_of_the_renewal_costs_no_other_turn_its_lease(level: str, delay: float) -> None:
    report = cancel_at_every_step(lambda: Renewals(delay), check=nobody_lost, level=level, seeds=(0, 1, 2))
    assert report.runs > 10
