"""The durable store: a file, one writer thread, and connections of their own for readers.

Writes go through ``writer.Writer``. Point reads run inline on a connection that may only read: that takes microseconds,
a thread would take twenty times as long. Scans run in threads, bounded by a limiter, each on a snapshot.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import trio

from hermes.agent.ports import WallClock
from hermes.agent.store.failures import CLOSED, database_errors
from hermes.agent.store.schema import JournalMode, Synchronous, connect, prepare_file
from hermes.agent.store.transcripts import SqlTranscriptStore
from hermes.agent.store.writer import Fault, Writer, no_fault
from hermes.errors import StoreUnavailable

T = TypeVar("T")

LOCK_TIMEOUT = 5.0
LOCK_SLICE = 0.2
READERS = 4
JOURNAL_BYTES = 64 * 1024 * 1024


class ThreadedDatabase:
    """``Database`` over a prepared file. Made by ``open``; used inside one Trio run."""

    def __init__(self, path: Path, writer: Writer, reader: sqlite3.Connection, *, readers: int, lock_timeout: float):
        self._path = path
        self._writer = writer
        self._reader = reader
        self._lock_timeout = lock_timeout
        self._places = trio.CapacityLimiter(readers)
        # Popped and appended from several threads; both are atomic.
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    @property
    def writer(self) -> Writer:
        return self._writer

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        with database_errors():
            return await self._writer.run(job)

    async def scan(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable(CLOSED)
        # A read has no effect, so a cancelled caller need not wait for it; its thread keeps its place until it ends.
        with database_errors():
            return await trio.to_thread.run_sync(self._read, job, limiter=self._places, abandon_on_cancel=True)

    async def peek(self, job: Callable[[sqlite3.Connection], T]) -> T:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise StoreUnavailable(CLOSED)
        try:
            return job(self._reader)
        except sqlite3.OperationalError:
            # Locked, usually. This connection never waits, because the event loop would; a thread may.
            return await self.scan(job)
        except sqlite3.Error:
            with database_errors():
                raise

    def stop_waiting(self) -> None:
        self._writer.stop_waiting()

    async def aclose(self) -> None:
        """Finish queued writes, close all connections."""
        if self._closed:
            return
        self._closed = True
        await self._writer.aclose()
        self._reader.close()
        self._close_idle()

    # --- in a reader thread ------------------------------------------------------------------------------------------

    def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = open_reader(self._path, lock_timeout=self._lock_timeout)
        try:
            connection.execute("BEGIN")
            try:
                return job(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        finally:
            self._idle.append(connection)
            if self._closed:
                self._close_idle()

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class SqliteStore(SqlTranscriptStore):
    """``TranscriptStore`` in a file. Get one with ``open``; close it with ``aclose`` or ``async with``."""

    def __init__(self, database: ThreadedDatabase, *, now: WallClock = time.time, host: str | None = None) -> None:
        super().__init__(database, now=now, host=host)
        self._threads = database

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        journal_mode: JournalMode = "WAL",
        synchronous: Synchronous = "NORMAL",
        lock_timeout: float = LOCK_TIMEOUT,
        readers: int = READERS,
        now: WallClock = time.time,
        host: str | None = None,
        fault: Fault = no_fault,
    ) -> SqliteStore:
        """Create, check and open the database. Raises ``StoreUnavailable`` with a cause; a refused file is unchanged.

        ``synchronous``: with NORMAL a commit survives the death of the process at any moment, and the database is whole
        after a power failure, which may however take the last commits. FULL keeps those too and makes each commit wait
        for the disk. NORMAL is the default because what a turn waits for is its process, not the mains.
        ``lock_timeout`` bounds how long a write waits for another program, seconds. ``fault`` is for tests.
        """

        def prepare() -> tuple[sqlite3.Connection, sqlite3.Connection]:
            prepare_file(path, lock_timeout=lock_timeout, journal_mode=journal_mode)
            with database_errors():
                return open_writer(path, synchronous, lock_timeout), open_reader(path, lock_timeout=0)

        connection, reader = await trio.to_thread.run_sync(prepare)
        writer = Writer(connection, patience=lock_timeout, fault=fault)
        writer.start()
        database = ThreadedDatabase(path, writer, reader, readers=readers, lock_timeout=lock_timeout)
        return cls(database, now=now, host=host)

    @property
    def writer(self) -> Writer:
        """For figures: how many jobs and groups it has committed."""
        return self._threads.writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def open_writer(path: Path, synchronous: Synchronous, lock_timeout: float) -> sqlite3.Connection:
    connection = connect(path, lock_timeout=lock_timeout)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
    # The writer tries again itself, until ``lock_timeout`` is over or it is told not to wait.
    connection.execute(f"PRAGMA busy_timeout = {int(min(lock_timeout, LOCK_SLICE) * 1000)}")
    return connection


def open_reader(path: Path, *, lock_timeout: float) -> sqlite3.Connection:
    connection = connect(path, lock_timeout=lock_timeout)
    connection.execute("PRAGMA query_only = 1")
    return connection
