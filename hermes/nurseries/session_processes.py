"""The child processes of one session: what its tools run, in the foreground and beside the conversation.

Background processes belong to the session: they live in its nursery, another session cannot name them, and closing the
session ends them. A view for one turn remembers which of them that turn started, for the stops that reach them.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import trio

from hermes.agent.ports import BackgroundProcessInfo, ProcessOutcome, ProcessRequest
from hermes.agent.redaction_stream import RedactedStream
from hermes.errors import ProcessNotFound, Unsupported
from hermes.events import ProcessEnded, ProcessOutput, SessionEvent
from hermes.nurseries.background_process import BackgroundProcess
from hermes.nurseries.process_output import OutputBuffer
from hermes.nurseries.process_roster import Entry
from hermes.nurseries.process_spec import ProcessSpec, Stdin, TerminalSize
from hermes.nurseries.processes import Handover, ProcessSupervisor, Streams
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.turn_slot import TurnSlot

BUFFER_BYTES = 200_000
KEPT_FINISHED_S = 1800.0
MAX_KEPT = 64
PREVIEW_CHARS = 1000
SHOWN_CHUNK = 8192
WRITTEN_WITHIN = 10.0
"""Seconds that a process has to read what is written to it."""


class Redacting(Protocol):
    @property
    def redact(self) -> Callable[[str], str]: ...


class ProcessOwner(Protocol):
    """What the processes of a session need of it."""

    key: str
    scope: ReasonScope
    slot: TurnSlot

    @property
    def services(self) -> Redacting: ...

    async def start_background_process(self, process: BackgroundProcess, name: str) -> None: ...

    def start_soon(self, fn: Callable[..., Any], *args: Any, name: str) -> None: ...

    async def supervise_process(self, process: BackgroundProcess, name: str) -> None: ...

    def emit(self, event: SessionEvent) -> int: ...

    def process_finished(self, info: BackgroundProcessInfo, output: str) -> None: ...


class HeadAndTail:
    """Output bounded in memory: the first and the last bytes, what lies between is counted and dropped."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit * 2 // 5
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.dropped = 0

    def add(self, chunk: bytes) -> None:
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail += chunk[-self._tail_limit :]
            self.dropped += max(0, len(chunk) - self._tail_limit)
            if len(self._tail) > 2 * self._tail_limit:
                self._trim()

    def take(self) -> tuple[bytes, int]:
        """The bytes kept, and how many of them are head."""
        self._trim()
        return bytes(self._head + self._tail), len(self._head)

    def _trim(self) -> None:
        surplus = len(self._tail) - self._tail_limit
        if surplus > 0:
            del self._tail[:surplus]
            self.dropped += surplus


