"""Work in threads that waits for threads: it ends, however few places there are, and the places are taken back."""

from __future__ import annotations

import logging

import pytest
import trio

from hermes.nurseries.spare_threads import MOST_LENT, lend_threads


def nested(depth: int) -> None:
    """Hold a place, call back into the loop, and wait there for another one."""
    if depth:
        trio.from_thread.run(trio.to_thread.run_sync, nested, depth - 1)


@pytest.mark.fault("B-179")
async def test_work_that_waits_for_a_thread_in_a_thread_ends_with_four_places(caplog: pytest.LogCaptureFixture) -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 4
    with trio.fail_after(60):
        async with trio.open_nursery() as outer:
            outer.start_soon(lend_threads, 0.02)
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(trio.to_thread.run_sync, nested, 3)
            while limiter.total_tokens != 4:
                await trio.sleep(0.01)
            outer.cancel_scope.cancel()
    assert "wait for a thread" in caplog.text


async def test_places_are_not_lent_without_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    tokens = trio.to_thread.current_default_thread_limiter()
    tokens.total_tokens = 1
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lend_threads, 0.005)
            # Nobody of these ever gives a place back.
            for number in range(MOST_LENT + 20):
                nursery.start_soon(tokens.acquire_on_behalf_of, number)
            while tokens.borrowed_tokens < MOST_LENT + 1:
                await trio.sleep(0.005)
            await trio.sleep(0.05)
            assert (tokens.total_tokens, tokens.borrowed_tokens) == (MOST_LENT + 1, MOST_LENT + 1)
            nursery.cancel_scope.cancel()


async def test_a_place_that_comes_free_is_waited_for() -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 1
    turns = 20
    with trio.fail_after(60):
        async with trio.open_nursery() as outer:
            outer.start_soon(lend_threads, 0.2)
            async with trio.open_nursery() as nursery:
                for _ in range(turns):
                    nursery.start_soon(trio.to_thread.run_sync, lambda: None)
            assert limiter.total_tokens == 1
            outer.cancel_scope.cancel()
