"""The installed ``hermes`` command as a child process, for tests from outside.

``async with server_process(home, "gateway") as server:`` starts it with a home of its own and only a few variables of
ours, reads what it writes, and makes sure it is gone at the end. ``proc`` functions say what the machine still runs
for that home: every child inherits ``HERMES_HOME``, so an orphan is found even after its parents have gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from tests.support.acp_schema import CheckedTraffic
from tests.support.process_probe import is_zombie

Frame = dict[str, Any]
COMMAND = Path(sysconfig.get_path("scripts")) / "hermes"
START_TIMEOUT = 30.0
POLL = 0.02
_MAX_LINE = 384 * 1024 * 1024


class ServerProcess:
    """A running command. ``frames`` holds the JSON objects it has written, ``stray`` every other line on stdout."""

    def __init__(self, process: trio.Process, home: Path) -> None:
        self.process = process
        self.home = home
        self.frames: list[Frame] = []
        self.stray: list[str] = []
        self.stderr = ""
        self.output_ended = False
        self.traffic: CheckedTraffic | None = None
        """Of an editor's agent: whatever passes is held against the schema of its protocol."""
        self._changed = trio.Event()
        self._taken = 0
        self._next_id = 0
        self._sending = trio.Lock()

    @property
    def pid(self) -> int:
        return self.process.pid

    # --- what it writes

    async def wait_until(self, condition: Callable[[], bool], what: str = "a condition") -> None:
        """Wait until it holds; looked at again whenever something was written. Fails if the output ends first."""
        while not condition():
            if self.output_ended:
                # Who is cancelled by the one that has ended it is not to take that for a failure.
                await trio.lowlevel.checkpoint_if_cancelled()
                state = f"exit {self.process.poll()}"
                raise AssertionError(f"the output ended ({state}) before {what}; stderr:\n{self.stderr[-4000:]}")
            await self._changed.wait()

    async def wait_for_output(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds or nothing more can come."""
        while not condition() and not self.output_ended:
            await self._changed.wait()

    async def next_frame(self) -> Frame:
        """The next frame that no call of this method has returned yet."""
        await self.wait_until(lambda: len(self.frames) > self._taken, "another frame")
        self._taken += 1
        return self.frames[self._taken - 1]

    async def frame(self, matches: Callable[[Frame], bool], *, after: int = 0) -> Frame:
        """The first frame from position ``after`` on that matches, whether it came already or not."""
        await self.wait_until(lambda: any(map(matches, self.frames[after:])), "the expected frame")
        return next(filter(matches, self.frames[after:]))

    async def event(self, kind: str, *, after: int = 0) -> Frame:
        """The first gateway event of this type."""
        return await self.frame(
            lambda frame: frame.get("method") == "event" and frame["params"].get("type") == kind, after=after
        )

    # --- what it is told

    async def send(self, *frames: Frame) -> None:
        """Write frames in one piece, so that the server finds them in one read."""
        await self.send_bytes(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))

    async def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        if self.traffic is not None:
            self.traffic.to_agent(data)
        async with self._sending:
            await self.process.stdin.send_all(data)

    async def close_input(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.aclose()

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Frame:
        """Send a request and return its whole response frame, error or result."""
        self._next_id += 1
        number = self._next_id
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params or {})})
        return await self.frame(lambda frame: frame.get("id") == number and "method" not in frame)

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result of a request; an error fails the test."""
        response = await self.request(method, params)
        assert "error" not in response, response
        return response["result"]

    async def exit_code(self) -> int:
        """Wait for it to end by itself."""
        return await self.process.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.process.wait()

    # --- reading

    async def read_output(self) -> None:
        assert self.process.stdout is not None
        rest = b""
        # A test may close our end itself, to see what the server does then.
        with contextlib.suppress(trio.ClosedResourceError):
            async for chunk in self.process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                assert len(rest) <= _MAX_LINE
                for line in lines:
                    self._keep(line)
                self._wake()
        if rest:
            self._keep(rest)
        self.output_ended = True
        self._wake()

    async def read_errors(self) -> None:
        assert self.process.stderr is not None
        async for chunk in self.process.stderr:
            self.stderr = (self.stderr + chunk.decode(errors="replace"))[-1_000_000:]
            self._wake()

    def _keep(self, line: bytes) -> None:
        try:
            frame = json.loads(line)
        except ValueError:
            frame = None
        if isinstance(frame, dict):
            self.frames.append(frame)
            if self.traffic is not None:
                self.traffic.from_agent(frame)
        elif line.strip():
            self.stray.append(line.decode(errors="replace"))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class HttpServer(ServerProcess):
    """``hermes serve``: where it listens, and its key."""

    port: int = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.home / "server.key").read_text().strip()


@asynccontextmanager
async def server_process(
    home: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    command: Path = COMMAND,
) -> AsyncIterator[ServerProcess]:
    """``hermes *arguments`` with this home. Killed at the end if the test has not stopped it.

    ``command``: another ``hermes`` than the installed one.
    """
    async with _running(ServerProcess, home, (str(command), *arguments), environ, cwd) as server:
        yield server


