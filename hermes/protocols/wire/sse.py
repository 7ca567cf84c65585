"""Server-sent events: frames to write, and a splitter for streams to read.

The splitter follows the WHATWG rules: CR, LF and CRLF end a line, a leading byte order mark is ignored, data lines
are joined with LF, comments and unknown fields are dropped. It works on bytes, so a character or a line end may be
cut anywhere. Written here rather than taken from a library because a provider's stream is the hot path of a turn.
"""

from __future__ import annotations

from typing import Final

from hermes.records import dataclass

DEFAULT_MAX_EVENT = 16 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_LINE_ENDS: Final = (0x0A, 0x0D)
_OTHER_LINE_ENDS: Final = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))


def sse_event(data: bytes | str, *, event: str | None = None, id: str | int | None = None) -> bytes:
    """One event frame. Line ends inside ``data`` become several data lines; ``event`` and ``id`` must have none."""
    body = data.encode("utf-8", "replace") if isinstance(data, str) else data
    parts: list[bytes] = []
    if id is not None:
        parts.append(b"id: " + _one_line(str(id)) + b"\n")
    if event is not None:
        parts.append(b"event: " + _one_line(event) + b"\n")
    if b"\n" in body or b"\r" in body:
        # The trailing byte keeps a last, empty line, which splitlines alone would lose.
        lines = (body + b".").splitlines()
        lines[-1] = lines[-1][:-1]
        parts += [b"data: " + line + b"\n" for line in lines]
    else:
        parts.append(b"data: " + body + b"\n")
    parts.append(b"\n")
    return b"".join(parts)


def json_event(value: bytes, *, event: str | None = None, id: str | int | None = None) -> bytes:
    """One event frame whose data is this JSON text."""
    return sse_event(on_one_line(value), event=event, id=id)


def on_one_line(value: bytes) -> bytes:
    """JSON text without the characters that end a line for many readers though not for the standard: they split a
    frame's data where Unicode says a line may end."""
    if not value.isascii():
        for raw, escaped in _OTHER_LINE_ENDS:
            value = value.replace(raw, escaped)
    return value


def sse_comment(text: str = "") -> bytes:
    """A comment frame, which readers ignore: a heartbeat."""
    return b": " + _one_line(text) + b"\n\n"


def sse_retry(milliseconds: int) -> bytes:
    """The frame that tells a reader how long to wait before it reconnects."""
    return b"retry: %d\n\n" % milliseconds


def _one_line(text: str) -> bytes:
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError("a line end or a null is not allowed here")
    return text.encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event as read. ``id`` is the last id seen in the stream, as the rules say."""

    data: str
    event: str = "message"
    id: str = ""


class SseTooLong(ValueError):
    """An event was over the limit. The stream cannot be read on."""


class SseSplitter:
    """Bytes in, events out. Raises SseTooLong when one event passes ``max_event`` bytes."""

    def __init__(self, max_event: int = DEFAULT_MAX_EVENT) -> None:
        self._max_event = max_event
        self._partial: list[bytes] = []
        self._size = 0
        self._at_start = True
        self._after_cr = False
        self._data: list[bytes] = []
        self._event = b""
        self._id = ""
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that ``chunk`` completes, in order."""
        if self._after_cr and chunk:
            self._after_cr = False
            # The CR already ended the line; an LF that follows belongs to it.
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk[-1] == 0x0D
        events: list[SseEvent] = []
        for piece in chunk.splitlines(keepends=True):
            if piece[-1] in _LINE_ENDS:
                self._partial.append(piece.rstrip(b"\r\n"))
                line = self._partial[0] if len(self._partial) == 1 else b"".join(self._partial)
                self._partial.clear()
                self._line(line, events)
            else:
                self._partial.append(piece)
            self._count(len(piece))
        return events

    def end(self) -> list[SseEvent]:
        """End of stream: an event whose closing blank line is missing still counts, as providers leave it out."""
        events: list[SseEvent] = []
        if self._partial:
            line = b"".join(self._partial)
            self._partial.clear()
            self._line(line, events)
        self._line(b"", events)
        return events

    def _count(self, size: int) -> None:
        if not self._data and not self._partial:
            self._size = 0
            return
        self._size += size
        if self._size > self._max_event:
            raise SseTooLong(f"a server-sent event is longer than {self._max_event} bytes")

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._event = value
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                self.retry_ms = int(value)
            case _:
                pass

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            event = self._event.decode("utf-8", "replace") or "message"
            events.append(SseEvent(data.decode("utf-8", "replace"), event, self._id))
        self._data.clear()
        self._event = b""
        self._size = 0
