"""The two screens of the chat: what both promise, and the plain one for pipes and dumb terminals.

A screen shows text and reports inputs; it knows nothing of sessions. The other screen, with a line editor, is
``chat_editor``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from hermes.cli.chat_questions import Ask
from hermes.cli.chat_view import Output, Status

try:
    import termios
except ImportError:  # not on this system
    termios = None  # type: ignore[assignment]

CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class Typed:
    """A line, or the single key of an ask. ``ask`` is the one it was typed for; None: it is a prompt or a command."""

    text: str
    ask: Ask | None = None


class Interrupted:
    """Ctrl-C."""


class Left:
    """End of input, or Ctrl-D."""


Input = Typed | Interrupted | Left


class Screen(Output, Protocol):
    """``on_input`` is called for each input, in Trio's thread, and must not wait."""

    on_input: Callable[[Input], None]
    status: Status

    def ask(self, ask: Ask | None) -> None:
        """From now on inputs answer this; None: they are prompts again."""
        ...

    def prefill(self, text: str) -> None:
        """Offer a text to be edited and sent."""
        ...

    def refresh(self) -> None:
        """The status has changed."""
        ...

    async def run(self) -> None:
        """Read inputs until the end of input or until it is cancelled. The terminal is as before afterwards."""
        ...


class PlainScreen:
    """Lines in, text out; nothing on the screen is ever moved.

    From a terminal a line is taken whenever it comes. From a pipe the next line is read when it is wanted (``wants``):
    a script's second prompt is to follow its first, not to steer it.
    """

    def __init__(self, status: Status, *, wants: Callable[[], trio.Event | None]) -> None:
        self.status = status
        self.on_input: Callable[[Input], None] = lambda _: None
        self._wants = wants
        self._ask: Ask | None = None
        self._at_start = True
        self._prompted = self._reading = False
        self._is_terminal = sys.stdin.isatty()
        self._buffer = bytearray()

    # --- output

    def write(self, text: str) -> None:
        if not self._at_start:
            text = f"\n{text}"
        self._put(f"{text}\n")

    def stream(self, text: str) -> None:
        self._put(text)

    def preview(self, text: str) -> None:
        """Nothing is ever taken back here, so nothing is shown before it is whole."""

    def _put(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._at_start = text.endswith("\n")
        self._prompted = False

    def refresh(self) -> None:
        """No status line; but at a terminal a prompt, once the turn has ended."""
        if self._is_terminal and self._reading and self._ask is None and not (self.status.running or self._prompted):
            self._put("> ")
            self._prompted = True

    def prefill(self, text: str) -> None:
        self.write(text)

    def ask(self, ask: Ask | None) -> None:
        self._ask = ask
        if self._is_terminal:
            _echo(ask is None or not ask.hidden)
        if ask is not None:
            self._put(ask.prompt)

    # --- input

    async def run(self) -> None:
        with _terminal_restored():
            while True:
                while not self._is_terminal and (wanted := self._wants()) is not None:
                    await wanted.wait()
                self._reading = True
                self.refresh()
                line = await self._line()
                self._reading = self._prompted = False
                if line is None:
                    self.on_input(Left())
                    return
                self._at_start = self._at_start or self._is_terminal
                self.on_input(Typed(line, self._ask))
                # The session decides in its own task whether another line is wanted.
                await trio.lowlevel.checkpoint()

    async def _line(self) -> str | None:
        while b"\n" not in self._buffer:
            chunk = await _read_input()
            if not chunk:
                rest = bytes(self._buffer)
                self._buffer.clear()
                return rest.decode("utf-8", "replace") if rest else None
            self._buffer += chunk
        line, _, rest_ = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest_
        return line.decode("utf-8", "replace").rstrip("\r")


async def _read_input() -> bytes:
    """Wait without a thread, so that a cancel leaves nothing behind that reads on."""
    descriptor = sys.stdin.fileno()
    try:
        await trio.lowlevel.wait_readable(descriptor)
    except OSError:
        # A file or /dev/null: never waits, and cannot be waited for.
        await trio.lowlevel.checkpoint()
    return os.read(descriptor, CHUNK)


def _echo(shown: bool) -> None:
    if termios is None:
        return
    try:
        attributes = termios.tcgetattr(sys.stdin.fileno())
        attributes[3] = attributes[3] | termios.ECHO if shown else attributes[3] & ~termios.ECHO
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, attributes)
    except termios.error:
        return


@contextmanager
def _terminal_restored() -> Iterator[None]:
    if termios is None or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
