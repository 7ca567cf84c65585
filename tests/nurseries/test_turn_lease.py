"""Leases of many turns: renewed together, each in time, whoever comes and goes; only what is lost is told."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from hermes.nurseries.turn_lease import Leases
from tests.support.lease_ledger import TTL, Ledger


async def test_turns_that_began_together_are_renewed_in_one_write(autojump_clock: trio.testing.MockClock) -> None:
    leases, ledger = Leases(), Ledger()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.run, leases)
        for number in range(1000):
            nursery.start_soon(ledger.hold, leases, f"s{number}")
            await trio.sleep(0.003)
        await trio.sleep(TTL)
        nursery.cancel_scope.cancel()
    assert ledger.writes == [1000] * 3
    assert not leases._held


@pytest.mark.parametrize("seed", range(30))
async def test_no_lease_expires_while_turns_come_and_go(seed: int, autojump_clock: trio.testing.MockClock) -> None:
    dice = random.Random(seed)
    leases, ledger = Leases(), Ledger(delay=dice.choice([0, 0.01, 2]))

    async def turn(key: str) -> None:
        with trio.move_on_after(dice.choice([0, 0.5, 15, 100])):
            await ledger.hold(leases, key, ttl=dice.choice([12, TTL, 60]))
        ledger.until.pop(key)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.run, leases)
        async with trio.open_nursery() as turns:
            for number in range(60):
                turns.start_soon(turn, f"s{number}")
                await trio.sleep(dice.choice([0, 0.1, 5]))
                for key, until in ledger.until.items():
                    assert trio.current_time() <= until, f"{key} has expired"
        nursery.cancel_scope.cancel()
    assert not leases._held and not ledger.until


@pytest.mark.parametrize("taken", [0, 2, 4], ids=["the first", "another", "the last"])
async def test_only_the_turn_that_lost_its_lease_is_told(taken: int, autojump_clock: trio.testing.MockClock) -> None:
    leases, ledger, lost = Leases(), Ledger(), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.run, leases)
        for number in range(5):
            nursery.start_soon(ledger.hold, leases, f"s{number}", lost)
            await trio.sleep(0.1)
        ledger.taken.add(f"s{taken}")
        await trio.sleep(TTL / 3)
        assert lost == [f"s{taken}"]
        await trio.sleep(TTL)
        assert lost == [f"s{taken}"]
        nursery.cancel_scope.cancel()


async def test_leases_that_cannot_be_renewed_are_lost_when_they_expire(autojump_clock: trio.testing.MockClock) -> None:
    leases, ledger, lost = Leases(), Ledger(), list[str]()
    ledger.is_full = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.run, leases)
        nursery.start_soon(ledger.hold, leases, "short", lost, 12.0)
        nursery.start_soon(ledger.hold, leases, "long", lost, 60.0)
        await trio.sleep(13)
        assert lost == ["short"]
        ledger.is_full = False
        await trio.sleep(100)
        assert lost == ["short"]
        nursery.cancel_scope.cancel()
