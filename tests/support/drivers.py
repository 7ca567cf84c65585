"""One way to drive a real server over each of its surfaces: start a prompt, stop it, read its one end.

A driver speaks its protocol as a host would and knows nothing of the server's inside. ``terminal`` gives the end of the
turn in the same words for every surface: ``status`` and ``cause``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2
import trio
import trio_websocket

from tests.support.server_process import COMMAND, HttpServer, ServerProcess, http_server, server_process
from tests.support.sse_client import StreamingAnswer, streaming

Frame = dict[str, Any]


class Driver(Protocol):
    """One conversation over one surface."""

    server: ServerProcess

    async def start(self, text: str) -> None:
        """Submit a prompt; returns when it was accepted, at the first try."""
        ...

    async def wait_for_tool(self) -> None: ...

    async def wait_for_question(self) -> None: ...

    async def stop(self) -> None:
        """Stop as a person would; returns when the stop was acknowledged."""
        ...

    async def terminal(self) -> dict[str, Any]:
        """The end of the turn, and that it came once."""
        ...


class GatewayDriver:
    """The gateway, over any channel that gives frames in order."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.frames: list[Frame] = []
        self.session_id = ""
        self._arrived = trio.Event()
        self._last_id = 0
        self._turn_from = 0

    async def send(self, frame: Frame) -> None:
        raise NotImplementedError

    def keep(self, frame: Frame) -> None:
        self.frames.append(frame)
        self._arrived.set()
        self._arrived = trio.Event()

    async def find(self, matches: Any, after: int = 0) -> Frame:
        """The first frame from ``after`` on that matches, however long it takes."""
        at = after
        while True:
            while at < len(self.frames):
                if matches(self.frames[at]):
                    return self.frames[at]
                at += 1
            await self._arrived.wait()

    async def event(self, kind: str, after: int = 0) -> Frame:
        return await self.find(lambda frame: frame.get("params", {}).get("type") == kind, after)

    async def request(self, method: str, params: Mapping[str, Any]) -> Frame:
        self._last_id += 1
        number, at = self._last_id, len(self.frames)
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)})
        return await self.find(lambda frame: frame.get("id") == number and "method" not in frame, at)

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        response = await self.request(method, params)
        assert "error" not in response, response
        return response["result"]

    async def start(self, text: str) -> None:
        if not self.session_id:
            await self.call("client.capabilities", {"server_requests": True})
            self.session_id = (await self.call("session.create", {"cwd": str(self.server.home)}))["session_id"]
        self._turn_from = len(self.frames)
        result = await self.call("prompt.submit", {"session_id": self.session_id, "text": text})
        assert result["status"] == "streaming", result

    async def wait_for_tool(self) -> None:
        await self.event("tool.start", self._turn_from)

    async def wait_for_question(self) -> None:
        await self.find(lambda frame: frame.get("method") == "approval", self._turn_from)

    async def stop(self) -> None:
        result = await self.call("session.interrupt", {"session_id": self.session_id, "reason": "test"})
        assert result["status"] == "interrupted", result

    async def terminal(self) -> dict[str, Any]:
        frame = await self.event("message.complete", self._turn_from)
        await self.call("ping", {})
        ends = [
            one for one in self.frames[self._turn_from :] if one.get("params", {}).get("type") == "message.complete"
        ]
        assert len(ends) == 1, ends
        payload = frame["params"]["payload"]
        return {"status": payload["status"], "cause": payload.get("cause"), "text": payload["text"]}


class StdioGateway(GatewayDriver):
    async def send(self, frame: Frame) -> None:
        await self.server.send(frame)

    async def pump(self) -> None:
        at = 0
        while not (self.server.output_ended and at == len(self.server.frames)):
            await self.server.wait_for_output(lambda seen=at: len(self.server.frames) > seen)
            for frame in self.server.frames[at:]:
                self.keep(frame)
            at = len(self.server.frames)


class SocketGateway(GatewayDriver):
    def __init__(self, server: ServerProcess, socket: trio_websocket.WebSocketConnection) -> None:
        super().__init__(server)
        self._socket = socket

    async def send(self, frame: Frame) -> None:
        await self._socket.send_message(json.dumps(frame))

    async def pump(self) -> None:
        while True:
            try:
                self.keep(json.loads(await self._socket.get_message()))
            except trio_websocket.ConnectionClosed:
                return


