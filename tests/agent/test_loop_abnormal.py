"""Answers that are cut off, empty, refused or repeating; errors, retries, fallbacks; compression inside a turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermes.agent.cooldowns import Cooldowns
from hermes.agent.error_classes import ERROR_ACTIONS
from hermes.agent.loop import run_turn
from hermes.agent.loop_settings import CompressionSettings, LoopSettings
from hermes.agent.ports import ModelRequest
from hermes.errors import ProviderError
from hermes.events import HistoryCompressed, RedirectApplied, StatusUpdate
from hermes.messages import Prompt, Row
from hermes.outcomes import Completed, Failed, Usage
from tests.support.loop_port import (
    MODEL,
    FakeTools,
    Played,
    Say,
    ScriptedModel,
    Stopped,
    call,
    failing,
    finish,
    make,
    play,
    tool,
    wire_bytes,
)

OTHER = replace(MODEL, model="model-2", provider="provider-2")


def assistant_texts(played: Played) -> list[str]:
    return [row.text for row in played.rows if row.role == "assistant"]


# --- cut off ---------------------------------------------------------------------------------------------------------


async def test_a_call_cut_by_the_output_limit_is_asked_again_with_more_room_and_not_stored() -> None:
    played = await play(
        Say("", [call("terminal", '{"command": "ec')], finish="length"),
        Say("", [call("terminal", {"command": "echo"})]),
        Say("ok"),
        settings=LoopSettings(max_output_tokens=4_000),
    )
    assert [request.max_output_tokens for request in played.model.requests] == [4_000, 8_000, 4_000]
    assert len([row for row in played.rows if row.tool_calls]) == 1
    assert played.setup.progress.api_calls == 3 and played.setup.progress.iterations == 2
    assert any("cut off" in event.text for event in played.port.named(StatusUpdate))


async def test_a_call_that_ends_inside_a_string_counts_as_cut_whatever_the_finish_reason() -> None:
    played = await play(Say("", [call("terminal", '{"command": "ec')]), Say("fine"))
    assert played.end.outcome == Completed("fine")
    assert played.port.ran == []


async def test_a_call_that_is_cut_four_times_ends_the_turn_as_truncated() -> None:
    cut = Say("", [call("write_file", '{"path": "/a", "content": "')], finish="length")
    played = await play(cut, cut, cut, cut)
    assert played.end.exit_reason == "truncated"
    assert isinstance(played.end.outcome, Failed) and played.end.outcome.incomplete
    assert [request.max_output_tokens for request in played.model.requests] == [None, 16_384, 32_768, 32_768]


async def test_text_shown_before_a_cut_call_is_not_shown_twice() -> None:
    played = await play(
        Say("I will write it.", [call("terminal", '{"command": "ec')], finish="length"),
        Say("I will write it.", [call("terminal", {"command": "echo"})]),
        Say("done"),
    )
    assert played.port.shown == "I will write it.\n\ndone"


async def test_a_cut_text_is_continued_into_one_row_without_showing_overlap_twice() -> None:
    first = "The quick brown fox jumps over the lazy dog and runs"
    second = " jumps over the lazy dog and runs away into the woods."
    played = await play(Say(first, finish="length"), Say(second))
    whole = "The quick brown fox jumps over the lazy dog and runs away into the woods."
    assert played.end.outcome == Completed(whole)
    assert played.port.shown == whole
    assert assistant_texts(played) == [whole]
    assert [row.role for row in played.model.requests[1].messages][-2:] == ["assistant", "user"]


async def test_a_stream_that_drops_in_mid_text_is_continued_not_restarted() -> None:
    dropped = failing("stream_dropped")
    dropped.text = "Once upon a "
    played = await play(dropped, Say("time there was an end."))
    assert played.end.outcome == Completed("Once upon a time there was an end.")
    assert played.port.shown == "Once upon a time there was an end."
    assert assistant_texts(played) == ["Once upon a time there was an end."]


async def test_continuations_are_bounded_and_what_was_said_is_kept_as_one_row() -> None:
    played = await play(*[Say(f"part {n}. ", finish="length") for n in range(4)])
    assert played.end.exit_reason == "truncated"
    assert isinstance(played.end.outcome, Failed)
    assert played.end.outcome.text == "part 0. part 1. part 2. part 3. "
    assert assistant_texts(played) == ["part 0. part 1. part 2. part 3. "]
    assert played.setup.progress.warning is not None


async def test_an_answer_that_repeats_itself_is_cut() -> None:
    played = await play(Say("Fine. " + "I will do it now. " * 40, finish="length"))
    assert played.end.exit_reason == "truncated" and len(played.model.requests) == 1


async def test_reasoning_that_used_up_the_limit_is_asked_again_without_reasoning() -> None:
    played = await play(Say("", reasoning="hm " * 50, finish="length"), Say("short answer"))
    assert played.model.requests[1].reasoning_effort == "none"
    assert played.end.outcome == Completed("short answer")


async def test_a_stop_in_mid_word_at_the_limit_is_a_cut() -> None:
    played = await play(
        Say("This is unfin", usage=Usage(input_tokens=10, output_tokens=99)),
        Say("ished.", usage=Usage(input_tokens=10, output_tokens=2)),
        settings=LoopSettings(max_output_tokens=100),
    )
    assert played.end.outcome == Completed("This is unfinished.")


# --- empty and refused -----------------------------------------------------------------------------------------------


async def test_empty_answers_are_retried_with_growing_pauses_and_then_given_up() -> None:
    steps = [Say("", reasoning="", finish=finish) for finish in ("stop", "tool_calls", "stop", "tool_calls")]
    played = await play(*steps)
    assert played.port.pauses == [5.0, 10.0, 20.0]
    assert played.end.exit_reason == "empty_response_exhausted"
    outcome = played.end.outcome
    assert isinstance(outcome, Failed) and outcome.incomplete and outcome.text == "" and outcome.error
    assert played.rows[-1].display_kind == "failed_turn"


async def test_identically_empty_answers_stop_the_retries_early() -> None:
    played = await play(Say(""), Say(""), Say(""))
    assert played.end.exit_reason == "empty_response_exhausted"


async def test_an_empty_answer_after_tools_is_nudged_once_without_storing_the_nudge() -> None:
    played = await play(Say("", [call("terminal", {"command": "ls"})]), Say(""), Say("It worked."))
    assert played.end.outcome == Completed("It worked.")
    assert played.model.requests[2].messages[-1].role == "user"
    assert [row.role for row in played.rows] == ["user", "assistant", "tool", "assistant"]


async def test_text_beside_housekeeping_calls_is_the_answer_when_nothing_follows() -> None:
    played = await play(Say("All done.", [call("todo_list", {})]), Say(""))
    assert played.end.outcome == Completed("All done.")
    assert played.end.exit_reason == "fallback_prior_turn_content"
    assert played.setup.progress.response_previewed


async def test_reasoning_without_an_answer_is_asked_for_the_answer_twice() -> None:
    thinking = Say("", reasoning="The answer is 4.")
    played = await play(thinking, thinking, Say("4"))
    assert played.end.outcome == Completed("4")
    assert played.model.requests[1].messages[-2].text == "The answer is 4."


async def test_a_refusal_falls_back_once_and_then_fails_without_retry() -> None:
    blocked = Say("", finish="content_filter")
    played = await play(blocked, blocked, fallbacks=[OTHER])
    assert [request.model for request in played.model.requests] == ["model-1", "model-2"]
    outcome = played.end.outcome
    assert isinstance(outcome, Failed) and not outcome.incomplete and not outcome.retryable
    assert (outcome.failure_reason, played.end.exit_reason) == ("content_policy_blocked", "content_policy_blocked")


async def test_refusal_text_of_a_separate_field_is_the_answer() -> None:
    played = await play(Say("", refusal="I cannot help with that."))
    assert played.end.outcome == Completed("I cannot help with that.")
    assert played.port.shown == "I cannot help with that."


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_retry_after_is_honoured_with_one_wait_and_one_status() -> None:
    played = await play(failing("rate_limit", status=429, retry_after=7), Say("ok"))
    assert played.port.pauses == [7]
    (status,) = played.port.named(StatusUpdate)
    assert status.details is not None
    assert (status.details["class"], status.details["attempt"], status.details["attempts"]) == ("rate_limit", 2, 3)
    assert (status.details["delay_s"], status.details["provider"]) == (7, "provider-1")
    assert played.end.outcome == Completed("ok")
    assert played.setup.progress.api_calls == 2


async def test_retry_after_is_capped_at_ten_minutes() -> None:
    played = await play(failing("rate_limit", retry_after=9_999), Say("ok"))
    assert played.port.pauses == [600]


async def test_a_connection_lost_before_any_delta_is_opened_again_at_once_twice() -> None:
    drop = failing("stream_dropped")
    played = await play(drop, drop, Say("ok"))
    assert played.port.pauses == [] and played.end.outcome == Completed("ok")


async def test_a_format_error_without_fallback_fails_with_a_closing_row_and_the_next_turn_works() -> None:
    played = await play(failing("format_error", status=400))
    outcome = played.end.outcome
    assert isinstance(outcome, Failed) and outcome.failure_reason == "format_error" and not outcome.incomplete
    assert played.end.exit_reason == "provider_error(format_error)"
    assert played.rows[-1].display_kind == "failed_turn"
    again = await play(Say("ok"), history=played.rows)
    assert again.end.outcome == Completed("ok")
    sent = again.model.requests[0].messages
    assert sent[1].role == "assistant" and sent[1].text.startswith("[")


async def test_a_request_that_never_reached_the_provider_is_not_counted() -> None:
    played = await play(failing("timeout", reached_provider=False), Say("ok"))
    assert played.setup.progress.api_calls == 1


async def test_retries_are_bounded_and_end_in_the_recovery_ladder() -> None:
    played = await play(*[failing("overloaded") for _ in range(8)])
    assert played.port.pauses == [2.5, 5.0, 15.0, 30.0, 60.0, 60.0, 60.0]
    assert played.end.exit_reason == "provider_error(overloaded)"
    assert isinstance(played.end.outcome, Failed) and played.end.outcome.retryable


async def test_the_fallback_model_gets_the_turn_with_its_own_name_in_the_prompt() -> None:
    played = await play(failing("model_not_found"), Say("ok"), fallbacks=[replace(OTHER, context_length=32_000), OTHER])
    assert played.model.requests[1].model == "model-2"
    assert played.model.requests[1].system[1] == "Model: model-2\nProvider: provider-2"
    assert played.model.requests[1].system[0] == played.model.requests[0].system[0]
    progress = played.setup.progress
    assert (progress.requested_model, progress.model, progress.served_model) == ("model-1", "model-2", "model-2")
    status = played.port.named(StatusUpdate)[-1]
    assert status.details is not None and status.details["to"] == {"model": "model-2", "provider": "provider-2"}


async def test_a_repair_is_tried_once_and_then_the_error_stands() -> None:
    played = await play(failing("image_too_large"), failing("image_too_large"))
    assert len(played.model.requests) == 2
    assert isinstance(played.end.outcome, Failed)


async def test_billing_errors_carry_a_block_with_the_link() -> None:
    error = failing("billing", details={"link": "https://pay.test"})
    played = await play(error, error)
    assert played.setup.progress.billing_block is not None
    assert played.setup.progress.billing_block["link"] == "https://pay.test"


@pytest.mark.parametrize("error_class", sorted(ERROR_ACTIONS))
async def test_every_class_of_error_ends_the_turn_after_a_bounded_number_of_requests(error_class: str) -> None:
    played = await play(tail=failing(error_class))
    assert isinstance(played.end.outcome, Failed)
    assert played.end.outcome.error and played.end.outcome.failure_reason
    assert 1 <= len(played.model.requests) <= 20


@pytest.mark.parametrize("error_class", sorted(ERROR_ACTIONS))
async def test_text_already_shown_stays_in_the_record_whatever_error_follows(error_class: str) -> None:
    first = failing(error_class)
    first.text = "Half an "
    played = await play(first, tail=failing(error_class))
    assert played.end.outcome.text == "Half an "
    assert played.port.shown == "Half an "
    assert assistant_texts(played) == ["Half an "]


async def test_error_texts_are_redacted_and_short() -> None:
    played = await play(failing("format_error"), redact=lambda text: text.replace("failed", "***") + "x" * 900)
    assert isinstance(played.end.outcome, Failed)
    assert "***" in played.end.outcome.error and len(played.end.outcome.error) <= 500


# --- redirect --------------------------------------------------------------------------------------------------------


async def test_a_redirect_in_mid_text_keeps_the_text_and_asks_again_with_the_correction() -> None:
    played = await play(Say("I will use Perl", redirect="use Python"), Say("Python it is."))
    assert [(row.role, row.text) for row in played.rows] == [
        ("user", "do it"),
        ("assistant", "I will use Perl"),
        ("user", "use Python"),
        ("assistant", "Python it is."),
    ]
    assert played.rows[1].display_metadata is not None and played.rows[1].display_metadata["interrupted"] is True
    assert played.setup.progress.iterations == 1 and played.setup.progress.user_intervened
    assert played.port.named(RedirectApplied) == [
        RedirectApplied(played.port.turn_id, "use Python", "I will use Perl", 3)
    ]
    assert "use Python" in played.model.requests[1].messages[-1].text
    assert wire_bytes(played.model.requests[1]).startswith(wire_bytes(played.model.requests[0]))


async def test_a_redirect_that_meets_a_finished_answer_is_still_followed() -> None:
    port, setup = make(Say("Perl.", [call("terminal", {"command": "perl"})]), Say("Python."))

    def late() -> None:
        port.redirect_waiting = "use Python"

    port.model.steps[0].meanwhile = late
    played = await finish(port, setup)
    assert [row.text for row in played.rows] == ["do it", "Perl.", "use Python", "Python."]
    assert port.ran == []


async def test_redirects_are_bounded() -> None:
    played = await play(tail=Say("no", redirect="again"), settings=LoopSettings(max_restarts=3))
    assert played.end.exit_reason == "redirect_restart_limit_exceeded"
    assert len([row for row in played.rows if row.text == "again"]) == 4


# --- compression -----------------------------------------------------------------------------------------------------


def long_history(exchanges: int, size: int) -> list[Row]:
    rows: list[Row] = []
    for number in range(exchanges):
        rows += [Row("user", f"question {number}"), Row("assistant", f"answer {number} " + "x" * size)]
    return rows


async def test_an_overflow_is_compressed_and_the_request_sent_again() -> None:
    played = await play(
        failing("context_overflow", status=400),
        Say("Earlier: twenty questions were answered."),
        Say("ok"),
        history=long_history(20, 4_000),
        prompt=Prompt("the newest question"),
    )
    assert played.end.outcome == Completed("ok")
    handoff = next(row for row in played.rows if row.compacted_summary)
    assert handoff.display_kind == "hidden"
    sent = played.model.requests[2].messages
    place = next(index for index, row in enumerate(sent) if "twenty questions" in row.text)
    assert "the newest question" in sent[-1].text and place <= len(sent) - 1
    assert len(played.port.named(HistoryCompressed)) == 1


async def test_compression_begins_by_itself_above_the_threshold() -> None:
    settings = LoopSettings(compression=CompressionSettings(threshold_tokens=5_000))
    played = await play(Say("Summary."), Say("ok"), history=long_history(40, 2_000), settings=settings)
    assert played.end.outcome == Completed("ok")
    assert played.model.requests[0].tools == ()
    assert any(row.compacted_summary for row in played.rows)


async def test_a_failing_summary_leaves_an_extract_in_its_place() -> None:
    settings = LoopSettings(compression=CompressionSettings(threshold_tokens=5_000))
    played = await play(failing("server_error"), Say("ok"), history=long_history(40, 2_000), settings=settings)
    handoff = next(row for row in played.rows if row.compacted_summary)
    assert "question 5" in handoff.text and played.end.outcome == Completed("ok")


async def test_endless_overflow_ends_as_context_overflow_and_stays_out_of_the_next_request() -> None:
    played = await play(
        failing("context_overflow"),
        Say("Summary one."),
        tail=failing("context_overflow"),
        history=long_history(20, 4_000),
    )
    outcome = played.end.outcome
    assert isinstance(outcome, Failed) and outcome.failure_reason == "context_overflow"
    assert played.rows[-1].display_kind == "failed_turn"
    again = await play(Say("ok"), history=played.rows)
    assert all("failed" not in row.text for row in again.model.requests[0].messages)


async def test_a_stop_during_compression_leaves_the_history_as_it_was() -> None:
    settings = LoopSettings(compression=CompressionSettings(threshold_tokens=5_000))
    port, setup = make(Say("Summary.", stop=True), history=long_history(40, 2_000), settings=settings)
    before = port.rows
    with pytest.raises(Stopped):
        await finish(port, setup)
    assert port.rows == before
    assert setup.progress.phase == "compressing"


async def test_signed_reasoning_is_not_replayed_to_another_issuer() -> None:
    signed = Say("thought", [call("terminal", {"command": "ls"})], extra={"reasoning_details": [{"signature": "s"}]})
    played = await play(signed, failing("model_not_found"), Say("ok"), fallbacks=[OTHER])
    assert played.model.requests[1].messages[1].reasoning_details is not None
    assert played.model.requests[2].messages[1].reasoning_details is None


async def test_delegations_are_capped_and_duplicates_dropped() -> None:
    delegate = tool("delegate_task", properties={"goal": {"type": "string"}})
    calls = [call("delegate_task", {"goal": goal}) for goal in ("a", "a", "b", "c")]
    played = await play(
        Say("", calls), Say("ok"), tools=FakeTools(delegate), settings=LoopSettings(max_delegate_calls=2)
    )
    assert len(played.rows[1].tool_calls) == 2


# --- what nobody expected --------------------------------------------------------------------------------------------


class Bug(Exception):
    pass


def buggy(text: str = "") -> Say:
    def crash() -> None:
        raise Bug("a bug")

    return Say(text, meanwhile=crash)


async def test_an_unexpected_error_is_outlived_without_showing_anything_twice() -> None:
    played = await play(buggy("half of"), buggy("half of"), Say("half of it and the rest"))
    assert played.end.outcome == Completed("half of it and the rest")
    assert played.port.shown == "half of it and the rest"
    assert [row.text for row in played.rows] == ["do it", "half of it and the rest"]
    assert [event.details["attempt"] for event in played.port.named(StatusUpdate)] == [1, 2]
    assert played.setup.progress.api_calls == 3
    assert played.setup.progress.iterations == 1


async def test_eight_unexpected_errors_end_the_turn_with_what_was_said() -> None:
    played = await play(*[buggy("half") for _ in range(8)])
    assert played.end.exit_reason == "repeated_outer_errors(Bug)"
    assert isinstance(played.end.outcome, Failed)
    assert played.end.outcome.failure_reason == "loop_error"
    assert played.end.outcome.text == played.port.shown == "half"


async def test_an_unexpected_error_inside_a_batch_is_not_outlived_because_nobody_knows_what_was_done() -> None:
    port, setup = make(Say(calls=[call("terminal", {"command": "x"})]), Say("never asked"))

    def crash(_: object) -> None:
        raise Bug("a bug")

    port.during_tools = crash
    with pytest.raises(Bug):
        await run_turn(port, setup)
    assert len(port.model.requests) == 1


# --- cooldown --------------------------------------------------------------------------------------------------------


class Lame(ScriptedModel):
    """The first model fails as often as it is asked; the other one works."""

    def __init__(self, error: Say) -> None:
        super().__init__(fallbacks=[OTHER])
        self.error = error

    def next_step(self, request: ModelRequest) -> Say:
        self.requests.append(request)
        return self.error if request.model == MODEL.model else Say("from the other")


@pytest.mark.parametrize(("error_class", "retry_after", "cooled"), [
    ("overloaded", None, 60.0),
    ("rate_limit", 90.0, 90.0),
    ("rate_limit", 9_000.0, 600.0),
    ("billing", None, 60.0),
    ("content_policy_blocked", None, 0.0),
    ("format_error", None, 0.0),
])  # fmt: skip
async def test_a_model_that_failed_is_left_alone_for_a_while_and_then_tried_first_again(
    error_class: str, retry_after: float | None, cooled: float
) -> None:
    cooldowns, model = Cooldowns(), Lame(failing(error_class, retry_after=retry_after))
    for later, first in ((0.0, "model-1"), (1.0, "model-2" if cooled else "model-1"), (cooled + 1, "model-1")):
        port, setup = make(cooldowns=cooldowns)
        port.model, port.clock = model, later
        model.requests.clear()
        played = await finish(port, replace(setup, models=model))
        assert played.end.outcome == Completed("from the other")
        assert model.requests[0].model == first


async def test_a_model_that_is_left_alone_is_asked_all_the_same_when_there_is_no_other() -> None:
    cooldowns = Cooldowns()
    cooldowns.begin(MODEL, ProviderError("busy", error_class="overloaded"), 0.0)
    played = await play(Say("here I am"), cooldowns=cooldowns)
    assert played.end.outcome == Completed("here I am")
