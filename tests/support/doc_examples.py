"""The Python of a documentation page, ready to be run: every block that begins with ```python, in order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def namespace_of(block: str, page: Path) -> dict[str, Any]:
    """Execute a block as a module of its own."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block, str(page), "exec"), names)
    return names


def run_tests_of(block: str, page: Path) -> list[str]:
    """Execute a block and run the ``test_…`` functions in it on virtual time; returns their names."""
    names = namespace_of(block, page)
    tests = [name for name in names if name.startswith("test_")]
    for name in tests:
        if inspect.iscoroutinefunction(names[name]):
            trio.run(names[name], clock=MockClock(autojump_threshold=0))
        else:
            names[name]()
    return tests
