"""The test as a gateway host: an in-memory channel into the real dispatcher, method table and tree."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.gateway.contract import result_of
from hermes.protocols.gateway.schemas_events import EVENTS
from hermes.protocols.gateway.schemas_requests import SERVER_REQUEST_TABLE
from hermes.protocols.gateway.server import GatewayServer
from hermes.protocols.gateway.surface import WEBSOCKET_TABLE, serve_channel
from tests.support.memory_channel import MemoryChannel

EPOCH = "00112233445566778899aabbccddeeff"
PATIENCE = 600.0
"""Virtual seconds, mostly: a test that waits in vain ends."""


class Refusal(Exception):
    """An error answer."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")
        super().__init__(f"{self.code}: {self.message}")


class GatewayHost:
    """One client. ``frames`` is everything the server has sent it, in order."""

    def __init__(self, channel: MemoryChannel) -> None:
        self.channel = channel
        self.read = 0
        self._calls = 0

    @property
    def frames(self) -> list[dict[str, Any]]:
        return self.channel.sent

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next frame, behind those that were waited for before, that is wanted."""
        with trio.fail_after(PATIENCE):
            while True:
                while self.read < len(self.frames):
                    frame = self.frames[self.read]
                    self.read += 1
                    check_frame(frame)
                    if wanted(frame):
                        return frame
                await self.channel.heard(self.read + 1)

    async def event(self, type: str) -> dict[str, Any]:
        """The ``params`` of the next event of this type."""
        frame = await self.until(lambda frame: frame.get("method") == "event" and frame["params"]["type"] == type)
        params: dict[str, Any] = frame["params"]
        return params

    async def question(self, method: str) -> dict[str, Any]:
        """The next server request of this method."""
        return await self.until(lambda frame: frame.get("method") == method and "id" in frame)

    def start(self, method: str, **params: Any) -> str:
        """Send a request; ``answer`` waits for it."""
        self._calls += 1
        call_id = f"r{self._calls}"
        self.channel.say({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params})
        return call_id

    async def answer(self, call_id: str) -> Any:
        """The result of a request that was started, wherever it stands among the frames; raises ``Refusal``."""
        with trio.fail_after(PATIENCE):
            count = 0
            while True:
                for frame in self.frames[count:]:
                    if frame.get("id") == call_id and "method" not in frame:
                        if "error" in frame:
                            raise Refusal(frame["error"])
                        return frame["result"]
                count = len(self.frames)
                await self.channel.heard(count + 1)

    async def call(self, method: str, **params: Any) -> Any:
        """Request and result; the result must be what the method's contract declares."""
        result = await self.answer(self.start(method, **params))
        check_result(method, result)
        return result

    def reply(self, request_id: str, result: Any) -> None:
        self.channel.say({"jsonrpc": "2.0", "id": request_id, "result": result})

    def decline(self, request_id: str, code: int) -> None:
        self.channel.say({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": "no"}})

    def types(self, start: int = 0) -> list[str]:
        """What was received, in a word each: event types, request methods, ``=id`` for answers."""
        return [word_of(frame) for frame in self.frames[start:]]


def word_of(frame: dict[str, Any]) -> str:
    if frame.get("method") == "event":
        return str(frame["params"]["type"])
    return f"?{frame['method']}" if "method" in frame else f"={frame['id']}"


def check_result(method: str, result: Any) -> None:
    """Every answer keeps to the declared model: nothing missing, nothing undeclared."""
    entry = WEBSOCKET_TABLE.find(method)
    assert entry is not None, f"there is no method {method}"
    model = result_of(entry)
    model.model_validate(result)
    if model.model_config.get("extra") == "allow":
        return
    declared = {field.alias or name for name, field in model.model_fields.items()}
    assert set(result) <= declared, f"{method} answers undeclared keys: {set(result) - declared}"


EVENT_PAYLOADS = {event.name: event.payload for event in EVENTS}
REQUESTS = {request.name: request for request in SERVER_REQUEST_TABLE}


def check_frame(frame: dict[str, Any]) -> None:
    """Every event and every question keeps to its declared model too."""
    params = frame.get("params", {})
    if frame.get("method") == "event":
        payload = EVENT_PAYLOADS[params["type"]]
        if payload is None:
            assert "payload" not in params
        else:
            payload.model_validate(params["payload"])
    elif frame.get("method") in REQUESTS:
        REQUESTS[frame["method"]].params.model_validate(params)


def gateway_server(tree: ServerTree, *, legacy: bool = False) -> GatewayServer:
    return GatewayServer(tree, EPOCH, legacy_requests=legacy)


@asynccontextmanager
async def connected(
    tree: ServerTree,
    *,
    websocket: bool = False,
    legacy: bool = False,
    name: str = "host",
    server: GatewayServer | None = None,
) -> AsyncIterator[GatewayHost]:
    """A client of the tree; it hangs up at the end of the block. ``server``: what several clients share."""
    channel = MemoryChannel(name)
    server = server or gateway_server(tree, legacy=legacy)
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await serve_channel(server, channel, is_websocket=websocket)

        nursery.start_soon(serve)
        host = GatewayHost(channel)
        await host.event("gateway.ready")
        yield host
        channel.hang_up()
