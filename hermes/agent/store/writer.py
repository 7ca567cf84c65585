"""The writer: one thread that owns the writing connection and commits what is queued in groups.

Rules that callers may build on:

1. A job is a function of the connection, without other effects: it may be run again when its group's transaction was
   lost through another job.
2. A caller cancelled before its job was queued has done nothing. From then on it waits for the result, whatever
   happens (at most one lock timeout and one group): the outcome is always known and is never half done.
3. When ``run`` returns, the job is committed. A job that raises is undone alone; the others of its group are run again.
4. At most ``max_queued`` jobs wait. The next caller waits, cancellably, for a place.
5. ``stop_waiting`` ends the patience with another program's lock: a server that stops does not wait for it.

Grouping is what makes a thread cheap: one commit and one wake-up of the event loop for all jobs that piled up.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import outcome
import trio

from hermes.agent.store.failures import CLOSED
from hermes.errors import StoreUnavailable
from hermes.records import dataclass

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Result = outcome.Outcome[Any]
Fault = Callable[[str], None]
"""Test hook, called in the writer thread with ``begin``, ``commit`` (before it) and ``committed``. It may raise
``sqlite3.Error`` or end the process."""

MAX_QUEUED = 4096
MAX_GROUP = 512
CLOSE_GRACE = 10.0


@dataclass(frozen=True, slots=True)
class QueuedJob:
    job: Job
    deliver: Callable[[Result], None]


def no_fault(_point: str) -> None:
    """The hook of a normal store."""


class Writer:
    """Owns ``connection`` from ``start`` on. ``start`` and ``run`` are called inside one Trio run."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        patience: float = 0.0,
        max_queued: int = MAX_QUEUED,
        fault: Fault = no_fault,
    ) -> None:
        """``patience``: how long a locked database is tried again, seconds, beside the connection's own timeout."""
        self._connection = connection
        self._fault = fault
        self._patience = patience
        self._hurried = threading.Event()
        # Unbounded by type, bounded by the places: a job is put only by the holder of a place.
        self._queue: queue.SimpleQueue[QueuedJob | None] = queue.SimpleQueue()
        self._places = trio.Semaphore(max_queued)
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._closed = False
        self.groups = 0
        self.jobs = 0

    def start(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        # A daemon: a process that must end does not wait for its database. What was acknowledged is committed.
        self._thread = threading.Thread(target=self._work, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run the job in a transaction; returns its result once that is committed."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._places.acquire_nowait()
        except trio.WouldBlock:
            await self._places.acquire()
        if self._closed:
            self._places.release()
            raise StoreUnavailable(CLOSED)
        task = trio.lowlevel.current_task()
        self._queue.put(QueuedJob(job, lambda result: trio.lowlevel.reschedule(task, result)))
        # Not abortable: an abandoned job would have an unknown outcome.
        return cast(T, await trio.lowlevel.wait_task_rescheduled(lambda _raise: trio.lowlevel.Abort.FAILED))

    def stop_waiting(self) -> None:
        """From now on a lock of another program fails a job at once."""
        self._hurried.set()

    async def aclose(self) -> None:
        """Finish what is queued, then close the connection."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        thread = self._thread
        if thread is not None:
            with trio.move_on_after(CLOSE_GRACE, shield=True):
                await trio.to_thread.run_sync(thread.join, abandon_on_cancel=True)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        closing = False
        while not closing:
            jobs, closing = self._take_group()
            if jobs and not self._hand_back(jobs, self._run_group(jobs)):
                break
        self._connection.close()

    def _take_group(self) -> tuple[list[QueuedJob], bool]:
        """Wait for a job, then take what else is there. True: the end was asked for."""
        jobs: list[QueuedJob] = []
        entry = self._queue.get()
        while entry is not None:
            jobs.append(entry)
            if len(jobs) == MAX_GROUP:
                return jobs, False
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _run_group(self, jobs: Sequence[QueuedJob]) -> list[Result]:
        try:
            results, lost = self._in_one_go(jobs)
            if lost and len(jobs) > 1:
                # A full disk rolls the whole transaction back, whoever filled it. Those who need less may still pass.
                results = [self._in_one_go([job])[0][0] for job in jobs]
        except Exception as error:
            # Every caller waits unabortably, so every path must answer every job.
            return [outcome.Error(error) for _ in jobs]
        self.groups += 1
        self.jobs += len(jobs)
        return results

    def _in_one_go(self, jobs: Sequence[QueuedJob]) -> tuple[list[Result], bool]:
        """As ``_transact``, without savepoints as long as nothing fails: each makes the full-text index write out what
        it has, which costs more than the row."""
        try:
            return self._transact(jobs, self._run_job)
        except JobFailed as failed:
            if len(jobs) == 1:
                return [outcome.Error(failed.error)], True
            return self._transact(jobs, self._attempt)

    def _transact(self, jobs: Sequence[QueuedJob], attempt: Callable[[Job], Result]) -> tuple[list[Result], bool]:
        """One transaction over the jobs. True beside the results: it was rolled back as a whole, nothing is stored."""
        connection = self._connection
        try:
            self._fault("begin")
            self._patiently("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            # Not "lost": trying each job again would wait out the lock again for each.
            return [outcome.Error(error) for _ in jobs], False
        try:
            results = [attempt(entry.job) for entry in jobs]
            self._fault("commit")
            self._patiently("COMMIT")
            self._fault("committed")
        except TransactionLost as lost:
            return [outcome.Error(lost.error) for _ in jobs], True
        except sqlite3.Error as error:
            return [outcome.Error(error) for _ in jobs], True
        finally:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
        return results, False

    def _patiently(self, statement: str) -> None:
        """Try again while another program holds the lock: in slices, so that ``stop_waiting`` is heard."""
        until = time.monotonic() + self._patience
        while True:
            try:
                self._connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not locked or self._hurried.is_set() or time.monotonic() >= until:
                    raise

    def _run_job(self, job: Job) -> Result:
        result: Result = outcome.capture(job, self._connection)
        if isinstance(result, outcome.Error):
            raise JobFailed(result.error)
        return result

    def _attempt(self, job: Job) -> Result:
        """The same; one that fails is undone, and nothing else is."""
        connection = self._connection
        connection.execute("SAVEPOINT job")
        result: Result = outcome.capture(job, connection)
        if isinstance(result, outcome.Error):
            if not connection.in_transaction:
                raise TransactionLost(result.error)
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return result

    def _hand_back(self, jobs: Sequence[QueuedJob], results: Sequence[Result]) -> bool:
        """Wake all callers at once. False: the event loop is gone."""

        def deliver() -> None:
            for entry, result in zip(jobs, results, strict=True):
                self._places.release()
                entry.deliver(result)

        assert self._token is not None
        try:
            self._token.run_sync_soon(deliver)
        except trio.RunFinishedError:
            return False
        return True


class JobFailed(Exception):
    """A job has raised in a transaction that cannot undo it alone."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(str(error))


class TransactionLost(Exception):
    """SQLite rolled the transaction back by itself while a job ran."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(str(error))
