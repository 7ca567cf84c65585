"""One turn at a time, and the queue behind it."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio.testing

from hermes.errors import EmptyText, HermesError, Overloaded
from hermes.messages import ImagePart, Prompt, TextPart, TurnLimits
from hermes.nurseries.turn import Turn
from hermes.nurseries.turn_slot import Accepted, Submission, TurnSlot, mergeable

FIRST, SECOND = cast(Turn, object()), cast(Turn, object())


def queued(*prompts: Prompt, room: int = 32) -> TurnSlot:
    slot = TurnSlot(max_queued=room)
    for prompt in prompts:
        slot.enqueue(Submission(prompt, "queued"))
    return slot


def typed(text: str, **options: Any) -> Prompt:
    return Prompt(text, source="gateway", **options)


def envelopes(slot: TurnSlot) -> list[str]:
    found = []
    while (envelope := slot.take_next()) is not None:
        found.append(envelope[0].text)
    return found


def test_only_the_turn_that_holds_the_slot_frees_it() -> None:
    slot = TurnSlot(max_queued=1)
    slot.reserve(FIRST)
    assert slot.taken
    slot.release(SECOND)
    assert slot.taken
    slot.release(FIRST)
    assert not slot.taken
    slot.reserve(SECOND)


def test_a_taken_slot_is_not_given_again() -> None:
    slot = TurnSlot(max_queued=1)
    slot.reserve(FIRST)
    with pytest.raises(AssertionError):
        slot.reserve(SECOND)


def test_a_slot_can_be_held_without_a_turn() -> None:
    slot = TurnSlot(max_queued=1)
    slot.held = "compressing"
    assert slot.taken
    slot.held = None
    assert not slot.taken


def test_adjacent_plain_text_prompts_become_one_envelope() -> None:
    assert envelopes(queued(typed("one"), typed("two"), typed("three"))) == ["one\n\ntwo\n\nthree"]


@pytest.mark.parametrize(
    "other",
    [
        Prompt("two", source="api"),
        Prompt((TextPart("two"), ImagePart("image/png", "x")), source="gateway"),
        typed("two", api_content="expanded"),
        typed("two", display_kind="process_complete"),
        typed("two", limits=TurnLimits(deadline_s=5)),
    ],
    ids=["another host", "image", "api content", "display kind", "limits"],
)
def test_a_prompt_that_needs_a_turn_of_its_own_keeps_it(other: Prompt) -> None:
    assert not mergeable(other)
    slot = queued(typed("one"), other, typed("three"))
    found = envelopes(slot)
    assert len(found) == 3
    assert sorted(found) == ["one", "three", "two"]


def test_prompts_for_different_models_are_not_joined() -> None:
    assert envelopes(queued(typed("one"), typed("two", model="m"), typed("three", model="m"))) == [
        "one",
        "two\n\nthree",
    ]


def test_an_envelope_carries_every_submission_in_it() -> None:
    slot = queued(typed("one", client_message_id="a"), typed("two"))
    submissions = list(slot.queued)
    envelope = slot.take_next()
    assert envelope is not None
    prompt, merged = envelope
    assert merged == submissions
    assert prompt.client_message_id == "a"
    assert slot.take_next() is None


def test_a_full_queue_refuses_and_keeps_what_it_has() -> None:
    slot = queued(typed("one"), room=1)
    with pytest.raises(Overloaded, match="1 prompts"):
        slot.enqueue(Submission(typed("two"), "queued"))
    assert [submission.prompt.text for submission in slot.queued] == ["one"]
    slot.enqueue_first(Submission(typed("zero"), "queued"))
    assert [submission.prompt.text for submission in slot.queued] == ["zero", "one"]


async def test_a_dropped_prompt_is_settled_without_a_row_and_without_a_turn() -> None:
    slot = queued(typed("one"), typed("two"))
    first, second = slot.queued
    assert slot.drop(first)
    assert not slot.drop(first)
    assert slot.drop_all() == [second]
    assert slot.queued == ()
    for submission in (first, second):
        assert await submission.wait_accepted() == Accepted(None)
        assert await submission.wait_turn() is None
    assert slot.drop_all() == []


async def test_whoever_submitted_hears_the_error_that_refused_the_prompt() -> None:
    submission = Submission(typed("one"), "queued")
    error: HermesError = EmptyText()
    submission.accepted.settle(error)
    with pytest.raises(EmptyText):
        await submission.wait_accepted()


async def test_everything_about_the_slot_is_synchronous() -> None:
    with trio.testing.assert_no_checkpoints():
        slot = queued(typed("one"))
        slot.take_next()
        slot.reserve(FIRST)
        slot.release(FIRST)
        slot.drop_all()
