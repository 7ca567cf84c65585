"""The store's port: durable sessions and messages, rewinds, leases and small records. Re-exported by ``ports``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from hermes.messages import Content, RewindIntent, Row
from hermes.outcomes import Usage
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session row (agent-core §5.3)."""

    key: str
    source: str = "tui"
    title: str | None = None
    title_source: str | None = None
    model: str | None = None
    provider: str | None = None
    model_config: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    parent_key: str | None = None
    started_at: float = 0.0
    ended_at: float | None = None
    end_reason: str | None = None
    last_activity_at: float = 0.0
    message_count: int = 0
    tool_call_count: int = 0
    usage: Usage = Usage()
    history_version: int = 0
    rewind_count: int = 0
    compression_count: int = 0
    hidden: bool = False
    archived: bool = False
    pinned: bool = False
    unread: bool = False
    """A mark that people set and take away; nothing here does."""
    system_prompt: str | None = None
    tool_names: tuple[str, ...] | None = None
    user_id: str | None = None
    preview: str = ""
    principal: str | None = None
    interrupted_turn: Mapping[str, Any] | None = None
    """A turn that was running when its process died, or the retained failed turn: ``{user, error, at, …}``."""


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """Who holds a turn lease: host name, pid, process start time (clock ticks), a nonce per process."""

    host: str
    pid: int
    start_time: int
    nonce: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class RewindResult:
    removed: tuple[Row, ...]
    survivors: tuple[int | None, ...]
    new_rows: tuple[Row, ...]
    history_version: int


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """The lease is ours. ``rows`` are the stored ones; None when the history is another than was expected: then none
    was stored, and the caller has to read it first."""

    history_version: int
    rows: tuple[Row, ...] | None


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """``title`` is the one that was given, as it is stored (numbered, if it was taken); None if a better one stands."""

    rows: tuple[Row, ...]
    title: str | None


