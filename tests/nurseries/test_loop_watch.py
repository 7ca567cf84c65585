"""The longest round of the event loop and all of its work, by a clock of the test."""

from __future__ import annotations

import trio

from hermes.nurseries.loop_watch import LoopWatch


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_longest_round_is_told_once_and_all_work_is_counted() -> None:
    clock = Clock()
    watch = LoopWatch(clock)
    with watch.watching():
        for seconds in (1.0, 5.0, 2.0):
            await trio.sleep(0)
            clock.now += seconds
        await trio.sleep(0)
        assert watch.take_longest() == 5.0
        assert watch.take_longest() == 0.0
        assert watch.busy_seconds >= 7.0


async def test_nothing_is_counted_outside_the_block() -> None:
    clock = Clock()
    watch = LoopWatch(clock)
    with watch.watching():
        await trio.sleep(0)
    clock.now += 9
    await trio.sleep(0)
    assert watch.take_longest() == 0.0
