"""Many WebSocket clients on one session, some of which stop reading: these are closed with 1011, recover by replay and
end with the same sequence as everybody else; nobody else notices. ``PROOF=1`` runs 200 clients, 20 of which stall.
"""

from __future__ import annotations

import json
import os
import random
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.gateway_reader import Reader
from tests.support.server_process import HttpServer, http_server

pytestmark = pytest.mark.e2e
CLIENTS, STALLED, RESTLESS, DEADLINE = (200, 20, 20, 20) if os.environ.get("PROOF") else (24, 3, 4, 2)
"""The deadline for a write, seconds: all clients are one process, which must not look like one that stalls."""
TURNS = 3
PIECES, PIECE = 50, 4096
"""Three turns are more than a pipe holds, and less than the server keeps for replay."""
CONFIG = f"limits:\n  write_deadline: {DEADLINE}\n"


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
    def __init__(self, server: HttpServer, seed: int) -> None:
        self.server = server
        self.seed = seed
        self.host = Reader(server, "host", turns=TURNS)
        self.calm = [Reader(server, f"calm {n}", turns=TURNS) for n in range(CLIENTS - STALLED - RESTLESS)]
        self.restless = [Reader(server, f"restless {n}", turns=TURNS) for n in range(RESTLESS)]
        self.stalled = [Reader(server, f"stalled {n}", turns=TURNS) for n in range(STALLED)]
        self.codes: list[int] = []

    def given_up(self) -> int:
        return len(re.findall(r"has read nothing for|does not read; closed", self.server.stderr))

    async def run(self) -> None:
        async with AsyncExitStack() as sockets:
            socket = await sockets.enter_async_context(self.host.connected())
            made, _ = await self.host.call(socket, 1, "session.create")
            key, session_id = made["stored_session_id"], made["session_id"]
            asleep = []
            for reader in self.stalled:
                sleeper = await sockets.enter_async_context(reader.connected())
                await reader.call(sleeper, 1, "session.activate", session_id=session_id)
                asleep.append(sleeper)
            async with trio.open_nursery() as nursery:
                for reader in self.calm:
                    nursery.start_soon(reader.read_on, key)
                for number, reader in enumerate(self.restless):
                    nursery.start_soon(reader.read, key, random.Random(self.seed + number))
                for turn in range(TURNS):
                    await self.host.call(socket, 2 + turn, "prompt.submit", session_id=session_id, text=f"turn {turn}")
                    await self.host_reads_to_the_end(socket)
            await self.server.wait_until(lambda: self.given_up() >= STALLED)
            for reader, sleeper in zip(self.stalled, asleep, strict=True):
                self.codes.append(await reader.read_to_the_close(sleeper))
            assert not any(reader.over for reader in self.stalled), "they have missed nothing: this shows nothing"
            for reader in self.stalled:
                await reader.read_on(key)

    async def host_reads_to_the_end(self, socket: Any) -> None:
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
        with trio.fail_after(60 + 4 * CLIENTS):
            async with FakeProvider(script(mark)) as provider:
                environ = {
                    "OPENAI_BASE_URL": provider.base_url,
                    "OPENAI_API_KEY": "k" * 20,
                    "HERMES_MODEL": "fake-model",
                }
                async with http_server(home, environ=environ) as server:
                    crowd = Crowd(server, seed)
                    await crowd.run()
                    assert crowd.codes == [1011] * STALLED
                    assert crowd.given_up() == STALLED, "one that reads was closed"
                    first = crowd.calm[0]
                    assert first.text.count("is done. ") == TURNS
                    assert [kind for _seq, kind in first.marks].count("tool.complete") == TURNS
                    for reader in (*crowd.calm, *crowd.restless, *crowd.stalled):
                        assert reader.text == first.text, reader.name
                        assert reader.marks == first.marks, reader.name
                    assert all(reader.reconnects == 0 for reader in crowd.calm)
                    assert any(reader.reconnects > 1 for reader in crowd.restless)
                    assert mark.read_text() == "".join(f"{turn}\n" for turn in range(TURNS))
    except BaseException as error:
        error.add_note(f"REPLAY_SEED={seed}")
        raise
