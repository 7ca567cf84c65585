"""Clients that come and go while a turn streams: each has every word once, from the snapshot or from the stream."""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import pytest
import trio
import trio_websocket

from hermes.testing import FakeProvider, Reply, Script
from tests.support.server_process import HttpServer, http_server

pytestmark = pytest.mark.e2e
WORDS = 300
CLIENTS = 4
TURNS = 14
LARGE = 64 * 1024 * 1024
MERGED_AT_MOST = 512 * 1024


class Reader:
    """A client as a host writes it: it keeps the number of the last event, and what was said so far."""

    def __init__(self, server: HttpServer, name: str) -> None:
        self.server = server
        self.name = name
        self.text = ""
        self.last_seen = 0
        self.epoch = ""
        self.over = False
        self.reconnects = 0

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
        self.over |= params["type"] == "message.complete"

    async def read(self, key: str, dice: random.Random) -> None:
        """Until the turn is over; the connection is dropped again and again, sometimes without a word."""
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
            self.reconnects += 1


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}


async def test_every_word_comes_once_to_every_client_however_often_it_reconnects(tmp_path: Path) -> None:
    seed = int(os.environ.get("REPLAY_SEED") or random.SystemRandom().randrange(2**32))
    words = [f"w{number} " for number in range(WORDS)]
    steps: list[dict[str, Any]] = []
    for word in words:
        steps += [{"text": [word]}, {"delay": 0.005}]
    try:
        with trio.fail_after(90):
            async with FakeProvider(Script.of(Reply.of(*steps))) as provider:
                async with http_server(tmp_path / "home", environ=environment(provider)) as server:
                    readers = [Reader(server, f"client {number}") for number in range(CLIENTS)]
                    host = Reader(server, "host")
                    async with host.connected() as socket, trio.open_nursery() as nursery:
                        made, _ = await host.call(socket, 1, "session.create")
                        key, session_id = made["stored_session_id"], made["session_id"]
                        await host.call(socket, 2, "prompt.submit", session_id=session_id, text="tell me")
                        for number, reader in enumerate(readers):
                            nursery.start_soon(reader.read, key, random.Random(seed + number))
                        while not host.over:
                            params = json.loads(await socket.get_message()).get("params", {})
                            host.over = params.get("type") == "message.complete"
                    for reader in readers:
                        assert reader.text == "".join(words), reader.name
                        assert reader.reconnects > 1
    except BaseException as error:
        error.add_note(f"REPLAY_SEED={seed}")
        raise


async def test_a_client_that_does_not_read_is_told_and_gets_the_rest_when_it_comes_back(tmp_path: Path) -> None:
    pieces = [f"{number}:{random.Random(number).randbytes(5_000).hex()} " for number in range(60)]
    script = Script(replies=[Reply.of({"text": pieces})], when_used_up="repeat")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    # The end must fit into the patience for one write, however slow this machine is.
    (home / "config.yaml").write_text("limits:\n  write_deadline: 90\n")
    with trio.fail_after(120):
        async with FakeProvider(script) as provider:
            async with http_server(home, environ=environment(provider)) as server:
                host, slow = Reader(server, "host"), Reader(server, "slow")
                closed: list[Any] = []

                async def wake_up() -> None:
                    """It reads again when the server has given it up: a close frame waits a few seconds for it."""
                    await server.wait_until(lambda: "does not read; closed" in server.stderr)
                    try:
                        while True:
                            slow.take(json.loads(await asleep.get_message())["params"])
                    except trio_websocket.ConnectionClosed as end:
                        closed.append(end.reason)

                async with host.connected() as socket, slow.connected() as asleep, trio.open_nursery() as nursery:
                    nursery.start_soon(wake_up)
                    made, _ = await host.call(socket, 1, "session.create")
                    key, session_id = made["stored_session_id"], made["session_id"]
                    await slow.call(asleep, 1, "session.resume", session_id=key)
                    for number in range(TURNS):
                        await host.call(socket, 2 + number, "prompt.submit", session_id=session_id, text="tell me")
                        host.over = False
                        while not host.over:
                            frame = await socket.get_message()
                            params = json.loads(frame).get("params", {})
                            assert len(frame) <= MERGED_AT_MOST or params.get("type") != "message.delta"
                            host.over = params.get("type") == "message.complete"
                        assert params["payload"]["status"] == "complete"
                assert [reason.code for reason in closed] == [1011]
                async with slow.connected() as awake:
                    back, _ = await slow.call(awake, 1, "session.activate", session_id=session_id)
                    missed, _ = await slow.call(
                        awake, 2, "session.events.since", session_id=session_id, last_seen=slow.last_seen
                    )
                    assert missed["truncated"], "a client that lags so far is told to take the snapshot"
                    assert missed["events"][-1]["type"] == "session.info"
                    assert back["messages"][-1]["text"] == "".join(pieces)


async def test_numbers_begin_anew_with_another_epoch_after_a_restart(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with FakeProvider(Script()) as provider:
            epochs = []
            key = None
            for _ in range(2):
                async with http_server(tmp_path / "home", environ=environment(provider)) as server:
                    reader = Reader(server, "client")
                    async with reader.connected() as socket:
                        if key is None:
                            made, _ = await reader.call(socket, 1, "session.create")
                            await reader.call(
                                socket, 2, "prompt.submit", session_id=made["session_id"], text="one", queued=False
                            )
                            key = made["stored_session_id"]
                        else:
                            await reader.come_back(socket, key)
                        epochs.append(reader.epoch)
            assert epochs[0] != epochs[1]
