"""A silent turn is marked as stalled; one that waits for a human is not."""

from __future__ import annotations

import trio

from hermes.events import ClientRequestOpened, StatusUpdate
from hermes.messages import Prompt
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.settings import Settings
from tests.support.core import call, events_of, hang, make_services, running_tree, say

SETTINGS = Settings.model_validate({"agent": {"turn_liveness": {"timeout_s": 60, "poll_s": 5}}})


def stalls(session: Session) -> int:
    return sum(isinstance(event, StatusUpdate) and event.kind == "stalled" for event in events_of(session))


async def test_a_silent_turn_is_told_about_and_goes_on(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(hang(), settings=SETTINGS)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await trio.sleep(59)
        assert stalls(session) == 0 and not turn.stalled
        await trio.sleep(2)
        assert stalls(session) == 1 and turn.stalled
        await trio.sleep(60)
        assert stalls(session) == 2
        assert session.running


async def test_a_turn_that_shows_something_is_not_stalled(autojump_clock: trio.abc.Clock) -> None:
    services, _ = make_services(say(*"abcdefgh", pause=50), settings=SETTINGS)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("go")).wait_turn()
        assert turn is not None
        await turn.wait_ended()
        assert stalls(session) == 0


async def test_waiting_for_a_human_is_no_stall_and_the_time_counts_from_the_answer(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, _ = make_services(say("", calls=[call("ask")]), hang(), settings=SETTINGS)
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        session.submit_nowait(Prompt("go"))
        await trio.sleep(119)
        [opened] = [event for event in events_of(session) if isinstance(event, ClientRequestOpened)]
        session.requests.answer_response(opened.request_id, {"choice": "once"}, by="test")
        await trio.sleep(55)
        assert stalls(session) == 0
        await trio.sleep(10)
        assert stalls(session) == 1
        session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
