"""One listening address for HTTP and WebSocket, inside our own tree.

Owns the accept loop, so that Hypercorn's defects stay outside: each connection is accepted here, its request head is
read with a deadline, and then it is served by Hypercorn's ``TCPServer`` or, on a mounted path, as a WebSocket. A
client that does not read cannot hold the tree: writes have deadlines, and a cancellation closes every HTTP stream at
once. Running out of descriptors does not end the loop, and who comes meanwhile is told. One connection's crash is that
connection's.

Internals of Hypercorn are used (``TCPServer``, its events, ``Lifespan``, ``WorkerContext``, ``ConnectionState``);
its version is pinned, and a contract test pins them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from trio_websocket import ConnectionClosed, wrap_server_stream

from hermes.nurseries.containment import Crash, PoolFull, TaskPool, contained, foreign_nursery, open_task_pool
from hermes.protocols.channels.listener_counts import ListenerCounts
from hermes.protocols.channels.peek_stream import PeekStream, RequestHead, parse_head
from hermes.protocols.channels.spare_descriptor import SpareDescriptor
from hermes.protocols.channels.websocket import WebSocketRequest
from hermes.records import dataclass

logger = logging.getLogger(__name__)

AsgiApp = Callable[..., Awaitable[None]]
WebSocketHandler = Callable[[WebSocketRequest], Awaitable[None]]

_ACCEPT_PAUSE: Final = 0.1
_CLOSE_WITHIN = 1.0
_TRY_AGAIN_AFTER: Final = (0.05, 0.1, 0.2, 0.4)
_TOO_MANY_CONNECTIONS: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n"
)
_ANSWERED_BY_HYPERCORN: Final = (b"\r\ncontent-length: 0\r\n", b"\r\nconnection: close\r\n")
_BAD_HANDSHAKE: Final = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds of one listener. Beyond ``max_connections`` a new one is answered 503 and closed."""

    max_connections: int = 1024
    head_deadline: float = 5.0
    head_bytes: int = 16 * 1024
    write_deadline: float = 30.0
    keep_alive: float = 10.0
    """Seconds without a request. Longer than usual clients keep a connection, so that it is they who end it."""
    drain_grace: float = 3.0
    websocket_message_bytes: int = 384 * 1024 * 1024
    tcp_user_timeout: float = 10.0


async def open_listeners(host: str, port: int, limits: ListenerLimits) -> list[trio.SocketListener]:
    """Listening sockets for an address; port 0 picks a free one. Raises OSError when it cannot be had, even after the
    moment that a server needs which is just ending."""
    listeners = None
    for pause in _TRY_AGAIN_AFTER:
        try:
            listeners = await trio.open_tcp_listeners(port, host=host)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        await trio.sleep(pause)
    if listeners is None:
        listeners = await trio.open_tcp_listeners(port, host=host)
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    for listener in listeners:
        if option is not None:
            # Inherited by accepted sockets: the kernel gives up on a vanished peer even where nobody writes.
            listener.socket.setsockopt(socket.IPPROTO_TCP, option, int(limits.tcp_user_timeout * 1000))
    return listeners


def listening_port(listeners: list[trio.SocketListener]) -> int:
    """The port of the first listener."""
    port: int = listeners[0].socket.getsockname()[1]
    return port


