"""Where a crash stops: children whose failure becomes a value and a log line, never the end of their parent.

``contained`` runs one function; ``TaskPool`` is a bounded nursery of contained children, each cancellable by itself;
``run_until_one_ends`` runs tasks that live and die together; ``foreign_nursery`` lends a nursery to a library that
asks for one. Channels and listeners, which may not open nurseries, get theirs from here. Cancellation, keyboard
interrupts and other exceptions that are no ``Exception`` pass through all of them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple, Unpack

import trio

from hermes.errors import HermesError
from hermes.records import dataclass

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Crash:
    """What is left of a child that raised. ``error`` is the exception itself, out of any group of one."""

    name: str
    error: Exception


class PoolFull(Exception):
    """A pool has as many children as it may have; the new one was not started."""


async def contained(name: str, fn: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts, log: bool = True) -> T | Crash:
    """Await ``fn(*args)`` and return what it returns, or its Crash. Raises only what is not an ``Exception``.

    A group that holds a cancellation beside an error is split: the error is logged, the cancellation goes on.
    Parameters: ``log``, False when the caller reports the crash itself.
    """
    crash: Crash | None = None
    result: list[T] = []
    try:
        result.append(await fn(*args))
    except* Exception as group:
        crash = Crash(name, alone(group))
        if log:
            # A full disk, say, is no fault of the program, and its place in the code tells nobody anything.
            known = isinstance(crash.error, HermesError)
            word = "failed" if known else "crashed"
            logger.error("%s %s: %s", name, word, crash.error, exc_info=None if known else crash.error)
    return result[0] if crash is None else crash


def alone(error: Exception) -> Exception:
    """The exception inside groups of one; ``error`` itself when it is no group or a group of several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class PooledTask:
    """One child of a pool: its name, and the way to cancel it alone."""

    def __init__(self, name: str, on_cancelled: Callable[[], None] | None = None) -> None:
        self.name = name
        self.was_cancelled = False
        self._on_cancelled = on_cancelled
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    def cancel(self, reason: str | None = None) -> bool:
        """Ask this child to stop. True if this call was the first to ask and the child had not ended."""
        if self._ended.is_set() or self._scope.cancel_called:
            return False
        self._scope.cancel(reason=reason)
        return True

    async def wait_ended(self) -> None:
        await self._ended.wait()

    async def _run(self, fn: Callable[[], Awaitable[object]], forget: Callable[[PooledTask], None]) -> None:
        try:
            with self._scope:
                await contained(self.name, fn)
            self.was_cancelled = self._scope.cancelled_caught
            if self.was_cancelled and self._on_cancelled is not None:
                self._on_cancelled()
        finally:
            forget(self)
            self._ended.set()


class TaskPool:
    """Contained children side by side, at most ``limit`` of them. Made by ``open_task_pool``."""

    def __init__(self, nursery: trio.Nursery, name: str, limit: int) -> None:
        self.name = name
        self._nursery = nursery
        self._limit = limit
        self._tasks: dict[PooledTask, None] = {}
        self._changed = trio.Event()

    @property
    def count(self) -> int:
        return len(self._tasks)

    @property
    def is_full(self) -> bool:
        return len(self._tasks) >= self._limit

    def start(
        self,
        fn: Callable[[Unpack[Ts]], Awaitable[object]],
        *args: *Ts,
        name: str,
        on_cancelled: Callable[[], None] | None = None,
    ) -> PooledTask:
        """Start ``fn(*args)`` as a child. Raises PoolFull at the limit; nothing is started then.

        Parameters: ``on_cancelled``, called at the end of a child that its own ``cancel`` has ended; must not raise.
        """
        if self.is_full:
            raise PoolFull(f"{self.name} runs {self._limit} tasks, which is its limit")
        task = PooledTask(name, on_cancelled)
        self._tasks[task] = None
        self._nursery.start_soon(task._run, lambda: fn(*args), self._forget, name=name)
        return task

    def cancel_all(self, reason: str | None = None) -> None:
        """Ask every child to stop. The pool stays usable."""
        for task in list(self._tasks):
            task.cancel(reason)

    async def wait_empty(self) -> None:
        """Wait until no child is left."""
        while self._tasks:
            await self._changed.wait()

    async def wait_room(self) -> None:
        """Wait until one more child may be started."""
        while self.is_full:
            await self._changed.wait()

    async def wait_changed(self) -> None:
        """Wait until a child has ended."""
        await self._changed.wait()

    def _forget(self, task: PooledTask) -> None:
        self._tasks.pop(task, None)
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def open_task_pool(name: str, limit: int) -> AsyncIterator[TaskPool]:
    """A pool for the length of the block. Leaving the block cancels the children that are left and waits for them."""
    async with trio.open_nursery() as nursery:
        yield TaskPool(nursery, name, limit)
        nursery.cancel_scope.cancel(reason=f"{name} is closing")


@asynccontextmanager
async def foreign_nursery(name: str) -> AsyncIterator[trio.Nursery]:
    """A nursery for a library that starts tasks of its own. Leaving the block cancels them; use inside ``contained``,
    because a crash of theirs ends the block."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel(reason=f"{name} is closing")


@asynccontextmanager
async def running_beside(
    name: str, fn: Callable[[], Awaitable[object]], *, stop: Callable[[], object], within: float
) -> AsyncIterator[None]:
    """Run ``fn()`` beside the block. When the block is left, however, ``stop()`` asks it to end, which it may take
    ``within`` seconds for; then it is cancelled.

    An error of the block comes out as it is, not in a group: the block belongs to a program that knows no nursery.
    """
    ended = trio.Event()
    raised: list[Exception] = []

    async def run() -> None:
        try:
            await fn()
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, name=name)
        try:
            yield
        except Exception as error:
            raised.append(error)
        finally:
            stop()
            with trio.CancelScope(deadline=trio.current_time() + within, shield=True):
                await ended.wait()
            nursery.cancel_scope.cancel(reason=f"{name} is closing")
    if raised:
        raise raised[0]


async def run_until_one_ends(*tasks: tuple[str, Callable[[], Awaitable[object]]]) -> Crash | None:
    """Run named functions side by side until the first of them ends; the others are cancelled then.

    Returns the first crash, if any.
    """
    crashes: list[Crash] = []

    async def run(name: str, fn: Callable[[], Awaitable[object]]) -> None:
        outcome = await contained(name, fn)
        if isinstance(outcome, Crash):
            crashes.append(outcome)
        nursery.cancel_scope.cancel(reason=f"{name} ended")

    async with trio.open_nursery() as nursery:
        for name, fn in tasks:
            nursery.start_soon(run, name, fn, name=name)
    return crashes[0] if crashes else None
