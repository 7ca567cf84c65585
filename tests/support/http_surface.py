"""The whole HTTP surface on a real loopback port, over a server core with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
import trio
from openai import OpenAI

from hermes.agent.ports import Tool
from hermes.nurseries.run import Run
from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.channels.http_listener import ListenerLimits, listening_port, open_listeners
from hermes.protocols.http.call import HttpOptions
from hermes.protocols.http.surface import HttpSurface
from hermes.settings import Settings
from tests.support.core import Reply, ScriptedModel, make_services, running_tree

KEY = "a-key-for-tests-0123"
T = TypeVar("T")


@dataclass
class Surface:
    """A running surface and its clients."""

    surface: HttpSurface
    tree: ServerTree
    model: ScriptedModel
    port: int
    client: httpx2.AsyncClient

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def live_runs(self) -> list[Run]:
        return list(self.surface.api.runs.live())

    async def openai(self, use: Callable[[OpenAI], T]) -> T:
        """Run the official client, which is synchronous, in a thread."""

        def run() -> T:
            with OpenAI(api_key=KEY, base_url=f"{self.url}/v1", max_retries=0, timeout=20) as client:
                return use(client)

        return await trio.to_thread.run_sync(run)

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, headers=named)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    async def raw(self, method: str, path: str, body: Any = None, headers: str = "") -> trio.SocketStream:
        """A connection of its own with a request sent and nothing read."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {KEY}\r\n{headers}"
        await stream.send_all(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return stream

    async def until(self, ready: Callable[[], bool]) -> None:
        """Let the server go on until something is true of it."""
        with trio.fail_after(10):
            while not ready():
                await trio.sleep(0.002)

    async def ended(self, run_id: str, within: float = 10) -> dict[str, Any]:
        """The terminal status of a run."""
        with trio.fail_after(within):
            while True:
                status: dict[str, Any] = (await self.get(f"/v1/runs/{run_id}")).json()
                if status["status"] in ("completed", "failed", "cancelled", "interrupted"):
                    return status
                await trio.sleep(0.005)


@asynccontextmanager
async def http_surface(
    *replies: Reply,
    settings: Settings | None = None,
    tools: Sequence[Tool] = (),
    store: Any = None,
    limits: ListenerLimits | None = None,
    key: str = KEY,
    within: float = 30,
) -> AsyncIterator[Surface]:
    """A running surface; everything is cancelled at the end of the block, which may take ``within`` seconds."""
    services, model = make_services(*replies, settings=settings, tools=tools, store=store)
    limits = limits or ListenerLimits()
    with trio.fail_after(within):
        async with running_tree(services) as tree, trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1", 0, limits)
            port = listening_port(listeners)
            surface = HttpSurface(tree, HttpOptions(key=key, port=port, cwd=".", version="1.2.3"))
            await nursery.start(lambda task_status: surface.serve(listeners, limits=limits, task_status=task_status))
            headers = {"Authorization": f"Bearer {KEY}"}
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as client:
                yield Surface(surface, tree, model, port, client)
            nursery.cancel_scope.cancel()


@dataclass(frozen=True)
class Frame:
    """One server-sent event as received."""

    data: Any
    event: str | None = None
    id: str | None = None


def frames(text: str) -> list[Frame]:
    """The events of a stream; comments are left out. ``[DONE]`` stays text."""
    found: list[Frame] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            data = fields["data"]
            found.append(Frame(data if data == "[DONE]" else json.loads(data), fields.get("event"), fields.get("id")))
    return found
