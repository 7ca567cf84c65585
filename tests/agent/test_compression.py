"""Which rows are summarized, and what stands in their place."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.compression import (
    SUMMARY_TOKENS,
    Compressed,
    CompressionGate,
    NotCompressed,
    compress,
    plan_compression,
    summary_request,
    threshold_tokens,
)
from hermes.agent.loop_settings import CompressionSettings
from hermes.agent.ports import ModelFinished
from hermes.agent.tokens import text_tokens
from hermes.errors import ProviderError
from hermes.messages import Row, ToolCall
from hermes.testing.seed import seeded_rows
from tests.support.loop_port import MODEL, assert_stored_grammar

SETTINGS = CompressionSettings()


def numbered(rows: list[Row]) -> list[Row]:
    return [row.with_id(number + 1) for number, row in enumerate(rows)]


def talk(exchanges: int, size: int = 2_000) -> list[Row]:
    rows: list[Row] = []
    for number in range(exchanges):
        rows += [
            Row("user", f"question {number}"),
            Row("assistant", None, tool_calls=(ToolCall(f"c{number}", "terminal", "{}"),)),
            Row("tool", "x" * size, tool_call_id=f"c{number}", tool_name="terminal"),
            Row("assistant", f"answer {number}"),
        ]
    return numbered(rows)


async def says(text: str, finish: str = "stop") -> ModelFinished:
    return ModelFinished(text, finish_reason=finish)


@pytest.mark.parametrize(
    ("context", "settings", "expected"),
    [
        (1_000_000, {}, 495_904),
        (200_000, {}, 143_856),
        (64_000, {}, 47_436),
        (200_000, {"threshold_tokens": 9_000}, 9_000),
        (200_000, {"model_thresholds": {"model-1": 0.9}}, 172_627),
    ],
)
def test_the_threshold_follows_window_and_settings(context: int, settings: dict[str, object], expected: int) -> None:
    model = replace(MODEL, context_length=context)
    assert threshold_tokens(replace(SETTINGS, **settings), model) == expected  # type: ignore[arg-type]


def test_short_histories_are_left_alone() -> None:
    assert plan_compression(talk(1), SETTINGS, 200_000) is None
    assert plan_compression(talk(2)[:3], SETTINGS, 200_000) is None


@given(st.integers(6, 40), st.integers(0, 6_000))
def test_boundaries_never_part_a_call_from_its_results(exchanges: int, size: int) -> None:
    rows = talk(exchanges, size)
    plan = plan_compression(rows, SETTINGS, 200_000)
    if plan is None:
        return
    assert [*plan.head, *plan.middle, *plan.tail] == rows
    handoff = Row("user", "summary", compacted_summary=True)
    assert_stored_grammar([*plan.head, handoff, *plan.tail])


async def test_the_handoff_says_what_it_is_and_ends_with_the_task_in_force() -> None:
    rows = [*talk(20), Row("user", "the task", row_id=900)]
    steps = [
        Row("assistant", None, tool_calls=(ToolCall(f"s{n}", "terminal", "{}"),), row_id=901 + 2 * n) for n in range(30)
    ]
    for number, step in enumerate(steps):
        rows += [
            step,
            Row("tool", "y" * 4_000, tool_call_id=f"s{number}", tool_name="terminal", row_id=902 + 2 * number),
        ]
    plan = plan_compression(rows, SETTINGS, 200_000)
    assert plan is not None and not any(row.text == "the task" for row in plan.tail)
    outcome = await compress(rows, plan, lambda *_: says("It was done."), SETTINGS, 7.0)
    assert isinstance(outcome, Compressed) and not outcome.fallback_used
    (handoff,) = outcome.rows
    assert handoff.display_kind == "hidden" and handoff.compacted_summary and handoff.role == "user"
    assert "It was done." in handoff.text and "> question 5" in handoff.text
    assert handoff.text.endswith("task in force:\nthe task")
    assert "Write the notes" not in handoff.text
    assert outcome.after_tokens < outcome.before_tokens
    assert outcome.summarized_ids == tuple(row.row_id for row in plan.middle)


async def test_empty_refused_and_cut_summaries_are_rejected() -> None:
    rows = talk(20)
    plan = plan_compression(rows, SETTINGS, 200_000)
    assert plan is not None
    for bad in (says(""), says("I'm sorry, I can't."), says("It was", "length")):
        finished = await bad

        async def ask(*_: object, finished: ModelFinished = finished) -> ModelFinished:
            return finished

        outcome = await compress(rows, plan, ask, SETTINGS, 0.0)
        assert isinstance(outcome, Compressed) and outcome.fallback_used
        strict = replace(SETTINGS, abort_on_summary_failure=True)
        aborted = await compress(rows, plan, ask, strict, 0.0)
        assert isinstance(aborted, NotCompressed) and aborted.code == "aborted"


async def test_a_failing_model_is_an_abort_if_the_settings_say_so() -> None:
    rows = talk(20)
    plan = plan_compression(rows, SETTINGS, 200_000)
    assert plan is not None

    async def ask(*_: object) -> ModelFinished:
        raise ProviderError("down", error_class="server_error")

    outcome = await compress(rows, plan, ask, replace(SETTINGS, abort_on_summary_failure=True), 0.0)
    assert outcome == NotCompressed("aborted", "the summary failed: down")


async def test_a_summary_that_would_grow_is_refused() -> None:
    rows = talk(20, 0)
    plan = plan_compression(rows, SETTINGS, 200_000)
    assert plan is not None
    outcome = await compress(rows, plan, lambda *_: says("z" * 90_000), SETTINGS, 0.0)
    assert isinstance(outcome, NotCompressed) and outcome.code == "would_grow"


def test_an_earlier_summary_is_updated_and_not_summarized_again() -> None:
    rows = talk(20)
    rows[4] = Row("user", "the old notes", row_id=5, compacted_summary=True, display_kind="hidden")
    plan = plan_compression([*rows[:5], *rows[8:]], SETTINGS, 200_000)
    assert plan is not None
    asked = summary_request(plan, "the database", str, 200_000)
    assert "Update these earlier notes; keep what still holds:\nthe old notes" in asked
    assert "Give most room to: the database" in asked


@pytest.mark.parametrize("window", [1_000_000, 128_000, 32_000, 8_000])
def test_the_request_fits_the_window_of_the_model_that_is_asked(window: int) -> None:
    rows = numbered(list(islice(seeded_rows(0.0), 10_000)))
    plan = plan_compression(rows, SETTINGS, window)
    assert plan is not None
    asked = summary_request(plan, None, str, window)
    assert text_tokens(asked) < window - SUMMARY_TOKENS
    # Old and new words are there whatever had to be left out between them.
    assert "Question 2:" in asked
    assert plan.middle[-1].text[:80] in asked
    assert ("are left out here]" in asked) == (window < 1_000_000)


def test_rows_are_cut_before_any_is_left_out() -> None:
    rows = numbered([Row(("user", "assistant")[number % 2], f"word {number} " + "x" * 1_500) for number in range(100)])
    plan = plan_compression(rows, SETTINGS, 40_000)
    assert plan is not None
    asked = summary_request(plan, None, str, 40_000)
    assert all(f"word {number} " in asked for number in range(3, 100 - len(plan.tail)))
    assert "left out" not in asked


def test_a_compression_by_hand_keeps_the_last_exchanges() -> None:
    plan = plan_compression(talk(10), SETTINGS, 200_000, keep_exchanges=2)
    assert plan is not None and plan.tail[0].text == "question 8"


def test_attempts_are_bounded_and_failures_cool_down() -> None:
    gate = CompressionGate(SETTINGS)
    assert gate.due(100, 50, 0.0)
    gate.attempted()
    assert not gate.due(100, 50, 0.0)
    assert not gate.due(10, 50, 0.0)
    assert gate.due(100, 50, 0.0)
    gate.attempted()
    gate.failed(0.0)
    gate.due(10, 50, 0.0)
    assert not gate.due(100, 50, 30.0) and gate.due(100, 50, 61.0)
    gate.attempted()
    gate.due(10, 50, 99.0)
    assert not gate.due(100, 50, 999.0)


async def test_a_summary_that_takes_too_long_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    rows = talk(20)
    plan = plan_compression(rows, SETTINGS, 200_000)
    assert plan is not None

    async def ask(*_: object) -> ModelFinished:
        await trio.sleep_forever()
        raise AssertionError

    strict = replace(SETTINGS, abort_on_summary_failure=True, summary_timeout=5.0)
    began = trio.current_time()
    assert await compress(rows, plan, ask, strict, 0.0) == NotCompressed("aborted", "the summary took longer than 5 s")
    assert trio.current_time() - began == 5.0
    without = await compress(rows, plan, ask, replace(SETTINGS, summary_timeout=5.0), 0.0)
    assert isinstance(without, Compressed) and without.fallback_used
