"""The ways to a server: a child process spoken to over its standard streams, streamable HTTP, and the older SSE.

Each gives the client a bounded inbox and outbox and says once, through ``on_end``, why the way has ended. A child
process is started and ended by the supervisor, like every other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from hermes.nurseries.mcp_bridge import Outbox, forward, mended, read_messages, write_messages
from hermes.nurseries.mcp_config import McpServerConfig, server_environment
from hermes.nurseries.piped_process import PipedProcess, open_piped
from hermes.nurseries.process_spec import ProcessSpec
from hermes.nurseries.processes import ProcessSupervisor
from hermes.records import dataclass

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.message import SessionMessage

    Incoming: TypeAlias = SessionMessage | Exception
    Ways: TypeAlias = tuple[trio.MemoryReceiveChannel[Incoming], Outbox[SessionMessage]]

log = logging.getLogger(__name__)

MAX_BODY = 16 * 1024 * 1024
CONNECT_SECONDS = 10.0
EXIT_SEEN_WITHIN = 0.5
LAST_OUTPUT_WITHIN = 0.2

# Other notifications are of no use to us, and a server can send many.
_WANTED = ("notifications/progress", "notifications/tools/list_changed", "notifications/cancelled")

OnEnd = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class TransportHost:
    """What a way needs of its surroundings. ``environment()`` is the server's own, secrets already taken out;
    ``session_id`` names the work that a child process is counted with."""

    supervisor: ProcessSupervisor
    environment: Callable[[], Mapping[str, str]]
    cwd: str
    session_id: str = ""
    redact: Callable[[str], str] = field(default=lambda text: text)


def load_client() -> None:
    """Import the client library: most of a second of work, for a thread, when the first server is used."""
    import mcp.client.sse
    import mcp.client.streamable_http  # noqa: F401


def open_transport(config: McpServerConfig, host: TransportHost, on_end: OnEnd) -> AbstractAsyncContextManager[Ways]:
    """The way to this server, open for the length of the block. Raises ``SpawnFailed``, ``Overloaded``."""
    if config.transport == "stdio":
        return _open_stdio(config, host, on_end)
    return _open_http(config, on_end)


@asynccontextmanager
async def _open_stdio(config: McpServerConfig, host: TransportHost, on_end: OnEnd) -> AsyncIterator[Ways]:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    def message(line: bytes) -> SessionMessage | None:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            return None

    def parse(line: bytes) -> SessionMessage | None:
        return message(line) or message(mended(line))

    label = f"mcp {config.name}"
    spec = ProcessSpec(
        (os.path.expanduser(config.command), *config.args),
        server_environment(host.environment(), config.env),
        cwd=os.path.join(host.cwd, os.path.expanduser(config.cwd or "")),
        session_id=host.session_id,
        name=label,
    )

    def stderr_line(line: str) -> None:
        log.info("%s: %s", label, host.redact(line))

    async with open_piped(host.supervisor, spec, stderr_line) as process:
        into, inbox = trio.open_memory_channel[Any](0)
        outbox: Outbox[SessionMessage] = Outbox(lambda: on_end("does not read what it is sent"))

        async def read() -> None:
            tell(await _reason(process, host, await read_messages(process.stdout, into, parse, _wanted, label)))

        async def watch_exit() -> None:
            # A descendant may keep the output open for ever.
            await process.wait()
            await trio.sleep(LAST_OUTPUT_WITHIN)
            tell(_exit_text(process, host))

        async def write() -> None:
            tell(await _reason(process, host, await write_messages(outbox.out, process.stdin)))

        def tell(reason: str) -> None:
            if reason:
                on_end(reason)

        async with trio.open_nursery() as nursery:
            for what, task in (("from", read), ("to", write), ("exit of", watch_exit)):
                nursery.start_soon(task, name=f"{what} {label}")
            yield inbox, outbox
            nursery.cancel_scope.cancel(reason="the connection is closing")


async def _reason(process: PipedProcess, host: TransportHost, seen: str) -> str:
    """Why it ended. A stream ends because the process ends, most of the time: then the exit code says more."""
    if seen.startswith(("closed", "broke")):
        with trio.move_on_after(EXIT_SEEN_WITHIN):
            await process.wait()
        return _exit_text(process, host) or seen
    return seen


def _exit_text(process: PipedProcess, host: TransportHost) -> str:
    if process.exit_code is None:
        return ""
    tail = host.redact(process.stderr_tail).strip()
    return f"ended with exit code {process.exit_code}" + (f": {tail[-400:]}" if tail else "")


@asynccontextmanager
async def _open_http(config: McpServerConfig, on_end: OnEnd) -> AsyncIterator[Ways]:
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    if config.transport == "sse":
        ways = sse_client(config.url, dict(config.headers), CONNECT_SECONDS, config.timeout + 60, _client_factory)
        async with ways as (source, sink), _carried(source, sink, config, on_end) as carried:
            yield carried
        return
    client = _http_client(dict(config.headers), config.timeout + 60)
    async with client, streamable_http_client(config.url, http_client=client) as (source, sink):
        async with _carried(source, sink, config, on_end) as carried:
            yield carried


@asynccontextmanager
async def _carried(source: Any, sink: Any, config: McpServerConfig, on_end: OnEnd) -> AsyncIterator[Ways]:
    """Our bounded ends of a transport whose own ends may make a caller wait for the server."""
    into, inbox = trio.open_memory_channel[Any](0)
    outbox: Outbox[SessionMessage] = Outbox(lambda: on_end("does not take what it is sent"))

    async def read() -> None:
        reason = await forward(source, into, _wanted)
        if reason:
            on_end(reason)

    async def write() -> None:
        async for item in outbox.out:
            await sink.send(item)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, name=f"from mcp {config.name}")
        nursery.start_soon(write, name=f"to mcp {config.name}")
        yield inbox, outbox
        nursery.cancel_scope.cancel(reason="the connection is closing")


def _client_factory(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
    read = getattr(timeout, "read", None)
    return _http_client(headers or {}, read)


def _http_client(headers: dict[str, str], read: float | None) -> httpx2.AsyncClient:
    """A client whose answers are bounded: a body has a size, an event stream has a size per event."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: httpx2.AsyncByteStream) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            seen = 0
            async for chunk in self._inner:
                seen += len(chunk)
                if seen > MAX_BODY:
                    raise httpx2.DecodingError(f"the answer has more than {MAX_BODY} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def bound(response: httpx2.Response) -> None:
        stream = response.stream
        kind = response.headers.get("content-type", "")
        if isinstance(stream, httpx2.AsyncByteStream) and not kind.startswith("text/event-stream"):
            response.stream = Bounded(stream)

    hooks: dict[str, list[Callable[[httpx2.Response], Awaitable[None]]]] = {"response": [bound]}
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=read)
    return httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks)


def _wanted(item: Any) -> bool:
    """Requests, responses, errors of the transport, and the notifications that mean something here, if well-formed."""
    message = getattr(item, "message", None)
    method = getattr(message, "method", None)
    if message is None or method is None or getattr(message, "id", None) is not None:
        return True
    if method == "notifications/progress":
        params = message.params or {}
        return isinstance(params.get("progress"), int | float) and isinstance(params.get("progressToken"), int | str)
    return method in _WANTED
