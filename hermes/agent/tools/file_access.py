"""Reading and writing files safely: bounded, never blocked by a device, atomic, symlink-aware. Blocking calls.

Everything here runs in a worker thread that is never abandoned: a write has happened whole or not at all. Just before
it would become visible the cancellation of the waiting call is looked at, so a stopped call changes nothing any more.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import trio

from hermes.records import dataclass

Newline = Literal["\n", "\r\n"]
MAX_BYTES = 50_000_000
_BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_IMAGES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)
_BINARIES: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "an ELF program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"\xca\xfe\xba\xbe", "a Java class or universal program"),
)


class FileRefused(Exception):
    """The file cannot be used; the text says why, for the model."""


@dataclass(frozen=True, slots=True)
class FileText:
    """A text file as it was: decoded, with what is needed to write it back the same way."""

    path: Path
    text: str
    """Line endings are ``\\n`` where ``newline`` is CRLF for the whole file."""
    encoding: str
    newline: Newline
    digest: str
    size: int
    mtime_ns: int
    disk_digest: str = ""
    """Of the bytes on disk; ``digest`` is another one where an editor holds the text unsaved."""


@dataclass(frozen=True, slots=True)
class NotText:
    """A file that is no text: ``kind`` in words, ``mime_type`` for images, whose bytes are in ``raw``."""

    kind: str
    size: int
    mime_type: str | None = None
    raw: bytes = b""


def digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def read_bytes(path: Path, *, limit: int = MAX_BYTES) -> tuple[bytes, os.stat_result]:
    """The bytes of a regular file. Raises ``FileRefused`` for anything else, ``OSError`` as the system says.

    Opened without blocking first, so that a FIFO or a device cannot hold us, and checked on the open descriptor."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        info = os.fstat(descriptor)
        if stat.S_ISDIR(info.st_mode):
            raise FileRefused("it is a directory; use search_files with target: files to list it")
        if not stat.S_ISREG(info.st_mode):
            raise FileRefused("it is a device, pipe or socket, not a regular file")
        if info.st_size > limit:
            raise FileRefused(f"it has {info.st_size} bytes, more than the {limit} that are read at once; use terminal")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(raw) > limit:
        raise FileRefused(f"it gives more than {limit} bytes")
    return raw, info


def read_text(path: Path) -> FileText | NotText:
    """A file as text: UTF-8, UTF-8/16 with a byte order mark, or Latin-1 if it is neither and has no NULs."""
    raw, info = read_bytes(path)
    if kind := _binary_kind(raw):
        return kind
    encoding = next((name for bom, name in _BOMS if raw.startswith(bom)), "utf-8")
    if encoding == "utf-16":
        encoding = "utf-16-le-bom" if raw.startswith(codecs.BOM_UTF16_LE) else "utf-16-be-bom"
    text = decode_text(raw, encoding)
    if text is None:
        encoding, text = "latin-1", raw.decode("latin-1")
    # A file with both kinds of line ending keeps its bytes: its carriage returns stay in the text.
    newline: Newline = "\r\n" if "\n" in text and text.count("\r\n") == text.count("\n") else "\n"
    if newline == "\r\n":
        text = text.replace("\r\n", "\n")
    digest = digest_of(raw)
    return FileText(path, text, encoding, newline, digest, info.st_size, info.st_mtime_ns, digest)


def decode_text(raw: bytes, encoding: str) -> str | None:
    try:
        match encoding:
            case "utf-16-le-bom":
                return raw[2:].decode("utf-16-le")
            case "utf-16-be-bom":
                return raw[2:].decode("utf-16-be")
        return raw.decode(encoding)
    except UnicodeDecodeError:
        return None


def encode_text(text: str, encoding: str, newline: Newline) -> bytes:
    """The bytes of a text in the encoding and with the line endings of the file it came from."""
    if newline == "\r\n":
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    match encoding:
        case "utf-16-le-bom":
            return codecs.BOM_UTF16_LE + text.encode("utf-16-le")
        case "utf-16-be-bom":
            return codecs.BOM_UTF16_BE + text.encode("utf-16-be")
        case "latin-1":
            try:
                return text.encode("latin-1")
            except UnicodeEncodeError:
                return text.encode("utf-8")
    return text.encode(encoding)


