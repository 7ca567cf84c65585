"""A cell that is filled once and can be awaited."""

from __future__ import annotations

import trio
import trio.testing

from hermes.nurseries.settlement import Settlement


async def test_only_the_first_value_counts() -> None:
    cell: Settlement[int] = Settlement()
    assert (cell.settled, cell.value) == (False, None)
    assert cell.settle(1)
    assert not cell.settle(2)
    assert (cell.settled, cell.value) == (True, 1)


async def test_none_is_a_value_too() -> None:
    cell: Settlement[None] = Settlement()
    assert cell.settle(None)
    assert cell.settled
    assert not cell.settle(None)
    assert await cell.wait() is None


async def test_everybody_who_waits_gets_the_value(autojump_clock: trio.testing.MockClock) -> None:
    cell: Settlement[str] = Settlement()
    seen: list[str] = []

    async def wait() -> None:
        seen.append(await cell.wait())

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            cell.settle("here")
        assert seen == ["here", "here"]
        assert await cell.wait() == "here"


async def test_waiting_for_a_value_that_is_there_still_is_a_checkpoint() -> None:
    cell: Settlement[int] = Settlement()
    cell.settle(1)
    with trio.testing.assert_checkpoints():
        await cell.wait()


async def test_settling_is_no_checkpoint() -> None:
    with trio.testing.assert_no_checkpoints():
        Settlement[int]().settle(1)


async def test_a_bounded_wait_says_whether_the_value_is_there(autojump_clock: trio.testing.MockClock) -> None:
    cell: Settlement[int] = Settlement()
    began = trio.current_time()
    assert not await cell.wait_at_most(3)
    assert trio.current_time() == began + 3
    cell.settle(1)
    assert await cell.wait_at_most(3)
    assert trio.current_time() == began + 3
