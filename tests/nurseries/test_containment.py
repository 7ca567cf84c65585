"""A crash stops at its own task; a cancellation does not stop there."""

import logging

import pytest
import trio

from hermes.errors import StoreUnavailable
from hermes.nurseries.containment import Crash, PoolFull, contained, foreign_nursery, open_task_pool, run_until_one_ends


async def fail(error: Exception) -> None:
    await trio.lowlevel.checkpoint()
    raise error


async def test_a_crash_becomes_a_value_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("boom")
    with caplog.at_level(logging.ERROR):
        assert await contained("the task", fail, error) == Crash("the task", error)
    assert "the task crashed: boom" in caplog.text


async def test_a_refusal_that_has_a_name_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(await contained("the task", fail, StoreUnavailable("the disk is full", cause="full")), Crash)
    assert "the task failed: the disk is full" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_crash_inside_a_nursery_is_taken_out_of_its_groups() -> None:
    async def nested() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, ValueError("boom"))

    crash = await contained("nested", nested)
    assert isinstance(crash, Crash)
    assert isinstance(crash.error, ValueError)


async def test_a_result_passes() -> None:
    async def answer() -> int:
        return 42

    assert await contained("answer", answer) == 42


async def test_a_cancellation_passes_and_the_crash_beside_it_does_not(autojump_clock: trio.testing.MockClock) -> None:
    async def fail_while_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup failed")

    with trio.move_on_after(1) as scope:

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_while_cancelled)
                nursery.start_soon(trio.sleep_forever)

        await contained("both", both)
        raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught


async def test_a_crash_in_a_pool_leaves_the_others_alone() -> None:
    done = trio.Event()
    async with open_task_pool("pool", 5) as pool:
        crashed = pool.start(fail, ValueError("boom"), name="bad")
        await crashed.wait_ended()
        pool.start(lambda: set_event(done), name="good")
        with trio.fail_after(5):
            await done.wait()
            await pool.wait_empty()
    assert pool.count == 0


async def set_event(event: trio.Event) -> None:
    event.set()


async def test_a_full_pool_refuses_and_takes_again_when_there_is_room() -> None:
    async with open_task_pool("pool", 1) as pool:
        first = pool.start(trio.sleep_forever, name="first")
        with pytest.raises(PoolFull):
            pool.start(trio.sleep_forever, name="second")
        assert first.cancel("make room") is True
        assert first.cancel("again") is False
        with trio.fail_after(5):
            await pool.wait_room()
        pool.start(trio.sleep_forever, name="second")
        assert pool.count == 1


async def test_only_a_child_cancelled_by_itself_says_so() -> None:
    cancelled: list[str] = []
    async with open_task_pool("pool", 3) as pool:
        pool.start(trio.sleep_forever, name="a", on_cancelled=lambda: cancelled.append("a")).cancel()
        pool.start(trio.sleep_forever, name="b", on_cancelled=lambda: cancelled.append("b"))
        pool.start(trio.lowlevel.checkpoint, name="c", on_cancelled=lambda: cancelled.append("c"))
        await trio.testing.wait_all_tasks_blocked()
    assert cancelled == ["a"]


async def test_leaving_a_pool_cancels_what_is_left() -> None:
    with trio.fail_after(5):
        async with open_task_pool("pool", 3) as pool:
            pool.start(trio.sleep_forever, name="stays")
            pool.cancel_all("not needed")
            pool.start(trio.sleep_forever, name="comes later")
    assert pool.count == 0


async def test_the_first_of_several_to_end_ends_the_others() -> None:
    error = ValueError("boom")
    with trio.fail_after(5):
        assert await run_until_one_ends(("a", trio.sleep_forever), ("b", trio.lowlevel.checkpoint)) is None
        crash = await run_until_one_ends(("a", trio.sleep_forever), ("b", lambda: fail(error)))
    assert crash == Crash("b", error)


async def test_a_lent_nursery_ends_with_its_block() -> None:
    with trio.fail_after(5):
        async with foreign_nursery("library") as nursery:
            nursery.start_soon(trio.sleep_forever)
