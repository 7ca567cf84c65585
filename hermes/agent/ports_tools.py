"""The tools' ports: what a tool is, what one call may use, and the processes it may start. Re-exported by ``ports``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Protocol

from hermes.agent.ports_store import TranscriptStore
from hermes.events import SessionEvent
from hermes.messages import ClientAnswer, FileDiff, ImagePart, Question
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it: name, description, JSON schema of the parameters.

    ``accepts`` is the schema that calls are held against, where more is understood than is advertised."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    accepts: Mapping[str, Any] | None = None


class ParallelClass(Enum):
    FREE = "free"
    PATH_READ = "path_read"
    PATH_WRITE = "path_write"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class ToolFlags:
    parallel: ParallelClass = ParallelClass.BARRIER
    interactive: bool = False
    read_only: bool = False
    edits_files: bool = False
    untrusted_output: bool = False
    result_limit: int | None = 100_000
    """Characters of one result in the conversation; None: the tool limits itself."""
    toolset: str = "core"
    kind: Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"] = "other"
    """How an editor renders the call (ACP tool kind)."""


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """A child process a tool wants. ``timeout`` seconds or None; ``env`` is complete, nothing is inherited.

    ``stdin`` is all the input of a foreground process, and the beginning of that of a background one. ``movable_as`` is
    the command line as people may read it, of a foreground process that may move to the background while it runs;
    ``scratch`` a file that such a process leaves behind and nobody reads then."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float | None = None
    kill_grace: float | None = None
    stdin: bytes | None = None
    max_output_bytes: int = 400_000
    """Output kept in memory: head and tail; what lies between is counted and dropped."""
    pty: bool = False
    movable_as: str | None = None
    scratch: str | None = None
    columns: int = 80
    rows: int = 24


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a foreground process ended. ``exit_code`` is None if it was ended by a timeout or a cancel, or has not ended:
    then it is ``moved``, and runs on in the background under that id.

    ``output`` is head + tail with stdout and stderr in order; ``dropped_bytes`` lies between at ``head_bytes``.
    """

    exit_code: int | None
    output: bytes
    dropped_bytes: int = 0
    head_bytes: int = 0
    timed_out: bool = False
    duration_s: float = 0.0
    moved: BackgroundProcessInfo | None = None


@dataclass(frozen=True, slots=True)
class BackgroundProcessInfo:
    process_id: str
    command: str
    cwd: str
    pid: int | None
    started_at: float
    status: Literal["running", "exited", "killed", "lost"]
    exit_code: int | None = None
    output_preview: str = ""
    ended_at: float | None = None
    notify: bool = False


class BackgroundProcesses(Protocol):
    """The background processes of one session (agent-core §3.3). Unknown ids raise ``ProcessNotFound``."""

    async def start(self, request: ProcessRequest, *, command: str, notify: bool = False) -> BackgroundProcessInfo: ...

    def list(self) -> Sequence[BackgroundProcessInfo]: ...

    def get(self, process_id: str) -> BackgroundProcessInfo: ...

    def read_new(self, process_id: str) -> str:
        """Output since the last call of this method for this process."""
        ...

    def log(self, process_id: str) -> str:
        """All retained output (the newest 200 000 characters)."""
        ...

    def told(self, process_id: str) -> None:
        """The model has read that this process has ended: no turn has to tell it any more."""
        ...

    async def wait(self, process_id: str, timeout: float) -> BackgroundProcessInfo: ...

    async def kill(self, process_id: str) -> BackgroundProcessInfo: ...

    async def write(self, process_id: str, data: bytes) -> None: ...

    async def close_stdin(self, process_id: str) -> None: ...


class SessionMemory(Protocol):
    """What tools remember for one session. A plain attribute bag with a lifetime, never shared between sessions."""

    cwd: str
    env: dict[str, str]
    todos: list[dict[str, Any]]
    todo_revision: int
    file_reads: dict[str, Any]
    grants: set[str]
    """Approval pattern keys allowed for this session."""
    yolo: bool
    sudo_password: str | None
    denials_in_a_row: int
    extras: dict[str, Any]


class ToolContext(Protocol):
    """What one tool call may use. Everything that waits is cancelled with the call; a tool needs no code for that."""

    call_id: str
    turn_id: str
    session_key: str
    memory: SessionMemory
    settings: Any
    """``hermes.config.Settings`` at the start of the turn."""
    home: Path
    unattended: bool
    allow_clarify: bool
    source: str
    depth: int
    processes: BackgroundProcesses
    store: TranscriptStore
    answer: ClientAnswer | None
    """The outcome of the newest question, also where the call was cancelled while it waited."""

    def emit(self, event: SessionEvent) -> None: ...

    def progress(self, preview: str) -> None:
        """Show the newest output of the running call. Never waits; bursts are merged."""
        ...

    async def ask(self, question: Question) -> ClientAnswer:
        """Ask a human. Returns at once with ``NoClient`` where nobody can answer. Raises only ``Cancelled``."""
        ...

    async def run_process(self, request: ProcessRequest, on_output: Callable[[bytes], None]) -> ProcessOutcome:
        """Run a child to its end; the whole tree is gone when this returns or is cancelled.

        Raises ``OSError`` if it could not be started."""
        ...

    async def delegate(self, tasks: Sequence[Mapping[str, Any]], *, background: bool) -> Mapping[str, Any]:
        """Run child agents (agent-core §7); their nodes lie below this call."""
        ...

    async def ask_model(self, system: str, user: str, *, max_tokens: int, timeout: float) -> str:
        """One question to the auxiliary model, no tools. Raises ``ProviderError``."""
        ...

    async def client_tool(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A capability of the attached client (its file system, terminal, browser), or None if it offers none."""
        ...

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        ...


class ToolFailure(Exception):
    """Raised by a tool for a failure the model should read. ``content`` is the result text."""

    def __init__(self, content: str, *, status: Literal["error", "blocked"] = "error") -> None:
        self.content = content
        self.status = status
        super().__init__(content)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gives back; the tree makes it a ``ToolResult``."""

    content: str
    is_error: bool = False
    status: Literal["ok", "error", "blocked"] = "ok"
    summary: str | None = None
    diffs: tuple[FileDiff, ...] = ()
    images: tuple[ImagePart, ...] = ()
    details: Mapping[str, Any] | None = None


class Tool(Protocol):
    """A tool.

    Contract: ``run`` returns a result or raises ``ToolFailure``; any other exception becomes an error result.
    ``arguments`` are validated and coerced against ``spec.parameters`` before. ``preview`` gives the short human
    summary of a call; ``paths`` the files it touches (for parallel planning and editors), as the model wrote them.
    """

    spec: ToolSpec
    flags: ToolFlags

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str: ...

    def preview(self, arguments: Mapping[str, Any]) -> str: ...

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]: ...


class ToolSet(Protocol):
    """The tools of one session, in their pinned order."""

    def specs(self) -> tuple[ToolSpec, ...]: ...

    def find(self, name: str) -> Tool | None:
        """The tool of this name or alias (older names, case, separators)."""
        ...

    def names(self) -> Sequence[str]: ...