class HttpListener:
    """Serves an ASGI application and WebSocket handlers on the same sockets.

    Parameters: ``websockets``, handlers by exact path. A handler gets the unanswered handshake; when it returns the
    connection is closed. Other paths answer a handshake with what the application says to a GET. ``always``, headers
    of the answers that the application is not asked for: to what is no request, and to one connection too many.
    """

    def __init__(
        self,
        app: AsgiApp,
        *,
        websockets: Mapping[str, WebSocketHandler] | None = None,
        limits: ListenerLimits | None = None,
        always: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self._always = b"".join(b"%s: %s\r\n" % header for header in always)
        self._limits = limits or ListenerLimits()
        self._websockets = dict(websockets or {})
        self._config = _hypercorn_config(self._limits)
        self._app = wrap_app(app, self._config.wsgi_max_body_size, "asgi")
        self._context = WorkerContext(None)
        self._state: dict[str, Any] = {}
        self._http_streams: set[PeekStream] = set()
        self._connections: TaskPool | None = None
        self._turned_away = self._cut_off = 0

    @property
    def connections(self) -> int:
        """How many connections are being served."""
        return 0 if self._connections is None else self._connections.count

    def counts(self) -> ListenerCounts:
        return ListenerCounts(self.connections, self._turned_away, self._cut_off)

    async def serve(
        self,
        listeners: list[trio.SocketListener],
        *,
        drain: trio.Event | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled or drained. After ``drain`` is set nobody new is accepted, idle connections are
        closed, and busy ones get ``drain_grace`` seconds. The listeners are closed in any case."""
        lifespan = Lifespan(self._app, self._config, self._state)
        crashes: list[Exception] = []

        async def run_lifespan() -> None:
            outcome = await contained("http lifespan", lifespan.handle_lifespan, log=False)
            if isinstance(outcome, Crash):
                crashes.append(outcome.error)

        async with open_task_pool("http services", 2 + len(listeners)) as services:
            services.start(self._close_streams_when_cancelled, name="http reaper")
            lifespan_task = services.start(run_lifespan, name="http lifespan")
            try:
                if not await _start_application(lifespan):
                    await lifespan_task.wait_ended()
                if crashes:
                    raise crashes[0]
                async with open_task_pool("http connections", self._limits.max_connections) as connections:
                    self._connections = connections
                    accepting = [
                        services.start(self._accept, listener, connections, name="http accept")
                        for listener in listeners
                    ]
                    task_status.started()
                    await (drain if drain is not None else trio.Event()).wait()
                    for loop in accepting:
                        loop.cancel("draining")
                    _close_all(listeners)
                    await self._context.terminated.set()
                    with trio.move_on_after(self._limits.drain_grace):
                        await connections.wait_empty()
                    self._abort_http_streams()
            finally:
                self._connections = None
                _close_all(listeners)
            with trio.move_on_after(self._config.shutdown_timeout):
                await _stop_application(lifespan)

    async def _accept(self, listener: trio.SocketListener, connections: TaskPool) -> None:
        spare = SpareDescriptor()
        try:
            await self._accept_with(listener, connections, spare)
        finally:
            spare.close()

    async def _accept_with(self, listener: trio.SocketListener, connections: TaskPool, spare: SpareDescriptor) -> None:
        while True:
            try:
                raw = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                # Mostly out of descriptors. Whatever it is: a deaf listener would be worse than a busy one.
                logger.error("cannot accept a connection: %s; trying again", error)
                self._turn_away_with(spare, listener)
                await trio.sleep(_ACCEPT_PAUSE)
                continue
            stream = PeekStream(raw, self._limits.write_deadline)
            try:
                task = connections.start(self._serve_connection, stream, name="http connection")
                # An application that does not listen for a disconnect would go on sending into nothing.
                stream.on_abort = task.cancel
            except PoolFull:
                self._turned_away += 1
                _turn_away(stream, self._always)

    def _turn_away_with(self, spare: SpareDescriptor, listener: trio.SocketListener) -> None:
        """Nobody who waits while there are no descriptors is left in the dark."""
        while (waiting := spare.accept_nowait(listener.socket._sock)) is not None:  # type: ignore[attr-defined]
            self._turned_away += 1
            with waiting:
                waiting.setblocking(False)
                with contextlib.suppress(OSError):
                    waiting.send(_TOO_MANY_CONNECTIONS + self._always + b"\r\n")
                    waiting.shutdown(socket.SHUT_WR)
                    # What it has asked is read away: closed over it, the answer would be lost.
                    waiting.recv(MAX_RECV)
            spare.hold()

    async def _serve_connection(self, stream: PeekStream) -> None:
        try:
            head = await stream.peek_head(self._limits.head_deadline, self._limits.head_bytes)
            if head is None:
                return
            request = parse_head(head)
            if request is not None and request.wants_websocket and request.path in self._websockets:
                await self._serve_websocket(stream, request)
            else:
                await self._serve_http(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed, ConnectionError):
            # The client has gone, which is how connections end.
            pass
        finally:
            self._cut_off += stream.is_stalled
            stream.abort()

    async def _serve_http(self, stream: PeekStream) -> None:
        self._http_streams.add(stream)
        try:
            server = _ConnectionServer(
                self._app,
                self._config,
                self._context,
                ConnectionState(self._state.copy()),
                stream,  # type: ignore[arg-type]
            )
            server.always = self._always
            await server
        finally:
            self._http_streams.discard(stream)

    async def _serve_websocket(self, stream: PeekStream, head: RequestHead) -> None:
        # A WebSocket handler ends by itself, in its own order, when its channel does.
        stream.on_abort = None
        stream.hold_behind_head()
        stream.keep_alive(idle=30, interval=10, probes=3)
        peer = str(stream.socket.getpeername()[0])
        proposal = None
        try:
            async with foreign_nursery("websocket protocol") as nursery:
                with trio.move_on_after(self._limits.head_deadline):
                    proposal = await wrap_server_stream(
                        nursery, stream, 1, self._limits.websocket_message_bytes, 64 * 1024
                    )
                if proposal is not None:
                    await self._websockets[head.path](WebSocketRequest(proposal, stream, peer, host=head.host))
        except* UnicodeError:
            if proposal is not None:
                raise
            # The library reads some headers as text without looking whether they are.
            _say_nowait(stream, _BAD_HANDSHAKE)

    async def _close_streams_when_cancelled(self) -> None:
        """Hypercorn shields its writes, so a stalled reader would outlive our cancellation by a write deadline."""
        try:
            await trio.sleep_forever()
        finally:
            self._abort_http_streams()

    def _abort_http_streams(self) -> None:
        for stream in list(self._http_streams):
            stream.abort()


class _ConnectionServer(TCPServer):
    """Hypercorn's server of one connection, which otherwise keeps a connection that the client has closed for the
    whole of ``keep_alive_timeout``, descriptor, task and all; and for ever one whose request Quart has answered, or
    that speaks HTTP/2 and asks for nothing: anybody could hold all connections that way."""

    always = b""
    """Header lines of an answer that Hypercorn gives by itself."""
    _client_has_gone = False
    _is_closed = False
    _head = b""
    """The head of an answer whose first bytes come next: both go out in one write."""

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated) and event.idle:
            # In the task of the application that has answered, which Quart-Trio cancels at this very moment.
            with trio.move_on_after(_CLOSE_WITHIN, shield=True) as kept:
                await super().protocol_send(event)
            if kept.cancelled_caught:
                # Nobody would count its idle time.
                self.stream.abort()
            return
        if isinstance(event, RawData):
            if not self._head and _has_more_behind_it(event.data):
                own = self.always not in event.data and _is_answered_by_hypercorn(event.data)
                self._head = event.data[:-2] + self.always + b"\r\n" if own else event.data
                return
            event, self._head = RawData(self._head + event.data), b""
            if not event.data:
                return
        elif self._head:
            head, self._head = self._head, b""
            await super().protocol_send(RawData(head))
        await super().protocol_send(event)

    async def _read_data(self) -> None:
        data = b"unread"
        while data:
            try:
                data = bytes(await self.stream.receive_some(MAX_RECV))
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            await self.protocol.handle(RawData(data))
            await self._count_idle_time()
        await self.protocol.handle(Closed())
        self._client_has_gone = True
        await self.idle_task.stop()

    async def _count_idle_time(self) -> None:
        """Hypercorn does that for HTTP/2 behind the first stream only."""
        protocol = self.protocol.protocol
        if isinstance(protocol, H2Protocol) and protocol.idle and self.idle_task._handle is None:
            await self.idle_task.restart(self._task_group, self._idle_timeout)

    async def _close(self) -> None:
        # An application may be told of the end of its response by a cancellation (Quart-Trio is); this runs in the
        # task that is cancelled, and without it a connection that was to be closed would stay open.
        if self._is_closed:
            return
        with trio.move_on_after(_CLOSE_WITHIN, shield=True) as goodbye:
            await super()._close()
        if goodbye.cancelled_caught:
            # A loop that stood still for so long has used the time up before the first step of the goodbye.
            self.stream.abort()
        self._is_closed = True

    async def _idle_timeout(self) -> None:
        if not self._client_has_gone:
            await super()._idle_timeout()


def _is_answered_by_hypercorn(head: bytes) -> bool:
    """Its refusals have no body and end the connection; of one in the middle of a body, the two lines stand apart."""
    lower = head.lower()
    return all(line in lower for line in _ANSWERED_BY_HYPERCORN)


def _has_more_behind_it(data: bytes) -> bool:
    """The head of an answer behind which more comes at once: the body, or its empty end, of one that is not sent piece
    by piece, and the first event of a stream of events."""
    if not (data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n")):
        return False
    head = data.lower()
    return b"\r\ncontent-length: " in head or b"\r\ncontent-type: text/event-stream" in head


def _hypercorn_config(limits: ListenerLimits) -> Config:
    config = Config()
    # Its default handlers write to standard error by themselves, and an access log could reach standard output.
    config.errorlog = logging.getLogger("hermes.http")
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = limits.keep_alive
    config.h11_max_incomplete_size = limits.head_bytes
    config.startup_timeout = 10.0
    config.shutdown_timeout = 3.0
    return config


async def _start_application(lifespan: Lifespan) -> bool:
    """False when the application's lifespan is over already: it has none, or it has failed to start."""
    try:
        await lifespan.wait_for_startup()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return False
    return not lifespan.shutdown.is_set()


async def _stop_application(lifespan: Lifespan) -> None:
    try:
        await lifespan.wait_for_shutdown()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


def _turn_away(stream: PeekStream, headers: bytes) -> None:
    _say_nowait(stream, _TOO_MANY_CONNECTIONS + headers + b"\r\n")
    logger.warning("refused a connection: the limit is reached")
    stream.abort()


def _say_nowait(stream: PeekStream, answer: bytes) -> None:
    # One attempt that cannot wait: there is no task to wait in, and the socket buffer of a new connection is empty.
    try:
        stream.socket._sock.send(answer)  # type: ignore[attr-defined]
    except OSError as error:
        logger.debug("a refused connection was gone already: %s", error)


def _close_all(listeners: list[trio.SocketListener]) -> None:
    for listener in listeners:
        listener.socket.close()
