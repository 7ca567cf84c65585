"""An accepted TCP connection that can be looked at, cannot be blocked for ever, and can be closed from outside.

Three things a plain socket stream does not offer: the request head can be read and then read again by whoever is
chosen to serve it; every write has a deadline that works inside a foreign shield (Hypercorn shields its writes, so
one reader that stalls would hold the whole tree); and ``abort`` wakes every blocked read and write at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

import trio

from hermes.records import dataclass

logger = logging.getLogger(__name__)

READ_SIZE: Final = 64 * 1024
UNSENT_BYTES: Final = 128 * 1024
"""What the kernel takes ahead of a peer that does not read."""
HELD_BYTES: Final = 512 * 1024
"""What it shall take at the end, all the same: the rest of a write and the goodbye."""
HTTP2_PREFACE: Final = b"PRI * HTTP/2.0"


@dataclass(frozen=True, slots=True)
class RequestHead:
    """As much of a request head as telling WebSocket from HTTP needs."""

    method: bytes
    path: str
    wants_websocket: bool
    host: str | None = None


class PeekStream(trio.abc.HalfCloseableStream):
    """The stream wrapper. ``socket`` is read by Hypercorn; ``on_abort`` is called once, by the first ``abort``."""

    def __init__(self, raw: trio.SocketStream, write_deadline: float) -> None:
        self.raw = raw
        self.socket = raw.socket
        self._write_deadline = write_deadline
        self._peeked = b""
        self._behind_head = b""
        self._unsent = b""
        self._is_aborted = False
        self._gate: trio.Event | None = None
        self.on_abort: Callable[[], object] | None = None
        self.is_stalled = False
        """Its peer has stopped reading, and was cut off for that."""

    @property
    def is_aborted(self) -> bool:
        return self._is_aborted

    async def peek_head(self, within: float, max_bytes: int) -> bytes | None:
        """The bytes up to the end of the first request head, or what stands for it: the first ``max_bytes`` of a
        longer one. They will be read again. None when the peer left or took longer than ``within`` seconds."""
        head = bytearray()
        with trio.move_on_after(within):
            while b"\r\n\r\n" not in head and len(head) < max_bytes and not head.startswith(HTTP2_PREFACE):
                data = await self.raw.receive_some(READ_SIZE)
                if not data:
                    return None
                head += data
            self._peeked = bytes(head)
            return self._peeked
        return None

    def hold_behind_head(self) -> None:
        """Hand out the request head, and what follows it only after ``release``. trio-websocket overlooks a frame
        that comes in the same packet as the handshake until the next packet."""
        self._gate = trio.Event()

    def release(self) -> None:
        if self._gate is not None:
            self._gate.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._gate is not None and not self._gate.is_set():
            head, end, rest = self._peeked.partition(b"\r\n\r\n")
            if end:
                self._peeked, self._behind_head = b"", rest
                await trio.lowlevel.checkpoint()
                return head + end
            await self._gate.wait()
            self._peeked, self._behind_head = self._behind_head, b""
        if self._peeked:
            count = len(self._peeked) if max_bytes is None else max_bytes
            data, self._peeked = self._peeked[:count], self._peeked[count:]
            await trio.lowlevel.checkpoint()
            return data
        return bytes(await self.raw.receive_some(max_bytes))

    def send_now(self, data: bytes) -> bool:
        """Write what the socket takes without waiting; the rest, if any, goes out first in the next ``send_all``.
        False when there is a rest. Not while a ``send_all`` is running."""
        if self._unsent or os.name != "posix":
            self._unsent += data
            return False
        try:
            sent = os.write(self.socket.fileno(), data)
        except OSError:
            # It takes nothing now, or it is broken: the next write waits, or finds out.
            sent = 0
        self._unsent = data[sent:]
        return not self._unsent

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        whole = False
        try:
            with trio.move_on_after(self._write_deadline):
                await self.raw.send_all(data)
                whole = True
        finally:
            if not whole:
                # Half a write cannot be continued: whatever came next would land inside it.
                self.abort()
        if not whole:
            self.is_stalled = True
            logger.warning("a client has read nothing for %g seconds; its connection is closed", self._write_deadline)
            raise trio.BrokenResourceError("the peer has stopped reading")

    async def send_within(self, data: bytes, within: float) -> bool:
        """Write it all. False when that took longer than ``within`` seconds; the rest goes out first in the next
        write. Raises ``BrokenResourceError``."""
        rest = memoryview(self._unsent + data if self._unsent else data)
        self._unsent = b""
        try:
            with trio.move_on_after(within):
                while rest:
                    rest = rest[await self.raw.socket.send(rest) :]
        except OSError as error:
            raise trio.BrokenResourceError("the peer cannot be written to") from error
        finally:
            self._unsent = bytes(rest)
        return not rest

    def bound_unsent(self) -> None:
        """From now on the kernel takes little ahead of a peer that does not read, instead of megabytes: so it is
        noticed soon, and ``hold_all`` has something to give."""
        self._set_option(socket.IPPROTO_TCP, getattr(socket, "TCP_NOTSENT_LOWAT", None), UNSENT_BYTES)

    def hold_all(self) -> None:
        """From now on the kernel takes as much as it may, and delivers it when the peer reads again, long after we
        have closed. Wakes a write that waits."""
        self._set_option(socket.IPPROTO_TCP, getattr(socket, "TCP_NOTSENT_LOWAT", None), 2**31 - 1)
        with contextlib.suppress(OSError):
            if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < HELD_BYTES:
                self._set_option(socket.SOL_SOCKET, socket.SO_SNDBUF, HELD_BYTES)

    def _set_option(self, level: int, option: int | None, value: int) -> None:
        # Neither every system nor every kind of socket has them; all they do is to be kinder to a slow peer.
        with contextlib.suppress(OSError):
            if option is not None:
                self.socket.setsockopt(level, option, value)

    async def wait_send_all_might_not_block(self) -> None:
        await self.raw.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.raw.send_eof()

    async def aclose(self) -> None:
        await self.raw.aclose()

    def abort(self) -> None:
        """Close at once. Whoever reads or writes gets ClosedResourceError, shielded or not."""
        if not self._is_aborted:
            self._is_aborted = True
            self.socket.close()
            if self.on_abort is not None:
                self.on_abort()

    def keep_alive(self, *, idle: int, interval: int, probes: int) -> None:
        """TCP keepalive, as far as the platform has it."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", idle), ("TCP_KEEPINTVL", interval), ("TCP_KEEPCNT", probes)):
            option = getattr(socket, name, None)
            if option is not None:
                self.socket.setsockopt(socket.IPPROTO_TCP, option, value)


def parse_head(head: bytes) -> RequestHead | None:
    """What the head says, or None when it is no HTTP/1 request line; the HTTP server answers those."""
    line, _, fields = head.partition(b"\r\n\r\n")[0].partition(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3:
        return None
    method, target, _ = parts
    path = target.partition(b"?")[0].decode("latin-1")
    headers = [
        (name.strip().lower(), value.strip())
        for name, _, value in (field.partition(b":") for field in fields.split(b"\r\n"))
    ]
    upgrade = any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers)
    host = next((value.decode("latin-1") for name, value in headers if name == b"host"), None)
    return RequestHead(method, path, wants_websocket=method == b"GET" and upgrade, host=host)
