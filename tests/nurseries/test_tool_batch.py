"""The calls of one model message: each in its own scope, each with one result, stored in order before it is told."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import pytest
import trio
import trio.testing

from hermes.agent.ports import PlannedCall, ToolContext, ToolFailure, ToolOutput
from hermes.events import SessionEvent, ToolEnded, ToolStarted
from hermes.messages import FileDiff, ImagePart, Row, TextPart, ToolCall, ToolResult
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.nurseries.tool_batch import MAX_PARALLEL, ToolBatch, result_from
from hermes.outcomes import CancelReason, Cause
from tests.support.core import PlainTool

STOP = CancelReason(Cause.USER_INTERRUPT, "enough")
Run = Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolOutput | str]]


class Host:
    """A turn as far as a batch needs one; ``told`` is what happened, in order."""

    turn_id = "t1"

    def __init__(self) -> None:
        self.scope = ReasonScope("turn", "t", None, tree=LiveTree())
        self.events: list[SessionEvent] = []
        self.rows: list[Row] = []
        self.told: list[str] = []
        self.store_takes = 0.0
        self.node: ReasonScope | None = None

    def emit(self, event: SessionEvent) -> None:
        self.events.append(event)
        if isinstance(event, (ToolStarted, ToolEnded)):
            self.told.append(f"{'start' if isinstance(event, ToolStarted) else 'end'} {event.call_id}")

    def tool_context(self, planned: PlannedCall, node: ReasonScope, batch: ToolBatch) -> ToolContext:
        return cast(ToolContext, node)

    async def store(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        await trio.sleep(self.store_takes)
        self.rows.extend(rows)
        self.told.extend(f"store {row.tool_call_id}" for row in rows)
        return tuple(rows)

    def now(self) -> float:
        return trio.current_time()

    def shown_arguments(self, planned: PlannedCall) -> Mapping[str, Any]:
        return {key: "***" if key == "secret" else value for key, value in planned.arguments.items()}

    def shown_summary(self, planned: PlannedCall) -> str:
        return f"runs {planned.call.name}"


def sleeps(seconds: float, said: str = "rested") -> Run:
    async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.sleep(seconds)
        return said

    return run


def planned(call_id: str, run: Run, **arguments: Any) -> PlannedCall:
    return PlannedCall(ToolCall(call_id, f"tool_{call_id}", "{}"), PlainTool(f"tool_{call_id}", run), arguments)


def batch_of(host: Host, *segments: Sequence[PlannedCall], deadline: float | None = None) -> ToolBatch:
    return ToolBatch(host, segments, lambda result: result, group_deadline=deadline)


def statuses(results: Sequence[ToolResult]) -> list[tuple[str, str]]:
    return [(result.call_id, result.status) for result in results]


async def test_a_call_starts_is_stored_and_then_ends(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    (result,) = await batch_of(host, [planned("a", sleeps(2), path="x", secret="pw")]).run()
    assert result == ToolResult("a", "tool_a", "rested")
    assert host.told == ["start a", "store a", "end a"]
    started, ended = host.events
    assert isinstance(started, ToolStarted) and isinstance(ended, ToolEnded)
    assert (started.args, started.context) == ({"path": "x", "secret": "***"}, "runs tool_a")
    assert (ended.args, ended.result, ended.duration_s) == (started.args, result, 2.0)
    assert len(host.scope.tree) == 1


async def test_segments_run_one_after_the_other_and_calls_of_one_side_by_side(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = Host()
    began = trio.current_time()
    results = await batch_of(host, [planned("a", sleeps(3)), planned("b", sleeps(1))], [planned("c", sleeps(2))]).run()
    assert [result.call_id for result in results] == ["a", "b", "c"]
    assert trio.current_time() == began + 5
    assert host.told[:2] == ["start a", "start b"]
    assert host.told[2:] == ["store a", "end a", "store b", "end b", "start c", "store c", "end c"]


async def test_at_most_so_many_calls_run_at_once(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    running, most = 0, 0

    async def count(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return ""

    await batch_of(host, [planned(str(number), count) for number in range(3 * MAX_PARALLEL)]).run()
    assert most == MAX_PARALLEL
    assert [row.tool_call_id for row in host.rows] == [str(number) for number in range(3 * MAX_PARALLEL)]


async def test_a_result_is_finished_in_call_order_before_it_is_stored(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    seen: list[str] = []

    def finish(result: ToolResult) -> ToolResult:
        seen.append(result.call_id)
        return ToolResult(result.call_id, result.name, f"{result.content} ({len(seen)})")

    segment = [planned("a", sleeps(3)), planned("b", sleeps(1))]
    results = await ToolBatch(host, [segment], finish, group_deadline=None).run()
    assert seen == ["a", "b"]
    assert [row.text for row in host.rows] == [result.content for result in results] == ["rested (1)", "rested (2)"]


async def test_a_result_whose_storing_was_stopped_is_finished_and_prepared_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = Host()
    host.store_takes = 100
    seen: list[str] = []

    async def prepare(result: ToolResult) -> None:
        await trio.lowlevel.checkpoint()
        seen.append("prepared")

    def finish(result: ToolResult) -> ToolResult:
        seen.append("finished")
        return result

    batch = ToolBatch(host, [[planned("a", sleeps(1))]], finish, prepare, group_deadline=None)
    with trio.move_on_after(50):
        await batch.run()
    host.store_takes = 0
    left = batch.close_cancelled(STOP)
    if inspect.isawaitable(left):
        await left
    assert seen == ["prepared", "finished"]


async def test_a_call_that_was_refused_by_the_plan_has_its_error_as_its_result(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = Host()
    error = ToolResult("a", "nope", "unknown tool", is_error=True, status="error")
    refused = PlannedCall(ToolCall("a", "nope", "{}"), None, {}, error)
    assert await batch_of(host, [refused]).run() == [error]
    assert host.told == ["start a", "store a", "end a"]


@pytest.mark.parametrize(
    ("raised", "status", "content"),
    [
        (ToolFailure("no such file"), "error", "no such file"),
        (ToolFailure("denied", status="blocked"), "blocked", "denied"),
    ],
)
async def test_a_failure_is_a_result_that_the_model_reads(
    autojump_clock: trio.testing.MockClock, raised: Exception, status: str, content: str
) -> None:
    async def fail(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.lowlevel.checkpoint()
        raise raised

    (result,) = await batch_of(Host(), [planned("a", fail)]).run()
    assert (result.status, result.is_error, result.content) == (status, True, content)


async def test_a_crash_of_one_tool_is_its_own_result_and_the_others_go_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def crash(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.lowlevel.checkpoint()
        raise KeyError("x")

    results = await batch_of(Host(), [planned("a", crash), planned("b", sleeps(1))]).run()
    assert statuses(results) == [("a", "error"), ("b", "ok")]
    assert "KeyError" in results[0].content


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ('{"error": "no such city"}', True),
        (' {"error": {"code": 7}, "hint": "x"}', True),
        ('{"error": null, "city": "Rome"}', False),
        ('{"error": ""}', False),
        ('{"city": {"error": "inside"}}', False),
        ('[{"error": "in a list"}]', False),
        ('{"error": "cut o', False),
        ('say "error" aloud', False),
        ("{" * 100_000 + '"error"', False),
        ("error", False),
    ],
)
def test_a_structured_text_with_an_error_on_top_is_a_failure(said: str, failed: bool) -> None:
    result = result_from(ToolCall("c1", "weather", "{}"), said)
    assert (result.content, result.is_error, result.status) == (said, failed, "error" if failed else "ok")


async def test_an_output_keeps_diffs_images_and_details(autojump_clock: trio.testing.MockClock) -> None:
    diff, image = FileDiff("f", None, "new"), ImagePart("image/png", "x")

    async def rich(ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        return ToolOutput("text", summary="did it", diffs=(diff,), images=(image,), details={"n": 1})

    host = Host()
    (result,) = await batch_of(host, [planned("a", rich)]).run()
    assert (result.summary, result.diffs, result.images, result.details) == ("did it", (diff,), (image,), {"n": 1})
    assert host.rows[0].content == (TextPart("text"), image)
    assert host.rows[0].display_metadata == {"n": 1}


async def test_a_call_that_is_cancelled_by_itself_yields_a_result_and_the_batch_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = Host()
    results: list[ToolResult] = []

    async def run() -> None:
        results.extend(await batch_of(host, [planned("a", sleeps(50)), planned("b", sleeps(5))]).run())

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(1)
            node = next(node for node in host.scope.walk() if node.kind == "tool_call" and node.name == "tool_a")
            assert node.details == {"arguments": {}}
            node.cancel(CancelReason(Cause.NODE_CANCEL, "wrong file"))
    assert statuses(results) == [("a", "cancelled"), ("b", "ok")]
    assert results[0].disposition == "unknown"
    assert "node_cancel: wrong file" in json.loads(results[0].content)["error"]


async def test_a_tool_can_say_what_it_had_done_when_it_was_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    class Telling(PlainTool):
        def cancelled(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
            return ToolOutput("half the output", details={"exit_code": 130})

    host = Host()
    tool = Telling("tool_a", sleeps(50))
    batch = batch_of(host, [PlannedCall(ToolCall("a", "tool_a", "{}"), tool, {})])
    await stop_after(host, batch, 1)
    (row,) = await close(host, batch)
    assert (row.text, row.display_metadata, row.effect_disposition) == (
        "half the output",
        {"exit_code": 130},
        "unknown",
    )


async def stop_after(host: Host, batch: ToolBatch, seconds: float) -> None:
    """Run the batch in the turn's scope and cancel that scope."""
    with host.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(batch.run)
            await trio.sleep(seconds)
            host.scope.cancel(STOP)
    assert host.scope.caught


