"""A command that fights against its end, through the real terminal tool of the real process: every way to stop it.

It ignores SIGTERM, and has a child in another session, a stubborn shell and a daemon without any mark. Whatever ends
the call, nothing of it is left soon after, the server has no dead child and no descriptor more. ``PROOF=1`` plays 510
rounds instead of 30.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.nurseries.process_journal import FOLDER
from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import StdioGateway, driving
from tests.support.process_probe import HOSTILE_TREE, Marks, running_with
from tests.support.server_process import open_descriptors, server_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

PROOF = bool(os.environ.get("PROOF"))
ROUNDS = 80 if PROOF else 4
LIVES = 5 if PROOF else 1
GRACE = 0.1
WITHIN = 10 * (GRACE + 0.05)
LIMIT = 600 if PROOF else 90
MARKS = Marks()
WHOLE_TREE = 6
"""The shell, the program, the shell below it and its sleep, the child of another session, the daemon."""
STOPS = ("interrupt", "timeout", "close")


def hostile_call(folder: Path, mark: str, *, pty: bool, timeout: int = 60) -> Reply:
    script = folder / "hostile.py"
    script.parent.mkdir(mode=0o700, exist_ok=True)
    script.write_text(HOSTILE_TREE)
    command = f"{sys.executable} -I -S {script} {mark}"
    arguments = {"command": command, "pty": pty, "timeout": timeout, "kill_grace": GRACE}
    return Reply.of({"tool_call": {"name": "terminal", "arguments": arguments}})


async def wait_for_tree(mark: str) -> None:
    while len(running_with(mark)) < WHOLE_TREE:
        await trio.sleep(0.02)


async def written_down(home: Path, mark: str) -> None:
    """Wait until the server's journal holds the whole tree, the daemon without any mark too."""
    while True:
        # Looked at anew each time: one that was only on its way to be another is gone soon.
        wanted = {line.partition(":")[0] for line in running_with(mark)}
        lines = [line for path in (home / FOLDER).glob("*") for line in path.read_text().splitlines()[1:]]
        unmarked = any(
            Path(f"/proc/{pid}/environ").read_bytes() == b"" for pid in wanted if Path(f"/proc/{pid}").exists()
        )
        if unmarked and wanted <= {line.partition(" ")[0] for line in lines}:
            return
        await trio.sleep(0.02)


async def ended(mark: str) -> None:
    with trio.move_on_after(WITHIN):
        while running_with(mark):
            await trio.sleep(0.01)


def dead_children(pid: int) -> list[str]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{name}/stat").read_text(errors="replace")
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        if fields[0] == "Z" and int(fields[1]) == pid:
            found.append(text)
    return found


@asynccontextmanager
async def gateway(home: Path, replies: list[Reply]) -> AsyncIterator[StdioGateway]:
    async with FakeProvider(Script.of(*replies, strict=True)) as provider:
        environ = {
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "test-key-0123456789",
            "HERMES_MODEL": "fake-model",
        }
        async with driving("gateway stdio", home, environ) as driver:
            assert isinstance(driver, StdioGateway)
            yield driver


async def stop(driver: StdioGateway, how: str) -> dict[str, Any]:
    """Stop the running command; returns the result that the model reads, as far as clients see it."""
    seen = len(driver.frames)
    if how == "interrupt":
        await driver.stop()
    elif how == "close":
        await driver.call("session.close", {"session_id": driver.session_id})
        driver.session_id = ""
    frame = await driver.event("tool.complete", 0 if how == "timeout" else seen)
    payload: dict[str, Any] = frame["params"]["payload"]
    return payload


@pytest.mark.fault("B-171")
@pytest.mark.parametrize("pty", [False, True], ids=["pipe", "pty"])
@pytest.mark.parametrize("how", STOPS)
async def test_a_hostile_command_ends_with_its_call(how: str, pty: bool, tmp_path: Path) -> None:
    marks = [MARKS.next() for _ in range(ROUNDS)]
    timeout = 1 if how == "timeout" else 60
    replies = []
    for mark in marks:
        replies.append(hostile_call(tmp_path / "home", mark, pty=pty, timeout=timeout))
        replies += [Reply.of({"text": "I see"})] if how == "timeout" else []
    with trio.fail_after(LIMIT):
        async with gateway(tmp_path / "home", replies) as driver:
            descriptors = 0
            for number, mark in enumerate(marks):
                try:
                    await one_round(driver, how, mark, timeout)
                except BaseException as error:
                    error.add_note(
                        f"round {number}, {running_with(mark)}, {driver.frames[-3:]}, {driver.server.stderr}"
                    )
                    raise
                if number == 0:
                    descriptors = open_descriptors(driver.server.pid)
            assert open_descriptors(driver.server.pid) <= descriptors + 2


async def one_round(driver: StdioGateway, how: str, mark: str, timeout: int) -> None:
    driver.frames.clear()
    with trio.fail_after(60):
        await driver.start("please")
        if how != "timeout":
            await wait_for_tree(mark)
        asked_at = trio.current_time()
        await stop(driver, how)
        assert running_with(mark) == [], "something outlived the end of its call"
        took = trio.current_time() - asked_at
        assert took < WITHIN + (timeout if how == "timeout" else 0)
        if how == "timeout":
            assert (await driver.terminal())["status"] == "complete"
        assert dead_children(driver.server.pid) == []


@pytest.mark.fault("B-171")
@pytest.mark.parametrize("pty", [False, True], ids=["pipe", "pty"])
@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGKILL"])
async def test_a_hostile_command_ends_with_its_server(how: str, pty: bool, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for _ in range(LIVES):
        mark = MARKS.next()
        with trio.fail_after(LIMIT):
            async with gateway(home, [hostile_call(home, mark, pty=pty)]) as driver:
                await driver.start("please")
                await wait_for_tree(mark)
                if how == "end of input":
                    await driver.server.close_input()
                    assert await driver.server.exit_code() == 0
                elif how == "SIGTERM":
                    assert await driver.server.stop() == 0
                else:
                    await written_down(home, mark)
                    driver.server.process.kill()
                    await driver.server.exit_code()
                    async with server_process(home, "gateway") as next_life:
                        await next_life.event("gateway.ready")
                        await ended(mark)
                        assert running_with(mark) == []
                        assert await next_life.stop(signal.SIGTERM) == 0
                assert running_with(mark) == []
