"""A tool's context without a tree: real child processes through the real supervisor, answers from a script."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from hermes.agent.ports import BackgroundProcessInfo, ProcessOutcome, ProcessRequest
from hermes.agent.tools.services import ToolServices
from hermes.errors import ProcessNotFound
from hermes.events import SessionEvent
from hermes.messages import ClientAnswer, NoClient, Question
from hermes.nurseries.process_spec import ProcessSpec, Stdin, TerminalSize
from hermes.nurseries.process_tree import OwnerTag, read_stat
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.session_memory import SessionMemory
from hermes.settings import Settings


def make_services(home: Path, **changes: Any) -> ToolServices:
    """Services of a server whose user and agent live below ``home``."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OPENAI_API_KEY": "sk-never-shown-anywhere",
    }
    values: dict[str, Any] = {"environment": environment, "user_home": home, "agent_home": home / ".hermes"}
    return ToolServices(**{**values, **changes})


class FakeProcesses:
    """Background processes that never run: the test says what they do."""

    def __init__(self) -> None:
        self.started: list[tuple[ProcessRequest, str, bool]] = []
        self.infos: dict[str, BackgroundProcessInfo] = {}
        self.new: dict[str, str] = {}
        self.logs: dict[str, str] = {}
        self.written: list[bytes] = []
        self.closed: list[str] = []
        self.read_of: list[str] = []

    def add(self, process_id: str, **changes: Any) -> None:
        values: dict[str, Any] = {
            "process_id": process_id, "command": "serve", "cwd": "/", "pid": 7, "started_at": 0.0, "status": "running",
        }  # fmt: skip
        self.infos[process_id] = BackgroundProcessInfo(**{**values, **changes})

    async def start(self, request: ProcessRequest, *, command: str, notify: bool = False) -> BackgroundProcessInfo:
        self.started.append((request, command, notify))
        process_id = f"proc_{len(self.started):012x}"
        self.add(process_id, command=command)
        return self.infos[process_id]

    def list(self) -> Sequence[BackgroundProcessInfo]:
        return list(self.infos.values())

    def get(self, process_id: str) -> BackgroundProcessInfo:
        if process_id not in self.infos:
            raise ProcessNotFound()
        return self.infos[process_id]

    def read_new(self, process_id: str) -> str:
        return self.new.pop(process_id, "")

    def log(self, process_id: str) -> str:
        return self.logs.get(process_id, "")

    def told(self, process_id: str) -> None:
        self.read_of.append(process_id)

    async def wait(self, process_id: str, timeout: float) -> BackgroundProcessInfo:
        return self.get(process_id)

    async def kill(self, process_id: str) -> BackgroundProcessInfo:
        self.add(process_id, status="killed", exit_code=143)
        return self.get(process_id)

    async def write(self, process_id: str, data: bytes) -> None:
        self.written.append(data)

    async def close_stdin(self, process_id: str) -> None:
        self.closed.append(process_id)


class FakeToolContext:
    """Implements ``ports.ToolContext``. ``answers`` are given in order; without any nobody can answer."""

    def __init__(self, cwd: Path, home: Path, *, settings: Settings | None = None, memory: Any = None) -> None:
        self.call_id = "call_1"
        self.turn_id = "turn_1"
        self.session_key = "session_1"
        self.memory: Any = memory or SessionMemory(str(cwd))
        self.settings: Any = settings or Settings()
        self.home = home / ".hermes"
        self.unattended = False
        self.allow_clarify = True
        self.source = "tui"
        self.depth = 0
        self.processes: Any = FakeProcesses()
        self.store: Any = None
        self.events: list[SessionEvent] = []
        self.previews: list[str] = []
        self.asked: list[Question] = []
        self.answers: list[ClientAnswer] = []
        self.answer: ClientAnswer | None = None
        self.before_answer: Callable[[], Any] | None = None
        self.verdicts: list[str] = []
        self.client_tools: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
        self.delegated: list[tuple[Sequence[Mapping[str, Any]], bool]] = []
        self.requests: list[ProcessRequest] = []
        own = read_stat(os.getpid())
        self._supervisor = ProcessSupervisor(
            OwnerTag(os.getpid(), own.start if own else 0, "test", uuid.uuid4().hex), kill_grace=0.2
        )

    def beside(self, call_id: str) -> FakeToolContext:
        """Another call of the same session."""
        other = FakeToolContext(Path(self.memory.cwd), self.home.parent, settings=self.settings, memory=self.memory)
        other.call_id = call_id
        other.asked, other.answers, other.before_answer = self.asked, self.answers, self.before_answer
        return other

    def emit(self, event: SessionEvent) -> None:
        self.events.append(event)

    def progress(self, preview: str) -> None:
        self.previews.append(preview)

    async def ask(self, question: Question) -> ClientAnswer:
        self.asked.append(question)
        await trio.lowlevel.checkpoint()
        if self.before_answer is not None:
            await self.before_answer()
        return self.answers.pop(0) if self.answers else NoClient()

    async def run_process(self, request: ProcessRequest, on_output: Callable[[bytes], None]) -> ProcessOutcome:
        self.requests.append(request)
        output = bytearray()

        def take(chunk: bytes) -> None:
            output.extend(chunk)
            on_output(chunk)

        spec = ProcessSpec(
            request.argv,
            request.env,
            cwd=request.cwd,
            stdin=Stdin.NULL if request.stdin is None else request.stdin,
            terminal=TerminalSize() if request.pty else None,
            timeout=request.timeout,
            kill_grace=request.kill_grace,
        )
        began = trio.current_time()
        end = await self._supervisor.run(spec, take)
        code = None if end.timed_out else end.exit_code
        return ProcessOutcome(code, bytes(output), timed_out=end.timed_out, duration_s=trio.current_time() - began)

    async def delegate(self, tasks: Sequence[Mapping[str, Any]], *, background: bool) -> Mapping[str, Any]:
        self.delegated.append((tasks, background))
        return {"results": [{"task_index": index, "status": "completed"} for index, _ in enumerate(tasks)]}

    async def ask_model(self, system: str, user: str, *, max_tokens: int, timeout: float) -> str:
        await trio.lowlevel.checkpoint()
        return self.verdicts.pop(0)

    async def client_tool(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        tool = self.client_tools.get(name)
        return None if tool is None else await tool(params)

    def now(self) -> float:
        return 1_000_000.0
