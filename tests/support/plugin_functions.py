"""Functions of a third party that run in a process of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Progress = Callable[[str], None]


def greet(arguments: Mapping[str, Any], progress: Progress) -> str:
    print("noise on stdout", flush=True)
    subprocess.run(["echo", "noise of a child"], check=True)
    progress("half way")
    return f"hello {arguments['name']}"


async def slow_greet(arguments: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return {"hello": arguments["name"], "directory": os.getcwd()}


def fail(arguments: Mapping[str, Any], progress: Progress) -> str:
    raise ValueError("not today")


def die(arguments: Mapping[str, Any], progress: Progress) -> str:
    os._exit(9)


def hang(arguments: Mapping[str, Any], progress: Progress) -> str:
    """Ignores everything that can be ignored, and has a child."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", str(arguments["mark"])], start_new_session=True)
    progress("hanging")
    while True:
        time.sleep(60)


def variables(arguments: Mapping[str, Any], progress: Progress) -> list[str]:
    return sorted(os.environ)


def flood(arguments: Mapping[str, Any], progress: Progress) -> str:
    while True:
        sys.stderr.write("x" * 10_000)


def chatter(arguments: Mapping[str, Any], progress: Progress) -> str:
    while True:
        progress("still here")


def endless_line(arguments: Mapping[str, Any], progress: Progress) -> str:
    return "x" * (17 * 1024 * 1024)
