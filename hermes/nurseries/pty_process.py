"""Pseudo-terminals for children: opening one, resizing it, and running a command under it.

A process becomes the owner of a terminal by an ioctl in the child. Doing that in Python would need code
between fork and exec, which is slow and unsafe with threads; `setsid -c` (util-linux, busybox) does it instead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import termios

import trio

from hermes.errors import Unsupported
from hermes.nurseries.process_spec import TerminalSize
from hermes.records import dataclass

_WHERE_SETSID_LIVES = "/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Terminal:
    """Both ends of a fresh pseudo-terminal. `child_end` must be closed here once the child has it."""

    stream: trio.lowlevel.FdStream
    child_end: int


def open_terminal(size: TerminalSize) -> Terminal:
    """A new terminal of this size. Both descriptors stay out of other children. Raises OSError."""
    ours, theirs = os.openpty()
    try:
        _set_size(theirs, size)
        return Terminal(trio.lowlevel.FdStream(ours), theirs)
    except BaseException:
        os.close(ours)
        os.close(theirs)
        raise


def resize(stream: trio.lowlevel.FdStream, size: TerminalSize) -> None:
    """Change the size; the foreground programs of the terminal get SIGWINCH."""
    _set_size(stream.fileno(), size)


def under_terminal(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command that runs `argv` as owner of the terminal on its standard input.

    It must not be started as a session leader: `setsid` would fork then, and the child would be a stranger.
    """
    program = shutil.which("setsid", path=_WHERE_SETSID_LIVES)
    if program is None:
        raise Unsupported("a pseudo-terminal needs the program `setsid` (util-linux) on this server")
    return (program, "-c", *argv)


def _set_size(descriptor: int, size: TerminalSize) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
