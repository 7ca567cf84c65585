"""Child agents, side agents, undo, compression and branch, stopped after each of their steps, at each level."""

from __future__ import annotations

import pytest
import trio

from hermes.events import BackgroundEnded, ClientRequestOpened, StatusUpdate
from hermes.messages import Prompt
from hermes.nurseries import session_history as history
from hermes.nurseries.background import start_background, start_btw
from hermes.nurseries.session import Session
from hermes.testing import SweepRun
from tests.support.child_agents import ask_for
from tests.support.core import call, say
from tests.support.verb_sweep import Left, VerbScenario, one_turn, sweep


@pytest.mark.parametrize("level", ("interrupt", "child", "session", "server"))
def test_a_stop_of_delegating_work_ends_well(level: str) -> None:
    sweep(one_turn, lambda: [ask_for("one", "two"), say("done")], level)


@pytest.mark.parametrize("level", ("interrupt", "child", "session", "server"))
def test_a_stop_of_a_background_delegation_ends_well(level: str) -> None:
    replies = [ask_for("one", "two", background=True), say("dispatched"), say("told")]
    sweep(one_turn, lambda: list(replies), level)


async def _side(_scenario: VerbScenario, session: Session) -> None:
    start_background(session, "one thing")
    start_btw(session, "two things?")
    while session.side_work:
        await trio.sleep(0.5)


def _told_once(run: SweepRun[VerbScenario, Left]) -> None:
    ended = [event.task_id for event in run.result.events if isinstance(event, BackgroundEnded)]
    assert len(ended) == len(set(ended)) and (len(ended) == 2 or run.step)


@pytest.mark.parametrize("level", ("child", "session", "server"))
def test_a_stop_of_side_agents_ends_well(level: str) -> None:
    sweep(_side, list, level, _told_once, child_kind="background")


async def _undo(_scenario: VerbScenario, session: Session) -> None:
    await history.undo(session)


def _whole_or_not_at_all(run: SweepRun[VerbScenario, Left]) -> None:
    kept = [row for row in run.result.rows if row in run.result.before]
    assert len(kept) in (2, 4)


@pytest.mark.parametrize("level", ("caller", "interrupt", "child", "session", "server"))
def test_a_stop_of_an_undo_changes_all_or_nothing(level: str) -> None:
    sweep(_undo, list, level, _whole_or_not_at_all, child_kind="held")


async def _undo_and_back(_scenario: VerbScenario, session: Session) -> None:
    await history.undo(session)
    await history.undo_rewind(session)


@pytest.mark.parametrize("level", ("caller", "interrupt", "session", "server"))
def test_a_stop_of_an_undone_undo_changes_all_or_nothing(level: str) -> None:
    sweep(_undo_and_back, list, level, _whole_or_not_at_all)


async def _compress(_scenario: VerbScenario, session: Session) -> None:
    await history.compress(session, "here 1")


def _summarized_or_not(run: SweepRun[VerbScenario, Left]) -> None:
    summaries = [row for row in run.result.rows if row.compacted_summary]
    kinds = [event.kind for event in run.result.events if isinstance(event, StatusUpdate)]
    assert len(summaries) <= 1
    assert summaries or all(row in run.result.rows for row in run.result.before)
    assert kinds.count("compressing") == kinds.count("status")
    assert run.step or summaries


@pytest.mark.parametrize("level", ("caller", "interrupt", "child", "session", "server"))
def test_a_stop_of_a_compression_changes_all_or_nothing(level: str) -> None:
    sweep(_compress, lambda: [say("short", pause=1)], level, _summarized_or_not, child_kind="held", turns=4)


async def _branch(scenario: VerbScenario, session: Session) -> None:
    assert scenario.tree is not None
    made = await history.branch(scenario.tree.registry, session)
    assert [row.text for row in made.rows] == [row.text for row in session.rows]


@pytest.mark.parametrize("level", ("caller", "session", "server"))
def test_a_stop_of_a_branch_leaves_the_parent_as_it_was(level: str) -> None:
    sweep(_branch, list, level, lambda run: None)


async def _question(_scenario: VerbScenario, session: Session) -> None:
    turn = await session.submit_nowait(Prompt("go")).wait_turn()
    assert turn is not None
    subscription = session.log.subscribe(0)
    while not turn.ended.settled:
        for entry in subscription.next_nowait():
            if isinstance(entry.event, ClientRequestOpened):
                await trio.sleep(1)
                session.requests.answer_response(entry.event.request_id, {"choice": "once"}, by="test")
        await turn.ended.wait_at_most(0.5)


def _no_record_without_a_question(run: SweepRun[VerbScenario, Left]) -> None:
    # A shutdown keeps the record of what it withdrew: the next server shows it.
    assert run.result.questions == 0 or (run.level == "server" and run.step)


@pytest.mark.parametrize("level", ("interrupt", "session", "server"))
def test_a_stop_leaves_no_record_of_a_question_that_is_closed(level: str) -> None:
    sweep(_question, lambda: [say("", calls=[call("ask")]), say("done")], level, _no_record_without_a_question)
