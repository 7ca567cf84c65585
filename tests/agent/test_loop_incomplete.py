"""Answers that an endpoint calls incomplete itself, three times in a row (agent-core §1.13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hermes.events import StatusUpdate
from hermes.outcomes import Completed, Failed
from tests.support.loop_port import MODEL, Say, call, play

OTHER = replace(MODEL, model="model-2", provider="provider-2")


def incomplete(text: str = "", **more: Any) -> Say:
    return Say(text, finish="length", extra={"incomplete": True}, **more)


async def test_three_answers_that_are_called_incomplete_go_on_with_the_next_model_and_nothing_is_said_twice() -> None:
    played = await play(
        incomplete("One, "), incomplete("two, "), incomplete("three, "), Say("four."), fallbacks=[OTHER]
    )
    assert [request.model for request in played.model.requests] == ["model-1"] * 3 + ["model-2"]
    assert played.model.requests[3].messages[-2].text == "One, two, three, "
    assert played.end.outcome == Completed("One, two, three, four.")
    assert played.port.shown == "One, two, three, four."
    assert [row.role for row in played.rows] == ["user", "assistant"]
    assert played.port.named(StatusUpdate)[-1].text.startswith("model-1 failed (incomplete_response)")


async def test_incomplete_answers_without_a_fallback_end_like_any_that_is_cut_off() -> None:
    played = await play(*[incomplete(f"part {number}. ") for number in range(4)])
    outcome = played.end.outcome
    assert isinstance(outcome, Failed) and outcome.incomplete
    assert (outcome.text, played.end.exit_reason) == ("part 0. part 1. part 2. part 3. ", "truncated")


async def test_incomplete_answers_that_hold_nothing_fail_as_that() -> None:
    played = await play(incomplete(), incomplete(), incomplete())
    outcome = played.end.outcome
    assert isinstance(outcome, Failed) and not outcome.incomplete and outcome.retryable
    assert (outcome.failure_reason, played.end.exit_reason) == (
        "incomplete_response",
        "provider_error(incomplete_response)",
    )
    assert played.rows[-1].display_kind == "failed_turn"


async def test_calls_that_are_cut_three_times_by_an_incomplete_answer_are_asked_of_the_next_model() -> None:
    cut = incomplete("I write it.", calls=[call("terminal", '{"command": "ec')])
    whole = Say("I write it.", [call("terminal", {"command": "echo"}, "c1")])
    played = await play(cut, cut, cut, whole, Say("done"), fallbacks=[OTHER])
    assert [request.model for request in played.model.requests] == ["model-1"] * 3 + ["model-2"] * 2
    assert played.end.outcome == Completed("done")
    assert played.port.shown.count("I write it.") == 1


async def test_one_whole_answer_behind_two_incomplete_ones_is_the_answer() -> None:
    played = await play(incomplete("One, "), incomplete("two, "), Say("three."))
    assert played.end.outcome == Completed("One, two, three.")
