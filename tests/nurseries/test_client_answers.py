"""What an answer means: a malformed one never becomes "run"."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.errors import ChoiceNotOffered, InvalidValue
from hermes.messages import Answered, ClientAnswer, Question, Withdrawn
from hermes.nurseries.client_answers import answer_from_response, approval_choice, clarify_answer, question_ids

APPROVAL = Question("approval", {"command": "ls"}, choices=("once", "session", "deny"))
CLARIFY = Question("clarify", {"questions": [{"qid": "q1"}, {"qid": "q2"}]})
SUDO = Question("sudo")


@pytest.mark.parametrize("choice", ["once", "session", "deny"])
def test_an_offered_choice_is_taken_as_it_is(choice: str) -> None:
    assert approval_choice(APPROVAL, choice) == choice
    assert answer_from_response(APPROVAL, {"choice": choice}, {}, "x") == Answered({"choice": choice}, "x")


def test_a_choice_that_was_not_offered_is_refused_by_name() -> None:
    with pytest.raises(ChoiceNotOffered, match="once, session, deny"):
        approval_choice(APPROVAL, "always")


@pytest.mark.parametrize("choice", ["yes", "", None, 1, True, ["once"], {"choice": "once"}])
def test_a_choice_that_is_none_is_refused_by_a_route(choice: object) -> None:
    with pytest.raises(InvalidValue):
        approval_choice(APPROVAL, choice)


@pytest.mark.parametrize("result", [None, "once", [], {}, {"choice": "always"}, {"choice": 1}, {"choice": "YES"}])
def test_a_response_that_offers_no_valid_choice_denies(result: object) -> None:
    assert answer_from_response(APPROVAL, result, {}, "x") == Answered({"choice": "deny"}, "x")


def test_a_reason_of_an_approval_is_kept_and_bounded() -> None:
    answer = answer_from_response(APPROVAL, {"choice": "deny", "reason": "r" * 300}, {}, "x")
    assert answer == Answered({"choice": "deny", "reason": "r" * 200}, "x")
    assert answer_from_response(APPROVAL, {"choice": "deny", "reason": 5}, {}, "x") == Answered({"choice": "deny"}, "x")


@pytest.mark.parametrize(
    ("result", "locks", "answer"),
    [
        ({"answers": {"q1": "a", "q2": "b"}}, {}, Answered({"answers": {"q1": "a", "q2": "b"}}, "x")),
        ({"answers": {"q1": "a"}}, {"q2": "locked"}, Answered({"answers": {"q2": "locked", "q1": "a"}}, "x")),
        ({"answers": {"q1": "new"}}, {"q1": "old"}, Answered({"answers": {"q1": "new"}}, "x")),
        ({"answers": {"foreign": "a"}}, {}, Answered({"answers": {}}, "x")),
        ({"answers": "text"}, {}, Withdrawn("cancelled")),
        ({}, {"q1": "kept"}, Withdrawn("cancelled", partial={"q1": "kept"})),
        (None, {}, Withdrawn("cancelled")),
    ],
)
def test_clarify_answers_join_what_was_locked_before(
    result: object, locks: dict[str, Any], answer: ClientAnswer
) -> None:
    assert answer_from_response(CLARIFY, result, locks, "x") == answer


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, None),
        ("plain", "plain"),
        ("Blue (Recommended)", "Blue"),
        (["a (Recommended)", "b"], '["a", "b"]'),
        ([1, "b"], '[1, "b"]'),
        ({"x": "ü"}, '{"x": "ü"}'),
        (7, "7"),
    ],
)
def test_one_clarify_answer_becomes_text(given: object, text: str | None) -> None:
    assert clarify_answer(given) == text


@pytest.mark.parametrize(("result", "value"), [({"value": "pw"}, "pw"), ({"value": 5}, ""), ({}, ""), (None, "")])
def test_a_secret_is_text_or_nothing(result: object, value: str) -> None:
    assert answer_from_response(SUDO, result, {}, "x") == Answered({"value": value}, "x")


def test_a_connection_answer_is_passed_on_whole() -> None:
    assert answer_from_response(Question("connection"), {"ok": True}, {}, "x") == Answered({"ok": True}, "x")


def test_the_ids_of_a_batch_are_texts_in_order() -> None:
    assert question_ids(Question("clarify", {"questions": [{"qid": 2}, {"qid": "a"}]})) == ("2", "a")
    assert question_ids(Question("clarify")) == ()
