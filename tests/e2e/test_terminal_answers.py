"""What a person at a terminal sees of answers and of stored sessions: drawn Markdown, and sessions to take up again."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.e2e.test_terminal_client import DRIVERS, Open, chat
from tests.support.server_process import COMMAND, clean_environment
from tests.support.terminal import line, shows

pytestmark = pytest.mark.e2e

ANSWER = "# Findings\n\nIt is **really** done:\n\n- first thing\n- second thing\n\n```python\nx = 1\n\ny = 2\n```\n"


def markdown() -> Script:
    return Script(replies=[Reply.of({"text": ANSWER}, when={"last_user_contains": "report"})], when_used_up="echo")


def is_drawn(screen: str) -> bool:
    return all(mark not in screen for mark in ("**", "```", "# Find", "- first"))


@pytest.mark.parametrize("open_terminal", DRIVERS)
async def test_an_answer_is_drawn_at_a_terminal(open_terminal: Open, tmp_path: Path) -> None:
    async with FakeProvider(markdown()) as provider:
        async with chat(open_terminal, tmp_path, provider=provider) as terminal:
            await shows(terminal, "ready")
            await line(terminal, "report, please")
            assert is_drawn(await shows(terminal, "Findings", "really", "• first thing", "y = 2"))
            await terminal.key("C-d")
            assert await terminal.exit_code() == 0
        async with chat(open_terminal, tmp_path, "-p", "report", provider=provider) as terminal:
            assert is_drawn(await shows(terminal, "Findings", "really", "• second thing", "y = 2"))
            assert await terminal.exit_code() == 0


async def test_what_is_still_being_written_stands_above_the_input(tmp_path: Path) -> None:
    script = Script.of(Reply.of({"text": "An *unfinished"}, {"wait_for": "more"}, {"text": "* sentence."}))
    async with FakeProvider(script) as provider:
        async with chat(DRIVERS[0].values[0], tmp_path, provider=provider) as terminal:
            await shows(terminal, "ready")
            await line(terminal, "go")
            await shows(terminal, "An *unfinished")
            provider.release("more")
            screen = await shows(terminal, "An unfinished sentence.", "in ·")
            assert "*" not in screen
            await terminal.key("C-d")


async def test_through_a_pipe_the_text_is_as_the_model_wrote_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    async with FakeProvider(markdown()) as provider:
        with trio.fail_after(60):
            done = await trio.run_process(
                [str(COMMAND), "-p", "report", "--base-url", provider.base_url, "--model", "fake-model"],
                capture_stdout=True,
                cwd=tmp_path,
                env=clean_environment(home),
            )
    assert done.stdout.decode() == ANSWER


@pytest.mark.parametrize("open_terminal", DRIVERS)
async def test_stored_sessions_are_looked_through_and_one_is_taken_up(open_terminal: Open, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    async with FakeProvider(markdown()) as provider:
        for text in ("the older conversation", "the newer conversation"):
            with trio.fail_after(60):
                await trio.run_process(
                    [str(COMMAND), "-p", text, "--base-url", provider.base_url, "--model", "fake-model"],
                    capture_stdout=True,
                    cwd=tmp_path,
                    env=clean_environment(home),
                )
        environ = clean_environment(home)
        async with open_terminal([str(COMMAND), "sessions", "browse"], environ=environ, cwd=tmp_path) as terminal:
            await shows(terminal, "older conversation", "newer conversation", "q to leave")
            await line(terminal, "seven")
            await shows(terminal, "a number from 1 to 2")
            await line(terminal, "2")
            await shows(terminal, "> the older conversation", "ready")
            await terminal.key("C-d")
            assert await terminal.exit_code() == 0


async def test_browsing_needs_a_terminal(tmp_path: Path) -> None:
    with trio.fail_after(60):
        done = await trio.run_process(
            [str(COMMAND), "sessions", "browse"],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=clean_environment(tmp_path),
        )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"hermes sessions list" in done.stderr
