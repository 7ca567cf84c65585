"""``hermes acp --setup`` at a terminal, as an editor starts it."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
from pathlib import Path

import pytest
import trio
from ruamel.yaml import YAML

from hermes.agent.provider_rows import PROVIDER_ROWS
from hermes.testing import FakeProvider, Reply, Script
from tests.support.server_process import COMMAND, clean_environment

pytestmark = pytest.mark.e2e
LIMIT = 60
KEY = "sk-secret-0123456789"


class Terminal:
    """The command on a pseudo terminal; ``shown`` is what a person would see."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            # Opened by the leader of a session, it becomes the terminal whose keys are signals.
            ["/bin/sh", "-c", 'exec "$0" acp --setup < "$1"', str(COMMAND), os.ttyname(slave)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=clean_environment(home) | {"TERM": "dumb"},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    async def expect(self, words: str) -> None:
        while words not in self.shown:
            data = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            assert data, f"ended before {words!r}: {self.shown}"
            self.shown += data.decode()

    def _read(self) -> bytes:
        try:
            return os.read(self._master, 4096)
        except OSError:
            return b""

    def type(self, line: str) -> None:
        os.write(self._master, line.encode() + b"\n")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    async def exit_code(self) -> int:
        while data := await trio.to_thread.run_sync(self._read, abandon_on_cancel=True):
            self.shown += data.decode()
        os.close(self._master)
        return await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)


async def test_a_custom_endpoint_is_tried_and_written_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(Reply.of({"text": "OK"}))) as provider:
            terminal = Terminal(home)
            await terminal.expect("Provider")
            terminal.type(str(1 + sum(row.available for row in PROVIDER_ROWS)))
            await terminal.expect("Address")
            terminal.type(provider.base_url)
            await terminal.expect("Key (not shown")
            terminal.type(KEY)
            await terminal.expect("Model")
            terminal.type("fake-model")
            assert await terminal.exit_code() == 0
            assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in terminal.shown
    path = home / "config.yaml"
    model = YAML(typ="safe").load(path)["model"]
    assert model == {"provider": "custom", "default": "fake-model", "base_url": provider.base_url, "api_key": KEY}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_choice_that_does_not_work_is_not_written_unless_the_user_insists(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(Reply.of(faults={"status": 401}))) as provider:
            terminal = Terminal(home)
            await terminal.expect("Provider")
            terminal.type(str(1 + sum(row.available for row in PROVIDER_ROWS)))
            await terminal.expect("Address")
            terminal.type(provider.base_url)
            await terminal.expect("Key (not shown")
            terminal.type(KEY)
            await terminal.expect("Model")
            terminal.type("fake-model")
            await terminal.expect("Keep this choice anyway?")
            terminal.type("n")
            assert await terminal.exit_code() == 1
    assert not (home / "config.yaml").exists()


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["interrupt", "end of input"])
async def test_who_leaves_in_the_middle_has_nothing_written(keys: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        terminal = Terminal(home)
        await terminal.expect("Provider")
        terminal.type(str(1 + sum(row.available for row in PROVIDER_ROWS)))
        await terminal.expect("Address")
        terminal.press(keys)
        assert await terminal.exit_code() not in (0, None)
    assert "Traceback" not in terminal.shown
    assert not (home / "config.yaml").exists()
    assert not (home / ".env").exists()


def test_without_a_terminal_it_says_so_and_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(COMMAND), "acp", "--setup"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=clean_environment(tmp_path),
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "terminal" in done.stderr


def test_check_says_ok_on_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(COMMAND), "acp", "--check"], capture_output=True, text=True, env=clean_environment(tmp_path), timeout=LIMIT
    )
    assert (done.returncode, done.stdout) == (0, "hermes acp: OK\n")
