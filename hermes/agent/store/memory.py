"""A store without a file: the same SQL on a private in-memory database, run inline.

For embedding without a database, and for tests on a virtual clock: no thread and no real time is involved, and every
method behaves towards cancellation like the durable store (cancelled before it began: nothing happened; else done).
"""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

import trio

from hermes.agent.ports import WallClock
from hermes.agent.store.failures import database_errors
from hermes.agent.store.schema import connect, initialise
from hermes.agent.store.transcripts import SqlTranscriptStore

T = TypeVar("T")


class InlineDatabase:
    """One connection, used in the caller's task; a job never waits, so jobs never overlap."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # Memory is all it holds, so forgetting to close it is no fault worth the interpreter's ResourceWarning. Not in
        # __del__: within a cycle the connection may be finalised first.
        weakref.finalize(self, connection.close).atexit = False

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        result = self._transact(job)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return result

    async def scan(self, job: Callable[[sqlite3.Connection], T]) -> T:
        # The checkpoint comes first, so that what is returned is what is stored now.
        await trio.lowlevel.checkpoint()
        with database_errors():
            return job(self._connection)

    async def peek(self, job: Callable[[sqlite3.Connection], T]) -> T:
        return await self.scan(job)

    def stop_waiting(self) -> None:
        """There is no other program."""

    async def aclose(self) -> None:
        self._connection.close()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _transact(self, job: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        with database_errors():
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = job(connection)
                connection.execute("COMMIT")
                return result
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


class MemoryStore(SqlTranscriptStore):
    """``TranscriptStore`` in memory, gone with the object."""

    def __init__(self, *, now: WallClock = time.time, host: str | None = None) -> None:
        connection = connect(":memory:", lock_timeout=0)
        initialise(connection)
        super().__init__(InlineDatabase(connection), now=now, host=host)
