"""Ways to a gateway: one of our own as a child on standard input and output, or a running server's WebSocket.

A link moves frames and knows no method. The child ends with its input, so that nothing of it is left behind when this
process is killed; when we end in order, it gets a short grace and is killed after it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol

import click
import trio

from hermes.protocols.wire.json_codec import decode, encode

Frame = dict[str, Any]

LEAVE_WITHIN: Final = 5.0
"""Seconds that the child gets to stop its turns and processes after its input has ended."""
KILL_AFTER: Final = 1.0
CHUNK: Final = 65_536
ERROR_LINES: Final = 5


class Link(Protocol):
    """Frames to and from a gateway. One task may receive, one may send."""

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Raises ``LinkLost``."""
        ...

    async def receive(self) -> Frame | None:
        """The next frame; None when there are no more."""
        ...

    def why_lost(self) -> str:
        """What is known about an end that nobody asked for, for people."""
        ...


NO_SUCH_SESSION = 4007


class LinkLost(click.ClickException):
    """The gateway is gone."""


class CallFailed(click.ClickException):
    """The gateway answered a call with an error."""

    def __init__(self, method: str, error: Mapping[str, Any]) -> None:
        self.code = error.get("code")
        self.text = str(error.get("message"))
        hint = "; `hermes sessions list` shows those that there are" if self.code == NO_SUCH_SESSION else ""
        super().__init__(f"{method}: {self.text}{hint} ({self.code})")


@dataclass(frozen=True, slots=True)
class Where:
    """``url``: a running server. Otherwise a child is started with these options of ``hermes gateway``."""

    url: str | None = None
    options: Sequence[str] = ()

    @property
    def is_own(self) -> bool:
        """True for a child: it is ours alone and ends with us."""
        return self.url is None


def open_link(where: Where) -> AbstractAsyncContextManager[Link]:
    return _child(where.options) if where.url is None else _websocket(where.url)


def own_command() -> list[str]:
    """How this very installation is started again, also from a one-file build."""
    return [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "hermes"]


# --- a child ---------------------------------------------------------------------------------------------------------


class _ChildLink:
    def __init__(self, process: trio.Process, errors: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._errors = errors
        self._buffer = bytearray()

    async def send(self, frame: Mapping[str, Any]) -> None:
        try:
            await self._stdin.send_all(encode({"jsonrpc": "2.0", **frame}) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LinkLost(self.why_lost()) from error

    async def receive(self) -> Frame | None:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            chunk = await self._stdout.receive_some(CHUNK)
            if not chunk:
                return None
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        frame: Frame = decode(line)
        return frame

    def why_lost(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-ERROR_LINES:]
        code = self._process.poll()
        ended = "the gateway has ended" if code is None else f"the gateway has ended with status {code}"
        return "\n".join([ended, *lines])


@asynccontextmanager
async def _child(options: Sequence[str]) -> AsyncIterator[Link]:
    # A file, not a pipe: nobody has to read it, and it is there when the child has died.
    with tempfile.TemporaryFile() as errors:
        process = await trio.lowlevel.open_process(
            [*own_command(), "gateway", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # A Ctrl-C at our terminal is for us: we interrupt the turn, not the gateway.
            start_new_session=True,
        )
        try:
            yield _ChildLink(process, errors)
        finally:
            await _end(process)  # noqa: ASYNC102 (shielded and bounded inside)


async def _end(process: trio.Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with trio.move_on_after(LEAVE_WITHIN, shield=True):
        await process.stdin.aclose()
        # What it still says is read and dropped: a full pipe would keep it from ending.
        while await _more(process.stdout):
            pass
        await process.wait()
    if process.poll() is None:
        process.terminate()
        with trio.move_on_after(KILL_AFTER, shield=True):
            await process.wait()
    if process.poll() is None:
        process.kill()
        with trio.move_on_after(KILL_AFTER, shield=True):
            await process.wait()
    with trio.move_on_after(KILL_AFTER, shield=True):
        await process.stdout.aclose()


async def _more(stream: trio.abc.ReceiveStream) -> bool:
    try:
        return bool(await stream.receive_some(CHUNK))
    except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
        return False


# --- a running server ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _websocket(url: str) -> AsyncIterator[Link]:
    from hermes.cli.gateway_client import connected

    async with connected(url) as connection:
        yield connection
