"""What the loop does near its bounds: the notice at a share of the steps, and a window that is nearly full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermes.agent.budgets import BudgetWatch
from hermes.agent.loop_settings import LoopSettings
from hermes.messages import TurnLimits
from hermes.outcomes import Completed, Failed, Usage
from tests.support.loop_port import MODEL, Say, call, play

STEP = [call("terminal", {}, "")]


async def test_a_share_of_the_steps_is_told_once_as_a_notice_that_hosts_do_not_show() -> None:
    settings = LoopSettings(max_iterations=10, budget_warning_ratio=0.5)
    played = await play(*[Say("", STEP) for _ in range(8)], Say("done"), settings=settings)
    notices = [row for row in played.rows if row.display_kind == "internal_notification"]
    assert [row.role for row in notices] == ["user"] and "5 of 10 steps" in notices[0].text
    assert played.end.outcome == Completed("done")


async def test_without_a_ratio_nothing_is_told() -> None:
    played = await play(*[Say("", STEP) for _ in range(8)], Say("done"), settings=LoopSettings(max_iterations=10))
    assert not [row for row in played.rows if row.display_kind == "internal_notification"]


async def test_a_cut_answer_is_not_continued_into_a_full_window() -> None:
    small = replace(MODEL, context_length=900)
    said = " ".join(map(str, range(400)))
    played = await play(Say(said, finish="length"), resolved=small)
    outcome = played.end.outcome
    assert isinstance(outcome, Failed) and outcome.incomplete and outcome.text == said
    assert "window is full" in outcome.error and played.end.exit_reason == "truncated"


@pytest.mark.parametrize(("limit", "told_after"), [(1, None), (2, 1), (3, 2), (10, 8)])
def test_the_callers_last_step_is_announced_before_it_and_never_after(limit: int, told_after: int | None) -> None:
    watch = BudgetWatch(LoopSettings(), TurnLimits(max_iterations=limit))
    told = [done for done in range(limit + 1) if watch.notices(done, Usage(), 0.0)]
    assert told == ([] if told_after is None else [told_after])
