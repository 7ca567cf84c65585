"""Clients that come and go while a turn streams: each has every word once, from the snapshot or from the stream."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import trio
import trio_websocket

from hermes.testing import FakeProvider, Reply, Script
from tests.support.gateway_reader import Reader
from tests.support.server_process import http_server

pytestmark = pytest.mark.e2e
WORDS = 300
CLIENTS = 4
TURNS = 14
MERGED_AT_MOST = 512 * 1024


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}


@pytest.mark.fault("B-096")
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
                        over = False
                        while not over:
                            params = json.loads(await socket.get_message()).get("params", {})
                            over = params.get("type") == "message.complete"
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
                    """It reads again when the server has given it up: the kernel keeps the close frame for it."""
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
                        over = False
                        while not over:
                            frame = await socket.get_message()
                            params = json.loads(frame).get("params", {})
                            assert len(frame) <= MERGED_AT_MOST or params.get("type") != "message.delta"
                            over = params.get("type") == "message.complete"
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