class TranscriptStore(Protocol):
    """Durable sessions and messages.

    Contract: each async method is one transaction that is not abandoned when the caller is cancelled: it happened whole
    or not at all, and a caller that was cancelled before it was queued has done nothing. Raises ``StoreUnavailable``
    (cause full, locked, read_only, corrupt, io), ``StoredSessionNotFound`` and the rewind conflicts; nothing else.
    """

    async def create_session(self, session: StoredSession) -> bool:
        """Insert if absent; an existing key is left alone. False: the key was there."""
        ...

    async def get_session(self, key: str) -> StoredSession | None: ...

    async def find_by_title(self, title: str) -> StoredSession | None: ...

    async def update_session(self, key: str, **changes: Any) -> None:
        """Set columns named like the fields of ``StoredSession``. ``title`` conflicts raise ``TitleTaken``."""
        ...

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
        """Newest activity first, without sessions that have no messages but those of the principal ``empty_of``;
        ``seen_by``: without those of other principals."""
        ...

    async def load_rows(self, key: str, *, limit: int = 20_000) -> tuple[Row, ...]:
        """The active rows in order."""
        ...

    async def load_transcript(self, key: str, *, limit: int = 20_000) -> tuple[Row, ...]:
        """What a person is shown: the active rows, and in their old places those that a summary stands for
        (``compacted``), which are no part of the context any more."""
        ...

    async def load_compacted_prompts(self, key: str, *, limit: int) -> tuple[Row, ...]:
        """The user rows with an id of their client's that a summary stands for; the newest ones, in order."""
        ...

    async def append_rows(
        self,
        key: str,
        rows: Sequence[Row],
        *,
        usage: Usage | None = None,
        changes: Mapping[str, Any] | None = None,
        owner: LeaseOwner | None = None,
    ) -> tuple[Row, ...]:
        """Store rows behind the last one; returns them with ids. ``usage`` is added to the counters and ``changes`` are
        columns as ``update_session`` takes them, in the same transaction. Raises ``SessionOwnedElsewhere`` if ``owner``
        had the turn lease and somebody else has taken it."""
        ...

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
        """In one transaction: insert ``new_session`` if absent, take the turn lease (as ``acquire_lease`` does), and
        append the rows if the history still has ``expected_version``."""
        ...

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
        """In one transaction: what ``append_rows`` does, the release of the turn lease, which ``owner`` has, and the
        deletion of records (kind, id)."""
        ...

    async def rewind(
        self,
        key: str,
        intent: RewindIntent,
        new_rows: Sequence[Row],
        *,
        expected_version: int | None = None,
    ) -> RewindResult:
        """Archive the target and everything behind it and append ``new_rows``, in one transaction (PS-10). What the
        result calls removed, and what survived, is of the transcript, compacted rows included."""
        ...

    async def undo_rewind(self, key: str) -> tuple[Row, ...]:
        """Bring the last cut back while nothing newer is stored; returns the transcript. Raises ``NothingToUndo``."""
        ...

    async def replace_with_summary(
        self, key: str, *, summarized_ids: Sequence[int], summary_rows: Sequence[Row], expected_version: int
    ) -> tuple[Row, ...]:
        """Compression (agent-core §6.3): mark the summarized rows compacted, put the summary rows in their place; kept
        rows keep their ids. Without summary rows the transcript is put away instead. Returns all active rows."""
        ...

    async def shorten_rows(self, key: str, contents: Mapping[int, Content], *, expected_version: int) -> None:
        """Set what the model reads (``api_content``) of these active rows, and count ``history_version`` up."""
        ...

    async def branch(
        self, key: str, new: StoredSession, *, row_ids: Sequence[int] | None = None
    ) -> tuple[StoredSession, tuple[Row, ...]]:
        """Copy the transcript (or just those rows of it) into a new session with new ids; returns its active rows."""
        ...

    async def delete_session(self, key: str) -> None: ...

    async def search(self, query: str, *, limit: int = 20, key: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Full text: ``[{session_key, row_id, role, snippet, timestamp, title}]``."""
        ...

    async def acquire_lease(self, key: str, owner: LeaseOwner, *, ttl: float) -> int:
        """Take the turn lease; returns the stored ``history_version``. Raises ``SessionOwnedElsewhere``; a lease whose
        owner is provably dead or which has expired is taken over."""
        ...

    async def refresh_leases(self, keys: Sequence[str], owner: LeaseOwner, *, ttl: float) -> frozenset[str]:
        """In one write; returns the keys whose lease is still ours."""
        ...

    async def release_lease(self, key: str, owner: LeaseOwner) -> None: ...

    async def lease_holder(self, key: str) -> LeaseOwner | None:
        """Who runs a turn of this session now, as far as can be known."""
        ...

    async def get_meta(self, key: str) -> str | None: ...

    async def set_meta(self, key: str, value: str | None) -> None: ...

    async def put_record(self, kind: str, record_id: str, value: Mapping[str, Any], *, owner: str = "") -> None:
        """Durable JSON documents by kind (runs, responses, open questions, idempotency keys)."""
        ...

    async def put_records(self, kind: str, values: Sequence[tuple[str, Mapping[str, Any], str]]) -> None:
        """Several documents (id, value, owner) in one transaction."""
        ...

    async def get_record(self, kind: str, record_id: str) -> Mapping[str, Any] | None: ...

    async def list_records(self, kind: str, *, owner: str | None = None) -> Sequence[tuple[str, Mapping[str, Any]]]: ...

    async def delete_record(self, kind: str, record_id: str) -> bool: ...

    async def claim_record(
        self, kind: str, record_id: str, value: Mapping[str, Any], *, owner: str = ""
    ) -> Mapping[str, Any] | None:
        """Insert if absent, atomically across processes. None: claimed; otherwise the record that was there."""
        ...

    async def append_journal(self, run_id: str, entries: Sequence[tuple[int, bytes]], *, keep: int = 1000) -> None:
        """Append numbered event frames of a run; the oldest beyond ``keep`` are dropped."""
        ...

    async def read_journal(self, run_id: str, *, after: int, limit: int = 1000) -> Sequence[tuple[int, bytes]]: ...

    async def prune_records(self, kind: str, *, older_than: float) -> int: ...

    def stop_waiting(self) -> None:
        """Wait no more for other programs' locks: what they hold up fails with ``StoreUnavailable``."""
        ...

    async def aclose(self) -> None: ...
