"""Numbered events, a bounded tail, cursors: replay and live are one sequence, and nobody slows the writer."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing

from hermes.nurseries.event_log import EventLog, Lagged, LogClosed


def make_log(max_events: int = 100, max_cost: int = 10_000) -> EventLog[str]:
    return EventLog(cost=len, clock=lambda: 12.5, max_events=max_events, max_cost=max_cost)


def filled(count: int, **bounds: int) -> EventLog[str]:
    log = make_log(**bounds)
    for number in range(1, count + 1):
        log.append(f"e{number}")
    return log


async def test_events_are_numbered_from_one() -> None:
    log = make_log()
    assert (log.latest_seq, log.oldest_seq, len(log)) == (0, 1, 0)
    assert [log.append("a"), log.append("bb")] == [1, 2]
    entries, truncated = log.since(0)
    assert [(entry.seq, entry.event, entry.cost, entry.at) for entry in entries] == [
        (1, "a", 1, 12.5),
        (2, "bb", 2, 12.5),
    ]
    assert not truncated
    assert log.cost == 3


@pytest.mark.parametrize("after", range(12))
def test_what_comes_after_a_number_is_complete_or_said_to_be_cut(after: int) -> None:
    log = filled(10, max_events=6)
    entries, truncated = log.since(after)
    assert [entry.seq for entry in entries] == list(range(max(after + 1, 5), 11))
    assert truncated is (after < 4)


def test_the_tail_is_bounded_in_number_and_in_bytes() -> None:
    by_number = filled(50, max_events=7)
    assert (len(by_number), by_number.oldest_seq, by_number.latest_seq) == (7, 44, 50)
    by_bytes = make_log(max_cost=10)
    for _ in range(20):
        by_bytes.append("xxxx")
    assert len(by_bytes) == 2
    assert by_bytes.cost == 8


def test_an_event_larger_than_the_window_is_there_for_readers_in_step_and_goes_with_the_next() -> None:
    log = make_log(max_cost=10)
    log.append("small")
    log.append("x" * 100)
    assert (len(log), log.cost, log.oldest_seq, log.latest_seq) == (1, 100, 2, 2)
    entries, truncated = log.since(1)
    assert ([entry.seq for entry in entries], truncated) == ([2], False)
    assert log.since(0)[1] is True
    log.append("next")
    assert (len(log), log.cost, log.oldest_seq) == (1, 4, 3)


async def test_a_new_reader_sees_only_what_is_new_and_a_returning_one_everything_after_its_number() -> None:
    log = filled(4)
    fresh, returning = log.subscribe(), log.subscribe(2)
    log.append("e5")
    assert [entry.event for entry in await fresh.next()] == ["e5"]
    assert [entry.event for entry in await returning.next()] == ["e3", "e4", "e5"]


@pytest.mark.parametrize("first", range(6))
async def test_replay_from_any_number_and_live_events_join_without_a_gap(first: int) -> None:
    log = filled(5)
    reader = log.subscribe(first)
    seen = [entry.seq for entry in reader.next_nowait()]
    log.append("e6")
    log.append("e7")
    seen += [entry.seq for entry in await reader.next()]
    assert seen == list(range(first + 1, 8))


async def test_a_batch_has_at_most_the_limit_and_the_next_goes_on_behind_it() -> None:
    reader = filled(5).subscribe(0)
    batches = [[entry.seq for entry in await reader.next(2)] for _ in range(3)]
    assert batches == [[1, 2], [3, 4], [5]]
    assert reader.next_nowait() == []


async def test_readers_wake_when_something_is_appended(autojump_clock: trio.testing.MockClock) -> None:
    log = make_log()
    seen: list[tuple[int, str]] = []

    async def read(number: int) -> None:
        for entry in await log.subscribe().next():
            seen.append((number, entry.event))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(read, number)
            await trio.testing.wait_all_tasks_blocked()
            log.append("a")
    assert sorted(seen) == [(0, "a"), (1, "a"), (2, "a")]


async def test_a_reader_that_fell_behind_is_told_and_nobody_who_waits_for_it_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = filled(3, max_events=5)
    slow = log.subscribe(0)
    passed = trio.Event()

    async def wait_for_it() -> None:
        await slow.wait_handled(3)
        passed.set()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_it)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(10):
                log.append("more")
            with pytest.raises(Lagged) as caught:
                await slow.next()
            await passed.wait()
    assert caught.value.oldest == log.oldest_seq == 9


async def test_a_closed_log_is_read_to_its_end_first() -> None:
    log = filled(2)
    reader = log.subscribe(0)
    log.close()
    assert log.closed
    assert log.append("late") == 2
    assert [entry.seq for entry in await reader.next()] == [1, 2]
    with pytest.raises(LogClosed):
        await reader.next()
    with pytest.raises(LogClosed):
        await reader.wait()


async def test_closing_wakes_readers_and_those_who_wait_for_them(autojump_clock: trio.testing.MockClock) -> None:
    log = make_log()
    ended: list[str] = []
    reader = log.subscribe()

    async def read() -> None:
        with pytest.raises(LogClosed):
            await reader.next()
        ended.append("reader")

    async def wait() -> None:
        await reader.wait_handled(5)
        ended.append("waiter")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            log.close()
    assert sorted(ended) == ["reader", "waiter"]


async def test_handled_means_that_the_reader_has_asked_for_more(autojump_clock: trio.testing.MockClock) -> None:
    log = make_log()
    reader = log.subscribe()
    order: list[str] = []

    async def answer_after(seq: int) -> None:
        await reader.wait_handled(seq)
        order.append("answer")

    async def write() -> None:
        for _ in range(2):
            for entry in await reader.next():
                await trio.sleep(1)
                order.append(f"wrote {entry.event}")
        await reader.next()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            seq = log.append("a")
            nursery.start_soon(answer_after, seq)
            await trio.sleep(5)
            assert order == ["wrote a", "answer"]
            log.append("b")
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
    assert order == ["wrote a", "answer", "wrote b"]


async def test_waiting_for_what_has_been_handled_returns_at_once() -> None:
    log = filled(3)
    reader = log.subscribe()
    with trio.fail_after(1):
        await reader.wait_handled(3)


async def test_a_reader_that_is_gone_holds_nobody_back(autojump_clock: trio.testing.MockClock) -> None:
    log = make_log()
    reader = log.subscribe()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.wait_handled, 1)
            await trio.testing.wait_all_tasks_blocked()
            reader.close()


async def test_a_reader_can_wait_without_taking(autojump_clock: trio.testing.MockClock) -> None:
    log = make_log()
    reader = log.subscribe()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.wait)
            await trio.testing.wait_all_tasks_blocked()
            log.append("a")
        await reader.wait()
    assert [entry.event for entry in reader.next_nowait()] == ["a"]


async def test_observers_hear_every_event_in_the_same_breath() -> None:
    log = make_log(max_events=1)
    heard: list[str] = []
    log.observers.append(heard.append)
    with trio.testing.assert_no_checkpoints():
        log.append("a")
        log.append("b")
    assert heard == ["a", "b"]


async def test_who_follows_is_woken_only_for_what_was_not_dealt_with_at_once(autojump_clock: object) -> None:
    log = make_log()
    heard: list[str] = []
    woken: list[int] = []

    def pass_on(event: str) -> bool:
        heard.append(event)
        return event.startswith("quick")

    async def follow() -> None:
        while not log.closed:
            await follower.wait()
            woken.append(log.latest_seq)

    follower = log.follow(pass_on)
    log.append("before it waits")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for event in ("quick 1", "slow 1", "quick 2"):
                await trio.testing.wait_all_tasks_blocked()
                log.append(event)
            await trio.testing.wait_all_tasks_blocked()
            log.close()
    assert (heard, woken) == (["quick 1", "slow 1", "quick 2"], [3, 4])


async def test_who_follows_no_more_hears_nothing(autojump_clock: object) -> None:
    log = make_log()
    heard: list[str] = []
    follower = log.follow(lambda event: not heard.append(event))
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follower.wait)
            await trio.testing.wait_all_tasks_blocked()
            log.append("a")
            log.unfollow(follower)
            log.append("b")
    assert heard == ["a"]


async def test_a_slow_reader_costs_the_writer_nothing() -> None:
    log = make_log(max_events=10)
    readers = [log.subscribe(0) for _ in range(100)]
    with trio.testing.assert_no_checkpoints():
        for number in itertools.repeat("x", 1000):
            log.append(number)
    assert len(log) == 10
    assert all(reader.cursor == 0 for reader in readers)


async def test_an_entry_is_encoded_once_for_all_readers_of_a_surface() -> None:
    log = filled(1)
    first, second = log.subscribe(0), log.subscribe(0)
    (entry,) = first.next_nowait()
    entry.encoded["gateway"] = b"bytes"
    assert second.next_nowait()[0].encoded["gateway"] == b"bytes"


@pytest.mark.parametrize("size", [1, 30, 49])
@pytest.mark.parametrize("window", [1, 3, 4, 7, 100])
def test_a_reader_who_reads_only_when_it_is_time_misses_nothing(window: int, size: int) -> None:
    log = make_log(max_events=window, max_cost=100)
    late, read = log.subscribe(), 0
    for _ in range(500):
        log.append("x" * size)
        if log.is_time_to_read:
            read += len(late.next_nowait())
    assert read + len(late.next_nowait()) == 500


async def test_large_events_in_one_breath_cut_off_nobody_who_is_in_step() -> None:
    log = make_log(max_cost=100)
    reader = log.subscribe()
    log.append("a")
    assert len(reader.next_nowait()) == 1
    for text in ("b" * 500, "c", "d" * 500):
        log.append(text)
    assert [entry.event[0] for entry in reader.next_nowait()] == ["b", "c", "d"]
    log.append("e")
    assert [entry.event for entry in reader.next_nowait()] == ["e"]
    assert log.cost <= 100


async def test_reader_that_does_not_read_keeps_a_few_large_events_and_no_more() -> None:
    log = make_log(max_cost=100)
    reader = log.subscribe()
    for _ in range(40):
        log.append("x" * 500)
    assert len(log) <= 16
    with pytest.raises(Lagged):
        reader.next_nowait()
    log.append("y")
    assert log.cost <= 100
