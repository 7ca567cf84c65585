"""An editor at the installed ``hermes acp``; ``server_process`` holds every frame against the protocol's schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermes.testing import FakeProvider, Reply
from tests.support.server_process import ServerProcess, server_process

Frame = dict[str, Any]


class Editor:
    """A client of the process."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._number = 0

    async def start(self, method: str, **params: Any) -> int:
        self._number += 1
        frame = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        await self.server.send(frame)
        return self._number

    async def notify(self, method: str, **params: Any) -> None:
        await self.server.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def outcome(self, number: int) -> Frame:
        """The whole answer, error or result."""
        return await self.server.frame(lambda f: f.get("id") == number and "method" not in f)

    async def refused(self, method: str, **params: Any) -> Any:
        """The code of the error that the call is answered with."""
        frame = await self.outcome(await self.start(method, **params))
        assert "error" in frame, frame
        return frame["error"]["code"]

    async def asked(self, method: str, *, after: int = 0) -> Frame:
        """A request of the agent."""
        return await self.server.frame(lambda f: f.get("method") == method and "id" in f, after=after)

    async def reply(self, question: Frame, option: str) -> None:
        outcome = {"outcome": "selected", "optionId": option}
        await self.server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}})

    async def answer(self, number: int) -> Any:
        frame = await self.outcome(number)
        assert "error" not in frame, frame
        return frame["result"]

    async def call(self, method: str, **params: Any) -> Any:
        return await self.answer(await self.start(method, **params))

    async def new_session(self, cwd: Path) -> str:
        session: str = (await self.call("session/new", cwd=str(cwd), mcpServers=[]))["sessionId"]
        return session

    async def start_prompt(self, session: str, text: str) -> int:
        return await self.start("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    async def question(self, *, after: int = 0) -> Frame:
        return await self.asked("session/request_permission", after=after)

    async def update(self, kind: str, *, after: int = 0) -> Frame:
        found = await self.server.frame(
            lambda f: f.get("method") == "session/update" and f["params"]["update"]["sessionUpdate"] == kind,
            after=after,
        )
        update: Frame = found["params"]["update"]
        return update

    def updates(self, kind: str, *, after: int = 0) -> list[Frame]:
        found = [f["params"]["update"] for f in self.server.frames[after:] if f.get("method") == "session/update"]
        return [update for update in found if update["sessionUpdate"] == kind]

    def text(self, kind: str, *, after: int = 0) -> str:
        return "".join(update["content"]["text"] for update in self.updates(kind, after=after))


@asynccontextmanager
async def editor(
    home: Path, environ: Mapping[str, str] | None = None, *, capabilities: Mapping[str, Any] | None = None
) -> AsyncIterator[Editor]:
    async with server_process(home, "acp", environ=environ) as server:
        client = Editor(server)
        await client.call("initialize", protocolVersion=1, clientCapabilities=dict(capabilities or {}))
        yield client


def model_environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def tool(name: str, **arguments: Any) -> Reply:
    return Reply.of({"tool_call": {"name": name, "arguments": arguments}})


def said(text: str) -> Reply:
    return Reply.of({"text": text})
