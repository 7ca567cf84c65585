"""What goes on beside the turns: a session that gets ready, and the news of changed lists; stopped after each step."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from hermes.agent.ports import ResolvedModel
from hermes.errors import ProviderError
from hermes.events import SessionFailed, SessionsChanged
from hermes.nurseries.session import Session
from hermes.nurseries.session_ready import start_getting_ready
from hermes.nurseries.stored_changes import EVERY
from hermes.testing import SweepRun
from tests.support.core import say
from tests.support.verb_sweep import Act, Left, VerbScenario, one_turn, sweep


def getting_ready(*, fails: bool) -> Act:
    """The session gets ready, which takes a while; a prompt comes in the middle of it."""

    async def act(scenario: VerbScenario, session: Session) -> None:
        models: Any = session.services.models
        plain = models.resolve
        first = [fails]

        async def resolve(model: str | None, provider: str | None) -> ResolvedModel:
            fail = first.pop() if first else False
            await trio.sleep(1)
            if fail:
                raise ProviderError("the list of models is not there", error_class="server_error", provider="custom")
            resolved: ResolvedModel = await plain(model, provider)
            return resolved

        models.resolve = resolve
        session.resolved = None
        session.memory.extras.pop("toolsets", None)
        start_getting_ready(session)
        await trio.sleep(0.5)
        await one_turn(scenario, session)
        await trio.sleep(2)

    return act


@pytest.mark.parametrize("level", ("caller", "interrupt", "session", "server"))
@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_while_a_session_gets_ready_ends_well(fails: bool, level: str) -> None:
    def check(run: SweepRun[VerbScenario, Left]) -> None:
        failed = [event for event in run.result.events if isinstance(event, SessionFailed)]
        session = run.scenario.session
        assert session is not None
        assert len(failed) <= fails
        if not run.step or level == "interrupt":
            # A stop of the turn is no stop of the session.
            assert (len(failed), "toolsets" in session.memory.extras) == (fails, not fails)

    sweep(getting_ready(fails=fails), lambda: [say("a", "b", pause=0.4)], level, check)


class Noting:
    """Changes of the list, in a burst and alone."""

    def __init__(self) -> None:
        self.noted: list[float] = []
        self.told: list[float] = []

    async def __call__(self, scenario: VerbScenario, session: Session) -> None:
        services = session.services
        self.noted, told = [], list[float]()
        self.told = told
        services.announce.observers.append(
            lambda event: told.append(trio.current_time()) if isinstance(event, SessionsChanged) else None
        )
        for pause in (0, 0.1, 0.1, 2 * EVERY, EVERY, 0.3):
            await trio.sleep(pause)
            self.noted.append(trio.current_time())
            services.stored_changes.note()
        await trio.sleep(2 * EVERY)


@pytest.mark.parametrize("level", ("session", "server"))
def test_a_stop_while_changes_are_told_keeps_no_other_news_back(level: str) -> None:
    act = Noting()

    def check(run: SweepRun[VerbScenario, Left]) -> None:
        gaps = [later - earlier for earlier, later in zip(act.told, act.told[1:], strict=False)]
        assert all(gap >= EVERY - 0.001 for gap in gaps)
        if run.level == "session" or not run.step:
            for noted in act.noted:
                assert any(noted <= told <= noted + EVERY for told in act.told), f"{noted} was not told"

    sweep(act, list, level, check, turns=1)
