"""What tests of child processes need: a marked command line, a look at who still runs, and a hostile tree."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
import time
from collections.abc import Iterator

PATH = "/usr/local/bin:/usr/bin:/bin"

HOSTILE_TREE = """
import os, signal, subprocess, sys, time
mark = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", mark], start_new_session=True)
subprocess.Popen(["sh", "-c", f"trap '' TERM; while :; do sleep {mark}; done"])
middle = os.fork()
if middle == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        os.execve("/bin/sleep", ["sleep", mark], {})
    os._exit(0)
os.waitpid(middle, 0)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


class Marks:
    """Numbers of seconds to sleep that nobody else on the machine uses, so that survivors can be told by argv."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """A fresh mark, usable as the argument of `sleep`."""
        return f"7001.{os.getpid()}{time.monotonic_ns() % 10**9:09d}{next(self._numbers):04d}"


def hostile_tree(mark: str) -> tuple[str, ...]:
    """Ignores SIGTERM, and has a child in another session, a stubborn shell and an unmarked daemon; says `ready`."""
    return (sys.executable, "-I", "-S", "-c", HOSTILE_TREE, mark)


def running_with(mark: str) -> list[str]:
    """The command lines of running processes that mention the mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read().replace(b"\0", b" ").decode(errors="replace")
                if mark in line and not is_zombie(int(name)):
                    found.append(f"{name}: {line}")
    return found


def is_zombie(pid: int) -> bool:
    """True for a process that has died and waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return False
    return text[text.rindex(b")") + 2 :].split()[0] in (b"Z", b"X")


def zombie_children() -> list[int]:
    """Our own dead children that nobody has reaped; browsers of other tests of the run do not count."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    text = file.read()
                fields = text[text.rindex(b")") + 2 :].split()
                browser = text[text.index(b"(") + 1 :].startswith(b"chrom")
                if fields[0] == b"Z" and int(fields[1]) == os.getpid() and not browser:
                    found.append(int(name))
    return found


def open_descriptors() -> int:
    """How many file descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def no_longer_subreaper() -> Iterator[None]:
    """Undo what `become_subreaper` does to the test process, at the end."""
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