def _binary_kind(raw: bytes) -> NotText | None:
    for magic, mime in _IMAGES:
        if raw.startswith(magic) and (magic != b"BM" or b"\0" in raw[:64]):
            return NotText("an image", len(raw), mime, raw)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return NotText("an image", len(raw), "image/webp", raw)
    for magic, kind in _BINARIES:
        if raw.startswith(magic):
            return NotText(kind, len(raw))
    if b"\0" in raw[:8192] and not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return NotText("binary data", len(raw))
    return None


def resolve_target(path: Path) -> Path:
    """The file a path leads to: symlinks followed as far as they go, also where the last part does not exist."""
    return Path(os.path.realpath(path))


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """``data`` None deletes the file. ``expected`` is the digest it must still have, "" that it must not exist."""

    path: Path
    data: bytes | None
    expected: str | None = None


class Changed(Exception):
    """A file is not what it was when the change was planned."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} changed on disk in the meantime; read it again")


def check_cancelled() -> None:
    """Raise if the call that waits for this thread was cancelled."""
    trio.from_thread.check_cancelled()


def write_all(writes: list[PlannedWrite], *, before_commit: Callable[[], None] = check_cancelled) -> list[str]:
    """Make all changes or none; returns the directories that were created.

    All new contents are on disk beside their targets before the first target is touched. If one of the renames fails,
    the targets that were already replaced get their old bytes back."""
    made: list[str] = []
    staged: list[tuple[PlannedWrite, str | None]] = []
    try:
        for write in writes:
            staged.append((write, None if write.data is None else _stage(write.path, write.data, made)))
        for write in writes:
            _check_expected(write)
        before_commit()
    except BaseException:
        for _, temporary in staged:
            if temporary is not None:
                _remove(temporary)
        for folder in reversed(made):
            _remove_folder(folder)
        raise
    _commit(staged)
    return made


def _commit(staged: list[tuple[PlannedWrite, str | None]]) -> None:
    undo: list[tuple[Path, bytes | None, int]] = []
    try:
        for write, temporary in staged:
            old, mode = _old(write.path) if len(staged) > 1 else (None, 0)
            if temporary is None:
                os.unlink(write.path)
            else:
                os.replace(temporary, write.path)
            undo.append((write.path, old, mode))
    except OSError:
        for path, old, mode in reversed(undo):
            _restore(path, old, mode)
        for _, temporary in staged:
            if temporary is not None:
                _remove(temporary)
        raise
    for folder in {write.path.parent for write, _ in staged}:
        _sync_folder(folder)


def _stage(target: Path, data: bytes, made: list[str]) -> str:
    folder = target.parent
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir()
        made.append(str(parent))
    existing = None
    with contextlib.suppress(FileNotFoundError):
        existing = os.lstat(target)
    if existing is not None and not stat.S_ISREG(existing.st_mode):
        raise FileRefused(f"{target} is not a regular file")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if existing is None:
                os.fchmod(file.fileno(), 0o666 & ~_umask())
            else:
                with contextlib.suppress(OSError):
                    os.fchown(file.fileno(), existing.st_uid, existing.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(existing.st_mode))
            os.fsync(file.fileno())
    except BaseException:
        _remove(temporary)
        raise
    return temporary


def _umask() -> int:
    """The process's umask, without changing it where the system tells it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open("/proc/self/status", encoding="ascii") as status:
            return int(next(line for line in status if line.startswith("Umask:")).split()[1], 8)
    return 0o022


def _check_expected(write: PlannedWrite) -> None:
    if write.expected is None:
        return
    try:
        raw, _ = read_bytes(write.path)
    except FileNotFoundError:
        raw = None
    if (write.expected == "") != (raw is None) or (raw is not None and digest_of(raw) != write.expected):
        raise Changed(write.path)


def _old(path: Path) -> tuple[bytes | None, int]:
    try:
        raw, info = read_bytes(path)
    except OSError:
        return None, 0
    return raw, stat.S_IMODE(info.st_mode)


def _restore(path: Path, old: bytes | None, mode: int) -> None:
    with contextlib.suppress(OSError, FileRefused):
        if old is None:
            os.unlink(path)
        else:
            os.replace(_stage(path, old, []), path)
            os.chmod(path, mode)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_folder(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
