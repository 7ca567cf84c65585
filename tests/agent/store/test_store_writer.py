"""The writer thread: groups, failures inside a group, cancellation, bounds, the end."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from hermes.agent.store.schema import connect
from hermes.agent.store.writer import MAX_QUEUED, Writer
from hermes.errors import StoreUnavailable


class Gate:
    """A fault hook that holds the writer before its next transaction until it is opened."""

    def __init__(self, after: Callable[[str], None] | None = None) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.after = after

    def __call__(self, point: str) -> None:
        if point == "begin":
            self.reached.set()
            self.open.wait(timeout=20)
        if self.after is not None:
            self.after(point)


@asynccontextmanager
async def writing(fault: Callable[[str], None], *, max_queued: int = MAX_QUEUED) -> AsyncIterator[Writer]:
    connection = connect(":memory:", lock_timeout=0)
    connection.execute("CREATE TABLE t (x)")
    writer = Writer(connection, fault=fault, max_queued=max_queued)
    writer.start()
    try:
        with trio.fail_after(20):
            yield writer
    finally:
        await writer.aclose()


def insert(value: object, connection: sqlite3.Connection) -> object:
    connection.execute("INSERT INTO t VALUES (?)", (value,))
    return value


def failing(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO t VALUES ('never')")
    raise LookupError("refused")


def stored(connection: sqlite3.Connection) -> list[object]:
    return [value for (value,) in connection.execute("SELECT x FROM t ORDER BY rowid")]


async def blocked_behind_one(
    writer: Writer, gate: Gate, nursery: trio.Nursery, *jobs: Callable[[], Awaitable[object]]
) -> None:
    """Queue a first job, which the gate holds, and the others behind it."""
    nursery.start_soon(writer.run, partial(insert, "first"))
    await trio.to_thread.run_sync(gate.reached.wait, 20)
    for job in jobs:
        nursery.start_soon(job)
        await trio.testing.wait_all_tasks_blocked()


async def test_what_is_queued_meanwhile_is_committed_as_one_group() -> None:
    gate = Gate()
    async with writing(gate) as writer:
        async with trio.open_nursery() as nursery:
            await blocked_behind_one(
                writer, gate, nursery, *(partial(writer.run, partial(insert, n)) for n in range(50))
            )
            gate.open.set()
        assert await writer.run(stored) == ["first", *range(50)]
        assert writer.jobs == 52
        assert writer.groups == 3


async def test_a_job_that_fails_is_undone_alone() -> None:
    gate = Gate()
    async with writing(gate) as writer:

        async def expect_refusal() -> None:
            with pytest.raises(LookupError):
                await writer.run(failing)

        async with trio.open_nursery() as nursery:
            jobs: list[Callable[[], Awaitable[object]]] = [
                partial(writer.run, partial(insert, "a")),
                expect_refusal,
                partial(writer.run, partial(insert, "b")),
            ]
            await blocked_behind_one(writer, gate, nursery, *jobs)
            gate.open.set()
        assert await writer.run(stored) == ["first", "a", "b"]


async def test_a_group_whose_commit_fails_is_tried_again_job_by_job() -> None:
    commits: list[str] = []

    def fail_second_commit(point: str) -> None:
        if point == "commit":
            commits.append(point)
            if len(commits) in (2, 4):
                raise sqlite3.OperationalError("disk I/O error")

    gate = Gate(fail_second_commit)
    results: list[object] = []
    async with writing(gate) as writer:

        async def attempt(value: str) -> None:
            try:
                results.append(await writer.run(partial(insert, value)))
            except sqlite3.OperationalError:
                results.append("failed")

        async with trio.open_nursery() as nursery:
            await blocked_behind_one(writer, gate, nursery, *(partial(attempt, value) for value in "abc"))
            gate.open.set()
        assert sorted(map(str, results)) == ["a", "c", "failed"]
        assert await writer.run(stored) == ["first", "a", "c"]


async def test_a_transaction_that_sqlite_ended_by_itself_costs_only_the_job_that_caused_it() -> None:
    def losing(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    gate = Gate()
    async with writing(gate) as writer:

        async def expect_full() -> None:
            with pytest.raises(sqlite3.OperationalError, match="full"):
                await writer.run(losing)

        async with trio.open_nursery() as nursery:
            jobs: list[Callable[[], Awaitable[object]]] = [
                partial(writer.run, partial(insert, "a")),
                expect_full,
                partial(writer.run, partial(insert, "b")),
            ]
            await blocked_behind_one(writer, gate, nursery, *jobs)
            gate.open.set()
        assert await writer.run(stored) == ["first", "a", "b"]


async def test_a_queued_job_is_not_abandoned_by_a_cancel() -> None:
    gate = Gate()
    finished: list[object] = []
    async with writing(gate) as writer:

        async def job() -> None:
            finished.append(await writer.run(partial(insert, "kept")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(job)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            gate.open.set()
        assert finished == ["kept"]
        assert await writer.run(stored) == ["kept"]


async def test_a_full_queue_makes_callers_wait_and_a_cancelled_wait_has_done_nothing() -> None:
    gate = Gate()
    async with writing(gate, max_queued=2) as writer:
        async with trio.open_nursery() as nursery:
            await blocked_behind_one(writer, gate, nursery, partial(writer.run, partial(insert, "second")))
            async with trio.open_nursery() as waiting:
                waiting.start_soon(writer.run, partial(insert, "never"))
                await trio.testing.wait_all_tasks_blocked()
                waiting.cancel_scope.cancel()
            nursery.start_soon(writer.run, partial(insert, "third"))
            await trio.testing.wait_all_tasks_blocked()
            gate.open.set()
        assert await writer.run(stored) == ["first", "second", "third"]


async def test_closing_finishes_what_is_queued_and_refuses_what_comes_later() -> None:
    gate = Gate()
    values: list[str] = []
    async with writing(gate) as writer:

        async def job(value: str) -> None:
            await writer.run(partial(insert, value))
            values.append(value)

        async with trio.open_nursery() as nursery:
            await blocked_behind_one(writer, gate, nursery, partial(job, "a"), partial(job, "b"))
            nursery.start_soon(writer.aclose)
            await trio.testing.wait_all_tasks_blocked()
            gate.open.set()
        assert sorted(values) == ["a", "b"]
        with pytest.raises(StoreUnavailable):
            await writer.run(stored)
        await writer.aclose()
