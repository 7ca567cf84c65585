"""The next message works: after an interrupt that says it has settled, an edit is accepted at the first try, always."""

from __future__ import annotations

import random

import pytest
import trio

from hermes.messages import Prompt, RewindIntent
from hermes.outcomes import CancelReason, Cause
from tests.support.core import call, hang, make_services, running_tree, say
from tests.support.invariants import assert_events_are_well_formed, assert_history_is_whole

TRIES = 200
WORK = (
    lambda: hang(),
    lambda: say("thinking ", "about ", "it", pause=1.0),
    lambda: say("one moment", calls=[call("nap", "c1", seconds=60), call("nap", "c2", seconds=60)]),
    lambda: say("may I?", calls=[call("ask", "c1")]),
    lambda: say("done at once"),
)


@pytest.mark.fault("B-038", "B-121")
@pytest.mark.parametrize("wait_for_answer", [True, False])
async def test_two_hundred_edits_in_a_row_are_accepted_at_the_first_try(
    wait_for_answer: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Also when the edit comes in one write with the interrupt, on a connection that waits before it submits."""
    dice = random.Random(11)
    services, _model = make_services(*[dice.choice(WORK)() for _ in range(3 * TRIES)])
    async with running_tree(services) as tree:
        session = tree.registry.create(source="tui", cwd=".")
        row_id = (await session.submit_nowait(Prompt("begin")).wait_accepted()).user_row_id
        for number in range(TRIES):
            await trio.sleep(dice.choice([0.0, 0.5, 2.0]))
            for _ in range(dice.randrange(12)):
                await trio.lowlevel.checkpoint()
            interrupt = session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
            if wait_for_answer:
                result = await interrupt.wait_settled(0.9)
                assert result.settled, f"try {number}"
            else:
                while session.slot.taken:
                    await trio.lowlevel.checkpoint()
            edit = session.submit_nowait(Prompt(f"edit {number}"), rewind=RewindIntent(row_id, confirm_empty=True))
            accepted = await edit.wait_accepted()
            assert accepted.survivors == (), f"try {number}"
            assert accepted.user_row_id is not None and accepted.user_row_id > (row_id or 0)
            row_id = accepted.user_row_id
        await session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT)).wait_settled(0.9)
        assert_history_is_whole(session.rows)
        assert [row.text for row in session.rows if row.is_user_prompt] == [f"edit {TRIES - 1}"]
        assert_events_are_well_formed([entry.event for entry in session.log.since(session.log.latest_seq)[0]])
