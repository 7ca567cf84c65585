"""The benchmarks run, keep their figures and see a broken promise. What the figures are is no matter for a test."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def page_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_page", BENCH / "page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(kept: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    command = [sys.executable, str(BENCH / arguments[0]), *arguments[1:]]
    env = os.environ | {"BENCH_KEPT_IN": str(kept), "BENCH_REPETITIONS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    lines = kept.read_text().splitlines() if kept.exists() else []
    return done, [json.loads(line) for line in lines]


@pytest.mark.e2e
def test_stops_over_every_surface_are_told_in_multiples_of_the_floor(tmp_path: Path) -> None:
    done, rows = run(tmp_path / "kept", "bench_stops.py", "--stops", "2", "--only", "streaming,question")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no prompt was refused after a stop, no process was left behind one" in done.stdout
    surfaces = ("gateway stdio", "WebSocket", "HTTP run", "HTTP client gone", "ACP")
    assert [row["figure"] for row in rows] == [
        f"stop, {what}, {surface}: {kind}"
        for what in ("while it streams", "a question open")
        for surface in surfaces
        for kind in ("terminal event", "next accepted")
    ]
    assert all(row["n"] == 2 and row["ratio"] > 0 for row in rows)


@pytest.mark.e2e
def test_sessions_that_stream_at_once_lose_no_stream_and_take_the_next_prompt(tmp_path: Path) -> None:
    arguments = ("--sessions", "3", "--seconds", "1", "--stops", "3")
    done, rows = run(tmp_path / "kept", "bench_many.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no stream was lost, no prompt was refused after a stop" in done.stdout
    assert {row["figure"].partition(": ")[0] for row in rows} == {"3 sessions"}


def test_the_page_has_a_table_for_each_part_with_the_columns_that_say_something() -> None:
    rows = [
        {"part": "One", "figure": "a", "unit": "ms", "hermes": 1.5, "floor": 1.0, "ratio": 1.5, "p99": 2.0, "n": 3},
        {"part": "Two", "figure": "b", "unit": "us", "hermes": 1234.5, "floor": None, "ratio": None},
    ]
    run_of = {"at": "2026-01-02T03:04:05Z", "python": "3.11.7", "cores": 2, "memory": 8, "load": 0.1}
    run_of |= {"architecture": "x", "system": "Linux"}
    text = page_module().page(rows, run_of, full=False, failed=["Stops (status 1)"], left_out=["Two"], seconds=61.0)
    one, two = text.split("## ")[1:]
    assert one.splitlines()[2:] == [
        "| figure | unit | Hermes | baseline | ratio | p99 | n |",
        "|---|---|---|---|---|---|---|",
        "| a | ms | 1.5 | 1 | 1.5 | 2 | 3 |",
        "",
    ]
    assert "| b | us | 1,234 |  |  |" in two
    assert "Broken: Stops (status 1)." in text and "Left out for want of time: Two." in text
