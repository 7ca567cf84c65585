"""Asyncio code inside the tree: results and cancels cross both ways, and what is left behind ends with the call."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from hermes.nurseries.asyncio_island import PluginBroken, run_asyncio_tool
from hermes.testing.cancel_sweep import SweepRun, cancel_at_every_step

trio_asyncio = pytest.importorskip("trio_asyncio")


async def test_a_result_and_an_error_come_out_as_they_are() -> None:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("plugin bug")

    assert await run_asyncio_tool(add, 1, 2) == 3
    with pytest.raises(ValueError, match="plugin bug"):
        await run_asyncio_tool(fail)


async def test_a_cancel_of_the_tree_is_a_cancelled_error_in_the_code(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            seen.append("cleaned up")
            raise

    with trio.move_on_after(1) as scope:
        await run_asyncio_tool(wait)
    assert (scope.cancelled_caught, seen) == (True, ["cleaned up"])
    assert trio.current_time() == pytest.approx(1.2)


async def test_a_cancel_of_asyncio_is_a_cancel_in_the_part_written_for_trio() -> None:
    seen: list[str] = []

    async def trio_part() -> None:
        try:
            await trio.sleep_forever()
        finally:
            seen.append("trio part left")

    async def code() -> str:
        task = asyncio.ensure_future(trio_asyncio.trio_as_aio(trio_part)())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await trio_asyncio.trio_as_aio(trio_part)()
        return "on"

    with trio.fail_after(10):
        assert await run_asyncio_tool(code) == "on"
    assert seen == ["trio part left", "trio part left"]


async def test_code_that_cancels_itself_is_a_failure_and_no_cancel() -> None:
    async def code() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    with trio.fail_after(10):
        with pytest.raises(PluginBroken, match="cancelled itself"):
            await run_asyncio_tool(code)


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
async def test_code_that_wants_to_leave_the_program_is_a_failure_and_hangs_nobody(leaving: type[BaseException]) -> None:
    async def leave() -> None:
        await asyncio.sleep(0)
        raise leaving

    async def leave_in_a_task() -> None:
        await asyncio.create_task(leave())

    for code in (leave, leave_in_a_task):
        with trio.fail_after(20), pytest.raises(PluginBroken, match="leave the program"):
            await run_asyncio_tool(code)


async def test_tasks_left_behind_end_with_the_call(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            seen.append("ended")

    async def code() -> str:
        seen.append(asyncio.create_task(background()).get_name())
        await asyncio.sleep(0)
        return "returned"

    assert await run_asyncio_tool(code) == "returned"
    assert seen[1:] == ["ended"]
    assert trio.current_time() < 0.1


async def swallower() -> None:
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            continue


async def leaves_a_swallower() -> str:
    asyncio.get_running_loop().__dict__.setdefault("kept", []).append(asyncio.create_task(swallower()))
    await asyncio.sleep(0)
    return "returned"


async def swallows_in_a_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await swallower()

    async for _ in numbers():
        await asyncio.sleep(1000)


@pytest.mark.parametrize("code", [swallower, swallows_in_a_generator], ids=["coroutine", "generator"])
async def test_code_that_swallows_its_cancellation_is_cut_off_and_that_is_logged(
    code: Callable[[], Awaitable[Any]], autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.move_on_after(1) as scope:
        await run_asyncio_tool(code, patience=2)
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(3, abs=0.2)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "did not end when it was cancelled; it is cut off" in caplog.text


async def test_a_task_left_behind_that_swallows_does_not_hold_the_result(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert await run_asyncio_tool(leaves_a_swallower, patience=2) == "returned"
    assert trio.current_time() == pytest.approx(2, abs=0.2)
    assert "cut off" in caplog.text


async def test_code_that_swallows_once_and_then_ends_is_not_cut(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def code() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
        return "late"

    with trio.move_on_after(1) as scope:
        await run_asyncio_tool(code)
    assert scope.cancelled_caught
    assert caplog.records == []


async def test_the_usual_parts_of_asyncio_work() -> None:
    async def code() -> tuple[Any, ...]:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(asyncio.sleep(0, "group"))
        process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        thread = await asyncio.to_thread(lambda: "thread")
        queue: asyncio.Queue[str] = asyncio.Queue()
        await queue.put("queue")
        both = await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))
        return one.result(), output, thread, await queue.get(), both, await asyncio.wait_for(asyncio.sleep(0, 3), 1)

    with trio.fail_after(30):
        assert await run_asyncio_tool(code) == ("group", b"child\n", "thread", "queue", [1, 2], 3)


async def test_a_forgotten_task_that_fails_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("forgotten")

    async def code() -> str:
        task = asyncio.create_task(broken())
        await asyncio.sleep(0.01)
        del task
        # Some interpreters keep it in a cycle with its own traceback.
        gc.collect()
        return "fine"

    assert await run_asyncio_tool(code) == "fine"
    assert "Task exception was never retrieved" in caplog.text


async def test_a_thread_of_the_code_does_not_hold_a_cancel() -> None:
    release = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def block() -> None:
        trio.from_thread.run(release.wait, trio_token=token)

    with trio.fail_after(10):
        with trio.move_on_after(0.1) as scope:
            await run_asyncio_tool(asyncio.to_thread, block)
        assert scope.cancelled_caught
        release.set()
        await trio.sleep(0.05)


class OneCall:
    """Two tasks and a part written for Trio; cancelled at each step."""

    def __init__(self) -> None:
        self.scope: trio.CancelScope | None = None
        self.open = 0

    async def part(self, seconds: float) -> None:
        self.open += 1
        try:
            await asyncio.sleep(seconds)
            await trio_asyncio.trio_as_aio(trio.sleep)(seconds)
        finally:
            self.open -= 1

    async def code(self) -> str:
        await asyncio.gather(self.part(1), self.part(2))
        return "done"

    async def run(self) -> str:
        with trio.CancelScope() as scope:
            self.scope = scope
            return await run_asyncio_tool(self.code)
        return "cancelled"

    def canceller(self, level: str) -> Callable[[], None] | None:
        return self.scope.cancel if self.scope is not None else None


def test_a_cancel_at_every_step_ends_everything() -> None:
    def check(run: SweepRun[OneCall, str]) -> None:
        assert run.result in ("done", "cancelled")
        assert run.scenario.open == 0

    cancel_at_every_step(OneCall, check=check, level="call", seeds=range(2))