async def close(host: Host, batch: ToolBatch) -> list[Row]:
    """What the end of the turn does with a batch that was cut: one write for all that is left, told behind it."""
    rows = batch.close_cancelled(STOP)
    if rows:
        await host.store(rows)
    batch.announce_closed()
    return rows


async def test_when_the_turn_stops_every_call_has_a_result_and_no_other_tool_starts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = Host()
    segments = [
        [planned("done", sleeps(1))],
        [planned("early", sleeps(1)), planned("open", sleeps(50))],
        [planned("never", sleeps(1))],
    ]
    batch = batch_of(host, *segments)
    await stop_after(host, batch, 5)
    assert "start never" not in host.told
    rows = await close(host, batch)
    assert [row.tool_call_id for row in host.rows] == ["done", "early", "open", "never"]
    assert [(row.tool_call_id, row.effect_disposition) for row in rows] == [("open", "unknown"), ("never", "none")]
    assert [told for told in host.told if told.startswith("start")] == ["start done", "start early", "start open"]
    assert [told for told in host.told if told.startswith("end")] == ["end done", "end early", "end open"]
    assert host.told[-3:] == ["store open", "store never", "end open"]


async def test_a_result_of_the_tick_of_the_stop_is_what_happened(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()

    async def stops_itself(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        host.scope.cancel(STOP)
        return "was done"

    batch = batch_of(host, [planned("a", stops_itself)])
    with host.scope:
        await batch.run()
    rows = await close(host, batch)
    assert next(row.text for row in (*host.rows, *rows)) == "was done"
    assert len(host.rows) == 1


async def test_a_deadline_of_the_group_cuts_it_and_skips_what_had_no_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = Host()
    segment = [planned(str(number), sleeps(50)) for number in range(MAX_PARALLEL + 1)]
    results = await batch_of(host, segment, deadline=10).run()
    assert [result.status for result in results] == ["cancelled"] * MAX_PARALLEL + ["skipped"]
    assert "deadline" in results[0].content
    assert results[-1].disposition == "none"


async def test_time_in_which_a_human_thinks_does_not_count_against_the_group(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = Host()
    batches: list[ToolBatch] = []

    async def asks(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        with batches[0].human_time():
            await trio.sleep(5)
        await trio.sleep(8)
        return "answered"

    batches.append(batch_of(host, [planned("a", asks), planned("b", sleeps(1))], deadline=10))
    assert statuses(await batches[0].run()) == [("a", "ok"), ("b", "ok")]


async def test_an_answer_that_takes_longer_than_the_group_may_take_finds_it_waiting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    batches: list[ToolBatch] = []

    async def ask(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        with batches[0].human_time():
            await trio.sleep(1000)
        return "answered"

    batch = batch_of(Host(), [planned("a", ask), planned("b", ask)], deadline=15)
    batches.append(batch)
    assert [result.content for result in await batch.run()] == ["answered", "answered"]


async def test_human_time_outside_of_a_group_is_nothing(autojump_clock: trio.testing.MockClock) -> None:
    with batch_of(Host(), [planned("a", sleeps(1))]).human_time():
        await trio.sleep(1)


async def test_running_calls_are_named_with_what_may_be_shown(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    batch = batch_of(host, [planned("a", sleeps(5), secret="pw"), planned("b", sleeps(1))])
    assert batch.names() == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(batch.run)
        await trio.sleep(2)
        assert batch.names() == [{"id": "a", "name": "tool_a", "args": {"secret": "***"}, "started_at": 0.0}]
    assert batch.names() == []


async def test_what_cannot_be_stored_is_told_as_ended_once(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    batch = batch_of(host, [planned("done", sleeps(1))], [planned("open", sleeps(50))], [planned("never", sleeps(1))])
    await stop_after(host, batch, 5)
    batch.announce_unstored(STOP)
    batch.announce_unstored(STOP)
    assert [told for told in host.told if told.startswith("end")] == ["end done", "end open"]
    assert [row.tool_call_id for row in host.rows] == ["done"]


async def test_a_stop_while_a_result_is_being_stored_loses_no_result(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    host.store_takes = 2
    batch = batch_of(host, [planned("a", sleeps(1)), planned("b", sleeps(1))])
    await stop_after(host, batch, 2)
    host.store_takes = 0
    await close(host, batch)
    assert [row.tool_call_id for row in host.rows] == ["a", "b"]
    assert [row.text for row in host.rows] == ["rested", "rested"]
