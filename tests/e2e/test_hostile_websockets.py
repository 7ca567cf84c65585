"""Hostile handshakes and frames on real sockets: each is answered or refused as the protocol says, nobody else notices,
and the server writes no traceback."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.server_process import HttpServer, http_server

pytestmark = pytest.mark.e2e
LIMIT = 90
TEXT, BINARY, CLOSE = 1, 2, 8
DIGITS = "9" * 400


def handshake(server: HttpServer, query: str, *headers: str, host: str | None = None) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET /api/ws{query} HTTP/1.1",
        f"Host: {host or f'127.0.0.1:{server.port}'}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Socket:
    """A WebSocket client without any manners: it sends what it is told."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._read = b""

    async def head(self) -> bytes:
        while b"\r\n\r\n" not in self._read:
            await self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return head

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        if not data:
            raise EOFError
        self._read += data

    async def _take(self, count: int) -> bytes:
        while len(self._read) < count:
            await self._more()
        taken, self._read = self._read[:count], self._read[count:]
        return taken

    async def frame(self) -> tuple[int, bytes]:
        first, second = await self._take(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(await self._take(2 if size == 126 else 8), "big")
        return first & 0x0F, await self._take(size)

    async def send(self, data: str | bytes, opcode: int = TEXT, *, last: bool = True, masked: bool = True) -> None:
        body = data.encode() if isinstance(data, str) else data
        mark = 0x80 if masked else 0
        size = (
            bytes([mark | len(body)])
            if len(body) < 126
            else bytes([mark | 126]) + len(body).to_bytes(2, "big")
            if len(body) < 1 << 16
            else bytes([mark | 127]) + len(body).to_bytes(8, "big")
        )
        mask = b"\0\0\0\0" if masked else b""
        await self.stream.send_all(bytes([(0x80 if last else 0) | opcode]) + size + mask + body)

    async def answer(self) -> Any:
        """The next frame that is no event; None when the server has ended the connection."""
        try:
            while True:
                opcode, payload = await self.frame()
                if opcode == CLOSE:
                    return None
                frame = json.loads(payload)
                if frame.get("method") != "event":
                    return frame
        except (EOFError, trio.BrokenResourceError):
            return None

    async def ask(self, raw: str) -> Any:
        await self.send(raw)
        return await self.answer()


@asynccontextmanager
async def connected(server: HttpServer) -> AsyncIterator[Socket]:
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        await stream.send_all(handshake(server, f"?token={server.key}"))
        socket = Socket(stream)
        assert b" 101 " in await socket.head()
        _, ready = await socket.frame()
        assert json.loads(ready)["params"]["type"] == "gateway.ready"
        yield socket


async def close_code(server: HttpServer, request: bytes) -> int | None:
    """The code that a handshake is refused with, as the client reads it; the HTTP status where there is none."""
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        await stream.send_all(request)
        socket = Socket(stream)
        head = await socket.head()
        if b" 101 " not in head:
            return int(head.split(b" ")[1])
        opcode, payload = await socket.frame()
        return int.from_bytes(payload[:2], "big") if opcode == CLOSE else None


def assert_untroubled(server: HttpServer) -> None:
    assert "Traceback" not in server.stderr, server.stderr
    assert "crashed" not in server.stderr, server.stderr


async def test_handshakes_of_strange_letters_are_refused_in_words(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server:
            right = f"?token={server.key}"
            own = f"Origin: http://127.0.0.1:{server.port}"
            cases: list[tuple[bytes, int | None]] = [
                (handshake(server, right, "Origin: http://["), 4403),
                (handshake(server, right, "Origin: http://127.0.0.1:99999999"), 4403),
                (handshake(server, right, "Origin: HTTPS://EVIL.EXAMPLE"), 4403),
                (handshake(server, right, "Origin: http://127.0.0.1:1@evil.example"), 4403),
                (handshake(server, right, host="["), 4403),
                (handshake(server, right, host="\xe9\xff"), 400),
                (handshake(server, right, "Sec-WebSocket-Protocol: a,\xff"), 400),
                (handshake(server, right, "Host: evil.example"), 400),
                (handshake(server, "?token=%ff%fe"), 4401),
                (handshake(server, "?ticket=%00%ff"), 4401),
                (handshake(server, "?" + "&".join(f"a{n}=1" for n in range(3000))), 4401),
                (handshake(server, "", "X-Hermes-Session-Token: \xe9\xff"), 4401),
                (handshake(server, "", "Authorization: Bearer \xe9\xff"), 4401),
                (handshake(server, right).replace(b"Version: 13", b"Version: 99"), 426),
                (handshake(server, right).replace(b"Sec-WebSocket-Key", b"X-Other"), 400),
                (handshake(server, right, own), None),
            ]
            for request, expected in cases:
                assert await close_code(server, request) == expected, request
            assert_untroubled(server)


PING = '{"id":%s,"method":"ping"}'
ODD_FRAMES: list[tuple[str, Any]] = [
    (PING % DIGITS, -32700),
    (f'{{"id":1,"method":"session.create","params":{{"cols":{DIGITS}}}}}', -32700),
    (PING % "1e400", -32700),
    (PING % "NaN", -32700),
    (PING % "9223372036854775808", 9223372036854775808),
    (PING % "-1180591620717411303424", -1180591620717411303424),
    (PING % "1.5", 1.5),
    (PING % "true", True),
    (PING % '{"a":[1]}', {"a": [1]}),
    (PING % "null", None),
    (PING % '"\\ud800"', "\ufffd"),
    ('{"id":1,"id":2,"method":"ping"}', 2),
    ('{"id":1,"method":"\\ud800"}', -32601),
    ('{"id":1,"method":"ping","params":{"\\ud800":1}}', 4000),
    ('[{"id":1,"method":"ping"},{"id":2,"method":"ping"}]', -32600),
    ("[" * 100_000, -32700),
    ('{"id":1,"method":"ping","params":{"x":' + "[" * 100_000 + "]" * 100_000 + "}}", -32700),
    ('{"id":1,"method":"%s"}' % ("m" * 2_000_000), -32601),
    ('{"id":1,"method":"ping","params":{"%s":1}}' % ("k" * 2_000_000), 4000),
]
"""What is sent, and the code or the echoed id of the one answer."""


async def test_every_odd_frame_has_one_answer_and_the_next_request_works(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server, connected(server) as socket:
            for raw, expected in ODD_FRAMES:
                answer = await socket.ask(raw)
                found = answer["error"]["code"] if "error" in answer else answer["id"]
                assert found == expected and type(found) is type(expected), raw[:200]
                assert (await socket.ask(PING % '"next"'))["id"] == "next"
            await socket.send("")
            await socket.send("  \n ")
            await socket.send('{"id":"srq-none","result":{}}')
            await socket.send('{"id":"srq-none","error":5}')
            assert (await socket.ask(PING % 3))["id"] == 3, "blank frames and answers to nothing get no answer"
            await socket.send(PING % 4, BINARY)
            assert (await socket.answer())["id"] == 4
            await socket.send(b"\xff\xfe", BINARY)
            assert (await socket.answer())["error"]["code"] == -32700
            await socket.send(PING % 5, TEXT, last=False)
            for _ in range(500):
                await socket.send(" ", 0, last=False)
            await socket.send(" ", 0)
            assert (await socket.answer())["id"] == 5
            assert_untroubled(server)


async def test_a_client_that_breaks_the_framing_is_cut_off_alone(tmp_path: Path) -> None:
    broken: list[tuple[bytes, int, bool, bool]] = [
        (b'{"id":1,"method":"\xff"}', TEXT, True, True),
        (b'{"id":1,"method":"ping"}', TEXT, True, False),
        (b"xx", 0, True, True),
        (b"xx", 5, True, True),
        (b"x" * 126, 9, True, True),
        (b"x", 9, False, True),
    ]
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server, connected(server) as other:
            for data, opcode, last, masked in broken:
                async with connected(server) as socket:
                    await socket.send(data, opcode, last=last, masked=masked)
                    assert await socket.answer() is None, (data, opcode)
            async with connected(server) as half:
                await half.send(PING % 1)
                await half.stream.send_eof()
                assert (await half.answer())["id"] == 1
                assert await half.answer() is None
            assert (await other.ask(PING % 2))["result"] == {"pong": True}
            assert_untroubled(server)


async def test_handshakes_that_drip_are_given_up_and_hold_up_nobody(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server, trio.open_nursery() as nursery:
            ended = 0

            async def drip() -> None:
                nonlocal ended
                async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
                    await stream.send_all(b"GET /api/ws?token= HTTP/1.1\r\n")
                    try:
                        while True:
                            with trio.move_on_after(0.5):
                                if not await stream.receive_some():
                                    break
                            await stream.send_all(b"a")
                    except trio.BrokenResourceError:
                        pass
                ended += 1

            for _ in range(40):
                nursery.start_soon(drip)
            async with connected(server) as socket:
                assert (await socket.ask(PING % 1))["id"] == 1
            while ended < 40:
                await trio.sleep(0.1)
            assert_untroubled(server)


async def test_a_storm_of_requests_gets_one_answer_each_and_the_stop_in_it_takes_effect(tmp_path: Path) -> None:
    count = 2000
    with trio.fail_after(LIMIT):
        async with http_server(tmp_path / "home") as server, connected(server) as socket:
            made = await socket.ask('{"id":"made","method":"session.create"}')
            session = json.dumps({"session_id": made["result"]["session_id"]})
            answers: list[Any] = []

            async def read() -> None:
                while len(answers) < count + 2:
                    answers.append(await socket.answer())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                for number in range(count):
                    method = ("ping", "session.list", "commands.catalog", "no.such")[number % 4]
                    await socket.send(f'{{"id":{number},"method":"{method}"}}')
                await socket.send(f'{{"id":"stop","method":"session.interrupt","params":{session}}}')
                await socket.send(PING % '"last"')
            by_id = {answer["id"]: answer for answer in answers}
            assert len(by_id) == count + 2, "each once"
            assert by_id["stop"]["result"] == {"status": "idle", "settled": True}
            for number in range(count):
                answer = by_id[number]
                if number % 4 == 0:
                    assert answer["result"] == {"pong": True}
                elif number % 4 == 3:
                    assert answer["error"]["code"] == -32601
                elif "error" in answer:
                    assert answer["error"]["code"] == 5035, "more wait than a connection may have"
            assert_untroubled(server)
