"""A WebSocket connection as a channel: one text message per frame.

``WebSocketRequest`` is the handshake that has not been answered: a surface looks at it and accepts, or refuses with
a close code. ``WebSocketChannel`` is the accepted connection. trio-websocket does the protocol; writing is ours: one
task puts what has piled up into a single write under the connection's own lock, because a cancelled ``send_message``
leaves half a frame on the wire, and one write per message is many times slower. Four private attributes of
trio-websocket are used for that, for cutting a client off and for hearing little of one that is refused (``_stream``,
``_stream_lock``, ``_recv_channel``, ``_max_message_size``); a contract test pins them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection
from trio_websocket import WebSocketRequest as LibraryRequest

from hermes.protocols.channels.message_channel import Frames, Outbox, OutboxFull, OutboxLimits
from hermes.protocols.channels.peek_stream import PeekStream
from hermes.protocols.wire.ndjson import InvalidUtf8, Line
from hermes.protocols.wire.websocket_frame import text_frames

logger = logging.getLogger(__name__)

CLOSE_NORMAL: Final = 1000
CLOSE_GOING_AWAY: Final = 1001
CLOSE_GAVE_UP_SENDING: Final = 1011
CLOSE_UNAUTHENTICATED: Final = 4401
CLOSE_FORBIDDEN: Final = 4403

BATCH_FRAMES = 256
BATCH_BYTES = 256 * 1024
FLUSH_WITHIN = 5.0
GOODBYE_WITHIN = 1.0
REFUSED_BYTES: Final = 64 * 1024
"""Of a message of a client that was refused."""


class WebSocketRequest:
    """A handshake waiting for its answer. Exactly one of ``accept``, ``refuse`` and ``reject`` is called."""

    def __init__(self, request: LibraryRequest, stream: PeekStream, peer: str, *, host: str | None = None) -> None:
        self._request = request
        self._stream = stream
        self.peer = peer
        self._host = host
        split = urlsplit(request.path)
        self.path = split.path
        self.query = dict(parse_qsl(split.query, keep_blank_values=True))
        self.subprotocols = tuple(request.proposed_subprotocols)

    def header(self, name: str) -> str | None:
        """The first header of this name, whatever its case."""
        if name.lower() == "host":
            # The library takes it out of the headers that it hands on.
            return self._host
        wanted = name.lower().encode("latin-1")
        for key, value in self._request.headers:
            if key.lower() == wanted:
                return value.decode("latin-1")
        return None

    async def accept(
        self,
        *,
        name: str,
        subprotocol: str | None = None,
        limits: OutboxLimits | None = None,
        write_deadline: float = 30.0,
        ping_interval: float | None = 20.0,
        ping_timeout: float = 20.0,
    ) -> WebSocketChannel:
        """Finish the handshake. Parameters: ``ping_interval``, None for no keepalive of our own."""
        connection = await self._request.accept(subprotocol=subprotocol)
        self._stream.release()
        self._stream.bound_unsent()
        return WebSocketChannel(
            connection,
            self._stream,
            name=name,
            limits=limits,
            write_deadline=write_deadline,
            ping_interval=ping_interval,
            ping_timeout=ping_timeout,
        )

    async def refuse(self, code: int, reason: str) -> None:
        """Accept and close at once, so that the client can see the code; a refused upgrade has none to show."""
        connection = await self._request.accept()
        # Who is not heard does not fill our memory either, in the moment until the goodbye is answered.
        connection._max_message_size = REFUSED_BYTES
        self._stream.release()
        with trio.move_on_after(GOODBYE_WITHIN):
            await connection.aclose(code, reason)

    async def reject(self, status: int, body: bytes = b"", headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Answer the handshake with an HTTP status."""
        await self._request.reject(status, body=body, extra_headers=list(headers))


