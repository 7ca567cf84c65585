"""Between a server's bytes and the client's messages: bounded both ways, and never a reason to wait for a server.

Inwards: lines of bounded length at a bounded rate; what is no message is logged and skipped. Outwards: an outbox that
takes a message at once; a server that does not read until the outbox is full has ended its connection. So a caller
who is cancelled can always hand over its cancel notification without waiting.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterable, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from hermes.agent.streaming import clean_surrogates

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    Incoming = SessionMessage | Exception

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_LINE = 16 * 1024 * 1024
MENDED_AT_MOST = 1024 * 1024
MAX_WAITING = 256
MAX_GARBAGE = 1_000
SHOWN_GARBAGE = 5
CHUNK = 65_536
BURST = 500
PER_SECOND = 4_000


class ByteSource(Protocol):
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...


class ByteSink(Protocol):
    async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...


class Outbox(Generic[T]):
    """What is to be sent. ``send`` never waits; ``on_overflow`` is called once when nobody takes things out."""

    def __init__(self, on_overflow: Callable[[], object], limit: int = MAX_WAITING) -> None:
        self._in, self.out = trio.open_memory_channel[T](limit)
        self._on_overflow = on_overflow
        self._closed = False

    async def send(self, item: T, /) -> None:
        """Put it in. After the end, and when it is full, the item is dropped: the connection is over."""
        if self._closed:
            return
        try:
            self._in.send_nowait(item)
        except trio.WouldBlock:
            self._closed = True
            self._on_overflow()
        except trio.BrokenResourceError:
            self._closed = True

    async def aclose(self) -> None:
        self._closed = True
        self._in.close()

    async def __aenter__(self) -> Outbox[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        self._in.close()


class LineTooLong(Exception):
    """A line has grown past its limit without an end."""


class Lines:
    """Cuts bytes into lines on LF. Raises ``LineTooLong``; nothing can be read after that."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._open = bytearray()

    def feed(self, chunk: bytes | bytearray) -> Iterator[bytes]:
        """The lines that this chunk completes."""
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._extend(piece)
            line = bytes(self._open)
            self._open.clear()
            yield line
        self._extend(rest)

    def _extend(self, piece: bytes | bytearray) -> None:
        if len(self._open) + len(piece) > self._limit:
            raise LineTooLong
        self._open += piece


def mended(line: bytes) -> bytes:
    """The same message with bytes that are no UTF-8 and halves of characters replaced; b"" if that is not what is
    wrong with it. They cost the character, and not the answer that a caller waits for."""
    if len(line) > MENDED_AT_MOST:
        return b""
    text = line.decode("utf-8", "replace")
    if "\ufffd" not in text and "\\ud" not in text.lower():
        return b""
    try:
        return clean_surrogates(json.dumps(json.loads(text), ensure_ascii=False)).encode()
    except (ValueError, RecursionError):
        return b""


class Pace:
    """Slows a flood down: after each ``BURST`` things, wait until they fit the rate."""

    def __init__(self) -> None:
        self._count = 0
        self._began = trio.current_time()

    async def step(self) -> None:
        self._count += 1
        if self._count >= BURST:
            await trio.sleep(max(0.0, self._began + BURST / PER_SECOND - trio.current_time()))
            self._count, self._began = 0, trio.current_time()


async def read_messages(
    stream: ByteSource,
    inbox: trio.MemorySendChannel[Incoming],
    parse: Callable[[bytes], SessionMessage | None],
    wanted: Callable[[Incoming], bool],
    label: str,
) -> str:
    """Carry the wanted messages from the stream to the inbox, to the end of either.

    Returns why the server ended it, or "" if the session did.
    """
    lines, pace = Lines(), Pace()
    garbage = 0
    with inbox:
        try:
            while chunk := await stream.receive_some(CHUNK):
                await pace.step()
                for line in lines.feed(chunk):
                    message = parse(line)
                    if message is not None:
                        garbage = 0
                        if wanted(message) and not await _taken(inbox, message):
                            return ""
                    elif line.strip():
                        garbage += 1
                        _report_garbage(label, line, garbage)
                        if garbage >= MAX_GARBAGE:
                            return "prints something that is not the protocol"
                    await pace.step()
        except LineTooLong:
            return f"sent a message of more than {MAX_LINE} bytes"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "broke its output off"
        return "closed its output"


async def write_messages(outbox: trio.MemoryReceiveChannel[SessionMessage], stream: ByteSink) -> str:
    """Carry messages from the outbox to the stream. Returns why the server ended it, or "" if the session did."""
    try:
        async for item in outbox:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            await stream.send_all(text.encode() + b"\n")
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return "closed its input"
    return ""


async def forward(
    source: AsyncIterable[Incoming], inbox: trio.MemorySendChannel[Incoming], wanted: Callable[[Incoming], bool]
) -> str:
    """Carry the wanted messages of a transport that parses by itself, at the same bounded rate."""
    pace = Pace()
    with inbox:
        async for item in source:
            if wanted(item) and not await _taken(inbox, item):
                return ""
            await pace.step()
    return "closed the connection"


async def _taken(inbox: trio.MemorySendChannel[Incoming], item: Incoming) -> bool:
    """Hand it to the session; false if the session has ended."""
    try:
        await inbox.send(item)
    except trio.BrokenResourceError:
        return False
    return True


def _report_garbage(label: str, line: bytes, count: int) -> None:
    if count <= SHOWN_GARBAGE:
        log.warning("%s printed a line that is no message: %.200r", label, line[:200])
    elif count == SHOWN_GARBAGE + 1:
        log.warning("%s prints more lines that are no messages; they are skipped", label)
