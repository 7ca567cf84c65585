"""Which old results are left out, what stands in their place, and when that is enough to ask no model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.compression import tail_begin
from hermes.agent.loop_settings import CompressionSettings, LoopSettings
from hermes.agent.ports import ToolOutput
from hermes.agent.pruning import IMAGE_LEFT_OUT, Pruning, plan_pruning
from hermes.agent.tokens import row_tokens, rows_tokens
from hermes.agent.wire_copy import WireOptions, wire_copy
from hermes.events import HistoryCompressed, StatusUpdate
from hermes.messages import Disposition, ImagePart, Row, TextPart, ToolCall
from hermes.outcomes import Completed
from tests.support.loop_port import (
    READ,
    FakeTools,
    Say,
    Stopped,
    assert_stored_grammar,
    call,
    failing,
    finish,
    make,
    play,
    wire_bytes,
)

IMAGE = ImagePart("image/png", "AAAA")
LONG = "x" * 40_000
TOKENS = len(LONG) // 4


def numbered(rows: Sequence[Row]) -> list[Row]:
    return [row.with_id(number + 1) for number, row in enumerate(rows)]


def one_round(call_id: str, result: str, name: str = "read_file", arguments: str = '{"path":"a"}') -> list[Row]:
    return [
        Row("assistant", None, tool_calls=(ToolCall(call_id, name, arguments),)),
        Row("tool", result, tool_call_id=call_id, tool_name=name),
    ]


def reads(count: int, result: str = LONG) -> list[Row]:
    rows = [Row("user", "read all of them")]
    for number in range(count):
        rows += one_round(f"c{number}", result, arguments=f'{{"path":"f{number}"}}')
    return numbered(rows)


def pruned(rows: Sequence[Row], pruning: Pruning) -> list[Row]:
    return [replace(row, api_content=pruning.contents.get(row.row_id or 0, row.api_content)) for row in rows]


# --- what stands there -----------------------------------------------------------------------------------------------


def test_a_result_becomes_one_line_that_says_tool_arguments_size_and_outcome() -> None:
    rows = numbered([Row("user", "go"), *one_round("c1", LONG), Row("assistant", "done")])
    pruning = plan_pruning(rows, len(rows))
    line = '[result left out to save room: read_file {"path":"a"}; 40000 characters; it succeeded]'
    assert pruning.contents == {3: line}
    assert pruning.saved == rows_tokens(rows) - rows_tokens(pruned(rows, pruning))


def test_the_outcome_is_the_one_that_was_stored() -> None:
    failed = replace(one_round("c1", LONG)[1], display_metadata={"failed": True})
    code = one_round("c1", f'{{"output": "{LONG}", "exit_code": 2}}')[1]
    dispositions: tuple[tuple[Disposition, str], ...] = (
        ("none", "it never started"),
        ("unknown", "its outcome is not known"),
    )
    stopped = [(replace(failed, effect_disposition=kind), words) for kind, words in dispositions]
    for row, words in ((failed, "it failed"), (code, "exit code 2"), *stopped):
        rows = numbered([*one_round("c1", "")[:1], row])
        assert str(plan_pruning(rows, 2).contents[2]).endswith(f"; {words}]")


def test_an_older_result_of_a_repeated_call_says_that_a_newer_one_follows() -> None:
    rows = numbered([*one_round("c1", LONG), *one_round("c2", LONG, arguments="{}"), *one_round("c3", LONG)])
    pruning = plan_pruning(rows, 4)
    assert ["made again later" in str(content) for content in pruning.contents.values()] == [True, False]
    assert 6 not in pruning.contents, "the newest is whole"


def test_long_and_broken_arguments_are_cut_to_a_gist_on_one_line() -> None:
    rows = numbered(one_round("c1", LONG, arguments="{\n" + "y" * 9_000))
    (line,) = plan_pruning(rows, 2).contents.values()
    assert isinstance(line, str) and len(line) < 300 and "\n" not in line and "…" in line


@pytest.mark.parametrize("todos", ["todo_list", "todo"])
def test_short_results_the_tail_the_newest_todo_list_and_what_was_left_out_before_stay(todos: str) -> None:
    short = numbered(one_round("c1", '{"ok": true}'))
    assert plan_pruning(short, 2) == Pruning({}, 0)
    rows = numbered([*one_round("c1", LONG, todos), *one_round("c2", LONG, todos), *one_round("c3", LONG)])
    pruning = plan_pruning(rows, 4)
    assert list(pruning.contents) == [2]
    again = plan_pruning(pruned(rows, pruning), 4)
    assert again == Pruning({}, 0)


def test_a_result_without_its_call_has_a_line_too() -> None:
    rows = numbered([Row("tool", LONG, tool_call_id="lost")])
    assert plan_pruning(rows, 1).contents == {
        1: "[result left out to save room: a tool; 40000 characters; it succeeded]"
    }


def test_old_images_are_left_out_and_those_of_the_newest_prompt_stay() -> None:
    screenshot = replace(one_round("c1", "")[1], content=(TextPart("a page"), IMAGE))
    rows = numbered(
        [
            Row("user", (TextPart("look"), IMAGE)),
            Row("assistant", "a cat"),
            Row("user", "shown", api_content=(TextPart("as the model reads it"), IMAGE)),
            Row("assistant", "a dog"),
            Row("user", (TextPart("and this"), IMAGE)),
            one_round("c1", "")[0],
            screenshot,
        ]
    )
    contents = plan_pruning(rows, 7).contents
    assert contents[1] == (TextPart("look"), TextPart(IMAGE_LEFT_OUT))
    assert contents[3] == (TextPart("as the model reads it"), TextPart(IMAGE_LEFT_OUT))
    assert 5 not in contents
    assert "read_file" in str(contents[7])
    assert not any(isinstance(row.content, tuple) for row in wire_copy(pruned(rows, plan_pruning(rows, 7))[:3], VISION))


VISION = WireOptions(vision=True)


@given(st.lists(st.integers(0, 50_000), max_size=12), st.integers(8_000, 1_000_000))
def test_every_call_keeps_its_result_and_people_see_what_they_saw(sizes: list[int], window: int) -> None:
    rows = numbered([row for at, size in enumerate(sizes) for row in one_round(f"c{at}", "y" * size)])
    tail = tail_begin(rows, CompressionSettings(), window)
    pruning = plan_pruning(rows, tail)
    after = pruned(rows, pruning)
    assert_stored_grammar(after, open_end=True)
    assert [(row.row_id, row.content, row.tool_calls) for row in after] == [
        (row.row_id, row.content, row.tool_calls) for row in rows
    ]
    assert after[tail:] == rows[tail:]
    assert rows_tokens(rows) - rows_tokens(after) == pruning.saved
    for before, row in zip(rows, after, strict=True):
        assert row == before or 2 * row_tokens(row) <= row_tokens(before)
    shape = [(row.role, row.tool_call_id) for row in wire_copy(rows, VISION)]
    assert [(row.role, row.tool_call_id) for row in wire_copy(after, VISION)] == shape


def test_it_is_enough_only_if_the_room_lasts_for_a_while() -> None:
    some = {1: "short"}
    assert Pruning(some, 30).is_enough(100, 100)
    assert not Pruning(some, 20).is_enough(100, 100)
    assert not Pruning(some, 30).is_enough(200, 100)
    assert not Pruning(some, 10).is_enough(80, 1_000), "a provider has refused a size that the estimate calls small"
    assert not Pruning({}, 0).is_enough(0, 100)


# --- in a turn -------------------------------------------------------------------------------------------------------

FILES = FakeTools(READ)


def settings(threshold: int) -> LoopSettings:
    return LoopSettings(compression=CompressionSettings(threshold_tokens=threshold))


async def test_a_turn_over_the_threshold_leaves_old_results_out_and_asks_no_model_for_a_summary() -> None:
    history = [*reads(6), Row("assistant", "read")]
    played = await play(Say("ok"), history=history, settings=settings(5 * TOKENS), tools=FILES)
    assert played.end.outcome == Completed("ok")
    assert len(played.model.requests) == 1 and played.end.progress.api_calls == 1
    sent = [row.text for row in played.model.requests[0].messages if row.role == "tool"]
    assert ["left out" in text for text in sent] == [True] * 5 + [False]
    assert [row.content for row in played.rows if row.role == "tool"] == [LONG] * 6
    assert [event.kind for event in played.port.named(StatusUpdate)] == ["compressing", "status"]
    (event,) = played.port.named(HistoryCompressed)
    assert event.before_messages == event.after_messages == 15 and event.after_tokens < event.before_tokens / 2


async def test_what_was_left_out_stays_so_and_the_next_requests_begin_with_the_same_bytes() -> None:
    reading = [Say("", [call("read_file", {"path": f"g{number}"}, f"g{number}")]) for number in range(4)]
    played = await play(
        *reading, Say("ok"), history=[*reads(6), Row("assistant", "r")], settings=settings(5 * TOKENS), tools=FILES
    )
    requests = [wire_bytes(request) for request in played.model.requests]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(requests))
    assert len(played.port.named(HistoryCompressed)) == 1


async def test_results_of_the_running_turn_are_left_out_too_again_and_again_without_an_attempt() -> None:
    big = replace(READ, result=lambda arguments: ToolOutput(LONG))
    reading = [Say("", [call("read_file", {"path": f"g{number}"}, f"g{number}")]) for number in range(25)]
    played = await play(*reading, Say("ok"), settings=settings(6 * TOKENS), tools=FakeTools(big))
    assert played.end.outcome == Completed("ok")
    assert len(played.model.requests) == 26, "no summary was asked for"
    assert len(played.port.named(HistoryCompressed)) > CompressionSettings().max_attempts
    whole = [sum(row.text == LONG for row in request.messages) for request in played.model.requests]
    assert max(whole) <= 6


async def test_where_it_is_not_enough_nothing_is_left_out_and_a_summary_is_made() -> None:
    talk = [Row(role, "word " * 4_000) for _ in range(8) for role in ("user", "assistant")]  # type: ignore[arg-type]
    history = [*reads(2), Row("assistant", "read"), *talk]
    played = await play(Say("Files were read."), Say("ok"), history=history, settings=settings(30_000), tools=FILES)
    assert played.end.outcome == Completed("ok") and len(played.model.requests) == 2
    assert any(row.compacted_summary for row in played.rows)
    assert all(row.api_content is None for row in played.rows)


async def test_a_refused_size_is_answered_by_leaving_results_out_and_then_by_a_summary() -> None:
    history = [*reads(6), Row("assistant", "read")]
    refused = failing("context_overflow", status=400)
    played = await play(refused, Say("ok"), history=history, tools=FILES)
    assert played.end.outcome == Completed("ok") and len(played.model.requests) == 2
    assert len(played.port.named(HistoryCompressed)) == 1
    played = await play(refused, refused, Say("Files were read."), Say("ok"), history=history, tools=FILES)
    assert played.end.outcome == Completed("ok") and len(played.model.requests) == 4
    first, second = played.port.named(HistoryCompressed)
    assert first.before_messages == first.after_messages and second.after_messages < second.before_messages
    # The summary is made of the results themselves.
    assert "(40000 characters): xxx" in played.model.requests[2].messages[0].text


async def test_a_stop_at_the_write_leaves_everything_as_it_was() -> None:
    port, setup = make(Say("ok"), history=[*reads(6), Row("assistant", "r")], settings=settings(50_000), tools=FILES)
    before = port.rows
    port.stop_at = 1
    with pytest.raises(Stopped):
        await finish(port, setup)
    assert port.rows == before and not port.named(HistoryCompressed)


async def test_compression_that_is_turned_off_leaves_nothing_out() -> None:
    off = LoopSettings(compression=CompressionSettings(enabled=False, threshold_tokens=10_000))
    played = await play(Say("ok"), history=[*reads(6), Row("assistant", "read")], settings=off, tools=FILES)
    assert all(row.api_content is None for row in played.rows)
