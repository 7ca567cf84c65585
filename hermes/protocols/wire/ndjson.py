"""Lines split on LF, and on nothing else.

U+2028, U+2029, NEL and the other characters that ``str.splitlines`` takes for line ends are ordinary text inside a
JSON string, so the splitter works on bytes. It is linear in its input: a long line that arrives in many pieces is
scanned once. A line that is too long or not UTF-8 is reported as an item of its own and costs only itself.
"""

from __future__ import annotations

from hermes.records import dataclass

DEFAULT_MAX_LINE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """A line was over the limit and has been thrown away up to its line feed."""

    limit: int


@dataclass(frozen=True, slots=True)
class InvalidUtf8:
    """A line was not UTF-8."""

    position: int


@dataclass(frozen=True, slots=True)
class TooManyValues:
    """A line holds more values than one frame may (``frame_values.py``)."""

    limit: int


LineFault = LineTooLong | InvalidUtf8 | TooManyValues
Line = bytes | LineFault


class LineSplitter:
    """Bytes in, whole lines out, without their LF or CRLF. Blank lines are dropped.

    An over-long line is reported as soon as the limit is passed; what follows up to the next LF is dropped.
    """

    def __init__(self, max_line: int = DEFAULT_MAX_LINE) -> None:
        self._max_line = max_line
        self._buffer = bytearray()
        self._scanned = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[Line]:
        """The lines that ``data`` completes, in order."""
        self._buffer += data
        lines: list[Line] = []
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._scanned))) >= 0:
            self._take(start, end, lines)
            start = end + 1
        if start:
            del self._buffer[:start]
        self._scanned = len(self._buffer)
        self._drop_what_is_too_long(lines)
        return lines

    def end(self) -> list[Line]:
        """End of input: an unterminated last line is a line like any other."""
        lines: list[Line] = []
        self._take(0, len(self._buffer), lines)
        self._buffer.clear()
        self._scanned = 0
        return lines

    def _take(self, start: int, end: int, lines: list[Line]) -> None:
        if self._skipping:
            self._skipping = False
            return
        if end > start and self._buffer[end - 1] == 0x0D:
            end -= 1
        if end - start > self._max_line:
            lines.append(LineTooLong(self._max_line))
            return
        line = bytes(self._buffer[start:end])
        if not line.strip():
            return
        lines.append(_checked(line))

    def _drop_what_is_too_long(self, lines: list[Line]) -> None:
        # One byte more than the limit may still be the CR of a line that just fits.
        if not self._skipping and len(self._buffer) <= self._max_line + 1:
            return
        if not self._skipping:
            lines.append(LineTooLong(self._max_line))
            self._skipping = True
        self._buffer.clear()
        self._scanned = 0


def _checked(line: bytes) -> Line:
    if line.isascii():
        return line
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return InvalidUtf8(error.start)
    return line
