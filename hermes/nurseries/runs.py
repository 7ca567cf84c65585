"""RunRegistry: the runs of this process, their cap, their durable status and journal, and their idempotency keys.

Each run has one follower in the registry's nursery, which makes the journal durable behind the live readers and stores
the terminal status before it publishes the terminal event. A client that asks after that event therefore always sees
the end. Runs are kept by principal: a foreign run is not there.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from hermes.agent.ports import LeaseOwner
from hermes.agent.store.leases import provably_dead
from hermes.errors import Draining, HermesError, IdempotencyConflict, Overloaded, RunNotActive, RunNotFound
from hermes.nurseries.containment import contained
from hermes.nurseries.event_log import EventLog, LogClosed
from hermes.nurseries.run import JOURNAL_EVENTS, Run, RunFrame, RunRequest, RunWire, dropped_reason
from hermes.nurseries.run_journal import end_lost_journal
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.outcomes import Cause, RunStatus, TurnRecord

log = logging.getLogger(__name__)

FLUSH_PAUSE = 0.05
SWEEP_EVERY = 60.0
KEY_RETENTION = 86_400.0
# While the store refuses, it is asked less often.
RETRY_PAUSE = 1.0
CONCLUDE_WITHIN = 5.0
MAX_FINISHED = 200
# Whole journals, so fewer than statuses.
MAX_UNDURABLE = 32
READ_BATCH = 1000

RUN, KEYED_RUN, KEY = "run", "keyed_run", "run_key"


class Admission:
    """Room for one run, held from the check of the cap until the run starts or the request gives up."""

    def __init__(self, registry: RunRegistry) -> None:
        self._registry = registry
        self.used = False

    def start(self, session: Session, request: RunRequest) -> Run:
        """Submit the prompt. Synchronous; raises what refuses it (``session.submit_nowait``)."""
        run = self._registry._start(session, request)
        self.give_back()
        return run

    def give_back(self) -> None:
        """The room is free again, or taken by the run itself: one request never counts twice."""
        if not self.used:
            self.used = True
            self._registry._reserved -= 1


class RunRegistry:
    """All runs. ``run`` must be running before a run can be started."""

    def __init__(
        self, services: Services, wire: RunWire, *, cap: Callable[[], int], draining: Callable[[], bool]
    ) -> None:
        self.services = services
        self.wire = wire
        self._cap = cap
        self._draining = draining
        self._live: dict[str, Run] = {}
        self._finished: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()
        # Ended runs whose events the store has not taken: they are read from memory.
        self._undurable: OrderedDict[str, Run] = OrderedDict()
        # Ended runs whose answer was their end; their statuses are written together.
        self._unwritten: list[Run] = []
        self._reserved = 0
        self._nursery: trio.Nursery | None = None
        self.on_end: list[Callable[[Run, TurnRecord], None]] = []

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the followers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._sweep, name="run retention")
            task_status.started()
            await trio.sleep_forever()

    @property
    def active(self) -> int:
        """Runs that hold a slot: admitted or live."""
        return self._reserved + len(self._live)

    @property
    def finished(self) -> int:
        """Runs that have ended and are remembered in memory."""
        return len(self._finished)

    def live(self) -> Sequence[Run]:
        return list(self._live.values())

    # --- starting ---

    @contextmanager
    def admit(self) -> Iterator[Admission]:
        """Room for a run for the length of the block. Raises ``Draining`` and ``Overloaded``."""
        if self._draining():
            raise Draining
        cap = max(0, self._cap())
        if cap and self.active >= cap:
            raise Overloaded(f"{cap} turns are running already; try again")
        self._reserved += 1
        admission = Admission(self)
        try:
            yield admission
        finally:
            admission.give_back()

    def _start(self, session: Session, request: RunRequest) -> Run:
        if self._nursery is None:
            raise Draining
        run = Run(request, session, self.wire, self.services.clock)
        self._live[run.run_id] = run
        self._nursery.start_soon(self._follow, run, name=f"run {run.run_id}")
        return run

    async def claim(self, principal: str, key: str, fingerprint: str, run_id: str) -> str | None:
        """Reserve an idempotency key for a new run, atomically across processes.

        None: it is ours now, start the run. Otherwise the id of the run that has it. Raises ``IdempotencyConflict``
        for another request under the same key.
        """
        store = self.services.store
        queued = {"owner": _owner_value(self.services.owner), "principal": principal, "status": None}
        await store.put_record(KEYED_RUN, run_id, queued, owner=principal)
        value = {"fingerprint": fingerprint, "run_id": run_id}
        there = await store.claim_record(KEY, _key_id(principal, key), value, owner=principal)
        if there is None:
            return None
        await store.delete_record(KEYED_RUN, run_id)
        if there["fingerprint"] != fingerprint:
            raise IdempotencyConflict
        return str(there["run_id"])

    @asynccontextmanager
    async def starting(self, principal: str, key: str, run_id: str) -> AsyncIterator[None]:
        """The block that starts the run of a fresh claim. If it is refused or never gets so far, the key is free again;
        if it has started and only its client is gone, the key stays: the retry must find this very run."""
        refused = False
        try:
            yield
        except HermesError:
            refused = True
            raise
        finally:
            if refused or not self.knows(run_id):
                with trio.CancelScope(deadline=trio.current_time() + 5, shield=True):
                    await self.release(principal, key, run_id)

    def knows(self, run_id: str) -> bool:
        """The run has been started here."""
        return run_id in self._live or run_id in self._finished

    async def release(self, principal: str, key: str, run_id: str | None = None) -> None:
        """The key is free again. ``run_id``: its run was never there, and is forgotten too."""
        await self.services.store.delete_record(KEY, _key_id(principal, key))
        if run_id is not None:
            await self.services.store.delete_record(KEYED_RUN, run_id)

    # --- finding ---

    def find(self, run_id: str, principal: str) -> Run | None:
        """The live run of this principal."""
        run = self._live.get(run_id)
        return run if run is not None and run.principal == principal else None

    async def status(self, run_id: str, principal: str) -> dict[str, Any]:
        """The public status, live or stored. Raises ``RunNotFound``."""
        run = self.find(run_id, principal)
        if run is not None:
            return self.wire.status(run)
        kept = self._finished.get(run_id)
        if kept is not None and kept[0] == principal:
            return dict(kept[1])
        return await self._stored_status(run_id, principal)

    async def require_live(self, run_id: str, principal: str) -> Run:
        """The live run. Raises ``RunNotFound``, or ``RunNotActive`` for one that has ended or lives elsewhere."""
        run = self.find(run_id, principal)
        if run is None:
            await self.status(run_id, principal)
            raise await self._not_active_here(run_id)
        return run

    async def _not_active_here(self, run_id: str) -> RunNotActive:
        """Names the process that works on the run, if one does."""
        for kind in (KEYED_RUN, RUN):
            record = await self.services.store.get_record(kind, run_id)
            if record is None:
                continue
            owner, status = LeaseOwner(**record["owner"]), record.get("status")
            ended = status is not None and RunStatus(status["status"]).terminal
            if not ended and owner != self.services.owner and self.services.owner_lives(owner):
                return RunNotActive(f"another process is working on this run ({owner})", data={"owner": str(owner)})
        return RunNotActive()

    async def _stored_status(self, run_id: str, principal: str) -> dict[str, Any]:
        for kind in (KEYED_RUN, RUN):
            record = await self.services.store.get_record(kind, run_id)
            if record is not None and record.get("principal") == principal:
                return await self._truthful(kind, run_id, record)
        raise RunNotFound

    async def _truthful(self, kind: str, run_id: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """The stored status; one whose process is gone has been interrupted, and is rewritten so."""
        run = self._live.get(run_id)
        if run is not None:
            return self.wire.status(run)
        status: dict[str, Any] = dict(record.get("status") or _unstarted(run_id, self.services.clock()))
        owner = LeaseOwner(**record["owner"])
        gone = owner.nonce != self.services.owner.nonce and provably_dead(owner, host=self.services.owner.host)
        if RunStatus(status["status"]).terminal or not gone:
            return status
        status.update(
            status=RunStatus.INTERRUPTED.value,
            completed=False,
            partial=False,
            interrupted=True,
            cause=Cause.SHUTDOWN.value,
            reason="server_restart",
            error="the server ended while the run was active",
            updated_at=self.services.clock(),
            last_event="run.interrupted",
        )
        status.pop("approval", None)
        journaled = bool(record.get("journaled"))
        store, encode = self.services.store, self.wire.encode
        await end_lost_journal(store, encode, status, journaled=journaled, keep=JOURNAL_EVENTS)
        await self.services.store.put_record(kind, run_id, {**record, "status": status}, owner=status_owner(record))
        return status

    # --- reading events ---

    async def events(self, run_id: str, principal: str) -> RunEvents:
        """A reader of the run's events. Raises ``RunNotFound`` (also for a run without a journal) and
        ``RunNotActive`` for one that another process is working on."""
        run = self.find(run_id, principal)
        if run is not None:
            if not run.journaled:
                raise RunNotFound("this run keeps no events")
            return RunEvents(self.services, run_id, run.journal)
        if (kept := self._undurable.get(run_id)) is not None and kept.principal == principal:
            return RunEvents(self.services, run_id, kept.journal)
        status = await self.status(run_id, principal)
        if not await self.services.store.read_journal(run_id, after=-1, limit=1):
            if RunStatus(status["status"]).terminal:
                raise RunNotFound("this run keeps no events")
            raise await self._not_active_here(run_id)
        if not RunStatus(status["status"]).terminal:
            raise await self._not_active_here(run_id)
        return RunEvents(self.services, run_id, None)

    # --- followers ---

    async def _follow(self, run: Run) -> None:
        await contained(f"run {run.run_id}", self._follow_to_end, run)
        if run not in self._unwritten:
            run.stored.settle(None)
        self._live.pop(run.run_id, None)

    async def _follow_to_end(self, run: Run) -> None:
        await self._store_first_status(run)
        turn = await run.submission.wait_turn()
        if turn is None:
            run.dropped(dropped_reason(run.session))
        flushed, pause = 0, FLUSH_PAUSE
        while run.record is None:
            if run.journal.latest_seq == flushed:
                await run.wait_news()
                continue
            # A pause between two writes, so that a fast stream costs few commits; the end is not kept waiting.
            with trio.move_on_after(pause):
                await run.wait_ended()
            before, flushed = flushed, await self._flush(run, flushed)
            pause = FLUSH_PAUSE if flushed > before else RETRY_PAUSE
        await self._conclude(run, flushed)

    async def _store_first_status(self, run: Run) -> None:
        """Whoever knows the id finds the run, even after the end of this process."""
        if run.told_at_end and not run.keyed:
            return
        if not run.journaled and run.submission.status == "streaming":
            # Behind the prompt, whose commit the stream waits for; of a short turn its end is the first status.
            await run.submission.accepted.wait()
            with trio.move_on_after(FLUSH_PAUSE):
                await run.wait_ended()
        if run.record is None or not _is_light(run):
            await self._store_status(run)

    async def _conclude(self, run: Run, flushed: int) -> None:
        """The terminal status is durable before anybody can read the terminal event.

        A store that cannot write holds neither up for more than a moment: both are readable from memory then."""
        record = run.record
        assert record is not None
        self._finished[run.run_id] = (run.principal, self.wire.status(run))
        while len(self._finished) > MAX_FINISHED:
            self._finished.popitem(last=False)
        if _is_light(run):
            await self._conclude_later(run, record)
            return
        ends_at = trio.current_time() + CONCLUDE_WITHIN
        with trio.CancelScope(deadline=ends_at, shield=True):
            if run.finisher is not None:
                await contained(f"run {run.run_id} finisher", run.finisher, run, record)
            await self._store_status(run)
        for hook in self.on_end:
            hook(run, record)
        if run.journaled:
            await self._end_journal(run, record, flushed, ends_at)
        run.journal.close()

    async def _conclude_later(self, run: Run, record: TurnRecord) -> None:
        """Its answer is the end, and waits for nothing. Statuses of a moment are written together: one commit for all
        that have ended since the last one, by the first of them."""
        self._live.pop(run.run_id, None)
        for hook in self.on_end:
            hook(run, record)
        run.journal.close()
        self._unwritten.append(run)
        if len(self._unwritten) > 1:
            return
        try:
            await trio.sleep_until((trio.current_time() // FLUSH_PAUSE + 1) * FLUSH_PAUSE)
        finally:
            ended, self._unwritten = self._unwritten, []
            with trio.CancelScope(deadline=trio.current_time() + CONCLUDE_WITHIN, shield=True):
                await self._store_statuses(RUN, ended)
            for other in ended:
                other.stored.settle(None)

    async def _end_journal(self, run: Run, record: TurnRecord, flushed: int, ends_at: float) -> None:
        name, members = self.wire.terminal(run, record)
        frame = run.next_frame(name, members)
        entries, _ = run.journal.since(flushed)
        rest = [(entry.seq - 1, entry.event.data) for entry in entries]
        durable = False
        with trio.CancelScope(deadline=ends_at, shield=True):
            durable = await self._append(run, [*rest, (run.journal.latest_seq, frame.data)])
        run.journal.append(frame)
        if not durable:
            self._undurable[run.run_id] = run
            while len(self._undurable) > MAX_UNDURABLE:
                self._undurable.popitem(last=False)

    async def _flush(self, run: Run, flushed: int) -> int:
        """How far the journal is durable now. What could not be written is tried again, or the journal had a gap."""
        entries, _ = run.journal.since(flushed)
        if entries and await self._append(run, [(entry.seq - 1, entry.event.data) for entry in entries]):
            return entries[-1].seq
        return flushed

    async def _append(self, run: Run, frames: Sequence[tuple[int, bytes]]) -> bool:
        try:
            await self.services.store.append_journal(run.run_id, frames, keep=JOURNAL_EVENTS)
        except HermesError as error:
            log.warning("events of run %s are not durable: %s", run.run_id, error)
            return False
        return True

    async def _store_status(self, run: Run) -> None:
        await self._store_statuses(KEYED_RUN if run.keyed else RUN, [run])

    async def _store_statuses(self, kind: str, runs: Sequence[Run]) -> None:
        try:
            values = [(run.run_id, self._record(run), run.principal) for run in runs]
            await self.services.store.put_records(kind, values)
        except HermesError as error:
            log.warning("the status of run %s is not durable: %s", ", ".join(run.run_id for run in runs), error)

    def _record(self, run: Run) -> dict[str, Any]:
        return {
            "owner": _owner_value(self.services.owner),
            "principal": run.principal,
            "journaled": run.journaled,
            "status": self.wire.status(run),
        }

    # --- retention ---

    def forget_session(self, key: str) -> None:
        """The session was deleted: its runs, which ended before, are as gone as their records."""
        for run_id, (_, status) in list(self._finished.items()):
            if status.get("session_id") == key:
                del self._finished[run_id]
                self._undurable.pop(run_id, None)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_EVERY)
            await contained("run retention", self.sweep)

    async def sweep(self) -> None:
        """Forget what is older than its retention. A live run's record is refreshed, so it never is."""
        now = self.services.clock()
        retention: float = self.services.settings().limits.run_retention
        for run in self.live():
            await self._store_status(run)
        for run_id, (_, status) in list(self._finished.items()):
            if now - float(status["updated_at"]) > retention:
                self._finished.pop(run_id, None)
                self._undurable.pop(run_id, None)
        store = self.services.store
        await store.prune_records(RUN, older_than=now - retention)
        await store.prune_records(KEYED_RUN, older_than=now - max(retention, KEY_RETENTION))
        await store.prune_records(KEY, older_than=now - KEY_RETENTION)

    def shutdown_requested(self) -> None:
        """The server begins to stop: live runs say so in their status."""
        for run in self._live.values():
            run.shutdown_requested_at = run.shutdown_requested_at or self.services.clock()


