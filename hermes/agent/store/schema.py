"""The database file: its tables, its version, and who may open it.

A new file is built completely under another name and then linked into place, so a file under our name is never half a
schema, whatever dies when. A file that is not ours (no application id of ours in its header) or that a newer version
wrote is refused before anything in it is changed. Migrations are ordered, one transaction each, and each checks the
version row inside its transaction, so two processes may start at once.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from hermes.agent.store.failures import database_errors
from hermes.errors import StoreUnavailable

APPLICATION_ID = 0x48524D53
"""Bytes 68..72 of the file header ("HRMS")."""

SQLITE_MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100
ALWAYS_CHECKED_BYTES = 64 * 1024 * 1024
"""Larger files are checked only after an unclean end: a full check reads the whole file."""

JournalMode = Literal["WAL", "DELETE"]
Synchronous = Literal["NORMAL", "FULL"]

SESSIONS = """
CREATE TABLE sessions (
    key TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    title TEXT,
    title_source TEXT,
    model TEXT,
    provider TEXT,
    model_config TEXT NOT NULL DEFAULT '{}',
    cwd TEXT,
    parent_key TEXT,
    started_at REAL NOT NULL DEFAULT 0,
    ended_at REAL,
    end_reason TEXT,
    last_activity_at REAL NOT NULL DEFAULT 0,
    message_count INTEGER NOT NULL DEFAULT 0,
    tool_call_count INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    calls INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL,
    estimated INTEGER NOT NULL DEFAULT 0,
    history_version INTEGER NOT NULL DEFAULT 0,
    rewind_count INTEGER NOT NULL DEFAULT 0,
    compression_count INTEGER NOT NULL DEFAULT 0,
    hidden INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    pinned INTEGER NOT NULL DEFAULT 0,
    system_prompt_hash TEXT,
    tool_names TEXT,
    user_id TEXT,
    preview TEXT NOT NULL DEFAULT '',
    principal TEXT,
    interrupted_turn TEXT
)"""

MESSAGES = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_key TEXT NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
    position REAL NOT NULL,
    role TEXT NOT NULL,
    content TEXT,
    timestamp REAL NOT NULL DEFAULT 0,
    tool_calls TEXT,
    tool_call_id TEXT,
    tool_name TEXT,
    effect_disposition TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    replay_items TEXT,
    finish_reason TEXT,
    api_content TEXT,
    display_kind TEXT,
    display_metadata TEXT,
    token_count INTEGER,
    platform_message_id TEXT,
    compacted_summary INTEGER NOT NULL DEFAULT 0,
    search_text TEXT,
    active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0,
    cut_id INTEGER
)"""

# What the index sees of a row. ``search_text`` is set only where the content column is not plain text. Tool output is
# indexed by its beginning: the rest is bulk that nobody searches for by word.
MESSAGE_TEXT = """
CREATE VIEW message_text AS
SELECT id,
       substr(coalesce(search_text, content, ''), 1, CASE role WHEN 'tool' THEN 2000 ELSE 100000 END) AS body,
       coalesce(tool_name, '') AS tool_name,
       substr(coalesce(tool_calls, ''), 1, 2000) AS tool_calls
FROM messages"""

