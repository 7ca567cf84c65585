"""The order in which a connection's tasks end, for each way a connection can end."""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from hermes.nurseries.connection import HURRIED_FAREWELL, ConnectionEnd, ConnectionTree
from hermes.nurseries.containment import PoolFull


class Client:
    """Stands for both ends of the wire; records what happens in order."""

    def __init__(self) -> None:
        self.tree = ConnectionTree("test", max_requests=2, farewell_within=5)
        self.steps: list[str] = []
        self.hung_up = trio.Event()
        self.unreachable = trio.Event()
        self.stalls_at_the_end = False

    async def read(self) -> None:
        await self.hung_up.wait()
        self.steps.append("reader ended")

    async def write(self) -> None:
        try:
            await self.unreachable.wait()
        finally:
            self.steps.append("writer ended")

    async def farewell(self) -> None:
        self.steps.append("farewell")
        if self.stalls_at_the_end:
            await trio.sleep_forever()
        self.unreachable.set()

    async def run(self, on_hang_up: Callable[[], Awaitable[None]] | None = None) -> ConnectionEnd:
        return await self.tree.run(read=self.read, write=self.write, farewell=self.farewell, on_hang_up=on_hang_up)

    async def wait_as(self, name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.steps.append(f"{name} ended")


async def started(client: Client, nursery: trio.Nursery) -> list[ConnectionEnd]:
    ends: list[ConnectionEnd] = []

    async def run() -> None:
        ends.append(await client.run())

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    client.tree.start_companion(lambda: client.wait_as("companion"), name="companion")
    client.tree.start_request(lambda: client.wait_as("request"), name="request")
    await trio.testing.wait_all_tasks_blocked()
    return ends


async def test_a_hang_up_ends_requests_then_companions_then_says_goodbye(
    autojump_clock: trio.testing.MockClock,
) -> None:
    client = Client()
    async with trio.open_nursery() as nursery:
        ends = await started(client, nursery)
        client.hung_up.set()
    assert ends == [ConnectionEnd.PEER_HUNG_UP]
    assert client.steps == ["reader ended", "request ended", "companion ended", "farewell", "writer ended"]


async def test_a_writer_that_ends_ends_the_rest_without_goodbye(autojump_clock: trio.testing.MockClock) -> None:
    client = Client()
    async with trio.open_nursery() as nursery:
        ends = await started(client, nursery)
        client.unreachable.set()
    assert ends == [ConnectionEnd.PEER_UNREACHABLE]
    assert client.steps[0] == "writer ended"
    assert "farewell" not in client.steps
    assert {"request ended", "companion ended"} <= set(client.steps)


async def test_closing_from_this_side_says_goodbye(autojump_clock: trio.testing.MockClock) -> None:
    client = Client()
    async with trio.open_nursery() as nursery:
        ends = await started(client, nursery)
        client.tree.cancel("enough")
    assert ends == [ConnectionEnd.CLOSED]
    assert client.steps[-2:] == ["farewell", "writer ended"]


async def test_a_cancellation_from_outside_lets_the_writer_say_goodbye(autojump_clock: trio.testing.MockClock) -> None:
    client = Client()
    async with trio.open_nursery() as nursery:
        ends = await started(client, nursery)
        nursery.cancel_scope.cancel()
    assert ends == []
    assert client.steps[-2:] == ["farewell", "writer ended"]


async def test_a_farewell_that_stalls_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    client = Client()
    client.stalls_at_the_end = True
    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        await started(client, nursery)
        nursery.cancel_scope.cancel()
    assert trio.current_time() - before == pytest.approx(HURRIED_FAREWELL)


async def test_what_is_done_at_the_hang_up_comes_before_requests_are_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    client = Client()

    async def stop_work() -> None:
        await trio.sleep(1)
        client.steps.append("work stopped")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run, stop_work)
        await trio.testing.wait_all_tasks_blocked()
        client.tree.start_request(lambda: client.wait_as("request"), name="request")
        client.hung_up.set()
    assert client.steps == ["reader ended", "work stopped", "request ended", "farewell", "writer ended"]


async def test_a_request_is_cancelled_alone(autojump_clock: trio.testing.MockClock) -> None:
    client = Client()
    cancelled: list[str] = []
    async with trio.open_nursery() as nursery:
        await started(client, nursery)
        task = client.tree.start_request(
            lambda: client.wait_as("other"), name="other", on_cancelled=lambda: cancelled.append("other")
        )
        with pytest.raises(PoolFull):
            client.tree.start_request(trio.sleep_forever, name="one too many")
        assert task.cancel("by id")
        await task.wait_ended()
        assert (cancelled, client.tree.waiting_requests) == (["other"], 1)
        client.hung_up.set()
    assert cancelled == ["other"]


async def test_a_crashed_request_leaves_the_connection_alone(autojump_clock: trio.testing.MockClock) -> None:
    client = Client()

    async def crash() -> None:
        raise ValueError("boom")

    async with trio.open_nursery() as nursery:
        ends = await started(client, nursery)
        task = client.tree.start_request(crash, name="bad")
        await task.wait_ended()
        await trio.testing.wait_all_tasks_blocked()
        assert (ends, client.steps) == ([], [])
        client.hung_up.set()
    assert ends == [ConnectionEnd.PEER_HUNG_UP]
