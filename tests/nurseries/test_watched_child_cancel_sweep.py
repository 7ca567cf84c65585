"""Child agents that fall silent, stopped after each of their steps: also in the step in which they are given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest
from hermes.agent_settings import DelegationSettings
from hermes.events import SubagentProgress
from hermes.settings import Settings
from hermes.testing import SweepRun
from tests.support.child_agents import ask_for
from tests.support.core import Reply, call, hang, say
from tests.support.verb_sweep import Left, VerbScenario, one_turn, sweep

WATCHED = Settings(
    delegation=DelegationSettings(stale_idle_seconds=4, stale_tool_seconds=8, stale_grace_seconds=2, max_spawn_depth=2)
)
LIMITED = Settings(delegation=DelegationSettings(child_timeout_seconds=6, stale_idle_seconds=4, stale_grace_seconds=2))
"""Both limits of the child run out in the same tick."""


def _nested() -> Reply:
    """Delegates once itself, and says what came of it."""
    replies = [ask_for("silent"), say("it never spoke")]

    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        return await (replies.pop(0) if replies else say("again"))(request, on_delta)

    return reply


ENDS = {"completed", "failed", "interrupted", "timeout"}
SILENT: dict[str, Callable[[], Reply]] = {
    "silent": hang,
    "tooled": lambda: say("looking", calls=[call("nap", seconds=900)]),
    "nested": _nested,
}
"""Children by their goal; the last one waits for a child of its own."""


def _statuses(run: SweepRun[VerbScenario, Left]) -> list[str]:
    return [
        event.payload["status"]
        for event in run.result.events
        if isinstance(event, SubagentProgress) and event.kind == "complete"
    ]


def _given_up(run: SweepRun[VerbScenario, Left]) -> None:
    statuses = _statuses(run)
    assert set(statuses) <= ENDS
    if not run.step:
        assert statuses.count("timeout") == 1, statuses
        assert run.result.second_text == "second"


@pytest.mark.parametrize("level", ("interrupt", "child", "session", "server"))
@pytest.mark.parametrize("goals", [("silent", "two"), ("tooled",)], ids=["without a sign of life", "inside a tool"])
def test_a_stop_of_a_silent_child_ends_well(goals: tuple[str, ...], level: str) -> None:
    sweep(one_turn, lambda: [ask_for(*goals), say("done")], level, _given_up, settings=WATCHED, deeper=SILENT)


@pytest.mark.parametrize("level", ("interrupt", "child", "session", "server"))
def test_a_stop_of_a_child_that_waits_for_a_silent_child_ends_well(level: str) -> None:
    replies = [ask_for("nested", role="orchestrator"), say("done")]
    sweep(one_turn, lambda: list(replies), level, _given_up, settings=WATCHED, deeper=SILENT)


@pytest.mark.parametrize("level", ("interrupt", "delegation", "child", "session", "server"))
def test_a_stop_of_a_silent_child_in_the_background_ends_well(level: str) -> None:
    replies = [ask_for("silent", background=True), say("dispatched"), say("told")]
    sweep(
        one_turn,
        lambda: list(replies),
        "child" if level == "delegation" else level,
        _given_up,
        settings=WATCHED,
        deeper=SILENT,
        child_kind="delegation" if level == "delegation" else "subagent",
    )


@pytest.mark.parametrize("level", ("interrupt", "child", "session"))
def test_a_stop_of_a_child_whose_two_limits_run_out_together_ends_well(level: str) -> None:
    sweep(one_turn, lambda: [ask_for("silent"), say("done")], level, _given_up, settings=LIMITED, deeper=SILENT)
