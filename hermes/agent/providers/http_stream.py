"""The only file that opens connections to model providers: HTTP/1.1 over Trio, with TLS, proxies and an idle pool.

Owns: connecting, sending one request, reading one response, every deadline on the way, and closing. Leaves the meaning
of bodies to the wire formats. Redirects are never followed, so a key never travels to another host.

Why not a general client: measured in one run on one core (best of 5, with splitter, JSON and parser), an event costs
3.7 µs of CPU through this file and 11.6 µs through httpx2 (``aiter_raw``) when 16 of them share a segment, 12 µs and
14 µs when each has its own, which is mostly Trio and the kernel; importing httpx2 takes 125 ms on top. A cancelled
request closes its socket before it unwinds: there is no pool that could get it back half read.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import trio

from hermes.agent.providers.http_wire import (
    MAX_HEAD,
    BodyReader,
    ContentDecoder,
    ResponseHead,
    WireError,
    body_reader,
    parse_head,
)
from hermes.errors import ProviderError
from hermes.records import dataclass

_RECEIVE_SIZE: Final = 128 * 1024
_COPIED: Final = 64 * 1024
"""Bytes of a body up to which it is copied behind the head, to be sent in one piece."""
_MAX_IDLE_PER_ORIGIN: Final = 8
_MAX_IDLE: Final = 32
_MAX_IDLE_SECONDS: Final = 60.0

Patience = float | None
"""What a consumer answers: None, go on; or the seconds it will still wait for the rest, which it does not need."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. ``first_byte`` is the silence allowed before the answer begins, ``idle`` the one between its bytes."""

    connect: float = 30.0
    first_byte: float = 120.0
    idle: float = 120.0
    total: float = 1800.0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Proxy URLs by scheme and the hosts that need none, as the usual variables have them."""

    http: str | None = None
    https: str | None = None
    no_proxy: tuple[str, ...] = ()

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> ProxySettings:
        """``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY`` of a mapping, in either case; lower case wins.

        SOCKS proxies of ``ALL_PROXY`` are left out, because they cannot be spoken to.
        """

        def value(name: str) -> str | None:
            return variables.get(name) or variables.get(name.upper()) or None

        every = value("all_proxy")
        every = every if every is not None and every.startswith("http://") else None
        exceptions = tuple(entry.strip() for entry in (value("no_proxy") or "").split(",") if entry.strip())
        return cls(value("http_proxy") or every, value("https_proxy") or every, exceptions)

    def proxy_for(self, scheme: str, host: str) -> str | None:
        for entry in self.no_proxy:
            bare = entry.strip().lstrip("*").lstrip(".").lower()
            if (bare and (host == bare or host.endswith("." + bare))) or entry.strip() == "*":
                return None
        return self.https if scheme == "https" else self.http


class _TooSlow(Exception):
    """A deadline of this file passed. The text says which."""


# What a failure of the transport means to the retry engine. First match along the chain of causes wins.
TRANSPORT_ERRORS: Final[tuple[tuple[type[BaseException], str, str], ...]] = (
    (ssl.SSLCertVerificationError, "ssl_cert_verification", "the certificate of {host} cannot be verified"),
    (ssl.SSLError, "timeout", "no secure connection to {host}"),
    (_TooSlow, "timeout", "{error}"),
    (WireError, "stream_dropped", "{host}: {error}"),
    (trio.ClosedResourceError, "stream_dropped", "the connection to {host} was closed"),
    (ConnectionRefusedError, "timeout", "{host} refuses connections"),
    (trio.BrokenResourceError, "stream_dropped", "{host} closed the connection"),
    (ConnectionError, "stream_dropped", "{host} closed the connection"),
    (OSError, "timeout", "{host} cannot be reached"),
)
_TRANSPORT_TYPES: Final = tuple(row[0] for row in TRANSPORT_ERRORS)


def transport_error(error: BaseException, host: str, *, reached: bool) -> ProviderError:
    """The domain error for a failed connection. A connection that was never made is not a dropped stream."""
    chain = _causes(error)
    for kind, error_class, sentence in TRANSPORT_ERRORS:
        found = next((link for link in chain if isinstance(link, kind)), None)
        if found is not None:
            if error_class == "stream_dropped" and not reached:
                error_class = "timeout"
            return ProviderError(
                sentence.format(host=host, error=found), error_class=error_class, reached_provider=reached
            )
    return ProviderError(f"the request to {host} failed", error_class="unknown", reached_provider=reached)


def _causes(error: BaseException) -> list[BaseException]:
    """The error, its causes, and the members of groups (Trio reports one per address it tried)."""
    chain: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(chain) < 32:
        link = waiting.pop(0)
        if link is None or link in chain:
            continue
        chain.append(link)
        waiting.append(link.__cause__)
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)
    return chain


@dataclass(frozen=True, slots=True)
class _Origin:
    scheme: str
    host: str
    port: int
    proxy: str | None


class _Connection:
    """One socket, plain or TLS. ``close`` does not wait: no TLS farewell, the peer sees the end at once."""

    def __init__(self, origin: _Origin, socket: trio.SocketStream, stream: trio.abc.Stream) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._plain = socket
        self._socket = socket.socket
        self._stream = stream

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive(self) -> bytes:
        if self._stream is not self._plain or os.name != "posix":
            return bytes(await self._stream.receive_some(_RECEIVE_SIZE))
        # A model is slower than we are: to try first and to wait then would be a failed call for each piece.
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return os.read(self._socket.fileno(), _RECEIVE_SIZE)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    def quiet(self) -> bool:
        """Nothing to read: an idle connection that is readable was closed, or says something nobody asked for."""
        return self._socket.fileno() >= 0 and not self._socket.is_readable()

    def close(self) -> None:
        self._socket.close()


class HttpResponse:
    """A response whose head has arrived. Use it as a context manager; leaving closes the socket or pools it.

    It goes back to the pool only if the body was read to its last byte.
    """

    def __init__(
        self, client: HttpClient, connection: _Connection, head: ResponseHead, rest: bytes, ends_at: float, idle: float
    ) -> None:
        self.status = head.status
        self.headers = head.headers
        self._client = client
        self._connection = connection
        self._keep_alive = head.keep_alive
        self._rest = rest
        self._ends_at = ends_at
        self._idle = idle
        self._body: BodyReader = body_reader(head)
        coding = head.headers.get("content-encoding", "identity").lower()
        self._decoder = ContentDecoder(coding) if coding not in ("", "identity") else None

    def __enter__(self) -> HttpResponse:
        return self

    def __exit__(self, *_: object) -> None:
        if self._keep_alive and self._body.complete and not self._body.surplus:
            self._client._keep(self._connection)
        else:
            self._connection.close()

    async def pump(self, consume: Callable[[bytes], Patience], patience: Patience = None) -> None:
        """Feed the body to ``consume`` as it arrives. Raises ``ProviderError``, but only while the rest is needed."""
        try:
            now = armed = trio.current_time()
            wait = self._idle if patience is None else patience
            # One scope for the whole body, its deadline moved as bytes come: a scope per read would cost more than
            # the read. The deadline moves only after a hundredth of itself, because moving is not free either.
            with trio.move_on_at(min(now + wait, self._ends_at)) as scope:
                while not self._body.complete:
                    data = self._take(await self._next_bytes())
                    now = trio.current_time()
                    before, patience = patience, consume(data) if data else patience
                    if patience is not None:
                        if patience != before:
                            scope.deadline = min(now + patience, self._ends_at)
                    elif now - armed > self._idle / 100:
                        armed = now
                        scope.deadline = min(now + self._idle, self._ends_at)
            if scope.cancelled_caught and patience is None:
                raise _TooSlow(self._what_was_slow())
        except _TRANSPORT_TYPES as error:
            if patience is None:
                raise transport_error(error, self._connection.origin.host, reached=True) from error

    async def read(self, limit: int, patience: Patience = None) -> bytes:
        """The body, at most ``limit`` bytes of it.

        Raises ``ProviderError``; with ``patience`` it never does, and gives what came until then.
        """
        pieces: list[bytes] = []
        size = 0

        def collect(data: bytes) -> Patience:
            nonlocal size
            pieces.append(data)
            size += len(data)
            return patience if size < limit else 0.0

        await self.pump(collect, patience)
        return b"".join(pieces)[:limit]

    async def _next_bytes(self) -> bytes:
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        return await self._connection.receive()

    def _take(self, raw: bytes) -> bytes:
        if not raw:
            self._body.end_of_stream()
            return b""
        data = self._body.feed(raw)
        return data if self._decoder is None else self._decoder.feed(data)

    def _what_was_slow(self) -> str:
        host = self._connection.origin.host
        if trio.current_time() >= self._ends_at:
            return f"the answer of {host} took too long"
        return f"{host} sent nothing for {self._idle:g} s"


class HttpClient:
    """Opens connections and keeps a few idle ones.

    Contract: every method raises ``ProviderError`` for failures of the transport and nothing else but ``Cancelled``.
    """

    def __init__(self, *, proxies: ProxySettings | None = None, ssl_context: ssl.SSLContext | None = None) -> None:
        self._proxies = proxies or ProxySettings()
        self._ssl_context = ssl_context
        self._idle: list[_Connection] = []

    async def open(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:
        """Send a request and wait for the head of its answer. A pooled socket that turns out dead is replaced once."""
        ends_at = trio.current_time() + timeouts.total
        origin, *message = self._prepare(request)
        pooled = self._take_idle(origin)
        if pooled is not None:
            response = await self._exchange(pooled, message, timeouts, ends_at, may_be_stale=True)
            if response is not None:
                return response
        connection = await self._connect(origin, timeouts)
        response = await self._exchange(connection, message, timeouts, ends_at, may_be_stale=False)
        assert response is not None
        return response

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().close()
        await trio.lowlevel.checkpoint()

    def _prepare(self, request: HttpRequest) -> tuple[_Origin, *tuple[bytes, ...]]:
        url = urlsplit(request.url)
        host = url.hostname
        if url.scheme not in ("http", "https") or not host:
            raise ProviderError(
                "the base URL of the provider is not an http or https URL",
                error_class="format_error",
                reached_provider=False,
            )
        try:
            port = url.port or (443 if url.scheme == "https" else 80)
            proxy = self._proxies.proxy_for(url.scheme, host)
            origin = _Origin(url.scheme, host, port, proxy)
            shown_host = f"[{host}]" if ":" in host else host
            authority = shown_host if url.port is None else f"{shown_host}:{port}"
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            absolute = proxy is not None and url.scheme == "http"
            lines = [
                f"{request.method} {f'http://{authority}{target}' if absolute else target} HTTP/1.1",
                f"Host: {authority}",
                "Accept-Encoding: identity",
                *(f"{name}: {value}" for name, value in request.headers),
            ]
            if request.body or request.method == "POST":
                lines.append(f"Content-Length: {len(request.body)}")
            if any("\r" in line or "\n" in line for line in lines):
                raise ValueError("a line end in a header")
            head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        except ValueError as error:
            raise ProviderError(
                "the base URL, the key or a header holds characters that cannot be sent",
                error_class="format_error",
                reached_provider=False,
            ) from error
        if len(request.body) > _COPIED:
            return origin, head, request.body
        return origin, head + request.body

    async def _connect(self, origin: _Origin, timeouts: Timeouts) -> _Connection:
        try:
            with trio.move_on_after(timeouts.connect):
                return await self._open_connection(origin)
            raise _TooSlow(f"no connection to {origin.host} within {timeouts.connect:g} s")
        except _TRANSPORT_TYPES as error:
            raise transport_error(error, origin.host, reached=False) from error

    async def _open_connection(self, origin: _Origin) -> _Connection:
        via = urlsplit(origin.proxy) if origin.proxy else None
        if via is not None and (via.scheme != "http" or not via.hostname):
            raise ProviderError(
                "only http:// proxies are supported", error_class="format_error", reached_provider=False
            )
        host, port = (via.hostname or "", via.port or 80) if via is not None else (origin.host, origin.port)
        socket = await trio.open_tcp_stream(host, port)
        try:
            stream: trio.abc.Stream = socket
            if origin.scheme == "https":
                if via is not None:
                    await _open_tunnel(socket, origin, _proxy_authorization(via.username, via.password))
                secure = trio.SSLStream(socket, self._tls(), server_hostname=origin.host, https_compatible=True)
                await secure.do_handshake()
                stream = secure
        except BaseException:
            socket.socket.close()
            raise
        return _Connection(origin, socket, stream)

    async def _exchange(
        self,
        connection: _Connection,
        message: Sequence[bytes],
        timeouts: Timeouts,
        ends_at: float,
        *,
        may_be_stale: bool,
    ) -> HttpResponse | None:
        """None: the socket was stale and nothing of an answer was seen."""
        received = b""
        try:
            with trio.move_on_at(min(trio.current_time() + timeouts.first_byte, ends_at)):
                for piece in message:
                    await connection.send(piece)
                while True:
                    data = await connection.receive()
                    if not data:
                        raise WireError("the connection was closed before the answer")
                    received += data
                    parsed = _split_head(received)
                    if parsed is not None:
                        head, rest = parsed
                        return HttpResponse(self, connection, head, rest, ends_at, timeouts.idle)
            raise _TooSlow(f"{connection.origin.host} did not answer within {timeouts.first_byte:g} s")
        except _TRANSPORT_TYPES as error:
            connection.close()
            if may_be_stale and not received and not isinstance(error, _TooSlow):
                return None
            raise transport_error(error, connection.origin.host, reached=True) from error
        except BaseException:
            # Cancelled, above all: the provider must see the close now, before anything else unwinds.
            connection.close()
            raise

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context

    def _take_idle(self, origin: _Origin) -> _Connection | None:
        now = trio.current_time()
        for connection in reversed(self._idle[:]):
            if not connection.quiet() or now - connection.idle_since > _MAX_IDLE_SECONDS:
                self._idle.remove(connection)
                connection.close()
            elif connection.origin == origin:
                self._idle.remove(connection)
                return connection
        return None

    def _keep(self, connection: _Connection) -> None:
        same = [idle for idle in self._idle if idle.origin == connection.origin]
        oldest = (
            same[:1] if len(same) >= _MAX_IDLE_PER_ORIGIN else self._idle[:1] if len(self._idle) >= _MAX_IDLE else []
        )
        for idle in oldest:
            self._idle.remove(idle)
            idle.close()
        connection.idle_since = trio.current_time()
        self._idle.append(connection)


def _split_head(received: bytes) -> tuple[ResponseHead, bytes] | None:
    """The final head and what follows it; interim (1xx) heads are skipped."""
    while True:
        end = received.find(b"\r\n\r\n")
        if end < 0:
            if len(received) > MAX_HEAD:
                raise WireError("the head of the answer is too long")
            return None
        head = parse_head(received[:end])
        received = received[end + 4 :]
        if head.status >= 200:
            return head, received


async def _open_tunnel(stream: trio.SocketStream, origin: _Origin, authorization: str) -> None:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    await stream.send_all(
        f"CONNECT {host}:{origin.port} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n{authorization}\r\n".encode("latin-1")
    )
    received = b""
    while (parsed := _split_head(received)) is None:
        data = await stream.receive_some(4096)
        if not data:
            raise WireError("the proxy closed the connection")
        received += data
    if not 200 <= parsed[0].status < 300:
        raise WireError(f"the proxy refused the connection (status {parsed[0].status})")


def _proxy_authorization(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    token = base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
    return f"Proxy-Authorization: Basic {token}\r\n"