@asynccontextmanager
async def http_server(
    home: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    command: Path = COMMAND,
) -> AsyncIterator[HttpServer]:
    """``hermes serve`` on a free port, ready to answer."""
    port = free_port()
    line = (str(command), "serve", "--port", str(port), *arguments)
    async with _running(HttpServer, home, line, environ, cwd) as server:
        server.port = port
        with trio.fail_after(START_TIMEOUT):
            await wait_for_health(server)
        yield server


Kind = TypeVar("Kind", bound=ServerProcess)


@asynccontextmanager
async def _running(
    kind: type[Kind], home: Path, line: Sequence[str], environ: Mapping[str, str] | None, cwd: Path | None
) -> AsyncIterator[Kind]:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    process = await trio.lowlevel.open_process(
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd or home,
        env=clean_environment(home) | dict(environ or {}),
        # Of its own, so that a signal to the test's group does not reach it.
        start_new_session=True,
    )
    server = kind(process, home)
    if line[1:2] == ("acp",):
        server.traffic = CheckedTraffic()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.read_output)
            nursery.start_soon(server.read_errors)
            try:
                yield server
                if server.traffic is not None:
                    server.traffic.assert_valid()
                    assert server.stray == []
            finally:
                with trio.CancelScope(shield=True):
                    if process.returncode is None:
                        process.kill()
                    await process.wait()
                kill_leftovers(home)
                # Nothing may wait in here after this: Cancelled would take the place of what the test has raised.
                nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    await trio.aclose_forcefully(stream)


def clean_environment(home: Path) -> dict[str, str]:
    """What a user's shell would give, without keys and settings of whoever runs the tests."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "COVERAGE_PROCESS_START")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    return environ | {"HERMES_HOME": str(home), "HOME": str(home)}


# --- HTTP ------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def wait_for_health(server: HttpServer) -> None:
    """Ask ``GET /health`` until it answers 200. Fails at once if the process has ended."""
    while await http_status(server.port, "/health") != 200:
        if server.process.poll() is not None:
            await server.wait_until(lambda: server.output_ended)
            raise AssertionError(f"hermes serve ended with {server.process.returncode}:\n{server.stderr[-4000:]}")
        await trio.sleep(POLL)


async def http_status(port: int, path: str) -> int | None:
    """The status of one GET, or None if nobody answers."""
    with contextlib.suppress(OSError, trio.BrokenResourceError):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
            )
            head = b""
            async for chunk in stream:
                head += chunk
            if match := re.match(rb"HTTP/1\.\d (\d{3})", head):
                return int(match[1])
    return None


# --- /proc -----------------------------------------------------------------------------------------------------------


def processes_of(home: Path) -> dict[int, str]:
    """Living processes whose environment names this home: pid and command line."""
    mark = f"HERMES_HOME={home}".encode()
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0") and not is_zombie(int(name)):
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                found[int(name)] = line.decode(errors="replace").strip()
    return found


def children_of(server: ServerProcess) -> dict[int, str]:
    """What runs for the home beside the server itself."""
    return {pid: line for pid, line in processes_of(server.home).items() if pid != server.pid}


async def assert_no_children(server: ServerProcess, *, within: float = 5.0) -> None:
    """No process of this home but the server is left, at the latest after ``within`` seconds."""
    with trio.move_on_after(within):
        while children_of(server):
            await trio.sleep(POLL)
    left = children_of(server)
    assert left == {}, f"{left}, tags: {[tag_of(pid) for pid in left]}"


def tag_of(pid: int) -> list[str]:
    """Which server has started this process, by its environment."""
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return [one.decode() for one in found if one.startswith(b"HERMES_PROCESS_TAG=")]
    return []


def connections_to(pid: int, port: int) -> int:
    """Established TCP connections of a process to a port of this machine."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor)):
                inodes.add(match[1])
    count = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            established = fields[3] == "01"
            count += established and int(fields[2].rpartition(":")[2], 16) == port and fields[9] in inodes
    return count


async def assert_no_connection_to(server: ServerProcess, port: int, *, within: float = 5.0) -> None:
    """The server holds no connection to this port (a model provider's), at the latest after ``within`` seconds."""
    with trio.move_on_after(within):
        while connections_to(server.pid, port):
            await trio.sleep(POLL)
    assert connections_to(server.pid, port) == 0


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def kill_leftovers(home: Path) -> None:
    for pid in processes_of(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def scripted_model(home: Path, script: str) -> AsyncIterator[ServerProcess]:
    """``hermes fake-provider`` with this script, as a process; its first line on stdout names its address."""
    path = home / "script.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    await trio.to_thread.run_sync(partial(path.write_text, script, encoding="utf-8"))
    async with server_process(home, "fake-provider", "--script", str(path)) as provider:
        with trio.fail_after(START_TIMEOUT):
            await provider.wait_until(lambda: bool(provider.stray), "the provider's address")
        yield provider
