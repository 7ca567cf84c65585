"""Limits that the caller sets on a request: a warning at a tool boundary, then the cut, the partial answer kept."""

from __future__ import annotations

import pytest
import trio

from hermes.messages import Prompt, TurnLimits
from hermes.outcomes import Cause
from tests.support.core import call, make_services, running_tree, say


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


async def test_a_turn_without_limits_or_far_from_them_is_not_warned(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say("", calls=[call("nap")]), say("done"))
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go", limits=TurnLimits(max_iterations=50))).wait_turn()
        assert turn is not None
        assert (await turn.wait_ended()).text == "done"
        assert not [row for row in session.rows if row.display_kind == "internal_notification"]
