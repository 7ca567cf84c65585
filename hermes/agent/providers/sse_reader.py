"""Server-sent events of a model provider: bytes in, ``data`` payloads out.

Only what providers send: the ``event`` field is dropped, because every provider repeats it inside the payload. LF, CRLF
and CR end a line and may be cut anywhere, as may characters. Comments are counted as life, not as content. A line that
begins with ``{`` is taken as a payload of its own: some proxies write their errors into the stream without ``data:``.
"""

from __future__ import annotations

from typing import Final

DEFAULT_MAX_EVENT: Final = 16 * 1024 * 1024


class SseTooLong(ValueError):
    """One event was over the limit; the stream cannot be read on."""


class SseReader:
    """Incremental splitter: ``feed`` gives the payloads that became complete, ``flush`` the one the end cut off."""

    def __init__(self, max_event: int = DEFAULT_MAX_EVENT) -> None:
        self._max_event = max_event
        self._tail = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        text = self._tail + chunk if self._tail else chunk
        if b"\r" in text:
            # A CR at the very end may be half of a CRLF: it waits for the next chunk.
            held = b"\r" if text.endswith(b"\r") else b""
            text = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            held = b""
        lines = text.split(b"\n")
        rest = lines.pop()
        if self._size + len(rest) > self._max_event:
            raise SseTooLong(f"one event is longer than {self._max_event} bytes")
        self._tail = rest + held
        return self._read(lines) if lines else []

    def flush(self) -> list[bytes]:
        tail, self._tail = self._tail, b""
        return self._read([tail.rstrip(b"\r"), b""])

    def _read(self, lines: list[bytes]) -> list[bytes]:
        payloads: list[bytes] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._size += len(line)
            elif not line:
                if data:
                    payloads.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
                    self._size = 0
            elif line.startswith(b"{"):
                payloads.append(line)
            elif line == b"data":
                data.append(b"")
        if self._size > self._max_event:
            raise SseTooLong(f"one event is longer than {self._max_event} bytes")
        return payloads
