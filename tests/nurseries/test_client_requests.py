"""Questions to a human: open exactly while they are, settled exactly once, by whoever comes first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from hermes.errors import ChoiceNotOffered, ClientRequestNotFound, InvalidValue
from hermes.events import ClientRequestClosed, ClientRequestOpened, SessionEvent
from hermes.messages import (
    Answered,
    ClientAnswer,
    Declined,
    NoClient,
    Question,
    TimedOut,
    Unsupported,
    Withdrawn,
)
from hermes.nurseries.client_requests import MAX_OPEN, Attachment, OpenRequests
from hermes.nurseries.ids import counting_ids
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.outcomes import CancelReason, Cause

CHOICES = ("once", "session", "always", "deny")
APPROVAL = Question("approval", {"command": "rm x"}, choices=CHOICES)
CLARIFY = Question("clarify", {"questions": [{"qid": "q1"}, {"qid": "q2"}]})


class Desk:
    """Open requests with what they told, and the answers that came."""

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []
        self.phases: list[int] = []
        self.answers: list[ClientAnswer] = []
        self.requests = OpenRequests(append=self._append, ids=counting_ids())
        self.requests.phase_changed = lambda: self.phases.append(len(self.requests))
        self.scope = ReasonScope("turn", "t", None, tree=LiveTree())

    def _append(self, event: SessionEvent) -> int:
        self.events.append(event)
        return len(self.events)

    async def ask(self, question: Question, turn_id: str = "t1", **options: Any) -> None:
        self.answers.append(await self.requests.ask(question, scope=self.scope, turn_id=turn_id, **options))

    @property
    def closed(self) -> list[ClientAnswer]:
        return [event.answer for event in self.events if isinstance(event, ClientRequestClosed)]


@asynccontextmanager
async def asked(*questions: Question, attach: bool = True) -> AsyncIterator[Desk]:
    """The questions are open; at the end all of them must be settled and told, each once."""
    desk = Desk()
    if attach:
        desk.requests.attach(Attachment("tui", lambda method: True))
    with trio.fail_after(3600):
        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(desk.ask, question)
                await trio.testing.wait_all_tasks_blocked()
            yield desk
    opened = [event.request_id for event in desk.events if isinstance(event, ClientRequestOpened)]
    closed = [event.request_id for event in desk.events if isinstance(event, ClientRequestClosed)]
    assert sorted(opened) == sorted(closed)
    assert len(desk.requests) == 0
    assert len(desk.scope.tree) == 1


async def test_a_question_is_listed_exactly_while_it_is_open(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL) as desk:
        assert desk.requests.entries() == [
            {"id": "srq-1", "method": "approval", "params": {"command": "rm x", "request_id": "00000001"}}
        ]
        assert desk.requests.get("srq-1") is not None
        assert desk.requests.answer_response("srq-1", {"choice": "once"}, by="tui")
        assert desk.requests.entries() == []
        assert desk.requests.get("srq-1") is None
    assert desk.answers == [Answered({"choice": "once"}, "tui")]
    assert desk.phases == [1, 0]


async def test_the_first_answer_counts_and_a_late_one_is_dropped(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL) as desk:
        assert desk.requests.answer_response("srq-1", {"choice": "deny"}, by="a")
        assert not desk.requests.answer_response("srq-1", {"choice": "once"}, by="b")
        assert not desk.requests.answer_error("srq-1", -1, by="b", declined_code=4404)
    assert desk.answers == desk.closed == [Answered({"choice": "deny"}, "a")]


async def test_a_question_without_an_answer_times_out_with_what_was_locked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()
    async with asked(Question("clarify", CLARIFY.params, timeout=300)) as desk:
        assert desk.requests.lock_clarify("srq-1", "q1", "yes", by="tui") == ["q2"]
        assert desk.requests.entries()[0]["params"]["answers"] == {"q1": "yes"}
    assert desk.answers == desk.closed == [TimedOut(partial={"q1": "yes"})]
    assert trio.current_time() == began + 300


@pytest.mark.parametrize("timeout", [None, 0, -1])
async def test_no_timeout_means_no_limit(autojump_clock: trio.testing.MockClock, timeout: float | None) -> None:
    async with asked(Question("approval", choices=CHOICES, timeout=timeout)) as desk:
        await trio.sleep(1000)
        assert len(desk.requests) == 1
        desk.requests.answer_response("srq-1", {"choice": "once"}, by="tui")
    assert isinstance(desk.answers[0], Answered)


@pytest.mark.parametrize(
    ("cause", "word"),
    [
        (Cause.USER_INTERRUPT, "interrupted"),
        (Cause.NODE_CANCEL, "interrupted"),
        (Cause.SESSION_CLOSED, "session_closed"),
        (Cause.SHUTDOWN, "shutdown"),
    ],
)
async def test_a_cancelled_asker_withdraws_its_question_with_the_right_word(
    autojump_clock: trio.testing.MockClock, cause: Cause, word: str
) -> None:
    desk = Desk()
    with trio.fail_after(5), desk.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.ask, APPROVAL)
            await trio.testing.wait_all_tasks_blocked()
            desk.scope.cancel(CancelReason(cause))
    assert desk.closed == [Withdrawn(word)]
    assert desk.answers == []
    assert len(desk.requests) == 0


async def test_a_question_that_was_cancelled_by_itself_is_withdrawn_and_its_asker_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asked(APPROVAL) as desk:
        (node,) = desk.scope.children.values()
        assert node.kind == "question"
        node.cancel(CancelReason(Cause.NODE_CANCEL))
    assert desk.answers == desk.closed == [Withdrawn("interrupted")]


async def test_withdrawing_tells_everybody_before_anybody_runs(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL, CLARIFY) as desk:
        with trio.testing.assert_no_checkpoints():
            withdrawn = desk.requests.withdraw("resolved", turn_id="t1")
        assert [request.request_id for request in withdrawn] == ["srq-1", "srq-2"]
        assert desk.closed == [Withdrawn("resolved")] * 2
        assert desk.requests.withdraw("resolved", turn_id="t1") == []


async def test_withdrawing_one_turn_leaves_the_questions_of_another(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL) as desk:
        assert desk.requests.withdraw("interrupted", turn_id="other") == []
        assert len(desk.requests.open_requests(turn_id="t1")) == 1
        desk.requests.withdraw("interrupted")


async def test_clients_that_show_no_questions_mean_that_nobody_is_asked() -> None:
    desk = Desk()
    desk.requests.attach(Attachment("silent", lambda method: False))
    assert not desk.requests.reachable("approval")
    with trio.testing.assert_checkpoints():
        await desk.ask(APPROVAL)
    assert desk.answers == [NoClient()]
    assert desk.events == []


async def test_with_nobody_there_a_question_waits_for_somebody_to_come_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asked(APPROVAL, attach=False) as desk:
        assert desk.requests.attached == ()
        desk.requests.attach(Attachment("back", lambda method: True))
        desk.requests.answer_response("srq-1", {"choice": "once"}, by="back")
    assert isinstance(desk.answers[0], Answered)


async def test_a_question_survives_the_client_that_leaves(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL) as desk:
        desk.requests.detach("tui")
        desk.requests.detach("tui")
        await trio.sleep(100)
        assert len(desk.requests) == 1
        desk.requests.answer_response("srq-1", {"choice": "once"}, by="other")


async def test_a_submitter_with_a_channel_of_its_own_is_asked_whoever_else_is_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk()
    desk.requests.attach(Attachment("silent", lambda method: False))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: desk.ask(APPROVAL, asks_here=True))
            await trio.testing.wait_all_tasks_blocked()
            desk.requests.answer_response("srq-1", {"choice": "once"}, by="run")
    assert isinstance(desk.answers[0], Answered)


async def test_more_questions_than_the_bound_are_not_asked(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_OPEN):
                nursery.start_soon(desk.ask, APPROVAL)
            await trio.testing.wait_all_tasks_blocked()
            await desk.ask(APPROVAL)
            assert desk.answers == [NoClient()]
            desk.requests.withdraw("interrupted")


async def test_an_error_means_that_the_question_is_not_answered(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL) as desk:
        assert desk.requests.answer_error("srq-1", -32000, by="tui", declined_code=4404)
    assert desk.answers == [Unsupported()]


async def test_a_question_is_declined_only_when_every_client_that_could_show_it_has_declined(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asked(APPROVAL) as desk:
        desk.requests.attach(Attachment("second", lambda method: method == "approval"))
        desk.requests.attach(Attachment("never asked", lambda method: False))
        assert not desk.requests.answer_error("srq-1", 4404, by="tui", declined_code=4404)
        assert len(desk.requests) == 1
        assert desk.requests.answer_error("srq-1", 4404, by="second", declined_code=4404)
    assert isinstance(desk.answers[0], Declined)


@pytest.mark.fault("B-087")
async def test_the_oldest_approval_is_meant_unless_one_is_named(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL, CLARIFY, APPROVAL) as desk:
        requests = desk.requests
        assert requests.find_approval(None).request_id == "srq-1"
        assert requests.find_approval("00000002").request_id == "srq-3"
        assert requests.find_approval("srq-3").request_id == "srq-3"
        with pytest.raises(ClientRequestNotFound):
            requests.find_approval("srq-2")
        with pytest.raises(ClientRequestNotFound):
            requests.find_approval(None, turn_id="other")
        (settled,) = requests.respond_approval("session", approval_id="00000002", every=False, by="x")
        assert settled.request_id == "srq-3"
        assert len(requests) == 2
        requests.withdraw("interrupted")


async def test_a_choice_that_a_route_refuses_leaves_the_question_open(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(Question("approval", choices=("once", "deny"))) as desk:
        with pytest.raises(InvalidValue):
            desk.requests.respond_approval("maybe", approval_id=None, every=False, by="x")
        with pytest.raises(ChoiceNotOffered):
            desk.requests.respond_approval("always", approval_id=None, every=False, by="x")
        assert len(desk.requests) == 1
        desk.requests.withdraw("interrupted")


async def test_one_answer_for_all_settles_every_approval_or_none(autojump_clock: trio.testing.MockClock) -> None:
    narrow = Question("approval", choices=("once", "deny"))
    async with asked(APPROVAL, CLARIFY, narrow) as desk:
        with pytest.raises(ChoiceNotOffered):
            desk.requests.respond_approval("session", approval_id=None, every=True, by="x")
        assert len(desk.requests) == 3
        settled = desk.requests.respond_approval("deny", approval_id=None, every=True, by="x")
        assert [request.request_id for request in settled] == ["srq-1", "srq-3"]
        desk.requests.withdraw("interrupted")


async def test_a_response_for_all_answers_each_approval_by_its_own_choices(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asked(APPROVAL, Question("approval", choices=("once", "deny"))) as desk:
        assert desk.requests.answer_response("srq-1", {"choice": "session", "all": True}, by="x")
    assert [answer.value["choice"] for answer in desk.closed if isinstance(answer, Answered)] == ["session", "deny"]


async def test_answers_that_are_locked_one_by_one_settle_the_batch_when_none_is_missing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asked(CLARIFY) as desk:
        lock = desk.requests.lock_clarify
        with pytest.raises(ClientRequestNotFound, match="q9"):
            lock("srq-1", "q9", "x", by="tui")
        assert lock("srq-1", "q2", ["a"], by="tui") == ["q1"]
        assert lock("srq-1", "q1", "b", by="tui") == []
        assert lock("srq-1", "q1", "late", by="tui") is None
    assert desk.answers == [Answered({"answers": {"q2": '["a"]', "q1": "b"}}, "tui")]


async def test_only_clarify_answers_can_be_locked(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(APPROVAL) as desk:
        assert desk.requests.lock_clarify("srq-1", "q1", "x", by="tui") is None
        desk.requests.withdraw("interrupted")


async def test_a_password_reaches_the_asker_and_no_event(autojump_clock: trio.testing.MockClock) -> None:
    async with asked(Question("sudo")) as desk:
        desk.requests.answer_response("srq-1", {"value": "s3cret"}, by="tui")
    assert desk.answers == [Answered({"value": "s3cret"}, "tui")]
    assert desk.closed == [Answered({}, "tui")]
    assert "s3cret" not in repr(desk.events)


async def test_an_answer_in_the_tick_of_a_stop_is_not_overwritten(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    with trio.fail_after(5), desk.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.ask, APPROVAL)
            await trio.testing.wait_all_tasks_blocked()
            desk.requests.answer_response("srq-1", {"choice": "once"}, by="tui")
            desk.scope.cancel(CancelReason(Cause.USER_INTERRUPT))
    assert desk.closed == [Answered({"choice": "once"}, "tui")]
