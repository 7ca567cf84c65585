"""SessionRegistry: the live sessions by id; create, resume, close, and what becomes of those nobody watches.

The registry's nursery holds one task per session. A session that crashes ends alone (``containment``). Two resumes of
one key give the same live session, however close together they come.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from hermes.agent.ports import StoredSession
from hermes.agent.stored_views import latest_todos, lost_delegations, unfinished_turn
from hermes.errors import (
    Draining,
    HermesError,
    InvalidParams,
    Overloaded,
    SessionNotFound,
    StoredSessionNotFound,
    StoreUnavailable,
)
from hermes.events import ApprovalsCancelled, SessionReclaimed, StatusUpdate
from hermes.logs import log_fields
from hermes.messages import Row
from hermes.nurseries.child_results import lost_prompt
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.kept_grants import KeptGrants
from hermes.nurseries.question_log import lost_questions
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.nurseries.settlement import Settlement
from hermes.nurseries.told_before import compacted_prompts, note
from hermes.nurseries.turn_slot import Submission
from hermes.outcomes import CancelReason, Cause

log = logging.getLogger(__name__)


class SessionRegistry:
    """All live sessions of the process. ``run`` must be running before a session can live."""

    def __init__(self, services: Services, parent: ReasonScope) -> None:
        self.services = services
        self.scope = ReasonScope("sessions", "sessions", parent)
        self.scope.on_cancel = self.scope.cancel_children
        self._by_runtime: dict[str, Session] = {}
        self._by_key: dict[str, Session] = {}
        self._children: dict[str, Session] = {}
        """Live child sessions by runtime id: found by id and key, in no list and under no bound of sessions."""
        self._loading: dict[str, Settlement[Session | HermesError]] = {}
        self._watched: set[str] = set()
        self._grants = KeptGrants()
        self._nursery: trio.Nursery | None = None
        self._draining = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the sessions until cancelled."""
        services = self.services
        with self.scope:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._reap_idle, name="idle sessions")
                nursery.start_soon(services.stored_changes.run, services.announce, name="stored changes")
                nursery.start_soon(services.leases.run, services.store, services.owner, name="turn leases")
                task_status.started()
                await trio.sleep_forever()

    def announce_rules(self, told: Session | None = None) -> None:
        """The rules of approval have changed for everybody; ``told`` knows it already."""
        for session in self.live():
            if session is not told:
                session.announce_info()

    # --- finding ---

    def get(self, runtime_id: str) -> Session:
        """The live session of this runtime id; raises ``SessionNotFound``."""
        session = self._by_runtime.get(runtime_id) or self._children.get(runtime_id)
        if session is None or session.closing:
            raise SessionNotFound
        return session

    def by_key(self, key: str) -> Session | None:
        """The live session of this stored key, if it is live here."""
        session = self._by_key.get(key)
        return None if session is None or session.closing else session

    def live(self) -> Sequence[Session]:
        """In order of creation."""
        return [session for session in self._by_runtime.values() if not session.closing]

    def __len__(self) -> int:
        return len(self._by_runtime)

    def child_born(self, child: Session) -> None:
        self._children[child.runtime_id] = self._by_key[child.key] = child

    def child_gone(self, child: Session) -> None:
        self._children.pop(child.runtime_id, None)
        if self._by_key.get(child.key) is child:
            del self._by_key[child.key]

    # --- making ---

    def create(
        self,
        *,
        source: str,
        cwd: str,
        key: str | None = None,
        title: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        model_config: Mapping[str, Any] | None = None,
        parent_key: str | None = None,
        hidden: bool = False,
        principal: str | None = None,
    ) -> Session:
        """A new session, live at once; nothing is stored yet (``turn_start.ensure_stored`` does). Raises ``Draining``,
        ``Overloaded``, and ``InvalidParams`` for a directory that no system can have."""
        if "\0" in cwd:
            raise InvalidParams("cwd: a path cannot contain a NUL character")
        now = self.services.clock()
        stored = StoredSession(
            key=key or self.services.ids("session"),
            source=source,
            title=title,
            title_source="user" if title else None,
            model=model,
            provider=provider,
            model_config=dict(model_config or {}),
            cwd=cwd,
            parent_key=parent_key,
            started_at=now,
            last_activity_at=now,
            hidden=hidden,
            principal=principal,
        )
        self._grants.forget(stored.key)
        return self._bring_to_life(stored, ())

    async def resume(self, key: str) -> Session:
        """The live session of this stored key, loading it if needed. Raises ``StoredSessionNotFound``."""
        live = self.by_key(key)
        if live is not None:
            return live
        closing = self._by_key.get(key)
        if closing is not None:
            await closing.wait_closed()
        if key not in self._loading:
            # Looked up here first: the name of a new conversation leads to nothing, and that needs no task.
            stored = await self.services.store.get_session(key)
            live = self.by_key(key)
            if live is not None:
                return live
            if stored is None and key not in self._loading:
                raise StoredSessionNotFound
        pending = self._loading.get(key)
        if pending is None:
            pending = self._loading[key] = Settlement()
            assert self._nursery is not None
            self._nursery.start_soon(self._load, key, pending, name=f"load {key}")
        outcome = await pending.wait()
        if isinstance(outcome, HermesError):
            raise outcome
        return outcome

    async def find_stored(self, key_or_title: str) -> StoredSession:
        """By exact id, then by exact title (gateway §3.7); raises ``StoredSessionNotFound``."""
        store = self.services.store
        stored = await store.get_session(key_or_title) or await store.find_by_title(key_or_title)
        if stored is None:
            raise StoredSessionNotFound
        return stored

    def adopt(self, stored: StoredSession, rows: Sequence[Row]) -> Session:
        """Bring a session to life that has just been stored (a branch)."""
        return self._bring_to_life(stored, rows, is_stored=True)

    async def _load(self, key: str, pending: Settlement[Session | HermesError]) -> None:
        """In a task of the registry, so that a requester who leaves does not take the others' answer along."""
        try:
            result = await contained(f"load {key}", self._load_now, key, log=False)
            if not isinstance(result, Crash):
                pending.settle(result)
            elif isinstance(result.error, HermesError):
                pending.settle(result.error)
            else:
                log.error("session %s cannot be loaded", key, exc_info=result.error)
                pending.settle(StoreUnavailable("the stored session cannot be read; the server's log says why"))
        finally:
            self._loading.pop(key, None)
            pending.settle(Draining())

    async def _load_now(self, key: str) -> Session:
        stored = await self.services.store.get_session(key)
        if stored is None:
            raise StoredSessionNotFound
        rows = await self.services.store.load_rows(key)
        noted = await compacted_prompts(self.services.store, key, rows)
        lost = await lost_questions(self.services, key)
        live = self.by_key(key)
        if live is not None:
            return live
        session = self._bring_to_life(stored, rows, is_stored=True)
        note(session, noted)
        session.requests.found_lost(lost)
        for delegation_id in lost_delegations(rows):
            session.slot.set_aside(Submission(lost_prompt(delegation_id), "queued"))
        return session

    def _bring_to_life(self, stored: StoredSession, rows: Sequence[Row], *, is_stored: bool = False) -> Session:
        if self._draining or self._nursery is None:
            raise Draining
        self._make_room()
        session = Session(
            self.services,
            stored,
            rows,
            runtime_id=self.services.ids("runtime"),
            parent=self.scope,
            is_stored=is_stored,
        )
        session.memory.grants.update(self._grants.of(session.key))
        if rows:
            session.memory.todos.extend(latest_todos(session.rows))
            session.retained_failure = unfinished_turn(session.rows)
        session.on_attached_changed = self._attached_changed
        session.family = self
        self._by_runtime[session.runtime_id] = session
        self._by_key[session.key] = session
        self._nursery.start_soon(self._hold, session, name=f"session {session.key}")
        return session

    async def _hold(self, session: Session) -> None:
        try:
            with log_fields(session=session.key, request=""):
                await contained(f"session {session.key}", session.run)
        finally:
            self._grants.keep(session.key, session.memory.grants)
            if self._by_runtime.get(session.runtime_id) is session:
                del self._by_runtime[session.runtime_id]
            if self._by_key.get(session.key) is session:
                del self._by_key[session.key]

    def carry_through(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Run what must not end with the connection that asked for it. Raises ``Draining``."""
        if self._nursery is None or self._draining:
            raise Draining
        self._nursery.start_soon(contained, name, work, name=name)

    # --- ending ---

    def close_nowait(self, session: Session, reason: CancelReason) -> None:
        """Everything below is asked to stop at once; ``await session.wait_closed()`` for the end."""
        approvals = [
            request.approval_id or request.request_id for request in session.requests.open_requests(method="approval")
        ]
        session.cancel(reason)
        if approvals:
            self.services.announce.append(
                ApprovalsCancelled(session.runtime_id, session.key, "session_closed", tuple(approvals))
            )

    def drain(self) -> None:
        """From now on no session is made or resumed."""
        self._draining = True

    async def close_all(self, reason: CancelReason) -> None:
        """Cancel every session and wait until nothing is left."""
        self._draining = True
        sessions = list(self._by_runtime.values())
        for session in sessions:
            self.close_nowait(session, reason)
        for session in sessions:
            await session.wait_closed()

    def _reclaim(self, session: Session, word: str) -> None:
        log.info("session %s closed: %s", session.key, word)
        self.close_nowait(session, CancelReason(Cause.SESSION_CLOSED, word))
        self.services.announce.append(SessionReclaimed(session.runtime_id, session.key, word))

    def _make_room(self) -> None:
        """At the bound the least recently used idle session goes; ``Overloaded`` if there is none."""
        bound = self.services.settings().limits.max_sessions
        if len(self._by_runtime) < bound:
            # Those that are closing are counted here: looking at each of a thousand for every new one costs more.
            return
        while len(live := self.live()) >= bound:
            evictable = [session for session in live if self._evictable(session)]
            if not evictable:
                raise Overloaded(f"{bound} sessions are live already; close one first")
            victim = min(evictable, key=lambda session: session.last_active)
            self._reclaim(victim, "lru_evict")

    def _evictable(self, session: Session) -> bool:
        watched = session.requests.attached and not session.reopens
        return not (session.slot.taken or watched or len(session.requests) or session.has_work)

    # --- sessions nobody watches (gateway §3.15) ---

    def _attached_changed(self, session: Session) -> None:
        if session.requests.attached or session.closing or self._nursery is None:
            return
        if session.close_on_disconnect:
            self.close_nowait(session, CancelReason(Cause.SESSION_CLOSED, "ws_disconnect"))
        elif session.parks and session.runtime_id not in self._watched:
            self._watched.add(session.runtime_id)
            self._nursery.start_soon(self._watch_parked, session, name=f"parked {session.key}")

    async def _watch_parked(self, session: Session) -> None:
        """Close a parked session when it has been idle for the grace; a running one may finish first."""
        try:
            while not session.requests.attached and not session.closing:
                grace = self.services.settings().dashboard.ws_orphan_reap_grace_s
                if grace <= 0:
                    return
                turn = session.slot.turn
                if turn is not None:
                    await self._wait_quiet(session)
                    continue
                idle_since = max(session.detached_at or 0.0, session.idle_since)
                if trio.current_time() < idle_since + grace:
                    await trio.sleep_until(idle_since + grace)
                elif session.has_work:
                    await trio.sleep(grace)
                else:
                    self._reclaim(session, "ws_orphan_reap")
        finally:
            self._watched.discard(session.runtime_id)

    async def _wait_quiet(self, session: Session) -> None:
        """Wait for the parked turn's end; interrupt it when it has shown nothing for too long."""
        limits = self.services.settings().limits
        turn = session.slot.turn
        while turn is not None and not turn.ended.settled and not session.requests.attached:
            seen = session.log.latest_seq
            if await turn.ended.wait_at_most(limits.parked_activity):
                return
            if not _showed_life(session, seen) and not session.requests.attached:
                turn.cancel(CancelReason(Cause.SESSION_CLOSED, "ws_orphan_reap"))
                if not await turn.ended.wait_at_most(limits.parked_force_close):
                    self._reclaim(session, "ws_orphan_reap")
                return

    async def _reap_idle(self) -> None:
        """Sessions without a client that nobody used for hours (gateway §3.15)."""
        while True:
            limits = self.services.settings().limits
            await trio.sleep(limits.idle_scan)
            now = self.services.clock()
            for session in self.live():
                if session.parks and self._evictable(session) and now - session.last_active > limits.session_idle:
                    self._reclaim(session, "idle_timeout")


def _showed_life(session: Session, since: int) -> bool:
    """Whether anything was told after event ``since``, but that nothing happens."""
    entries, truncated = session.log.since(since)
    return truncated or any(
        not (isinstance(entry.event, StatusUpdate) and entry.event.kind == "stalled") for entry in entries
    )