class WebSocketChannel:
    """An accepted connection. Made by ``WebSocketRequest.accept``."""

    def __init__(
        self,
        connection: WebSocketConnection,
        stream: PeekStream,
        *,
        name: str,
        limits: OutboxLimits | None = None,
        write_deadline: float = 30.0,
        ping_interval: float | None = 20.0,
        ping_timeout: float = 20.0,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._name = name
        self._write_deadline = write_deadline
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._outbox = Outbox(limits or OutboxLimits())
        self._is_cut_off = False
        self._closing = (CLOSE_NORMAL, "")

    @property
    def name(self) -> str:
        return self._name

    async def receive(self) -> Line | None:
        """The next message, surrounding whitespace stripped; None when the connection is closed or cut off."""
        while not self._is_cut_off:
            try:
                message = await self._connection.get_message()
            except ConnectionClosed:
                return None
            raw = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else bytes(message)
            raw = raw.strip()
            if not raw:
                continue
            return raw if isinstance(message, str) else _checked(raw)
        return None

    def send_nowait(self, frame: bytes) -> bool:
        try:
            return self._outbox.put_nowait(frame)
        except OutboxFull:
            self.cut_off(CLOSE_GAVE_UP_SENDING, "too much is waiting to be read")
            return False

    def send_together_nowait(self, frames: Frames) -> bool:
        if self._outbox.is_closed:
            return False
        if not self._outbox.is_flushed or self._connection._stream_lock.locked():
            return all(self.send_nowait(frame) for frame in frames.whole)
        if frames.prepared is None:
            frames.prepared = text_frames(frames.whole)
        if not self._stream.send_now(frames.prepared):
            # The writer puts out the rest: its write begins with it.
            self._outbox.put_nowait(b"")
        return True

    def cut_off(self, code: int, reason: str) -> None:
        """Stop serving this client: forget what is queued and end the connection with this close code.

        A client that does not read cannot be told either; but the kernel keeps what we say last until it reads.
        """
        if not self._is_cut_off:
            self._closing = (code, reason)
        self._stop_reading()
        self._stream.hold_all()

    @property
    def has_room(self) -> bool:
        return self._outbox.has_room

    async def wait_room(self) -> bool:
        return await self._outbox.wait_room()

    async def run_writer(self) -> None:
        """Write messages, many in one write, until closed. When a write takes longer than its deadline the client is
        cut off."""
        whole = True
        try:
            while batch := await self._outbox.next_batch(BATCH_FRAMES, BATCH_BYTES):
                whole = False
                data = text_frames(filter(None, batch))
                async with self._connection._stream_lock:
                    whole = await self._stream.send_within(data, self._write_deadline)
                    if not whole:
                        logger.warning("%s has read nothing for %g seconds; closed", self._name, self._write_deadline)
                        self.cut_off(CLOSE_GAVE_UP_SENDING, "nothing was read for too long")
                        whole = await self._stream.send_within(b"", GOODBYE_WITHIN)
                if not whole:
                    return
            if self._is_cut_off and not self._stream.is_aborted:
                # A writer that ends stands for a client that cannot be told anything. This one is told in a moment.
                await trio.sleep_forever()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            if not whole:
                self.abort()

    def companions(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        if self._ping_interval is None:
            return ()
        return ((f"{self._name} keepalive", self._keep_alive),)

    async def flushed(self, within: float) -> bool:
        return await self._outbox.wait_flushed(within)

    def closing_code(self, code: int, reason: str) -> None:
        if not self._is_cut_off:
            self._closing = (code, reason)

    async def aclose(self) -> None:
        """Write what is queued (``FLUSH_WITHIN``), then the close frame, and wait a moment for the client's
        (``GOODBYE_WITHIN``)."""
        if self._closing[0] == CLOSE_GAVE_UP_SENDING:
            # It has everything again when it comes back; what matters now is that it learns why.
            self._outbox.discard()
        self._outbox.close()
        self._stream.hold_all()
        flushed = await self._outbox.wait_flushed(FLUSH_WITHIN)
        try:
            if flushed:
                with trio.move_on_after(GOODBYE_WITHIN):
                    await self._connection.aclose(*self._closing)
        finally:
            self.abort()

    def abort(self) -> None:
        self._stop_reading()
        self._stream.abort()

    def _stop_reading(self) -> None:
        self._is_cut_off = True
        self._outbox.discard()
        # Closes the queue of messages, not the connection: the close frame may still be to come.
        self._connection._recv_channel.close()

    async def _keep_alive(self) -> None:
        assert self._ping_interval is not None
        while True:
            await trio.sleep(self._ping_interval)
            answered = False
            try:
                with trio.move_on_after(self._ping_timeout):
                    await self._connection.ping()
                    answered = True
            except ConnectionClosed:
                return
            if not answered:
                # Also right when the deadline fell into the write of the ping: half a frame may be out.
                self.abort()
                return


def _checked(raw: bytes) -> Line:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return InvalidUtf8(error.start)
    return raw
