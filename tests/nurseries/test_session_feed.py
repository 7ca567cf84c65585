"""SessionFeed and MergedEvents: nothing is lost, what piles up is merged, and a reader without end is cut off."""

from __future__ import annotations

import pytest
import trio

from hermes.events import (
    InterimText,
    ProcessOutput,
    ReasoningDelta,
    SessionEvent,
    TextDelta,
    ToolProgress,
    UsageUpdated,
    event_cost,
)
from hermes.nurseries.event_log import EventLog, LogClosed
from hermes.nurseries.turn_feed import SessionFeed
from hermes.outcomes import Usage


def small_log() -> EventLog[SessionEvent]:
    return EventLog(cost=event_cost, clock=lambda: 0.0, max_events=4)


def text_of(events: list[SessionEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_text_that_fell_out_of_the_log_is_still_in_the_feed_as_one_event() -> None:
    log = small_log()
    feed = SessionFeed(log)
    pieces = [f"{number} " for number in range(10_000)]
    for piece in pieces:
        log.append(TextDelta("t", piece))
    assert feed.take_nowait() == ([TextDelta("t", "".join(pieces))], False)


def test_kinds_of_text_keep_their_order_and_their_seams() -> None:
    log = small_log()
    feed = SessionFeed(log)
    for event in (ReasoningDelta("t", "a"), ReasoningDelta("t", "b"), TextDelta("t", "c"), ReasoningDelta("t", "d")):
        log.append(event)
    assert feed.take_nowait()[0] == [ReasoningDelta("t", "ab"), TextDelta("t", "c"), ReasoningDelta("t", "d")]


def test_a_newer_picture_replaces_the_older_one_of_the_same_thing_only() -> None:
    log = small_log()
    feed = SessionFeed(log)
    for number in range(100):
        log.append(ToolProgress("t", "one", "terminal", f"{number}"))
        log.append(ToolProgress("t", "two", "terminal", f"{number}!"))
        log.append(UsageUpdated("t", Usage(input_tokens=number)))
        log.append(ProcessOutput("p", "not shown"))
    assert feed.take_nowait()[0] == [
        ToolProgress("t", "one", "terminal", "99"),
        ToolProgress("t", "two", "terminal", "99!"),
        UsageUpdated("t", Usage(input_tokens=99)),
    ]


def test_a_feed_can_begin_in_the_past_of_the_log() -> None:
    log = small_log()
    log.append(TextDelta("t", "before "))
    after = log.append(TextDelta("t", "not this "))
    log.append(TextDelta("t", "this "))
    feed = SessionFeed(log, after=after)
    log.append(TextDelta("t", "and this"))
    assert text_of(feed.take_nowait()[0]) == "this and this"


def test_what_is_too_much_is_let_go_of_and_said() -> None:
    log = small_log()
    feed = SessionFeed(log, max_cost=1000)
    for _ in range(50):
        log.append(InterimText("t", "said", already_streamed=False))
    events, lost = feed.take_nowait()
    assert lost
    assert len(events) < 50
    assert feed.take_nowait() == ([], False)


def test_a_closed_feed_takes_nothing_and_leaves_the_log() -> None:
    log = small_log()
    feed = SessionFeed(log)
    feed.close()
    feed.close()
    log.append(TextDelta("t", "x"))
    assert log.observers == []
    assert feed.take_nowait() == ([], False)


async def test_a_reader_waits_for_the_next_event_and_for_the_end(autojump_clock: object) -> None:
    log = small_log()
    feed = SessionFeed(log)
    with trio.move_on_after(5) as waited:
        await feed.wait()
    assert waited.cancelled_caught
    log.append(TextDelta("t", "x"))
    log.close()
    await feed.wait()
    assert text_of(feed.take_nowait()[0]) == "x"
    with pytest.raises(LogClosed):
        await feed.wait()