class ShownOutput:
    """The output of a background process as everybody sees it: whole characters, secrets masked wherever they were
    cut. The newest of it is kept."""

    def __init__(self, redact: Callable[[str], str], show: Callable[[str], None]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stream = RedactedStream(redact)
        self._show = show
        self._kept = OutputBuffer(BUFFER_BYTES)

    def add(self, chunk: bytes) -> None:
        self._add(self._stream.feed(self._decoder.decode(chunk)))

    def add_seen(self, output: bytes) -> None:
        """What was shown elsewhere already; it is only kept."""
        show, self._show = self._show, _nobody
        self.add(output)
        self._show = show

    def end(self) -> None:
        """The command has ended: what was held back is given out."""
        self._add(self._stream.feed(self._decoder.decode(b"", True)) + self._stream.end())

    @property
    def total(self) -> int:
        return self._kept.total

    def since(self, position: int) -> str:
        return self._kept.since(position)[0].decode("utf-8", "replace")

    def tail(self, limit: int) -> str:
        return self._kept.tail(limit).decode("utf-8", "replace")

    def _add(self, text: str) -> None:
        self._kept.append(text.encode("utf-8", "replace"))
        for at in range(0, len(text), SHOWN_CHUNK):
            self._show(text[at : at + SHOWN_CHUNK])


def _nobody(_text: str) -> None:
    """Shown to nobody."""


class Kept:
    """One background process and what is remembered of it."""

    __slots__ = (
        "command",
        "ended_at",
        "killed",
        "notify",
        "output",
        "process",
        "read_to",
        "scratch",
        "started_at",
        "turn_id",
    )

    def __init__(
        self, process: BackgroundProcess, output: ShownOutput, command: str, turn_id: str, notify: bool, now: float
    ) -> None:
        self.process = process
        self.output = output
        self.command = command
        self.turn_id = turn_id
        self.notify = notify
        self.started_at = now
        self.ended_at: float | None = None
        self.killed = False
        self.read_to = 0
        self.scratch: str | None = None
        """A file of the command that goes with it."""

    @property
    def was_killed(self) -> bool:
        """By whoever asked for it by name, or with its node."""
        return self.killed or self.process.killed


class SessionProcesses:
    """All processes of one session. ``for_turn`` gives the view that a turn's tools use."""

    def __init__(
        self, owner: ProcessOwner, supervisor: ProcessSupervisor, ids: Callable[[str], str], now: Callable[[], float]
    ) -> None:
        self._now = now
        self._owner = owner
        self._supervisor = supervisor
        self._ids = ids
        self._kept: dict[str, Kept] = {}
        self._movable: dict[str, tuple[str, Handover]] = {}
        """Foreground commands that may move to the background: (turn, how), by the node they run for."""
        self._size: TerminalSize | None = None

    def for_turn(self, turn_id: str) -> TurnProcesses:
        return TurnProcesses(self, turn_id)

    async def run_foreground(
        self, request: ProcessRequest, on_output: Callable[[bytes], None], *, turn_id: str, node: ReasonScope
    ) -> ProcessOutcome:
        """Run to the end; on return, and on cancel, nothing of it is left. Raises ``SpawnFailed`` (an ``OSError``).

        One that was moved to the background meanwhile is left running, and the outcome says so.
        """
        kept = HeadAndTail(request.max_output_bytes)

        def take(chunk: bytes) -> None:
            kept.add(chunk)
            on_output(chunk)

        began = trio.current_time()
        stdin = request.stdin if request.stdin is not None else Stdin.NULL
        spec = self._spec(request, turn_id, stdin=stdin, node_id=node.node_id)
        node.pids = lambda: self._supervisor.pids_of_node(node.node_id)
        node.limit = float("inf") if request.timeout is None else began + request.timeout
        moved: list[str] = []

        def move(entry: Entry, streams: Streams) -> None:
            moved.append(self._adopt(entry, streams, request, turn_id, kept.take()[0]))

        handover = Handover(move) if request.movable_as is not None else None
        if handover is not None:
            self._movable[node.node_id] = turn_id, handover
        try:
            end = await self._supervisor.run_or_hand_over(spec, take, handover)
        finally:
            self._movable.pop(node.node_id, None)
        node.limit = float("inf")
        output, head = kept.take()
        if end is None:
            info = self.get(moved[0])
            return ProcessOutcome(None, output, kept.dropped, head, duration_s=trio.current_time() - began, moved=info)
        return ProcessOutcome(
            exit_code=None if end.timed_out else end.exit_code,
            output=output,
            dropped_bytes=kept.dropped,
            head_bytes=head,
            timed_out=end.timed_out,
            duration_s=trio.current_time() - began,
        )

    def move_to_background(self, turn_id: str) -> int:
        """Ask the foreground commands of a turn to go on in the background, so that its tools return; returns how many.

        Only those that may; a command that ends at the same moment has simply ended."""
        asked = [handover for turn, handover in self._movable.values() if turn == turn_id]
        for handover in asked:
            handover.asked.set()
        return len(asked)

    def _adopt(self, entry: Entry, streams: Streams, request: ProcessRequest, turn_id: str, seen: bytes) -> str:
        """A running command becomes a background process of the session, with what it has said; returns its id.

        Raises ``SessionClosing``; then it has not.
        """
        now = self._now()
        self._forget_old(now)
        self._make_room()
        process_id = self._ids("proc")
        shown = ShownOutput(self._owner.services.redact, lambda text: self._tell(ProcessOutput(process_id, text)))
        process = BackgroundProcess(
            self._supervisor,
            replace(entry.spec, stdin=Stdin.NULL, timeout=None),
            buffer_bytes=0,
            on_output=shown.add,
            on_exit=lambda _process: self._exited(process_id),
        )
        name = f"process {process_id}"
        kept = Kept(process, shown, request.movable_as or "", turn_id, True, now)
        kept.scratch = request.scratch

        def keep(said: bytes) -> None:
            shown.add_seen(said)
            kept.read_to = shown.total

        self._owner.start_soon(self._owner.supervise_process, process, name, name=name)
        process.adopt(entry, streams, seen, keep)
        self._kept[process_id] = kept
        return process_id

    async def start(
        self, request: ProcessRequest, *, command: str, notify: bool, turn_id: str
    ) -> BackgroundProcessInfo:
        now = self._now()
        self._forget_old(now)
        self._make_room()
        process_id = self._ids("proc")

        shown = ShownOutput(self._owner.services.redact, lambda text: self._tell(ProcessOutput(process_id, text)))
        process = BackgroundProcess(
            self._supervisor,
            replace(self._spec(request, turn_id, stdin=Stdin.PIPE), first_input=request.stdin or b""),
            buffer_bytes=0,
            on_output=shown.add,
            on_exit=lambda _process: self._exited(process_id),
        )
        kept = self._kept[process_id] = Kept(process, shown, command, turn_id, notify, now)
        try:
            await self._owner.start_background_process(process, f"process {process_id}")
        except BaseException:
            del self._kept[process_id]
            raise
        return self._info(process_id, kept)

    # --- looking and acting ---

    def list(self) -> Sequence[BackgroundProcessInfo]:
        self._forget_old(self._now())
        return [self._info(process_id, kept) for process_id, kept in self._kept.items()]

    def running(self) -> Iterator[tuple[str, BackgroundProcess]]:
        for process_id, kept in list(self._kept.items()):
            if kept.process.running:
                yield process_id, kept.process

    def get(self, process_id: str) -> BackgroundProcessInfo:
        full, kept = self._find(process_id)
        return self._info(full, kept)

    def read_new(self, process_id: str) -> str:
        _, kept = self._find(process_id)
        new = kept.output.since(kept.read_to)
        kept.read_to = kept.output.total
        return new

    def log(self, process_id: str) -> str:
        _, kept = self._find(process_id)
        return kept.output.tail(BUFFER_BYTES)

    def told(self, process_id: str) -> None:
        """The model has read of this end by itself; it is not announced (again)."""
        full, kept = self._find(process_id)
        if kept.notify:
            kept.notify = False
            self._owner.slot.drop_notice("process_id", full)

    async def wait(self, process_id: str, timeout: float) -> BackgroundProcessInfo:
        full, kept = self._find(process_id)
        with trio.move_on_after(timeout):
            await kept.process.wait()
        return self._info(full, kept)

    async def kill(self, process_id: str) -> BackgroundProcessInfo:
        full, kept = self._find(process_id)
        kept.killed = kept.killed or kept.process.running
        await kept.process.kill()
        return self._info(full, kept)

    async def write(self, process_id: str, data: bytes) -> None:
        _, kept = self._find(process_id)
        try:
            with trio.move_on_after(WRITTEN_WITHIN) as limit:
                await kept.process.write(data)
            if limit.cancelled_caught:
                raise Unsupported(f"this process did not read its input within {WRITTEN_WITHIN:g} s")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Unsupported("this process does not read input any more") from None

    async def close_stdin(self, process_id: str) -> None:
        _, kept = self._find(process_id)
        await kept.process.close_stdin()

    def resize(self, columns: int, rows: int) -> None:
        """A terminal client changed its size: every pty of the session follows, later ones begin with it."""
        self._size = TerminalSize(rows=rows, columns=columns)
        self._supervisor.resize(self._owner.key, self._size)

    async def stop_turn(self, turn_id: str) -> int:
        """End the background processes that this turn started."""
        return await self._stop([kept for kept in self._kept.values() if kept.turn_id == turn_id])

    def has_of_turn(self, turn_id: str) -> bool:
        """Whether anything is left of the background processes that this turn started."""
        return any(kept.turn_id == turn_id and not kept.process.gone for kept in self._kept.values())

    async def stop_all(self) -> int:
        """End every background process of the session, and what ended ones have left behind; returns how many."""
        return await self._stop(list(self._kept.values()))

    async def _stop(self, chosen: Sequence[Kept]) -> int:
        left = [kept for kept in chosen if not kept.process.gone]
        for kept in left:
            kept.killed = kept.killed or kept.process.running
            kept.process.stop()
        for kept in left:
            await kept.process.kill()
        return len(left)

    # --- inside ---

    def _spec(self, request: ProcessRequest, turn_id: str, *, stdin: Stdin | bytes, node_id: str = "") -> ProcessSpec:
        return ProcessSpec(
            argv=request.argv,
            env=request.env,
            cwd=request.cwd,
            session_id=self._owner.key,
            turn_id=turn_id,
            node_id=node_id,
            stdin=stdin,
            terminal=(self._size or TerminalSize(request.rows, request.columns)) if request.pty else None,
            timeout=request.timeout,
            kill_grace=request.kill_grace,
        )

    def _find(self, process_id: str) -> tuple[str, Kept]:
        self._forget_old(self._now())
        kept = self._kept.get(process_id)
        if kept is not None:
            return process_id, kept
        matches = [name for name in self._kept if process_id and name.startswith(process_id)]
        if len(matches) != 1:
            raise ProcessNotFound(f"no process {process_id}" if not matches else f"{process_id} is ambiguous")
        return matches[0], self._kept[matches[0]]

    def _info(self, process_id: str, kept: Kept) -> BackgroundProcessInfo:
        process = kept.process
        status: Literal["running", "exited", "killed", "lost"] = "killed" if kept.was_killed else "exited"
        if process.running:
            status = "running"
        return BackgroundProcessInfo(
            process_id=process_id,
            command=kept.command,
            cwd=process.spec.cwd or "",
            pid=process.pid,
            started_at=kept.started_at,
            status=status,
            exit_code=process.exit_code,
            output_preview=kept.output.tail(PREVIEW_CHARS),
            ended_at=kept.ended_at,
            notify=kept.notify,
        )

    def _exited(self, process_id: str) -> None:
        kept = self._kept.get(process_id)
        if kept is None:
            return
        kept.ended_at = self._now()
        if kept.scratch is not None:
            Path(kept.scratch).unlink(missing_ok=True)
        kept.output.end()
        info = self._info(process_id, kept)
        self._owner.emit(ProcessEnded(process_id, info.exit_code, kept.command))
        if kept.notify and not kept.was_killed:
            self._owner.process_finished(info, kept.output.tail(BUFFER_BYTES))

    def _tell(self, event: SessionEvent) -> None:
        self._owner.emit(event)

    def _forget_old(self, now: float) -> None:
        for name, kept in self._finished():
            if now - (kept.ended_at or now) > KEPT_FINISHED_S:
                del self._kept[name]

    def _make_room(self) -> None:
        """For one more: those that ended first are forgotten first."""
        finished = sorted(self._finished(), key=lambda one: one[1].ended_at or 0.0)
        for name, _ in finished[: max(0, len(self._kept) - MAX_KEPT + 1)]:
            del self._kept[name]

    def _finished(self) -> Sequence[tuple[str, Kept]]:
        return [(name, kept) for name, kept in self._kept.items() if kept.process.gone]


class TurnProcesses:
    """The session's background processes as one turn sees them; implements ``ports.BackgroundProcesses``."""

    def __init__(self, all_: SessionProcesses, turn_id: str) -> None:
        self._all = all_
        self._turn_id = turn_id
        self.list = all_.list
        self.get = all_.get
        self.read_new = all_.read_new
        self.log = all_.log
        self.told = all_.told
        self.wait = all_.wait
        self.kill = all_.kill
        self.write = all_.write
        self.close_stdin = all_.close_stdin

    async def start(self, request: ProcessRequest, *, command: str, notify: bool = False) -> BackgroundProcessInfo:
        return await self._all.start(request, command=command, notify=notify, turn_id=self._turn_id)
