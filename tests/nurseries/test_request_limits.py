"""Limits that the caller sets on a request: a warning at a tool boundary, then the cut, the partial answer kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest
from hermes.messages import Prompt, TurnLimits
from hermes.outcomes import Cause, Usage
from tests.support.core import Reply, call, make_services, running_tree, say


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (TurnLimits(max_tokens_total=60), "tokens"),
        (TurnLimits(max_iterations=5), "steps"),
        (TurnLimits(deadline_s=50), "seconds"),
    ],
)
async def test_the_model_is_warned_once_before_the_cut(
    limits: TurnLimits, word: str, autojump_clock: trio.abc.Clock
) -> None:
    replies = [say(f"step {n}", calls=[call("nap", f"c{n}", seconds=10)]) for n in range(20)]
    services, _ = make_services(*replies)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go", limits=limits)).wait_turn()
        assert turn is not None
        record = await turn.wait_ended()
        assert record.cause is (Cause.DEADLINE if word == "seconds" else Cause.BUDGET)
        assert record.pending_steer is None
        warnings = [row.text for row in session.rows if row.display_kind == "internal_notification"]
        assert len(warnings) == 1 and word in warnings[0]


async def test_money_that_is_spent_is_warned_of_and_then_ends_the_turn(
    autojump_clock: trio.abc.Clock,
) -> None:
    def costing(step: int) -> Reply:
        async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
            finished = await say(f"step {step}", calls=[call("nap", f"c{step}", seconds=1)])(request, on_delta)
            return replace(finished, usage=Usage(input_tokens=10, output_tokens=5, calls=1, cost_usd=0.25))

        return reply

    services, model = make_services(*[costing(step) for step in range(20)])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go", limits=TurnLimits(max_cost_usd=1.25))).wait_turn()
        assert turn is not None
        record = await turn.wait_ended()
        assert record.cause is Cause.BUDGET
        assert len(model.requests) == record.api_calls == 5
        assert record.usage.total_tokens == 5 * 15 and not record.usage.estimated
        (warning,) = [row.text for row in session.rows if row.display_kind == "internal_notification"]
        assert "1 of 1.25 US dollars" in warning
        assert turn.spent().cost_usd == 1.25


async def test_a_turn_without_limits_or_far_from_them_is_not_warned(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("nap")]), say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go", limits=TurnLimits(max_iterations=50))).wait_turn()
        assert turn is not None
        assert (await turn.wait_ended()).text == "done"
        assert not [row for row in session.rows if row.display_kind == "internal_notification"]