VERSION_1: tuple[str, ...] = (
    SESSIONS,
    "CREATE UNIQUE INDEX sessions_title ON sessions(title) WHERE title IS NOT NULL AND archived = 0",
    "CREATE INDEX sessions_activity ON sessions(last_activity_at)",
    "CREATE INDEX sessions_parent ON sessions(parent_key) WHERE parent_key IS NOT NULL",
    "CREATE INDEX sessions_prompt ON sessions(system_prompt_hash) WHERE system_prompt_hash IS NOT NULL",
    "CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, text TEXT NOT NULL)",
    MESSAGES,
    "CREATE INDEX messages_active ON messages(session_key, position, id) WHERE active = 1",
    "CREATE INDEX messages_session ON messages(session_key)",
    "CREATE INDEX messages_cut ON messages(cut_id) WHERE cut_id IS NOT NULL",
    """CREATE TABLE cuts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_key TEXT NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
        last_row_id INTEGER NOT NULL,
        own_row_id INTEGER NOT NULL,
        open INTEGER NOT NULL DEFAULT 1
    )""",
    "CREATE INDEX cuts_open ON cuts(session_key, id) WHERE open = 1",
    MESSAGE_TEXT,
    """CREATE VIRTUAL TABLE message_search USING fts5(
        body, tool_name, tool_calls,
        content='message_text', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
    )""",
    """CREATE TRIGGER messages_indexed AFTER INSERT ON messages BEGIN
        INSERT INTO message_search(rowid, body, tool_name, tool_calls)
        SELECT id, body, tool_name, tool_calls FROM message_text WHERE id = new.id;
    END""",
    """CREATE TRIGGER messages_unindexed BEFORE DELETE ON messages BEGIN
        INSERT INTO message_search(message_search, rowid, body, tool_name, tool_calls)
        SELECT 'delete', id, body, tool_name, tool_calls FROM message_text WHERE id = old.id;
    END""",
    """CREATE TABLE turn_leases (
        session_key TEXT PRIMARY KEY REFERENCES sessions(key) ON DELETE CASCADE,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        start_time INTEGER NOT NULL,
        nonce TEXT NOT NULL,
        expires_at REAL NOT NULL
    )""",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE records (
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        owner TEXT NOT NULL DEFAULT '',
        value TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        PRIMARY KEY (kind, id)
    )""",
    "CREATE INDEX records_age ON records(kind, updated_at)",
    "CREATE TABLE journal (run_id TEXT NOT NULL, seq INTEGER NOT NULL, frame BLOB NOT NULL, PRIMARY KEY (run_id, seq))",
)

# A rewind must cost what it cuts, not what the session holds: the transcript is read from any place on, and the prompts
# are known without the rows (what a row says stands before most of its flags, so these are far behind a long text).
VERSION_2: tuple[str, ...] = (
    "CREATE INDEX messages_order ON messages(session_key, position, id)",
    """CREATE INDEX messages_prompts ON messages(
        session_key, position, id, display_kind, platform_message_id, compacted_summary, active, compacted, cut_id
    ) WHERE role = 'user'""",
    "DROP INDEX messages_session",
)

VERSION_3: tuple[str, ...] = ("ALTER TABLE sessions ADD COLUMN unread INTEGER NOT NULL DEFAULT 0",)

MIGRATIONS: tuple[tuple[str, ...], ...] = (VERSION_1, VERSION_2, VERSION_3)
"""Entry n brings version n to version n + 1. An entry that has been released is never edited."""


def connect(path: str | Path, *, lock_timeout: float) -> sqlite3.Connection:
    """A connection in autocommit mode; transactions are always written out. Usable from any one thread at a time."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=lock_timeout
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the schema to the newest version. Raises ``StoreUnavailable`` (newer) if it is beyond it already."""
    # The version is read first without a lock: a start must not wait for another program's write.
    while read_version(connection) != len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = read_version(connection)
            if version > len(migrations):
                raise StoreUnavailable(
                    f"a newer version wrote this session database (schema {version}, known {len(migrations)}); "
                    "update this program",
                    cause="newer",
                )
            if version == len(migrations):
                break
            for statement in migrations[version]:
                connection.execute(statement)
            connection.execute("UPDATE schema_version SET version = ?", (version + 1,))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def read_version(connection: sqlite3.Connection) -> int:
    record = connection.execute("SELECT version FROM schema_version").fetchone()
    return int(record[0]) if record is not None else 0


def initialise(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Write the schema into an empty database."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
    connection.execute("INSERT INTO schema_version VALUES (0)")
    migrate(connection, migrations)


def prepare_file(
    path: Path,
    *,
    lock_timeout: float,
    journal_mode: JournalMode = "WAL",
    migrations: Sequence[Sequence[str]] = MIGRATIONS,
) -> None:
    """Create, check and migrate the file, so that connections may be opened on it.

    Raises ``StoreUnavailable`` with the causes foreign, newer, corrupt, read_only, locked, full and io. A refused file
    is left as it was.
    """
    with database_errors():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists() or path.stat().st_size == 0:
            create_file(path, journal_mode=journal_mode, migrations=migrations)
        check_header(path)
        # Asked before SQLite is: without write permission it opens a file for reading and fails at the first write, or
        # fails with an error that does not say why.
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise StoreUnavailable("the session database or its directory may not be written", cause="read_only")
        with suppress(PermissionError):
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
        wal = path.with_name(path.name + "-wal")
        unclean = wal.exists() and wal.stat().st_size > 0
        connection = connect(path, lock_timeout=lock_timeout)
        try:
            if unclean or path.stat().st_size <= ALWAYS_CHECKED_BYTES:
                check_integrity(connection)
            migrate(connection, migrations)
            if connection.execute("PRAGMA journal_mode").fetchone()[0].upper() != journal_mode:
                # Answers with the old mode where the file system cannot do it (network mounts): we then live with that.
                connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        finally:
            connection.close()


def create_file(path: Path, *, journal_mode: JournalMode, migrations: Sequence[Sequence[str]]) -> None:
    """Build a whole database beside ``path`` and move it there. If somebody else was faster, theirs stays."""
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.new-", dir=path.parent)
    os.close(descriptor)
    try:
        connection = connect(name, lock_timeout=0)
        try:
            # Set before the first table: switching a file that others have open already can fail as busy.
            connection.execute(f"PRAGMA journal_mode = {journal_mode}")
            initialise(connection, migrations)
        finally:
            connection.close()
        if path.exists() and path.stat().st_size == 0:
            os.replace(name, path)
            return
        try:
            os.link(name, path)
        except OSError:
            # Either somebody was faster, or the file system knows no hard links.
            if not path.exists():
                os.rename(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def check_header(path: Path) -> None:
    """Refuse what is not our database, from the bytes alone: opening it would let SQLite touch its journal."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if not header.startswith(SQLITE_MAGIC):
        raise StoreUnavailable(
            "the session database is not a database file, or its beginning is damaged; move the file away or restore "
            "a backup",
            cause="corrupt",
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreUnavailable(
            "the file in the place of the session database belongs to another program; it was left untouched: move it "
            "away or choose another home",
            cause="foreign",
        )


def check_integrity(connection: sqlite3.Connection) -> None:
    finding = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if finding != "ok":
        raise StoreUnavailable(
            "the session database is damaged; restore a backup or move the file away", cause="corrupt"
        )
