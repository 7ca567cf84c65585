"""What to run, and how it ended: the plain data of the process supervisor."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Mapping
from dataclasses import field

from hermes.errors import HermesError
from hermes.records import dataclass


class Stdin(enum.Enum):
    """What a child reads: nothing, or what is written to it while it runs. (Fixed bytes are given as bytes.)"""

    NULL = "null"
    PIPE = "pipe"


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """The size of a pseudo-terminal in characters."""

    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One command. `env` is the whole environment of the child; nothing is inherited from the server.

    `session_id` and `turn_id` name the work it belongs to: they are what a stop of a turn or of a session
    reaches, and what the limit per session counts. `node_id` is the node of the live tree that shows its pids.
    `first_input` is written to a background command before anybody else can write to it.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None
    session_id: str = ""
    turn_id: str = ""
    node_id: str = ""
    name: str = ""
    stdin: Stdin | bytes = field(default=Stdin.NULL, repr=False)
    first_input: bytes = field(default=b"", repr=False)
    terminal: TerminalSize | None = None
    timeout: float | None = None
    kill_grace: float | None = None

    @property
    def label(self) -> str:
        """A short name for logs and the live tree."""
        return self.name or os.path.basename(self.argv[0])


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a command ended. Nothing of it runs any more, except the pids in `survivors`.

    `exit_code` is as a shell shows it (128 + n for signal n), None only if the process could not be killed.
    `leftovers` counts descendants that outlived the command and were ended with it; `forced` tells that
    something had to be killed because it ignored the request to stop.
    """

    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    forced: bool = False
    leftovers: int = 0
    survivors: tuple[int, ...] = ()


class ProcessKind(enum.Enum):
    """How a process is held."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"
    PIPED = "piped"


@dataclass(frozen=True, slots=True)
class LiveProcess:
    """One supervised process, as the live tree shows it."""

    process_id: str
    kind: ProcessKind
    label: str
    session_id: str
    turn_id: str
    pid: int | None
    started_at: float
    ending: bool


class SpawnFailed(HermesError, OSError):
    """A command could not be started. The text says why, in words for the person or model that asked for it.

    It is an `OSError`, too: that is what the port for tools promises.
    """

    def __init__(self, reason: str, error_number: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.errno = error_number


def spawn_failure(spec: ProcessSpec, error: OSError | ValueError) -> SpawnFailed:
    """The domain error for what the operating system said about a spawn."""
    if not isinstance(error, OSError):
        return SpawnFailed(f"cannot start {spec.label}: {error}")
    if spec.cwd is not None and error.filename == spec.cwd:
        return SpawnFailed(f"the working directory {spec.cwd} cannot be used: {error.strerror}", error.errno)
    match error.errno:
        case errno.ENOENT:
            why = "no such program"
        case errno.EACCES | errno.EPERM:
            why = "it is not executable, or may not be executed here"
        case errno.ENOEXEC:
            why = "it is not a program that this system can run"
        case errno.E2BIG:
            why = "its arguments and environment are too long for the system"
        case errno.EMFILE | errno.ENFILE:
            why = "the server has no file descriptors left; end some processes or connections first"
        case errno.EAGAIN | errno.ENOMEM:
            why = "the system has no room for another process"
        case _:
            why = error.strerror or str(error)
    return SpawnFailed(f"cannot start {spec.label}: {why}", error.errno)


def exit_status(returncode: int | None) -> tuple[int | None, int | None]:
    """(exit code as a shell shows it, signal number) of a return code in Python's form."""
    if returncode is None or returncode >= 0:
        return returncode, None
    return 128 - returncode, -returncode
