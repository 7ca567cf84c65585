"""A steer against everything: in 200 seeded schedules its text is in exactly one place, and never lost (C11).

``PROOF=1`` plays ten times as many."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
import trio

from hermes.messages import Prompt, Row
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause, TurnRecord
from hermes.testing import run_seeded
from tests.support.core import Reply, ScriptedModel, call, events_of, make_services, running_tree, say
from tests.support.failing_store import FailingStore
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole

SCHEDULES = 2_000 if os.environ.get("PROOF") else 200


@dataclass
class Said:
    """What one schedule made of the texts: those that were taken, those that were refused, and where they ended."""

    taken: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    redirected: list[str] = field(default_factory=list)
    record: TurnRecord | None = None
    rows: tuple[Row, ...] = ()
    asked: str = ""
    settled: bool = True


class Race:
    """One turn of one to three rounds, steers and redirects at whole seconds, in which everything else happens too."""

    def __init__(self, seed: int, *, stop: bool, redirects: bool, full_disk: bool = False) -> None:
        self.dice = random.Random(seed)
        self.stop = stop
        self.redirects = redirects
        self.full_disk = full_disk
        self.said = Said()

    def replies(self) -> list[Reply]:
        rounds = [
            say(
                "look",
                calls=[call("nap", f"c{number}", seconds=self.dice.randint(0, 2))],
                pause=self.dice.randint(0, 1),
            )
            for number in range(self.dice.randint(0, 2))
        ]
        return [*rounds, say("all", " done", pause=self.dice.randint(0, 1))]

    async def run(self) -> Said:
        store = FailingStore(at=self.dice.randint(5, 10) if self.full_disk else None)
        model = ScriptedModel(*self.replies())
        services, _ = make_services(model=model, store=store)
        async with running_tree(services) as tree:
            session = tree.registry.create(source="test", cwd="/")
            turn = await session.submit_nowait(Prompt("hello")).wait_turn()
            assert turn is not None
            async with trio.open_nursery() as nursery:
                for number in range(self.dice.randint(1, 4)):
                    nursery.start_soon(self._speak, session, f"words-{number}", self._moment())
                if self.stop:
                    nursery.start_soon(self._stop, session, self._moment())
                self.said.record = await turn.wait_ended()
            store.recover()
            self.said.rows = tuple(session.rows)
            self.said.asked = repr([request.messages for request in model.requests])
            assert model.open == 0
            assert_events_are_well_formed(events_of(session))
            if not self.full_disk:
                assert_history_is_whole(session.rows)
        return self.said

    def _moment(self) -> tuple[int, int]:
        """Seconds, then scheduler rounds: most moments fall on the ticks in which the turn itself does something."""
        return self.dice.randint(0, 6), self.dice.randint(0, 12)

    async def _speak(self, session: Session, text: str, moment: tuple[int, int]) -> None:
        await wait_for(moment)
        if self.redirects and self.dice.random() < 0.5:
            answer = session.redirect(text)
            {"redirected": self.said.redirected, "queued": self.said.taken, "rejected": self.said.refused}[
                answer
            ].append(text)
        else:
            (self.said.taken if session.steer(text) else self.said.refused).append(text)

    async def _stop(self, session: Session, moment: tuple[int, int]) -> None:
        await wait_for(moment)
        result = await session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "race")).wait_settled(0.9)
        self.said.settled = result.settled


async def wait_for(moment: tuple[int, int]) -> None:
    seconds, rounds = moment
    await trio.sleep(seconds)
    for _ in range(rounds):
        await trio.lowlevel.checkpoint()


def places(said: Said, text: str) -> Counter[str]:
    """How often the text stands in each of the places where it may end."""
    found: Counter[str] = Counter()
    for row in said.rows:
        found["row"] += row.role == "user" and row.text.split("\n").count(text)
    assert said.record is not None
    found["pending"] = (said.record.pending_steer or "").split("\n").count(text)
    found["refusal"] = said.refused.count(text)
    return +found


@pytest.mark.fault("B-124")
@pytest.mark.parametrize("full_disk", [False, True], ids=["", "a write is refused"])
@pytest.mark.parametrize("redirects", [False, True], ids=["steers", "redirects too"])
@pytest.mark.parametrize("stop", [False, True], ids=["to the end", "hard stop"])
def test_a_text_is_in_exactly_one_place_in_every_schedule(stop: bool, redirects: bool, full_disk: bool) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        said = run_seeded(Race(seed, stop=stop, redirects=redirects, full_disk=full_disk).run, seed)
        for text in (*said.taken, *said.refused, *said.redirected):
            found = places(said, text)
            assert sum(found.values()) == 1, f"seed {seed}: {text} is in {dict(found)}"
            outcomes.update(found)
            if text in said.refused:
                assert "refusal" in found, f"seed {seed}: {text} was refused and used all the same"
        assert said.settled, f"seed {seed}: the stop did not settle in time"
    # The schedules really meet each of the three ends, or the race proves nothing.
    assert set(outcomes) == {"row", "pending", "refusal"}, outcomes


def test_a_steer_at_a_boundary_is_in_the_next_request_of_the_model() -> None:
    delivered = 0
    for seed in range(SCHEDULES):
        said = run_seeded(Race(seed, stop=False, redirects=False).run, seed)
        for row in said.rows:
            if row.display_kind == "steer":
                delivered += 1
                assert all(text in said.asked for text in row.text.split("\n")), f"seed {seed}"
    assert delivered > SCHEDULES / 10
