"""The island: asyncio code inside the tree. The only file that knows asyncio; it imports it when it is first needed.

Each call gets a private event loop on top of Trio (trio-asyncio); what the code leaves behind ends with that loop.
Cancels cross both ways: a Trio cancel is a ``CancelledError`` in the code, an asyncio cancel of a Trio part is a Trio
cancel there. Code that swallows ``CancelledError`` is cut off when its time is over: it is not run any further, and
that is logged. Code that blocks the thread cannot be cut off here: it belongs in a process
(``plugin_process.py``).
"""

from __future__ import annotations

import functools
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from hermes.agent.tools.base import raised_by_a_signal

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

log = logging.getLogger(__name__)

PATIENCE = 0.5
LEAST = 0.1
LAST_STEPS = 1.0

LEAVING = (SystemExit, KeyboardInterrupt)
"""What a task of asyncio passes on to the loop, past everybody who waits for it."""


class PluginBroken(Exception):
    """The code of a plugin did something that no result can be made of; the text says what."""


async def run_asyncio_tool(
    fn: Callable[..., Awaitable[T]], *args: Any, patience: float = PATIENCE, name: str = ""
) -> T:
    """Await ``fn(*args)`` in a private loop. Raises what it raises; ``PluginBroken`` if it cancelled itself, or if
    asyncio is not installed with the server.

    Parameters: ``patience``, seconds in which everything of it must end after a cancel or its return; ``name``, for
    logs.
    """
    try:
        import trio_asyncio  # type: ignore[import-untyped]
    except ImportError as error:
        raise PluginBroken("needs the extra: pip install hermes-agent-server[asyncio]") from error
    label = name or getattr(fn, "__qualname__", repr(fn))
    leashes = _Leashes(label)
    async with trio_asyncio.open_loop() as loop:
        loop.set_task_factory(leashes.new_task)
        loop.set_exception_handler(functools.partial(_log_loop_error, label))
        loop._default_executor = _abandoning_executor(trio_asyncio)
        done = trio.Event()
        task: asyncio.Task[T] = loop.create_task(_awaited(fn, args))
        task.add_done_callback(lambda _: done.set())
        try:
            await done.wait()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + patience + LAST_STEPS):
                await leashes.end_all(loop, patience)
            if task.done() and not task.cancelled():
                # Asked for even where an interrupt of the program goes past the result: asyncio complains of a task
                # that nobody asked when it is collected, in the middle of whatever the program does then.
                task.exception()
    # Outside: open_loop() would wrap an error in groups.
    return _result(task)


def run_alone(fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Await ``fn(*args)`` in a process that has nothing else to do."""
    import asyncio

    return asyncio.run(_awaited(fn, args))


async def _awaited(fn: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    return await fn(*args)


def _result(task: asyncio.Task[T]) -> T:
    if task.cancelled():
        raise PluginBroken("cancelled itself")
    return task.result()


def _log_loop_error(label: str, loop: Any, context: dict[str, Any]) -> None:
    """What asyncio tells nobody else: a forgotten task has failed. It is no reason to end the call."""
    log.warning("%s: %s", label, context.get("message", "error in its event loop"), exc_info=context.get("exception"))


def _abandoning_executor(trio_asyncio: Any) -> Any:
    """Threads of the code are not waited for after a cancel: a thread cannot be stopped."""

    class Executor(trio_asyncio.TrioExecutor):  # type: ignore[misc]
        async def submit(self, func: Callable[..., Any], *args: Any) -> Any:
            return await trio.to_thread.run_sync(func, *args, abandon_on_cancel=True, limiter=self._limiter)

    return Executor()


class _Leashes:
    """Every task of one loop, so that all of them can be ended."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._cut = False
        self._ended = trio.Event()

    def new_task(self, loop: Any, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        """The loop's task factory."""
        import asyncio

        task = asyncio.Task(_leashed(coro, self.is_cut), loop=loop, **options)
        task.add_done_callback(lambda _: self._task_ended(coro))
        return task

    def _task_ended(self, coro: Coroutine[Any, Any, Any]) -> None:
        self._ended.set()
        try:
            coro.close()
        except Exception as error:
            # It waits for something even now; nothing of it runs any more.
            log.debug("a cut coroutine of %s did not close: %r", self._label, error)

    def is_cut(self) -> bool:
        return self._cut

    async def end_all(self, loop: Any, patience: float) -> None:
        """Cancel every task once, finish the asynchronous generators, and cut what is left when the time is over."""
        give_up = trio.current_time() + patience
        await self._end_tasks(loop, give_up, cancel=True)
        loop.create_task(loop.shutdown_asyncgens(), name="asynchronous generators")
        await self._end_tasks(loop, max(give_up, trio.current_time() + LEAST), cancel=False)

    async def _end_tasks(self, loop: Any, give_up: float, *, cancel: bool) -> None:
        import asyncio

        asked: set[asyncio.Task[Any]] = set()
        while left := asyncio.all_tasks(loop):
            if trio.current_time() >= give_up:
                self._cut_off(left)
                for task in left:
                    task.cancel()
                await trio.sleep(0)
                continue
            # Once each: a second cancel would fall into the clean-up of those that obey.
            for task in left - asked if cancel else ():
                task.cancel()
            asked |= left
            self._ended = trio.Event()
            with trio.move_on_at(give_up):
                await self._ended.wait()

    def _cut_off(self, left: set[asyncio.Task[Any]]) -> None:
        if not self._cut:
            self._cut = True
            names = ", ".join(sorted(task.get_name() for task in left))
            log.error("%s did not end when it was cancelled; it is cut off (%s)", self._label, names)


async def _leashed(coro: Coroutine[Any, Any, Any], is_cut: Callable[[], bool]) -> Any:
    return await _Leash(coro, is_cut)


def _left(error: BaseException) -> PluginBroken:
    if isinstance(error, KeyboardInterrupt) and raised_by_a_signal(error):
        # Not here, where nobody would hear of it: where Trio can take it to the main task.
        trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, signal.SIGINT)
    return PluginBroken(f"wanted to leave the program ({type(error).__name__})")


class _Leash(Generator[Any, Any, Any]):
    """Drives a coroutine like ``await`` does. Once it is cut, what is thrown into it ends the task and not the
    coroutine, which is not asked; its end is ``_task_ended``."""

    def __init__(self, coro: Coroutine[Any, Any, Any], is_cut: Callable[[], bool]) -> None:
        self._coro = coro
        self._is_cut = is_cut

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any, /) -> Any:
        try:
            return self._coro.send(value)
        except LEAVING as error:
            raise _left(error) from error

    def throw(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Any:
        error: BaseException = kind if value is None else value
        if self._is_cut():
            raise error
        try:
            return self._coro.throw(error)
        except LEAVING as raised:
            raise _left(raised) from raised