class RunEvents:
    """One reader of a run's journal: stored frames first, then live ones, each exactly once."""

    def __init__(self, services: Services, run_id: str, journal: EventLog[RunFrame] | None) -> None:
        self._services = services
        self._run_id = run_id
        self._journal = journal
        self._cursor = -1
        self.ended = False

    async def seek(self, after: int | None) -> int | None:
        """Stand behind event ``after`` (None: at the start). Returns the oldest retained number if events behind the
        cursor are gone, else None."""
        self._cursor = -1 if after is None else max(-1, after)
        wanted = self._cursor + 1
        if self._journal is not None and self._journal.oldest_seq - 1 <= wanted:
            return None
        oldest = await self._services.store.read_journal(self._run_id, after=-1, limit=1)
        first = oldest[0][0] if oldest else wanted
        if first <= wanted:
            return None
        self._cursor = first - 1
        return first

    async def next(self, within: float) -> list[tuple[int, RunFrame | bytes]]:
        """The next events, at least one; empty when none came in ``within`` seconds or ``ended`` is set."""
        journal = self._journal
        if journal is None or self._cursor + 2 < journal.oldest_seq:
            stored = await self._services.store.read_journal(self._run_id, after=self._cursor, limit=READ_BATCH)
            if stored:
                self._cursor = stored[-1][0]
                return [(seq, bytes(data)) for seq, data in stored]
            if journal is None:
                self.ended = True
                return []
            self._cursor = journal.oldest_seq - 2
        subscription = journal.subscribe(after=self._cursor + 1)
        batch = []
        try:
            with trio.move_on_after(within):
                batch = await subscription.next()
        except LogClosed:
            self.ended = True
        if batch:
            self._cursor = batch[-1].seq - 1
        return [(entry.seq - 1, entry.event) for entry in batch]


def _is_light(run: Run) -> bool:
    """Nobody relies on its status being durable the moment it ends: its answer, whole or as a stream, was its end."""
    return not run.journaled and not run.keyed and run.finisher is None


def _owner_value(owner: LeaseOwner) -> dict[str, Any]:
    return {"host": owner.host, "pid": owner.pid, "start_time": owner.start_time, "nonce": owner.nonce}


def status_owner(record: Mapping[str, Any]) -> str:
    return str(record.get("principal", ""))


def _key_id(principal: str, key: str) -> str:
    return hashlib.sha256(f"{principal}\0{key}".encode()).hexdigest()


def _unstarted(run_id: str, now: float) -> dict[str, Any]:
    """A run that was claimed and never got a status: its process ended, or has not come so far."""
    status = RunStatus.QUEUED.value
    return {"object": "hermes.run", "run_id": run_id, "status": status, "created_at": now, "updated_at": now}
