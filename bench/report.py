"""What the benchmarks share: the two programs that are compared, taking turns, and how their figures are told."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clients import ROOT, Model, Stdio, WebSocket, connect, event, free_port

TOKEN = "a-key-for-benchmarks-only"
HISTORY = Path(__file__).with_name("history.jsonl")
REPETITIONS = 5


@dataclass
class Program:
    """Hermes or the floor; ``home`` is fresh for the run."""

    name: str
    model: Model
    home: str
    commands: dict[str, list[str]]

    @property
    def env(self) -> dict[str, str]:
        return os.environ | {
            "HERMES_HOME": self.home,
            "OPENAI_BASE_URL": self.model.url,
            "OPENAI_API_KEY": "sk-for-benchmarks-only",
            "API_SERVER_KEY": TOKEN,
            "HERMES_YOLO_MODE": "1",
        }

    def stdio(self, surface: str = "gateway") -> Stdio:
        return Stdio(self.commands[surface], self.env, self.home)

    @contextmanager
    def gateway(self) -> Iterator[Stdio]:
        """A stdio gateway that has said that it is ready."""
        server = self.stdio()
        server.until(event("gateway.ready"))
        try:
            yield server
        finally:
            server.close()

    @contextmanager
    def served(self) -> Iterator[tuple[int, int]]:
        """The HTTP server: (pid, port)."""
        port = free_port()
        command = [word.replace("PORT", str(port)) for word in self.commands["serve"]]
        process = subprocess.Popen(
            command, env=self.env, cwd=self.home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            connect(port).close()
            yield process.pid, port
        finally:
            process.terminate()
            process.wait()

    @contextmanager
    def websocket(self) -> Iterator[tuple[int, WebSocket]]:
        with self.served() as (pid, port):
            client = WebSocket(port, TOKEN)
            client.until(event("gateway.ready"))
            yield pid, client
            client.close()


@dataclass
class Figures:
    """Samples by figure and program. The best of them counts: everything else is the machine's other work."""

    unit: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, figure: str, program: Program, value: float, unit: str = "ms") -> None:
        self.unit[figure] = unit
        self.samples.setdefault((figure, program.name), []).append(value)

    def tell(self) -> None:
        """A table on standard output, one line of JSON for each figure in the history."""
        print(f"{'figure':44} {'unit':>5} {'hermes':>9} {'floor':>9} {'ratio':>6} {'median':>9} {'median':>9}")
        for figure, unit in self.unit.items():
            ours, least = self.samples[figure, "hermes"], self.samples.get((figure, "floor"), [])
            ratio = min(ours) / min(least) if least and min(least) > 0 else None
            usual = statistics.median(ours)
            shown = f"{ratio:6.1f}" if ratio is not None else " " * 6
            floor = (f"{min(least):9.2f}", f"{statistics.median(least):9.2f}") if least else (" " * 9, "")
            print(f"{figure:44} {unit:>5} {min(ours):9.2f} {floor[0]} {shown} {usual:9.2f} {floor[1]}")
            row = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "python": platform.python_version()}
            row |= {"figure": figure, "unit": unit, "hermes": round(min(ours), 4), "n": len(ours)}
            row |= {"floor": round(min(least), 4) if least else None, "ratio": round(ratio, 2) if ratio else None}
            with HISTORY.open("a") as history:
                history.write(json.dumps(row) + "\n")


def compare(measure: Callable[[Program, Figures], None], *, repetitions: int = REPETITIONS) -> None:
    """Let both programs take turns and tell the figures. ``measure`` adds one or more samples of each figure."""
    figures = Figures()
    floor = [sys.executable, str(ROOT / "bench" / "floor.py")]
    hermes = [sys.executable, "-m", "hermes"]
    with Model() as model, tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        programs = (
            Program(
                "hermes",
                model,
                one,
                {
                    "gateway": [*hermes, "gateway"],
                    "acp": [*hermes, "acp"],
                    "serve": [*hermes, "serve", "--port", "PORT"],
                },
            ),
            Program(
                "floor",
                model,
                other,
                {"gateway": [*floor, "gateway"], "acp": [*floor, "acp"], "serve": [*floor, "serve", "PORT"]},
            ),
        )
        for _ in range(repetitions):
            for program in programs:
                measure(program, figures)
    figures.tell()