class AcpDriver:
    """An editor."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.session_id = ""
        self._prompt_id = 0
        self._from = 0

    async def start(self, text: str) -> None:
        if not self.session_id:
            await self.server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            made = await self.server.call("session/new", {"cwd": str(self.server.home), "mcpServers": []})
            self.session_id = made["sessionId"]
        self._from = len(self.server.frames)
        self._prompt_id += 1000
        params = {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}]}
        await self.server.send({"jsonrpc": "2.0", "id": self._prompt_id, "method": "session/prompt", "params": params})

    async def wait_for_tool(self) -> None:
        await self.server.frame(
            lambda frame: frame.get("params", {}).get("update", {}).get("sessionUpdate") == "tool_call",
            after=self._from,
        )

    async def wait_for_question(self) -> None:
        await self.server.frame(lambda frame: frame.get("method") == "session/request_permission", after=self._from)

    async def stop(self) -> None:
        await self.server.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session_id}})

    async def terminal(self) -> dict[str, Any]:
        number = self._prompt_id
        answer = await self.server.frame(
            lambda frame: frame.get("id") == number and "method" not in frame, after=self._from
        )
        assert "error" not in answer, answer
        reason = answer["result"]["stopReason"]
        return {"status": {"cancelled": "interrupted", "end_turn": "complete"}[reason], "cause": "user_interrupt"}


class HttpDriver:
    """What runs and completions share: the run record tells how the turn ended."""

    def __init__(self, server: HttpServer, client: httpx2.AsyncClient) -> None:
        self.server = server
        self.client = client
        self.run_id = ""
        self.last_question = ""
        self.headers = {"Authorization": f"Bearer {server.key}"}

    async def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = (await self.client.get(f"/v1/runs/{self.run_id}")).json()
        return answer

    def end_of(self, status: Mapping[str, Any]) -> dict[str, Any]:
        word = {"cancelled": "interrupted", "completed": "complete"}.get(status["status"], status["status"])
        return {"status": word, "cause": status.get("cause")}


class RunDriver(HttpDriver):
    """An HTTP run, stopped by its own route."""

    async def start(self, text: str) -> None:
        answer = await self.client.post("/v1/runs", json={"input": text, "session_id": "driver-session"})
        assert answer.status_code == 202, answer.text
        self.run_id = answer.json()["run_id"]

    async def _events(self, until: str | None) -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        async with streaming(self.server.port, "GET", f"/v1/runs/{self.run_id}/events", headers=self.headers) as answer:
            while (event := await answer.data()) is not None:
                seen.append(event)
                if event["event"] == until:
                    return seen
        assert until is None, f"the stream ended without {until}: {seen}"
        return seen

    async def wait_for_tool(self) -> None:
        await self._events("tool.started")

    async def wait_for_question(self) -> None:
        await self._events("approval.request")

    async def stop(self) -> None:
        answer = await self.client.post(f"/v1/runs/{self.run_id}/stop", json={})
        assert answer.json()["status"] in ("stopping", "cancelled"), answer.text

    async def terminal(self) -> dict[str, Any]:
        ends = [
            event for event in await self._events(None) if event["event"].startswith("run.") and "completed" in event
        ]
        assert len(ends) == 1, ends
        status = await self.status()
        assert f"run.{status['status']}" == ends[0]["event"]
        return self.end_of(status)


class ChatDriver(HttpDriver):
    """A streaming completion whose client goes away."""

    def __init__(self, server: HttpServer, client: httpx2.AsyncClient) -> None:
        super().__init__(server, client)
        self._open = AsyncExitStack()
        self._answer: StreamingAnswer | None = None

    async def start(self, text: str) -> None:
        body = {"model": "hermes-agent", "stream": True, "messages": [{"role": "user", "content": text}]}
        headers = {**self.headers, "X-Hermes-Session-Id": "chat-driver"}
        self._answer = await self._open.enter_async_context(
            streaming(self.server.port, "POST", "/v1/chat/completions", headers=headers, body=body)
        )
        assert self._answer.status == 200
        first = await self._answer.data()
        assert first is not None
        self.run_id = first["id"]

    async def _until(self, needle: str) -> None:
        assert self._answer is not None
        while (line := await self._answer.line()) is not None:
            if needle in line:
                return
        raise AssertionError(f"the stream ended without {needle}")

    async def wait_for_tool(self) -> None:
        await self._until("tool")

    async def wait_for_question(self) -> None:
        await self._until("approval")

    async def stop(self) -> None:
        await self._open.aclose()

    async def terminal(self) -> dict[str, Any]:
        while True:
            status = await self.status()
            if status["status"] in ("cancelled", "completed", "failed", "interrupted"):
                await self._open.aclose()
                return self.end_of(status)
            await trio.sleep(0.01)


SURFACES = ("gateway stdio", "gateway websocket", "acp", "http run", "http chat")


@asynccontextmanager
async def driving(
    surface: str, home: Path, environ: Mapping[str, str], *, command: Path = COMMAND
) -> AsyncIterator[Driver]:
    """A real server of this home and a driver of it. ``command``: another ``hermes`` than the installed one."""
    if surface == "acp":
        async with server_process(home, "acp", environ=environ, command=command) as server:
            yield AcpDriver(server)
    elif surface == "gateway stdio":
        line = server_process(home, "gateway", environ=environ, command=command)
        async with line as server, trio.open_nursery() as nursery:
            driver = StdioGateway(server)
            nursery.start_soon(driver.pump)
            yield driver
            nursery.cancel_scope.cancel()
    else:
        async with http_server(home, environ=environ, command=command) as server:
            async with http_driver(surface, server) as http:
                yield http


@asynccontextmanager
async def http_driver(surface: str, server: HttpServer) -> AsyncIterator[Driver]:
    """One more driver of a server that serves HTTP already."""
    if surface == "gateway websocket":
        url = f"ws://127.0.0.1:{server.port}/api/ws?token={server.key}"
        async with trio_websocket.open_websocket_url(url) as socket, trio.open_nursery() as nursery:
            driver = SocketGateway(server, socket)
            nursery.start_soon(driver.pump)
            yield driver
            nursery.cancel_scope.cancel()
        return
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=60) as client:
        yield RunDriver(server, client) if surface == "http run" else ChatDriver(server, client)
