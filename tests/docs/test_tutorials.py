"""Every program of the tutorials and of the README runs as it stands and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.support.doc_examples import python_blocks
from tests.support.server_process import COMMAND, clean_environment, http_server, processes_of

pytestmark = pytest.mark.e2e

TUTORIALS = Path("docs/tutorials")
OWN_SERVER = ("acp", "gateway")
WITH_SERVER = ("http", "websocket")
WITHIN = 60


def run(program: str, folder: Path, home: Path, **variables: str) -> str:
    """What it printed; it must end well and silently."""
    path = folder / "first.py"
    path.write_text(program, encoding="utf-8")
    environment = clean_environment(home) | variables
    environment["PATH"] = f"{COMMAND.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=WITHIN, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def promised(page: Path) -> list[str]:
    """The lines of the page's output blocks, each as a pattern: "…" is anything."""
    blocks = re.findall(r"^```text\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [re.escape(line).replace("…", ".*") for block in blocks for line in block.splitlines()]


def assert_promised_lines_in_order(printed: str, page: Path) -> None:
    lines = iter(printed.splitlines())
    for pattern in promised(page):
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, printed)


def test_every_tutorial_has_one_program_and_is_run_here() -> None:
    assert sorted(page.stem for page in TUTORIALS.glob("*.md")) == sorted((*OWN_SERVER, *WITH_SERVER))
    assert {len(python_blocks(page)) for page in TUTORIALS.glob("*.md")} == {1}


@pytest.mark.parametrize("name", OWN_SERVER)
def test_a_tutorial_that_starts_its_own_server_runs(name: str, tmp_path: Path) -> None:
    page = TUTORIALS / f"{name}.md"
    home = tmp_path / "home"
    assert_promised_lines_in_order(run(python_blocks(page)[0], tmp_path, home), page)
    assert processes_of(home) == {}


@pytest.mark.parametrize("name", WITH_SERVER)
async def test_a_tutorial_for_a_running_server_runs(name: str, tmp_path: Path) -> None:
    page = TUTORIALS / f"{name}.md"
    with trio.fail_after(2 * WITHIN):
        async with http_server(tmp_path / "home") as server:
            printed = await trio.to_thread.run_sync(
                lambda: run(python_blocks(page)[0], tmp_path, server.home, HERMES_URL=server.origin)
            )
    assert_promised_lines_in_order(printed, page)


async def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = python_blocks(Path("README.md"))
    with trio.fail_after(2 * WITHIN):
        async with http_server(tmp_path / "home") as server:
            (tmp_path / ".hermes").symlink_to(server.home)
            here = program.replace("127.0.0.1:8642", f"127.0.0.1:{server.port}")
            assert here != program
            printed = await trio.to_thread.run_sync(lambda: run(here, tmp_path, server.home, HOME=str(tmp_path)))
    assert "gateway.ready" in printed
    assert "'status': 'interrupted'" in printed
    # It shows a tool being stopped, not only the words before it.
    assert "'kind': 'tool_call'" in printed.splitlines()[-1]
