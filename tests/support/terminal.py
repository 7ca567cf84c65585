"""A program on a terminal, and what its user sees: a pseudo-terminal read by pyte, or tmux where it is installed.

Both drivers offer the same verbs, so one story runs on both. A screen is waited for, never slept for: ``shows`` looks
again whenever the terminal has something new.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyte
import trio

COLUMNS, ROWS = 100, 40
HISTORY = 2000
WITHIN = 30.0
LOOK_EVERY = 0.05
KEYS: Mapping[str, tuple[str, str]] = {
    "Enter": ("\r", "Enter"),
    "C-c": ("\x03", "C-c"),
    "C-d": ("\x04", "C-d"),
    "Tab": ("\t", "Tab"),
    "Escape": ("\x1b", "Escape"),
}


class Terminal(Protocol):
    async def type(self, text: str) -> None: ...

    async def key(self, name: str) -> None: ...

    async def screen(self) -> str:
        """Everything the user can see or scroll back to."""
        ...

    async def exit_code(self) -> int: ...


async def shows(terminal: Terminal, *texts: str, times: int = 1) -> str:
    """Wait until the screen holds every text, ``times`` times at least; returns it."""
    return await until(terminal, lambda screen: all(screen.count(text) >= times for text in texts), str(texts))


async def until(terminal: Terminal, holds: Callable[[str], bool], what: str) -> str:
    screen = ""
    with trio.move_on_after(WITHIN):
        while True:
            screen = await terminal.screen()
            if holds(screen):
                return screen
            await trio.sleep(LOOK_EVERY)
    raise AssertionError(f"the terminal never showed {what}; it shows:\n{screen}")


async def line(terminal: Terminal, text: str) -> None:
    await terminal.type(text)
    await terminal.key("Enter")


# --- a pseudo-terminal and pyte --------------------------------------------------------------------------------------


class PtyTerminal:
    def __init__(self, process: trio.Process, master: int) -> None:
        self._process = process
        self._master = master
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=HISTORY, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self.written = bytearray()
        """Every byte that the terminal was given."""

    async def read(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._master)
            try:
                chunk = os.read(self._master, 65_536)
            except OSError:
                return
            if not chunk:
                return
            # The position report that line editors ask for.
            for _ in range(chunk.count(b"\x1b[6n")):
                os.write(self._master, f"\x1b[{self._screen.cursor.y + 1};{self._screen.cursor.x + 1}R".encode())
            self.written += chunk
            self._stream.feed(chunk)

    async def type(self, text: str) -> None:
        os.write(self._master, text.encode())
        await trio.lowlevel.checkpoint()

    async def key(self, name: str) -> None:
        await self.type(KEYS[name][0])

    async def screen(self) -> str:
        await trio.lowlevel.checkpoint()
        above = ["".join(row[x].data for x in range(COLUMNS)).rstrip() for row in self._screen.history.top]
        return "\n".join([*above, *(row.rstrip() for row in self._screen.display)])

    async def exit_code(self) -> int:
        with trio.fail_after(WITHIN):
            return await self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def echoes(self) -> bool:
        """Whether the terminal has been given back as it was."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)


@asynccontextmanager
async def pty_terminal(
    command: Sequence[str], *, environ: Mapping[str, str], cwd: Path, term: str = "xterm-256color"
) -> AsyncIterator[PtyTerminal]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env={**environ, "TERM": term, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
        # The terminal becomes the controlling one, so that Ctrl-C is a signal where nothing else is made of it.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.set_blocking(master, False)
    terminal = PtyTerminal(process, master)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(terminal.read)
        try:
            yield terminal
        finally:
            with trio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            nursery.cancel_scope.cancel()
    os.close(slave)
    os.close(master)


# --- tmux ------------------------------------------------------------------------------------------------------------

has_tmux = shutil.which("tmux") is not None


class TmuxTerminal:
    def __init__(self, socket: str, code_file: Path) -> None:
        self._socket = socket
        self._code_file = code_file

    async def _tmux(self, *arguments: str) -> str:
        done = await trio.run_process(
            ["tmux", "-L", self._socket, "-f", "/dev/null", *arguments], capture_stdout=True, capture_stderr=True
        )
        return done.stdout.decode()

    async def type(self, text: str) -> None:
        await self._tmux("send-keys", "-l", text)

    async def key(self, name: str) -> None:
        await self._tmux("send-keys", KEYS[name][1])

    async def screen(self) -> str:
        return await self._tmux("capture-pane", "-p", "-S", "-")

    async def exit_code(self) -> int:
        with trio.fail_after(WITHIN):
            while not (self._code_file.exists() and self._code_file.read_text().strip()):
                await trio.sleep(LOOK_EVERY)
        return int(self._code_file.read_text())


@asynccontextmanager
async def tmux_terminal(
    command: Sequence[str], *, environ: Mapping[str, str], cwd: Path, term: str = "screen-256color"
) -> AsyncIterator[TmuxTerminal]:
    socket = f"hermes-test-{os.getpid()}"
    code_file = cwd / "exit-code"
    code_file.unlink(missing_ok=True)
    variables = [f"{name}={value}" for name, value in {**environ, "TERM": term, "LC_ALL": "C.UTF-8"}.items()]
    # The shell stays for a while, so that the last screen can be read.
    script = 'code_file=$1; shift; "$@"; echo $? > "$code_file"; exec sleep 600'
    words = ["env", "-i", *variables, "sh", "-c", script, "sh", str(code_file), *command]
    terminal = TmuxTerminal(socket, code_file)
    await trio.run_process(
        [
            "tmux", "-L", socket, "-f", "/dev/null", "new-session", "-d",
            "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(cwd), *words,
        ],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield terminal
    finally:
        with trio.CancelScope(shield=True):
            await trio.run_process(["tmux", "-L", socket, "kill-server"], check=False, capture_stderr=True)
