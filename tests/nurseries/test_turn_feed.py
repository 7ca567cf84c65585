"""TurnFeed: lossless, merging, bounded."""

from __future__ import annotations

import pytest
import trio

from hermes.events import ReasoningDelta, TextDelta, ToolGenerating, UsageUpdated
from hermes.nurseries.turn_feed import TurnFeed
from hermes.outcomes import Completed, TurnRecord, Usage

RECORD = TurnRecord("t", "s", Completed("ok"), "done")


async def test_what_has_piled_up_is_merged_and_kept_in_order() -> None:
    feed = TurnFeed()
    for event in (
        TextDelta("t", "a"),
        TextDelta("t", "b"),
        ReasoningDelta("t", "c"),
        ToolGenerating("t", "x"),
        TextDelta("t", "d"),
    ):
        feed.push(event)
    assert await feed.next(0) == [
        TextDelta("t", "ab"),
        ReasoningDelta("t", "c"),
        ToolGenerating("t", "x"),
        TextDelta("t", "d"),
    ]


async def test_what_nobody_shows_is_left_out() -> None:
    feed = TurnFeed()
    feed.push(UsageUpdated("t", Usage()))
    assert await feed.next(0) == []


async def test_silence_gives_nothing_after_the_time(autojump_clock: trio.testing.MockClock) -> None:
    feed = TurnFeed()
    began = trio.current_time()
    assert await feed.next(10) == []
    assert trio.current_time() - began == pytest.approx(10)
    assert not feed.finished


async def test_a_waiting_reader_is_woken_by_an_event_and_by_the_end(autojump_clock: trio.testing.MockClock) -> None:
    feed = TurnFeed()
    seen: list[object] = []

    async def read() -> None:
        while not feed.finished:
            seen.append(await feed.next(1000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        feed.push(TextDelta("t", "a"))
        await trio.testing.wait_all_tasks_blocked()
        feed.finish(RECORD)
    assert seen == [[TextDelta("t", "a")], []]
    assert feed.record is RECORD


async def test_what_is_pending_at_the_end_is_still_read() -> None:
    feed = TurnFeed()
    feed.push(TextDelta("t", "last"))
    feed.finish(RECORD)
    assert not feed.finished
    assert await feed.next(0) == [TextDelta("t", "last")]
    assert feed.finished


async def test_a_reader_that_is_too_slow_is_cut_off_and_costs_nothing_more() -> None:
    feed = TurnFeed(max_cost=1000)
    for _ in range(20):
        feed.push(TextDelta("t", "x" * 100))
    assert feed.lagged and feed.finished
    assert await feed.next(0) == []
