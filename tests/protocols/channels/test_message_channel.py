"""The outbox: in order, bounded, and open to the question whether it is empty."""

import pytest
import trio
import trio.testing

from hermes.protocols.channels.message_channel import Outbox, OutboxFull, OutboxLimits

SMALL = OutboxLimits(room_frames=2, room_bytes=10, max_frames=4, max_bytes=20)


async def test_what_has_piled_up_comes_in_one_batch_within_its_bounds() -> None:
    outbox = Outbox(OutboxLimits())
    for frame in (b"a", b"bb", b"ccc", b"d" * 50):
        outbox.put_nowait(frame)
    assert await outbox.next_batch(2, 100) == [b"a", b"bb"]
    assert await outbox.next_batch(10, 5) == [b"ccc"]
    assert await outbox.next_batch(10, 5) == [b"d" * 50]


async def test_the_high_mark_refuses_and_one_huge_frame_always_fits_when_empty() -> None:
    outbox = Outbox(SMALL)
    assert outbox.put_nowait(b"x" * 1000)
    with pytest.raises(OutboxFull):
        outbox.put_nowait(b"y")
    await outbox.next_batch(1, 1)
    for _ in range(4):
        assert outbox.put_nowait(b"z")
    with pytest.raises(OutboxFull):
        outbox.put_nowait(b"z")


async def test_room_is_waited_for_until_the_writer_has_caught_up(autojump_clock: trio.testing.MockClock) -> None:
    outbox = Outbox(SMALL)
    outbox.put_nowait(b"a")
    outbox.put_nowait(b"b")
    got: list[bool] = []
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            got.append(await outbox.wait_room())

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        await outbox.next_batch(1, 100)
    assert got == [True]


async def test_flushed_means_written_not_just_taken(autojump_clock: trio.testing.MockClock) -> None:
    outbox = Outbox(SMALL)
    assert await outbox.wait_flushed(1)
    outbox.put_nowait(b"a")
    await outbox.next_batch(1, 1)
    assert not await outbox.wait_flushed(1)
    outbox.close()
    assert await outbox.next_batch(1, 1) == []
    assert await outbox.wait_flushed(1)


async def test_a_closed_outbox_hands_out_the_rest_and_takes_no_more() -> None:
    outbox = Outbox(SMALL)
    outbox.put_nowait(b"a")
    outbox.close()
    assert outbox.put_nowait(b"b") is False
    assert await outbox.next_batch(9, 9) == [b"a"]
    assert await outbox.next_batch(9, 9) == []
    assert await outbox.wait_room() is False
