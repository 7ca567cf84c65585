"""Freed memory goes back to the system, now and then."""

from __future__ import annotations

from typing import Any

import pytest
import trio

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
