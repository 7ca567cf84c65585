"""HTTP/1.1 as a client reads it, without any I/O: the head of a response, and the framing of its body.

Written here because the streaming path is the hot path of a turn: reading one server-sent event through this decoder
costs a fraction of what a general client costs (the figure stands in ``http_stream.py``).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final, Protocol

from hermes.records import dataclass

MAX_HEAD: Final = 64 * 1024
_MAX_CHUNK_LINE: Final = 4096
_MAX_LENGTH_DIGITS: Final = 18


class WireError(Exception):
    """The peer broke the framing of HTTP, or closed before the body was whole."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers; names are lower case, repeated ones joined with a comma."""

    status: int
    headers: Mapping[str, str]
    keep_alive: bool


def parse_head(block: bytes) -> ResponseHead:
    """Read everything before the blank line. Raises ``WireError``."""
    first, *lines = block.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit():
        raise WireError("the answer is not HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name_bytes, colon, value = line.partition(b":")
        if not colon:
            raise WireError("the answer has a malformed header")
        name = name_bytes.decode("latin-1").strip().lower()
        text = value.decode("latin-1").strip()
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection and (version != b"HTTP/1.0" or "keep-alive" in connection)
    return ResponseHead(int(code), headers, keep_alive)


class BodyReader(Protocol):
    """Decodes body framing. ``complete`` is set when the last byte was read; ``surplus`` is what came behind it."""

    complete: bool
    surplus: bytes

    def feed(self, data: bytes) -> bytes: ...

    def end_of_stream(self) -> None:
        """The peer closed. Raises ``WireError`` if the body is not whole."""
        ...


class ChunkedBody:
    """``Transfer-Encoding: chunked``. What arrived of a chunk is given out at once, not when the chunk is whole."""

    def __init__(self) -> None:
        self.complete = False
        self.surplus = b""
        self._held = b""
        self._left = 0
        self._after_chunk = False
        self._in_trailers = False

    def feed(self, data: bytes) -> bytes:
        if self._held:
            data = self._held + data
            self._held = b""
        pieces: list[bytes] = []
        position, size = 0, len(data)
        while not self.complete:
            if self._left:
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._after_chunk = True
            end = data.find(b"\r\n", position)
            if end < 0:
                self._hold(data[position:])
                break
            if end - position > _MAX_CHUNK_LINE:
                # However the network cut it: what is held back is measured, too.
                raise WireError("a chunk has no length")
            if self._after_chunk:
                if end != position:
                    raise WireError("a chunk is longer than it said")
                self._after_chunk = False
            elif self._in_trailers:
                self.complete = end == position
            else:
                self._left = _chunk_size(data[position:end])
                self._in_trailers = self._left == 0
            position = end + 2
            if position >= size and not self.complete:
                break
        if self.complete:
            self.surplus = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end_of_stream(self) -> None:
        if not self.complete:
            raise WireError("the connection was closed in the middle of the answer")

    def _hold(self, rest: bytes) -> None:
        # One more for half a line end.
        if len(rest) > _MAX_CHUNK_LINE + 1:
            raise WireError("a chunk has no length")
        self._held = rest


class SizedBody:
    """``Content-Length``."""

    def __init__(self, size: int) -> None:
        self._left = size
        self.complete = size == 0
        self.surplus = b""

    def feed(self, data: bytes) -> bytes:
        piece = data[: self._left]
        self._left -= len(piece)
        if self._left == 0:
            self.complete = True
            self.surplus = data[len(piece) :]
        return piece

    def end_of_stream(self) -> None:
        if not self.complete:
            raise WireError("the connection was closed in the middle of the answer")


class UntilCloseBody:
    """No length: the close is the end, so a cut cannot be told from it."""

    def __init__(self) -> None:
        self.complete = False
        self.surplus = b""

    def feed(self, data: bytes) -> bytes:
        return data

    def end_of_stream(self) -> None:
        self.complete = True


def body_reader(head: ResponseHead) -> BodyReader:
    """The framing that the head announces. Raises ``WireError``."""
    if head.status in (204, 304):
        return SizedBody(0)
    encoding = head.headers.get("transfer-encoding", "").lower()
    if encoding:
        if encoding.split(",")[-1].strip() != "chunked":
            raise WireError(f"transfer encoding {encoding[:40]} is not understood")
        return ChunkedBody()
    length = head.headers.get("content-length")
    if length is None:
        return UntilCloseBody()
    first = length.split(",")[0].strip()
    # ASCII alone: other digits are digits to Python, too, and a length of thousands of them is no number to it.
    if not (first.isascii() and first.isdigit() and len(first) <= _MAX_LENGTH_DIGITS):
        raise WireError("the answer has a malformed length")
    return SizedBody(int(first))


class ContentDecoder:
    """Undoes a content coding the peer used although none was asked for. Raises ``WireError``."""

    def __init__(self, coding: str) -> None:
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise WireError(f"content encoding {coding[:40]} is not understood")
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def feed(self, data: bytes) -> bytes:
        try:
            return self._stream.decompress(data)
        except zlib.error as error:
            raise WireError("the answer is not compressed as it says") from error


def _chunk_size(line: bytes) -> int:
    field = line.split(b";", 1)[0].strip()
    if not field.isalnum() or len(field) > 16:
        raise WireError("a chunk has a malformed length")
    try:
        return int(field, 16)
    except ValueError as error:
        raise WireError("a chunk has a malformed length") from error
