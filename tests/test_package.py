"""The package by its name: what is promised to type checkers is there, and importing it does nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hermes

STUB = ast.parse(Path("hermes/__init__.pyi").read_text(encoding="utf-8"))
PROMISED = sorted(
    alias.asname or alias.name for node in STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names
)


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_there(name: str) -> None:
    found = hermes.__getattr__(name)
    assert getattr(found, "__name__", name) == name


def test_what_is_listed_is_promised() -> None:
    assert set(hermes.__all__) <= set(PROMISED)


def test_importing_the_package_loads_nothing_of_it() -> None:
    program = "import sys; before = set(sys.modules); import hermes; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = ast.literal_eval(done.stdout)
    assert [name for name in loaded if not name.startswith(("importlib", "warnings"))] == ["hermes"]
