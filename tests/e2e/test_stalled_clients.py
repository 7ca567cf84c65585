"""Many WebSocket clients on one session, some of which stop reading: these are closed with 1011, recover by replay and
end with the same sequence as everybody else; nobody else notices. ``PROOF=1`` runs 200 clients, 20 of which stall.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support import crowd_readers
from tests.support.gateway_reader import Reader
from tests.support.server_process import HttpServer, http_server

pytestmark = pytest.mark.e2e
CLIENTS, STALLED, RESTLESS, CALM_PROCESSES = (200, 20, 20, 2) if os.environ.get("PROOF") else (24, 3, 4, 1)
DEADLINE = 5
"""The deadline for a write, seconds."""
TURNS = 3
PIECES, PIECE = 50, 4096
"""Three turns are more than a pipe holds, and less than the server keeps for replay."""
CONFIG = f"limits:\n  write_deadline: {DEADLINE}\n"
ROOM = 64 * 1024 * 1024
"""Bytes by which the server may grow from the moment when all clients are there: each of those that stall has its
mailbox and no copy of what was said since, which would be more than this for the twenty of them."""


def script(mark: Path) -> Script:
    """Each turn speaks, runs a command, and speaks again."""
    dice = random.Random(7)
    replies = []
    for turn in range(TURNS):
        spoken: list[dict[str, Any]] = []
        for number in range(PIECES):
            spoken += [{"text": [f"{turn}.{number}:{dice.randbytes(PIECE // 2).hex()} "]}, {"delay": 0.01}]
        call = {"tool_call": {"name": "terminal", "arguments": {"command": f"echo {turn} >> {mark}"}}}
        replies += [Reply.of(*spoken, call), Reply.of({"text": [f"turn {turn} is done. "]})]
    return Script(replies=replies)


class Crowd:
    """A process with many readers of the session."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._rest = b""

    async def line(self) -> str:
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            data = await self.process.stdout.receive_some()
            assert data, f"the readers have ended: {await self.process.wait()}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    async def wake(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(b"wake\n")


@asynccontextmanager
async def crowd(server: HttpServer, key: str, names: list[str], kind: str, seed: int) -> AsyncIterator[Crowd]:
    """All of them have joined when it is entered."""
    program = Path(str(crowd_readers.__file__))
    process = await trio.lowlevel.open_process(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    readers = [{"name": name, "kind": kind, "seed": seed + number} for number, name in enumerate(names)]
    job = {"port": server.port, "key": server.key, "session": key, "turns": TURNS, "readers": readers}
    try:
        assert process.stdin is not None
        await process.stdin.send_all(json.dumps(job).encode() + b"\n")
        made = Crowd(process)
        assert await made.line() == "joined"
        yield made
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await trio.aclose_forcefully(stream)


def given_up(server: HttpServer) -> int:
    return len(re.findall(r"has read nothing for|does not read; closed", server.stderr))


def most_memory(server: HttpServer) -> int:
    """The most memory that the server has had so far."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("this system does not tell")


class Story:
    def __init__(self, server: HttpServer, seed: int) -> None:
        self.server = server
        self.seed = seed
        self.seen: list[dict[str, Any]] = []
        self.grown = 0

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.seen if one["kind"] == kind]

    async def run(self) -> None:
        host = Reader(self.server, "host", turns=TURNS)
        async with AsyncExitStack() as stack:
            socket = await stack.enter_async_context(host.connected())
            made, _ = await host.call(socket, 1, "session.create")
            key, session_id = made["stored_session_id"], made["session_id"]

            async def join(names: list[str], kind: str) -> Crowd:
                return await stack.enter_async_context(crowd(self.server, key, names, kind, self.seed))

            asleep = await join([f"stalled {n}" for n in range(STALLED)], "stalled")
            calm = [f"calm {n}" for n in range(CLIENTS - STALLED - RESTLESS)]
            others = [await join(calm[n::CALM_PROCESSES], "calm") for n in range(CALM_PROCESSES)]
            others.append(await join([f"restless {n}" for n in range(RESTLESS)], "restless"))
            before = most_memory(self.server)
            for turn in range(TURNS):
                await host.call(socket, 2 + turn, "prompt.submit", session_id=session_id, text=f"turn {turn}")
                await self.to_the_end(socket)
            for one in others:
                self.seen += json.loads(await one.line())
            await self.server.wait_until(lambda: given_up(self.server) >= STALLED)
            self.grown = most_memory(self.server) - before
            await asleep.wake()
            self.seen += json.loads(await asleep.line())

    async def to_the_end(self, socket: Any) -> None:
        """It has called: what came before an answer it has not taken. It only waits for the ends."""
        while True:
            params = json.loads(await socket.get_message()).get("params", {})
            if params.get("type") == "message.complete":
                assert params["payload"]["status"] == "complete"
                return


@pytest.mark.fault("B-144")
async def test_clients_that_stall_are_told_and_lose_nothing_and_nobody_else_notices(tmp_path: Path) -> None:
    seed = int(os.environ.get("REPLAY_SEED") or random.SystemRandom().randrange(2**32))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(CONFIG)
    mark = tmp_path / "mark"
    try:
        with trio.fail_after(120 + 2 * CLIENTS):
            async with FakeProvider(script(mark)) as provider:
                environ = {
                    "OPENAI_BASE_URL": provider.base_url,
                    "OPENAI_API_KEY": "k" * 20,
                    "HERMES_MODEL": "fake-model",
                }
                async with http_server(home, environ=environ) as server:
                    story = Story(server, seed)
                    await story.run()
                    assert [one["code"] for one in story.of("stalled")] == [1011] * STALLED
                    assert given_up(server) == STALLED, "one that reads was closed"
                    first = story.of("calm")[0]
                    assert first["length"] > TURNS * PIECES * PIECE
                    assert [kind for _seq, kind in first["marks"]].count("tool.complete") == TURNS
                    assert len(story.seen) == CLIENTS
                    for one in story.seen:
                        assert one["said"] == first["said"], one["name"]
                        assert one["marks"] == first["marks"], one["name"]
                    assert all(one["reconnects"] == 0 for one in story.of("calm"))
                    assert any(one["reconnects"] > 1 for one in story.of("restless"))
                    assert mark.read_text() == "".join(f"{turn}\n" for turn in range(TURNS))
                    print(f"{CLIENTS} clients, {STALLED} stalled: {story.grown / 1e6:.1f} MB more at most")
                    assert story.grown < ROOM
    except BaseException as error:
        error.add_note(f"REPLAY_SEED={seed}")
        raise
