"""The processes of one session without a session: real children, a clock that the test turns."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from hermes.agent.ports import BackgroundProcessInfo, ProcessRequest
from hermes.errors import SessionClosing
from hermes.events import SessionEvent
from hermes.nurseries.background_process import BackgroundProcess
from hermes.nurseries.ids import counting_ids
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.nurseries.session_processes import SessionProcesses
from hermes.nurseries.turn_slot import TurnSlot


@dataclass(frozen=True)
class Hiding:
    redact: Callable[[str], str]


class Owner:
    """A session as far as processes need one."""

    key = "20260101_000000_000001"

    def __init__(self, nursery: trio.Nursery, hide: Callable[[str], str]) -> None:
        self.services = Hiding(hide)
        self.scope = ReasonScope("session", "s", None, tree=LiveTree())
        self.events: list[SessionEvent] = []
        self.finished: list[tuple[BackgroundProcessInfo, str]] = []
        self.slot = TurnSlot(max_queued=4)
        self.closing = False
        self._nursery = nursery

    async def start_background_process(self, process: BackgroundProcess, name: str) -> None:
        await self._nursery.start(process.supervise)

    def start_soon(self, fn: Callable[..., Any], *args: Any, name: str) -> None:
        if self.closing:
            raise SessionClosing
        self._nursery.start_soon(fn, *args, name=name)

    async def supervise_process(self, process: BackgroundProcess, name: str) -> None:
        await process.supervise()

    def emit(self, event: SessionEvent) -> int:
        self.events.append(event)
        return len(self.events)

    def process_finished(self, info: BackgroundProcessInfo, output: str) -> None:
        self.finished.append((info, output))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def session_processes(
    tmp_path: Path, hide: Callable[[str], str] = str
) -> AsyncIterator[tuple[SessionProcesses, Owner, Clock]]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            owner, clock = Owner(nursery, hide), Clock()
            supervisor = ProcessSupervisor(owner_tag(str(tmp_path)), kill_grace=0.2)
            yield SessionProcesses(owner, supervisor, counting_ids(), clock), owner, clock
            nursery.cancel_scope.cancel()


def shell(script: str, **options: object) -> ProcessRequest:
    environment = {"PATH": os.environ["PATH"]}
    return ProcessRequest(("/bin/sh", "-c", script), cwd="/", env=environment, **options)  # type: ignore[arg-type]


def ignore(_chunk: bytes) -> None: ...


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.sleep(0.005)
