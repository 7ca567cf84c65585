"""Circles are looked for as often as a hundredth of the time allows; freed memory goes back to the system."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing

from hermes.nurseries import heap


async def test_memory_is_given_back_again_and_again(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # It works in a thread, which is given its time before the clock jumps.
    autojump_clock.autojump_threshold = 0.2
    times: list[int] = []
    monkeypatch.setattr(heap, "_trim", lambda: times.append)
    with trio.move_on_after(3.5 * heap.EVERY):
        await heap.keep_heap_small()
    assert times == [0, 0, 0]


async def test_where_the_library_cannot_do_it_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_trim", lambda: None)
    with trio.fail_after(1):
        await heap.keep_heap_small()


def test_the_library_of_this_system_is_asked() -> None:
    trim = heap._trim()
    assert trim is None or trim(0) in (0, 1)


async def test_a_walk_through_all_objects_takes_no_more_than_its_share_of_the_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[float] = []

    def walk() -> int:
        walks.append(trio.current_time())
        autojump_clock.jump(cost)
        return 0

    monkeypatch.setattr(heap.gc, "collect", walk)
    monkeypatch.setattr(heap, "_has_old", lambda _threshold: True)
    before = gc.get_threshold()
    cost = 0.05
    with trio.move_on_after(30):
        await heap.collect_in_moderation()
    pauses = [after - now for now, after in pairwise(walks)]
    assert len(walks) > 3 and all(cost / heap.COLLECT_SHARE <= pause < 7 for pause in pauses)
    walks.clear()
    cost = 0.001
    with trio.move_on_after(30):
        await heap.collect_in_moderation()
    assert len(walks) > 20, "a small heap is looked through every second"
    assert gc.get_threshold() == before


async def test_nothing_is_walked_through_where_nothing_is_new(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "_has_old", lambda _threshold: False)
    monkeypatch.setattr(heap.gc, "collect", lambda: pytest.fail("walked"))
    with trio.move_on_after(30):
        await heap.collect_in_moderation()


async def test_while_it_runs_the_collector_leaves_the_old_objects_alone(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        before = gc.get_threshold()
        nursery.start_soon(heap.collect_in_moderation)
        await trio.testing.wait_all_tasks_blocked()
        assert gc.get_threshold() == (*before[:2], heap.NEVER)
        nursery.cancel_scope.cancel()
    assert gc.get_threshold() == before


async def test_what_a_long_walk_has_found_alive_is_left_out_of_most_of_the_next_ones(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, float]] = []
    left_out = False

    def walk() -> int:
        autojump_clock.jump(0.05 if left_out else 0.4)
        done.append(("new" if left_out else "all", trio.current_time()))
        return 0

    def freeze() -> None:
        nonlocal left_out
        left_out = True

    def unfreeze() -> None:
        nonlocal left_out
        left_out = False

    monkeypatch.setattr(heap.gc, "collect", walk)
    monkeypatch.setattr(heap.gc, "freeze", freeze)
    monkeypatch.setattr(heap.gc, "unfreeze", unfreeze)
    monkeypatch.setattr(heap, "_has_old", lambda _threshold: True)
    with trio.move_on_after(1000):
        await heap.collect_in_moderation()
    whole = [moment for kind, moment in done if kind == "all"]
    assert [kind for kind, _ in done[:3]] == ["all", "new", "new"]
    assert len(whole) == 3, "nothing is left out for ever"
    assert all(
        0.4 / heap.THOROUGH_SHARE <= after - now < 0.4 / heap.THOROUGH_SHARE + 10 for now, after in pairwise(whole)
    )
    assert left_out
