"""An ACP client for tests: the real dispatcher over a channel in memory, every frame checked against the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.services import Services
from hermes.protocols.acp.surface import serve_stdio
from tests.support.acp_schema import CheckedConversation
from tests.support.memory_channel import MemoryChannel

Frame = dict[str, Any]
WITHIN = 20.0
"""Seconds after which a frame that does not come fails the test. Real ones: the surface looks at files in threads."""


class AcpClient:
    """What the agent sends is in ``frames``; questions of the agent are left to the test."""

    def __init__(self, channel: MemoryChannel, tree: ServerTree) -> None:
        self.channel = channel
        self.tree = tree
        self._checked = CheckedConversation()
        self._seen = 0
        self._next_id = 0

    @property
    def frames(self) -> list[Frame]:
        frames = self.channel.sent
        for frame in frames[self._seen :]:
            self._checked.agent_sent(frame)
        self._seen = len(frames)
        return frames

    # --- saying

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self._checked.client_sent(frame)
        self.channel.say(*frames)

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def start(self, method: str, **params: Any) -> int:
        """Send a request without waiting; its id."""
        self._next_id += 1
        self.send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return self._next_id

    async def request(self, method: str, **params: Any) -> Frame:
        return await self.answer(self.start(method, **params))

    async def call(self, method: str, **params: Any) -> Any:
        frame = await self.request(method, **params)
        assert "error" not in frame, frame
        return frame["result"]

    def reply(self, request: Frame, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    # --- hearing

    async def frame(self, matches: Callable[[Frame], bool], *, after: int = 0) -> Frame:
        with trio.fail_after(WITHIN):
            while True:
                for frame in self.frames[after:]:
                    if matches(frame):
                        return frame
                await self.channel.heard(len(self.channel.sent) + 1)

    async def answer(self, request_id: int) -> Frame:
        return await self.frame(lambda frame: frame.get("id") == request_id and "method" not in frame)

    async def asked(self, method: str, *, after: int = 0) -> Frame:
        """A request of the agent."""
        return await self.frame(lambda frame: frame.get("method") == method and "id" in frame, after=after)

    async def updated(self, kind: str, *, after: int = 0) -> Frame:
        found = await self.frame(
            lambda f: f.get("method") == "session/update" and f["params"]["update"]["sessionUpdate"] == kind,
            after=after,
        )
        update: Frame = found["params"]["update"]
        return update

    def updates(self, *kinds: str, after: int = 0) -> list[Frame]:
        return [
            frame["params"]["update"]
            for frame in self.frames[after:]
            if frame.get("method") == "session/update"
            and (not kinds or frame["params"]["update"]["sessionUpdate"] in kinds)
        ]

    def text(self, kind: str = "agent_message_chunk", *, after: int = 0) -> str:
        return "".join(update["content"].get("text", "") for update in self.updates(kind, after=after))

    # --- the usual

    async def hello(self, **capabilities: Any) -> Any:
        return await self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def new_session(self, cwd: str = "/tmp", **more: Any) -> str:
        result = await self.call("session/new", cwd=cwd, mcpServers=[], **more)
        session_id: str = result["sessionId"]
        return session_id

    def start_prompt(self, session_id: str, text: str) -> int:
        return self.start("session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])

    async def prompt(self, session_id: str, text: str) -> Any:
        frame = await self.answer(self.start_prompt(session_id, text))
        assert "error" not in frame, frame
        return frame["result"]


@asynccontextmanager
async def acp_client(services: Services, *, hello: bool = True) -> AsyncIterator[AcpClient]:
    """A client on a running server. At the end it hangs up, and the server must end by itself."""
    tree = ServerTree(services)
    channel = MemoryChannel("acp")
    client = AcpClient(channel, tree)

    async def surface() -> None:
        await serve_stdio(tree, channel)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run, tree, surface)
        if hello:
            await client.hello()
        yield client
        channel.hang_up()
        assert client.frames is not None


async def _run(tree: ServerTree, surface: Any) -> None:
    await tree.run([("acp", surface)], signals=False)


def permission(option: str) -> Mapping[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def tool_statuses(updates: Sequence[Frame], call_id: str) -> list[str]:
    """The statuses a call went through, as they were told."""
    return [u["status"] for u in updates if u.get("toolCallId") == call_id and "status" in u]
