"""Log output: where it goes, its form, and the fields that say whose it is.

Standard ``logging``, one logger per module. Standard output belongs to the wire and is never written here. Records
carry the session, turn and request they belong to through context variables (``log_fields``), which a task hands to
its children. Whatever is written has passed the redaction that was given, tracebacks included.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType

from hermes.patterns import lazy_pattern
from hermes.records import dataclass

Redact = Callable[[str], str]
# Control characters, line ends of any kind, and what shows text in another order than it is in.
_UNPRINTABLE = lazy_pattern("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]")

FACTS = "hermes_facts"
"""The ``extra`` of a record under which a mapping stands whose members become fields of a JSON line; the message of
the record says the same in words."""


@dataclass(frozen=True, slots=True)
class LogFields:
    """Whose work a record is about; empty where it is nobody's."""

    session: str = ""
    turn: str = ""
    request: str = ""


_fields: ContextVar[LogFields] = ContextVar("hermes_log_fields", default=LogFields())  # noqa: B039 - frozen


class log_fields:
    """Mark records of this block, and of tasks started in it. None leaves a field as it is."""

    __slots__ = ("_given", "_token")

    def __init__(self, *, session: str | None = None, turn: str | None = None, request: str | None = None) -> None:
        self._given = (session, turn, request)

    def __enter__(self) -> None:
        session, turn, request = self._given
        above = _fields.get()
        self._token = _fields.set(
            LogFields(
                above.session if session is None else session,
                above.turn if turn is None else turn,
                above.request if request is None else request,
            )
        )

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        _fields.reset(self._token)


def current_log_fields() -> LogFields:
    return _fields.get()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """``directory`` is where files go when ``to_files`` is set; ``max_bytes`` and ``backups`` are their rotation."""

    level: str = "INFO"
    json: bool = False
    to_files: bool = False
    directory: Path = Path("logs")
    max_bytes: int = 5_000_000
    backups: int = 3


def set_up_logging(options: LogOptions, redact: Redact = lambda text: text, *, stderr: int = 2) -> None:
    """Replace whatever the root logger had. Raises ``OSError`` if the log directory cannot be written."""
    formatter: logging.Formatter = JsonFormatter(redact) if options.json else TextFormatter(redact)
    handlers: list[logging.Handler]
    if options.to_files:
        from hermes.log_files import private_file

        options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        everything, errors = (
            private_file(options.directory / name, max_bytes=options.max_bytes, backups=options.backups)
            for name in ("agent.log", "errors.log")
        )
        errors.setLevel(logging.WARNING)
        handlers = [everything, errors]
    else:
        handlers = [DescriptorHandler(stderr)]
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(options.level)
    logging.captureWarnings(True)
    # A failing log line must not print a traceback of its own into somebody's terminal.
    logging.raiseExceptions = False


def hide_in_logs(hide: Redact) -> None:
    """One more redaction for the log that ``set_up_logging`` has set up; a log that somebody else keeps stays as is."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Redacting):
            handler.formatter.redact_also(hide)


class DescriptorHandler(logging.Handler):
    """Writes to a descriptor without ever waiting for its reader.

    A host that starts us and does not read our stderr fills its pipe; a waiting write would then stop the whole
    event loop. Records that do not fit are dropped and counted, and the next one that fits says how many.
    """

    # A pipe that is ready takes this much without waiting (PIPE_BUF).
    CHUNK = 4096

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._dropped = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        if self._dropped:
            line = f"({self._dropped} log records dropped: nobody was reading)\n{line}"
        data = line.encode("utf-8", "backslashreplace")
        try:
            written = self._write(data)
        except OSError:
            written = False
        self._dropped = 0 if written else self._dropped + 1

    def _write(self, data: bytes) -> bool:
        for start in range(0, len(data), self.CHUNK):
            ready = self._poll.poll(0)
            if not ready or not ready[0][1] & select.POLLOUT:
                return False
            os.write(self._descriptor, data[start : start + self.CHUNK])
        return True


class _Redacting(logging.Formatter):
    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self._redactions = [redact]

    def redact_also(self, redact: Redact) -> None:
        self._redactions.append(redact)

    def _redact(self, text: str) -> str:
        for redact in self._redactions:
            text = redact(text)
        return text


class TextFormatter(_Redacting):
    """``2026-01-31T12:00:00.123Z INFO hermes.nurseries.turn [session=… turn=…] text``

    What stands at the beginning of a line was written by us: a text from outside cannot begin one, nor drive the
    terminal in which the log is read. Lines of a traceback are set in.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields.get()
        marks = [f"{name}={value}" for name, value in _named(fields) if value]
        marked = f" [{' '.join(marks)}]" if marks else ""
        said = _in_one_line(self._redact(f"{marked} {record.getMessage()}"))
        text = f"{_timestamp(record)} {record.levelname} {record.name}{said}"
        traceback = self._redact("\n".join(_traceback(self, record)))
        return "\n".join([text, *(f"  {_in_one_line(line)}" for line in traceback.split("\n") if line)])


class JsonFormatter(_Redacting):
    """One JSON object per line. Redacted before it is encoded, so that quoting cannot hide a secret."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(record.getMessage()),
        }
        entry |= {name: value for name, value in _named(_fields.get()) if value}
        entry |= {name: self._shown(value) for name, value in getattr(record, FACTS, {}).items()}
        if traceback := _traceback(self, record):
            entry["traceback"] = self._redact(traceback[0])
        return json.dumps(entry, ensure_ascii=False)

    def _shown(self, value: object) -> object:
        return self._redact(value) if isinstance(value, str) else value


def _in_one_line(text: str) -> str:
    return text if text.isprintable() else _UNPRINTABLE.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _named(fields: LogFields) -> tuple[tuple[str, str], ...]:
    return (("session", fields.session), ("turn", fields.turn), ("request", fields.request))


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if record.exc_info:
        return [formatter.formatException(record.exc_info)]
    return [record.stack_info] if record.stack_info else []
