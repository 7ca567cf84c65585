"""The servers of the home: one of each kind at a time, one life after the other, and what each must have left."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.chaos.trace import Trace, Violation
from tests.chaos.wall_clock import WallClock
from tests.support.server_process import (
    COMMAND,
    HttpServer,
    clean_environment,
    free_port,
    kill_leftovers,
    wait_for_health,
)

Frame = dict[str, Any]
KINDS = ("serve", "gateway", "acp")
START, END = 60.0, 30.0
CRASH = re.compile(r"Traceback \(most recent call last\)|\(log id [0-9a-f]{8}\)")


class Gone(Exception):
    """The connection has ended; what was asked may or may not have been done."""


class Life(HttpServer):
    """One server process. ``dying``: we have done something that ends it, so its clients may be cut off."""

    kind = ""
    number = 0
    dying = False
    ready = False
    """It has said something: a signal finds its handler."""
    baseline: tuple[int, int, int] | None = None

    def begin(self, kind: str, number: int) -> None:
        self.kind, self.number = kind, number
        self.name = f"{kind}-{number}"
        self.over = trio.Event()
        self.hear: Callable[[Frame], None] | None = None

    @property
    def alive(self) -> bool:
        return not self.dying and self.process.poll() is None

    def _keep(self, line: bytes) -> None:
        """Frames go to the one client of the process at once; nothing is kept, for it lives long."""
        try:
            frame = json.loads(line)
        except ValueError:
            frame = None
        if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
            self.stray.append(line.decode(errors="replace")[:200])
        else:
            self.ready = True
            if self.hear is not None:
                self.hear(frame)

    async def read_output(self) -> None:
        await super().read_output()
        self.over.set()

    def check_words(self) -> None:
        """Standard output carried frames only, and the log tells of no crash."""
        if self.stray and self.kind != "serve":
            raise Violation("I9", f"{self.name} wrote to standard output: {self.stray[:3]}")
        if crash := self.last_crash():
            raise Violation("crash", f"{self.name} logged one:\n{crash}")

    def last_crash(self) -> str:
        """What the log says of it; empty if there was none."""
        found = CRASH.search(self.stderr)
        return self.stderr[max(0, found.start() - 1000) : found.end() + 5000] if found else ""


class Lives:
    """Starts them, knows which are alive, ends them at the end."""

    def __init__(self, home: Path, environ: dict[str, str], trace: Trace, nursery: trio.Nursery) -> None:
        self.home = home
        self.current: dict[str, Life] = {}
        self.clock = WallClock.built(home.parent)
        self._environ = environ
        self._trace = trace
        self._nursery = nursery
        self._all: list[Life] = []
        self._starting = trio.Lock()

    async def ensure(self, kind: str) -> Life:
        async with self._starting:
            life = self.current.get(kind)
            return life if life is not None and life.alive else await self._start(kind)

    async def _start(self, kind: str) -> Life:
        arguments, port = [kind], 0
        if kind == "serve":
            port = free_port()
            arguments += ["--port", str(port)]
        # Python leaves half a file of byte code behind when the disk is full, for everybody who comes later.
        environ = clean_environment(self.home) | self._environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        if self.clock is not None:
            environ |= self.clock.environ
        pipe = subprocess.PIPE
        process = await trio.lowlevel.open_process(
            [str(COMMAND), *arguments], stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.home, env=environ,
            start_new_session=True,
        )  # fmt: skip
        life = Life(process, self.home)
        life.begin(kind, len(self._all) + 1)
        life.port = port
        self._all.append(life)
        self._trace.note(life.name, "start")
        self._nursery.start_soon(life.read_output)
        self._nursery.start_soon(life.read_errors)
        if kind == "serve":
            with trio.move_on_after(START) as waiting:
                await wait_for_health(life)
            if waiting.cancelled_caught:
                raise Violation("start", f"{life.name} does not answer after {START:.0f} s: {life.stderr[-3000:]}")
            life.ready = True
        self.current[kind] = life
        return life

    async def kill(self, life: Life) -> None:
        life.dying = True
        life.process.kill()
        await self._wait_end(life, None)

    async def stop(self, life: Life, number: int) -> None:
        """By a signal, in order: its exit status is 0."""
        life.dying = True
        life.process.send_signal(number)
        await self._wait_end(life, 0)

    async def hang_up(self, life: Life) -> None:
        """A host that goes away."""
        life.dying = True
        await life.close_input()
        await self._wait_end(life, 0)

    async def _wait_end(self, life: Life, expected: int | None) -> None:
        with trio.move_on_after(END) as waiting:
            code = await life.process.wait()
            await life.over.wait()
        if waiting.cancelled_caught:
            raise Violation("end", f"{life.name} lives {END:.0f} s after it was told to end: {life.stderr[-3000:]}")
        if expected is not None and code != expected:
            raise Violation("end", f"{life.name} ended with {code}: {life.stderr[-3000:]}")
        self._trace.tell(life.name, f"has ended with {code}")
        life.check_words()
        if self.current.get(life.kind) is life:
            del self.current[life.kind]

    def check_alive(self) -> None:
        """None has ended by itself."""
        for life in self.current.values():
            if not life.dying and life.process.poll() is not None:
                raise Violation("end", f"{life.name} ended by itself, {life.process.returncode}: {life.stderr[-3000:]}")

    async def close(self) -> None:
        for life in self._all:
            life.dying = True
            if life.process.returncode is None:
                life.process.kill()
                await life.process.wait()
        kill_leftovers(self.home)
        for life in self._all:
            for stream in (life.process.stdin, life.process.stdout, life.process.stderr):
                if stream is not None:
                    await trio.aclose_forcefully(stream)


@asynccontextmanager
async def home_servers(home: Path, environ: dict[str, str], trace: Trace) -> AsyncIterator[Lives]:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with trio.open_nursery() as nursery:
        lives = Lives(home, environ, trace, nursery)
        try:
            yield lives
        finally:
            with trio.CancelScope(shield=True):
                await lives.close()
            nursery.cancel_scope.cancel()
