"""Many WebSocket clients of one session in a process of their own that reads faster than the server writes.

Run as a program: the job is one line of JSON on standard input, the answers are lines on standard output. Frames are
only cut out of the stream: of an event the type, the number and the text are taken by their place, nothing is parsed;
what was said is kept as a hash. So a crowd never looks like one that stalls, and a test that waits for its last word
measures the server. Standard library only, one thread, no event loop but ``selectors``.

    job      {"port", "key", "session", "turns", "readers": [{"name", "kind", "seed"}]}
    answers  "joined", then one line of JSON with what each reader has seen

``kind``: ``calm`` reads on one connection; ``restless`` drops its connection again and again and comes back with the
number of its last event; ``stalled`` reads nothing from its first answer until standard input says ``wake``, takes what
the server says then to its close frame, and comes back.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import selectors
import socket
import struct
import sys
import time
from typing import Any

TEXT, CLOSE = 1, 8
DELTA = b'"type":"message.delta"'
IDLE = 0.5
"""Seconds without a word after which a restless reader goes, too."""


class Connection:
    """One WebSocket, blocking for a call and not blocking for events."""

    def __init__(self, port: int, key: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._buffer = bytearray()
        self._calls = 0
        nonce = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /api/ws?token={key} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._buffer:
            self.fill()
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        self._buffer = bytearray(rest)
        self.ready = json.loads(self.frame()[1])

    def fill(self) -> bool:
        """Take what has come. False when the other side has ended the connection."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)

    def cut(self) -> tuple[int, bytes] | None:
        """The next whole frame of what was taken: its opcode and its payload."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size == 126:
            size, start = int.from_bytes(buffer[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(buffer[2:10], "big"), 10
        if len(buffer) < start + size:
            return None
        assert buffer[0] & 0x80, "the server does not split its messages"
        opcode, payload = buffer[0] & 0x0F, bytes(buffer[start : start + size])
        del buffer[: start + size]
        return opcode, payload

    def frame(self) -> tuple[int, bytes]:
        """The next frame, waited for."""
        while (found := self.cut()) is None:
            if not self.fill():
                raise EOFError("the connection has ended")
        return found

    def call(self, method: str, params: dict[str, Any]) -> tuple[Any, list[bytes]]:
        """The result, and the frames that came before it."""
        self._calls += 1
        request = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}
        self._send(TEXT, json.dumps(request).encode())
        before: list[bytes] = []
        own = b'"id":%d' % self._calls
        while True:
            opcode, payload = self.frame()
            assert opcode == TEXT
            if own in payload[:40]:
                answer = json.loads(payload)
                assert "error" not in answer, answer
                return answer["result"], before
            before.append(payload)

    def _send(self, opcode: int, data: bytes) -> None:
        size = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
        # A mask of zeros: the bytes stay as they are.
        self.socket.sendall(bytes([0x80 | opcode]) + size + b"\0\0\0\0" + data)

    def leave(self, *, politely: bool) -> None:
        if politely:
            self._send(CLOSE, struct.pack("!H", 1000))
        self.socket.close()


class Reader:
    """One client, as a host is written: it keeps the number of the last event, and a hash of what was said."""

    def __init__(self, job: dict[str, Any], spec: dict[str, Any]) -> None:
        self.job = job
        self.name, self.kind = str(spec["name"]), str(spec["kind"])
        self.dice = random.Random(spec.get("seed", 0))
        self.said = hashlib.sha256()
        self.length = 0
        self.marks: list[tuple[int, str]] = []
        self.last_seen = 0
        self.epoch = ""
        self.reconnects = -1
        self.code: int | None = None
        self.turns_left = int(job["turns"])
        self.connection: Connection | None = None
        self.patience = 0
        self.heard_at = 0.0

    @property
    def over(self) -> bool:
        return self.turns_left <= 0

    def come(self) -> None:
        """Attach first, then ask for what was missed. What came between the two is in the answer as well."""
        self.connection = connection = Connection(self.job["port"], self.job["key"])
        epoch = connection.ready["params"]["payload"]["replay_epoch"]
        assert self.epoch in ("", epoch)
        self.epoch = epoch
        found, _ = connection.call("session.resume", {"session_id": self.job["session"], "omit_messages": True})
        asked = {"session_id": found["session_id"], "last_seen": self.last_seen}
        missed, _ = connection.call("session.events.since", asked)
        assert not missed["truncated"], self.name
        for params in missed["events"]:
            text = params["payload"]["text"] if params["type"] == "message.delta" else ""
            self.heard(params["seq"], params["type"], json.dumps(text, ensure_ascii=False)[1:-1].encode())
        self.last_seen = missed["latest_seq"]
        self.reconnects += 1
        self.patience = self.dice.randrange(1, 60)
        self.heard_at = time.monotonic()
        connection.socket.setblocking(False)

    def take(self, payload: bytes) -> None:
        """One frame of the server. Only events with a number count."""
        behind = payload.rfind(b'"seq":')
        if behind < 0 or not payload.startswith(b'{"jsonrpc":"2.0","method":"event"'):
            return
        number = int(payload[behind + 6 : payload.index(b"}", behind)])
        if payload.find(DELTA, 0, 80) >= 0:
            begin = payload.index(b'"text":"') + 8
            self.heard(number, "message.delta", payload[begin : payload.rindex(b'"', 0, behind - 2)])
        else:
            begin = payload.index(b'"type":"') + 8
            self.heard(number, payload[begin : payload.index(b'"', begin)].decode(), b"")

    def heard(self, number: int, kind: str, text: bytes) -> None:
        assert number > self.last_seen, f"{self.name}: event {number} came again behind {self.last_seen}"
        self.last_seen = number
        if kind == "message.delta":
            self.said.update(text)
            self.length += len(text)
        elif not self.over and kind != "session.info":
            self.marks.append((number, kind))
        self.turns_left -= kind == "message.complete"

    def read(self) -> None:
        """What has come, without waiting."""
        assert self.connection is not None
        if not self.connection.fill():
            raise EOFError(f"{self.name}: the server has ended the connection")
        self.heard_at = time.monotonic()
        while (found := self.connection.cut()) is not None:
            opcode, payload = found
            assert opcode == TEXT, f"{self.name}: closed with {payload!r}"
            self.take(payload)
            self.patience -= 1

    def read_to_the_close(self) -> None:
        """Take what comes until the server ends the connection, and keep its close code."""
        assert self.connection is not None
        self.connection.socket.setblocking(True)
        while True:
            opcode, payload = self.connection.frame()
            if opcode == CLOSE:
                self.code = int.from_bytes(payload[:2], "big")
                self.connection.socket.close()
                return
            self.take(payload)

    def seen(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "said": self.said.hexdigest(),
            "length": self.length,
            "marks": self.marks,
            "reconnects": self.reconnects,
            "code": self.code,
        }


def read_all(readers: list[Reader]) -> None:
    """Until all turns are over for all of them."""
    waiting = selectors.DefaultSelector()
    for reader in readers:
        if not reader.over:
            _watch(waiting, reader)
    while waiting.get_map():
        for key, _ in waiting.select(timeout=IDLE):
            key.data.read()
        for reader in [key.data for key in list(waiting.get_map().values())]:
            _go_on(waiting, reader)


def _go_on(waiting: selectors.BaseSelector, reader: Reader) -> None:
    assert reader.connection is not None
    is_leaving = reader.patience <= 0 or time.monotonic() - reader.heard_at > IDLE
    if not reader.over and not (reader.kind == "restless" and is_leaving):
        return
    waiting.unregister(reader.connection.socket)
    reader.connection.leave(politely=reader.dice.random() < 0.5)
    if not reader.over:
        reader.come()
        if not reader.over:
            _watch(waiting, reader)


def _watch(waiting: selectors.BaseSelector, reader: Reader) -> None:
    assert reader.connection is not None
    waiting.register(reader.connection.socket, selectors.EVENT_READ, reader)


def main() -> None:
    job = json.loads(sys.stdin.readline())
    readers = [Reader(job, spec) for spec in job["readers"]]
    for reader in readers:
        reader.come()
    print("joined", flush=True)
    asleep = [reader for reader in readers if reader.kind == "stalled"]
    if asleep:
        assert sys.stdin.readline() == "wake\n"
    for reader in asleep:
        reader.read_to_the_close()
        assert not reader.over, "it has missed nothing: this shows nothing"
        reader.come()
    read_all(readers)
    print(json.dumps([reader.seen() for reader in readers]), flush=True)


if __name__ == "__main__":
    main()
