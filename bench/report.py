"""What the benchmarks share: the two programs that are compared, taking turns, and how their figures are told."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from clients import ROOT, Model, Stdio, WebSocket, connect, event, free_port

TOKEN = "a-key-for-benchmarks-only"
REPETITIONS = 5
KEPT_IN, REPEATED = "BENCH_KEPT_IN", "BENCH_REPETITIONS"
"""Variables of a whole run: the file that takes its figures, and how often each program has its turn."""


class Provider(Protocol):
    """A model server that runs."""

    url: str


@dataclass
class Program:
    """Hermes or the floor; ``home`` is fresh for the run."""

    name: str
    model: Any
    home: str
    commands: dict[str, list[str]]
    more_env: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return (
            os.environ
            | {
                "HERMES_HOME": self.home,
                "OPENAI_BASE_URL": self.model.url,
                "OPENAI_API_KEY": "sk-for-benchmarks-only",
                "API_SERVER_KEY": TOKEN,
                "HERMES_YOLO_MODE": "1",
            }
            | self.more_env
        )

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
    goals: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    notes: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, figure: str, program: Program, value: float, unit: str = "ms", goal: str = "") -> None:
        self.unit[figure] = unit
        self.goals[figure] = goal
        self.samples.setdefault((figure, program.name), []).append(value)

    def note(self, figure: str, program: Program, **more: float) -> None:
        """What else is known of a figure: its p99, its worst."""
        if program.name == "hermes":
            self.notes[figure] = more

    def tell(self) -> None:
        """A table on standard output, a line of JSON for each figure where the run keeps them."""
        print(f"{'figure':60} {'unit':>5} {'hermes':>9} {'floor':>9} {'ratio':>6} {'median':>9} {'median':>9}")
        for figure, unit in self.unit.items():
            ours, least = self.samples[figure, "hermes"], self.samples.get((figure, "floor"), [])
            ratio = min(ours) / min(least) if least and min(least) > 0 else None
            usual = statistics.median(ours)
            shown = f"{ratio:6.1f}" if ratio is not None else " " * 6
            floor = (f"{min(least):9.2f}", f"{statistics.median(least):9.2f}") if least else (" " * 9, "")
            notes = self.notes.get(figure, {})
            more = " ".join(f"{name} {value:g}" for name, value in notes.items())
            print(f"{figure:60} {unit:>5} {min(ours):9.2f} {floor[0]} {shown} {usual:9.2f} {floor[1]} {more}")
            count = {"n": len(ours)} | notes
            record(figure, unit, min(ours), min(least) if least else None, goal=self.goals[figure], **count)


def record(figure: str, unit: str, ours: float, floor: float | None = None, *, goal: str = "", **more: float) -> None:
    """Keep one figure, if this is a run that is kept: ``python bench`` says where."""
    if not (kept := os.environ.get(KEPT_IN)):
        return
    ratio = round(ours / floor, 2) if floor else None
    row = {"figure": figure, "unit": unit, "hermes": round(ours, 4), "floor": floor and round(floor, 4), "ratio": ratio}
    row |= {"goal": goal} if goal else {}
    with open(kept, "a") as history:
        history.write(json.dumps(row | more) + "\n")


@contextmanager
def programs(model: Provider | None = None, config: str = "", **env: str) -> Iterator[tuple[Program, Program]]:
    """Hermes and the floor, each with a home of its own. ``config``: the text of Hermes' config.yaml."""
    floor = [sys.executable, str(ROOT / "bench" / "floor.py")]
    hermes = [sys.executable, "-m", "hermes"]
    with (
        contextlib.nullcontext(model) if model is not None else Model() as provider,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as one,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as other,
    ):
        Path(one, "config.yaml").write_text(config)
        ours = {"gateway": [*hermes, "gateway"], "acp": [*hermes, "acp"], "serve": [*hermes, "serve", "--port", "PORT"]}
        least = {"gateway": [*floor, "gateway"], "acp": [*floor, "acp"], "serve": [*floor, "serve", "PORT"]}
        yield Program("hermes", provider, one, ours, env), Program("floor", provider, other, least, env)


def compare(measure: Callable[[Program, Figures], None], *, repetitions: int = REPETITIONS) -> None:
    """Let both programs take turns and tell the figures. ``measure`` adds one or more samples of each figure."""
    figures = Figures()
    with programs() as both:
        for _ in range(int(os.environ.get(REPEATED, repetitions))):
            for program in both:
                measure(program, figures)
    figures.tell()
