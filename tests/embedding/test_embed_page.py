"""The page about embedding: every example runs as it stands, and every callback is on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.embedding.arguments import CALLBACKS
from tests.support.doc_examples import python_blocks

PAGE = Path("docs/how-to/embed.md")


@pytest.mark.parametrize("number", range(len(python_blocks(PAGE))))
def test_an_example_of_the_page_runs(number: int, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(python_blocks(PAGE)[number], encoding="utf-8")
    environment = os.environ | {"HERMES_HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_callback_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in sorted(CALLBACKS) if f"`{name}`" not in page] == []
