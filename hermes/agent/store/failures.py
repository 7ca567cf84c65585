"""What a failed database operation means: SQLite's result codes, told apart by cause.

Disk full, lock timeout, missing write permission and damage need different actions of a person, so they stay different
all the way to the wire (``StoreUnavailable.cause``). Messages name no path: they are shown to clients.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hermes.errors import StoreUnavailable

# Primary result code -> (cause, sentence).
CAUSES: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("full", "the disk is full: the session database cannot grow"),
    sqlite3.SQLITE_BUSY: ("locked", "another program holds the session database locked"),
    sqlite3.SQLITE_LOCKED: ("locked", "another program holds the session database locked"),
    sqlite3.SQLITE_READONLY: ("read_only", "the session database is read-only"),
    sqlite3.SQLITE_PERM: ("read_only", "the session database may not be written"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "the session database is damaged; restore a backup or move the file away"),
    sqlite3.SQLITE_NOTADB: ("corrupt", "the session database is damaged; restore a backup or move the file away"),
}
OTHER = ("io", "the session database cannot be read or written")
CLOSED = "the session store is closed"


def store_failure(error: sqlite3.Error | OSError) -> StoreUnavailable:
    """The domain error for a failed database or file operation."""
    if isinstance(error, PermissionError):
        return StoreUnavailable("the session database may not be opened: permission denied", cause="read_only")
    # The low byte is the primary code; errors of the Python layer (a closed connection) carry none.
    code = getattr(error, "sqlite_errorcode", None)
    cause, sentence = CAUSES.get(code & 0xFF, OTHER) if code is not None else OTHER
    return StoreUnavailable(sentence, cause=cause)


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn database and file errors of the block into ``StoreUnavailable``; domain errors pass."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise store_failure(error) from error
