"""The contract of ``TranscriptStore`` over any SQLite database: each method is one job of a ``Database``.

Where a job runs (a writer thread, a reader thread, inline) is the database's business, what it does is in
``sessions``, ``history``, ``search``, ``leases`` and ``records``. Rows are encoded here, before a job is queued, so
that a bad value fails in its caller and the time under the write lock stays short.
"""

from __future__ import annotations

import platform
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from hermes.agent.ports import LeaseOwner, RewindResult, StoredSession, TurnBegun, TurnFinished, WallClock
from hermes.agent.store import history, leases, records, search, sessions, turns
from hermes.agent.store.rows import encode_content, encode_row, scrub, to_json
from hermes.messages import Content, RewindIntent, Row
from hermes.outcomes import Usage

T = TypeVar("T")
MAX_RESUME_ROWS = 20_000


class Database(Protocol):
    """Runs functions of a connection. All raise ``StoreUnavailable``; domain errors of the job pass."""

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """In a transaction; committed when this returns, never abandoned once queued."""
        ...

    async def scan(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """A read that may take long, on one snapshot. May be abandoned."""
        ...

    async def peek(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """A read of a few records by key."""
        ...

    def stop_waiting(self) -> None: ...

    async def aclose(self) -> None: ...


class SqlTranscriptStore:
    """``TranscriptStore`` over a database.

    ``now`` dates leases and records; on ``host`` (default: this one) dead lease owners can be proven dead.
    """

    def __init__(self, database: Database, *, now: WallClock = time.time, host: str | None = None) -> None:
        self._database = database
        self._now = now
        self._host = host if host is not None else platform.node()

    def stop_waiting(self) -> None:
        self._database.stop_waiting()

    async def aclose(self) -> None:
        await self._database.aclose()

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def create_session(self, session: StoredSession) -> bool:
        return await self._database.write(lambda db: sessions.create_session(db, session))

    async def get_session(self, key: str) -> StoredSession | None:
        return await self._database.peek(lambda db: sessions.get_session(db, key))

    async def find_by_title(self, title: str) -> StoredSession | None:
        return await self._database.peek(lambda db: sessions.find_by_title(db, title))

    async def update_session(self, key: str, **changes: Any) -> None:
        await self._database.write(lambda db: sessions.update_session(db, key, changes))

    async def list_sessions(
        self,
        *,
        limit: int = 200,
        offset: int = 0,
        include_hidden: bool = False,
        include_archived: bool = False,
        include_children: bool = False,
        source: str | None = None,
        title: str | None = None,
        cwd: str | None = None,
        principal: str | None = None,
        empty_of: str | None = None,
        seen_by: str | None = None,
    ) -> Sequence[StoredSession]:
        """As the port says; listed sessions come without their system prompt."""
        equal = {"source": source, "title": title, "cwd": cwd, "principal": principal}
        return await self._database.scan(
            lambda db: sessions.list_sessions(
                db,
                limit=limit,
                offset=offset,
                include_hidden=include_hidden,
                include_archived=include_archived,
                include_children=include_children,
                equal=equal,
                empty_of=empty_of,
                seen_by=seen_by,
            )
        )

    async def delete_session(self, key: str) -> None:
        """Raises ``SessionOwnedElsewhere`` while a turn lease is held."""
        await self._database.write(lambda db: sessions.delete_session(db, key, host=self._host, now=self._now()))

    # --- rows --------------------------------------------------------------------------------------------------------

    async def load_rows(self, key: str, *, limit: int = MAX_RESUME_ROWS) -> tuple[Row, ...]:
        """The active rows in order; beyond ``limit``, the newest."""
        return await self._database.scan(lambda db: history.load_rows(db, key, limit=limit))

    async def load_transcript(self, key: str, *, limit: int = MAX_RESUME_ROWS) -> tuple[Row, ...]:
        """The active rows with the compacted ones in their old places; beyond ``limit``, the newest."""
        return await self._database.scan(lambda db: history.load_transcript(db, key, limit=limit))

    async def load_compacted_prompts(self, key: str, *, limit: int) -> tuple[Row, ...]:
        return await self._database.scan(lambda db: history.load_compacted_prompts(db, key, limit=limit))

    async def append_rows(
        self,
        key: str,
        rows: Sequence[Row],
        *,
        usage: Usage | None = None,
        changes: Mapping[str, Any] | None = None,
        owner: LeaseOwner | None = None,
    ) -> tuple[Row, ...]:
        encoded = encode_new(rows)
        stored = await self._database.write(
            lambda db: turns.store_rows(db, key, encoded, usage=usage, changes=changes, owner=owner)
        )
        return stored.rows

    async def begin_turn(
        self,
        key: str,
        rows: Sequence[Row],
        *,
        owner: LeaseOwner,
        ttl: float,
        expected_version: int,
        new_session: StoredSession | None = None,
    ) -> TurnBegun:
        encoded = encode_new(rows)
        return await self._database.write(
            lambda db: turns.begin_turn(
                db,
                key,
                encoded,
                owner=owner,
                ttl=ttl,
                host=self._host,
                now=self._now(),
                expected_version=expected_version,
                new_session=new_session,
            )
        )

    async def finish_turn(
        self,
        key: str,
        rows: Sequence[Row],
        *,
        owner: LeaseOwner,
        usage: Usage | None = None,
        changes: Mapping[str, Any] | None = None,
        forget: Sequence[tuple[str, str]] = (),
    ) -> TurnFinished:
        encoded = encode_new(rows)
        return await self._database.write(
            lambda db: turns.finish_turn(db, key, encoded, owner=owner, usage=usage, changes=changes, forget=forget)
        )

    async def rewind(
        self,
        key: str,
        intent: RewindIntent,
        new_rows: Sequence[Row],
        *,
        expected_version: int | None = None,
    ) -> RewindResult:
        encoded = encode_new(new_rows)
        return await self._database.write(
            lambda db: history.rewind(db, key, intent, encoded, expected_version=expected_version)
        )

    async def undo_rewind(self, key: str) -> tuple[Row, ...]:
        return await self._database.write(lambda db: history.undo_rewind(db, key))

    async def replace_with_summary(
        self, key: str, *, summarized_ids: Sequence[int], summary_rows: Sequence[Row], expected_version: int
    ) -> tuple[Row, ...]:
        encoded = encode_new(summary_rows)
        return await self._database.write(
            lambda db: history.replace_with_summary(
                db, key, summarized_ids=summarized_ids, encoded=encoded, expected_version=expected_version
            )
        )

    async def shorten_rows(self, key: str, contents: Mapping[int, Content], *, expected_version: int) -> None:
        encoded = [(encode_content(content), row_id) for row_id, content in contents.items()]
        await self._database.write(
            lambda db: history.shorten_rows(db, key, encoded=encoded, expected_version=expected_version)
        )

    async def branch(
        self, key: str, new: StoredSession, *, row_ids: Sequence[int] | None = None
    ) -> tuple[StoredSession, tuple[Row, ...]]:
        return await self._database.write(lambda db: history.branch(db, key, new, row_ids=row_ids))

    async def search(self, query: str, *, limit: int = 20, key: str | None = None) -> Sequence[Mapping[str, Any]]:
        clean = scrub(query)
        return await self._database.scan(lambda db: search.search(db, clean, limit=limit, key=key))

    # --- leases ------------------------------------------------------------------------------------------------------

    async def acquire_lease(self, key: str, owner: LeaseOwner, *, ttl: float) -> int:
        return await self._database.write(
            lambda db: leases.acquire_lease(db, key, owner, ttl=ttl, host=self._host, now=self._now())
        )

    async def refresh_leases(self, keys: Sequence[str], owner: LeaseOwner, *, ttl: float) -> frozenset[str]:
        return await self._database.write(lambda db: leases.refresh_leases(db, keys, owner, ttl=ttl, now=self._now()))

    async def release_lease(self, key: str, owner: LeaseOwner) -> None:
        await self._database.write(lambda db: leases.release_lease(db, key, owner))

    async def lease_holder(self, key: str) -> LeaseOwner | None:
        return await self._database.peek(lambda db: leases.holder(db, key, host=self._host, now=self._now()))

    # --- values, documents, journals ---------------------------------------------------------------------------------

    async def get_meta(self, key: str) -> str | None:
        return await self._database.peek(lambda db: records.get_meta(db, key))

    async def set_meta(self, key: str, value: str | None) -> None:
        text = None if value is None else scrub(value)
        await self._database.write(lambda db: records.set_meta(db, key, text))

    async def put_record(self, kind: str, record_id: str, value: Mapping[str, Any], *, owner: str = "") -> None:
        """An empty ``owner`` keeps the one that is stored."""
        text = scrub(to_json(value))
        await self._database.write(
            lambda db: records.put_record(db, kind, record_id, text, owner=owner, now=self._now())
        )

    async def put_records(self, kind: str, values: Sequence[tuple[str, Mapping[str, Any], str]]) -> None:
        texts = [(record_id, scrub(to_json(value)), owner) for record_id, value, owner in values]

        def put(db: sqlite3.Connection) -> None:
            for record_id, text, owner in texts:
                records.put_record(db, kind, record_id, text, owner=owner, now=self._now())

        await self._database.write(put)

    async def get_record(self, kind: str, record_id: str) -> Mapping[str, Any] | None:
        return await self._database.peek(lambda db: records.get_record(db, kind, record_id))

    async def list_records(self, kind: str, *, owner: str | None = None) -> Sequence[tuple[str, Mapping[str, Any]]]:
        return await self._database.scan(lambda db: records.list_records(db, kind, owner=owner))

    async def delete_record(self, kind: str, record_id: str) -> bool:
        """Also deletes the journal of this id."""
        return await self._database.write(lambda db: records.delete_record(db, kind, record_id))

    async def claim_record(
        self, kind: str, record_id: str, value: Mapping[str, Any], *, owner: str = ""
    ) -> Mapping[str, Any] | None:
        text = scrub(to_json(value))
        return await self._database.write(
            lambda db: records.claim_record(db, kind, record_id, text, owner=owner, now=self._now())
        )

    async def append_journal(self, run_id: str, entries: Sequence[tuple[int, bytes]], *, keep: int = 1000) -> None:
        await self._database.write(lambda db: records.append_journal(db, run_id, entries, keep=keep))

    async def read_journal(self, run_id: str, *, after: int, limit: int = 1000) -> Sequence[tuple[int, bytes]]:
        return await self._database.scan(lambda db: records.read_journal(db, run_id, after=after, limit=limit))

    async def prune_records(self, kind: str, *, older_than: float) -> int:
        """``older_than`` is a point in time (seconds since the epoch); journals of pruned ids go too."""
        return await self._database.write(lambda db: records.prune_records(db, kind, older_than=older_than))


def encode_new(rows: Sequence[Row]) -> history.Encoded:
    """Encode rows that are not stored yet. A row with an id is: storing it again would double it."""
    for row in rows:
        if row.row_id is not None:
            raise ValueError(f"row {row.row_id} is stored already")
    return [encode_row(row) for row in rows]
