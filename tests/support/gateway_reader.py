"""A WebSocket client of the gateway as a host writes it: it keeps the number of the last event, and what was said."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import SHUT_RDWR
from typing import Any

import trio
import trio_websocket

from tests.support.server_process import HttpServer

LARGE = 64 * 1024 * 1024


class Reader:
    """One client. ``over``: as many turns have ended as it was told to read (``turns``)."""

    def __init__(self, server: HttpServer, name: str, *, turns: int = 1) -> None:
        self.server = server
        self.name = name
        self.text = ""
        self.marks: list[tuple[int, str]] = []
        """Number and type of every event that is no piece of text."""
        self.last_seen = 0
        self.epoch = ""
        self.reconnects = 0
        self._turns_left = turns

    @property
    def over(self) -> bool:
        return self._turns_left <= 0

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        url = f"ws://127.0.0.1:{self.server.port}/api/ws?token={self.server.key}"
        stream: trio.abc.Stream | None = None
        try:
            async with trio_websocket.open_websocket_url(url, max_message_size=LARGE) as socket:
                stream = socket._stream
                ready = json.loads(await socket.get_message())
                self.epoch = ready["params"]["payload"]["replay_epoch"]
                yield socket
        finally:
            # The library leaves it open when the other side has ended the connection.
            if stream is not None:
                await trio.aclose_forcefully(stream)

    async def call(self, socket: Any, number: int, method: str, **params: Any) -> tuple[Any, list[Any]]:
        """The result, and the events that came before it."""
        await socket.send_message(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        before: list[Any] = []
        while True:
            frame = json.loads(await socket.get_message())
            if frame.get("id") == number:
                assert "error" not in frame, frame
                return frame["result"], before
            before.append(frame)

    async def come_back(self, socket: Any, key: str) -> str:
        """Attach first, then ask for what was missed. What came between the two is in the answer as well."""
        result, _early = await self.call(socket, 1, "session.resume", session_id=key, omit_messages=True)
        missed, _between = await self.call(
            socket, 2, "session.events.since", session_id=result["session_id"], last_seen=self.last_seen
        )
        assert missed["epoch"] == self.epoch
        assert not missed["truncated"]
        for params in missed["events"]:
            self.take(params)
        self.last_seen = missed["latest_seq"]
        session_id: str = result["session_id"]
        return session_id

    def take(self, params: Any) -> None:
        number = params.get("seq")
        if number is None:
            return
        assert number > self.last_seen, f"{self.name}: event {number} came again behind {self.last_seen}"
        self.last_seen = number
        if params["type"] == "message.delta":
            self.text += params["payload"]["text"]
        elif not self.over and params["type"] != "session.info":
            self.marks.append((number, params["type"]))
        self._turns_left -= params["type"] == "message.complete"

    async def read_to_the_close(self, socket: Any) -> int:
        """Take what comes until the server ends the connection; returns its close code."""
        try:
            while True:
                self.take(json.loads(await socket.get_message()).get("params", {}))
        except trio_websocket.ConnectionClosed as end:
            assert end.reason is not None, f"{self.name} was not told why"
            return int(end.reason.code)

    async def read_on(self, key: str) -> None:
        """Until the turns are over, on one connection."""
        async with self.connected() as socket:
            session_id = await self.come_back(socket, key)
            while not self.over:
                params = json.loads(await socket.get_message()).get("params", {})
                if params.get("session_id") == session_id:
                    self.take(params)

    async def read(self, key: str, dice: random.Random) -> None:
        """Until the turns are over; the connection is dropped again and again, sometimes without a word."""
        while not self.over:
            async with self.connected() as socket:
                session_id = await self.come_back(socket, key)
                for _ in range(dice.randrange(1, 60)):
                    if self.over:
                        break
                    with trio.move_on_after(0.5):
                        params = json.loads(await socket.get_message()).get("params", {})
                        if params.get("session_id") == session_id:
                            self.take(params)
                if dice.random() < 0.5:
                    # Without a word of the protocol.
                    socket._stream.socket.shutdown(SHUT_RDWR)
                    # The library forgets this one then, and its reader waits for ever to hand over a message.
                    socket._recv_channel.close()
            self.reconnects += 1
