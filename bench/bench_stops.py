"""How soon a stop has its terminal event and the next prompt is accepted, over every surface that has a stop: while the
model streams, while it is silent, in a tree of processes that is polite or is not, while a question is open.

``python bench/bench_stops.py [--stops 20] [--only streaming,tree]``. ``--stops`` are those of each surface and
situation; of trees there are a third, of hostile ones, which need the whole grace, a twentieth. Two promises are
absolute and end the program with status 1: that no prompt is refused after a stop, and that no process is left at the
terminal event. The floor has a gateway alone: everything is told in multiples of its pipe in the same situation; it
kills trees at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clients import WebSocket, event, now
from report import TOKEN, Figures, Program, programs
from stoppers import AcpStopper, GatewayStopper, GoneStopper, Refused, RunStopper, Stopper

GRACE_MS, P99_MS = 500.0, 25.0
BATCH = 40
"""Stops of one session: its transcript grows, and that is another benchmark."""
PROMPTS = {
    "streaming": "paced 100000 5",
    "silent": "hang",
    "tree": "tool sleep 7001 & (setsid sleep 7002 &); sleep 7003",
    "hostile": "tool trap '' TERM; sleep 7004 & wait; sleep 7005",
    "question": "tool rm -rf bench-no-such-folder",
}
NAMES = {
    "streaming": "while it streams",
    "silent": "the model silent",
    "tree": "a polite tree of processes",
    "hostile": "a tree that ignores TERM",
    "question": "a question open",
}
SHARE = {"tree": 3, "hostile": 20}
SETTLE = {"streaming": 0.0, "silent": 0.003, "tree": 0.03, "hostile": 0.05, "question": 0.003}
"""A tree needs a moment to stand; what only has to be asked is there at once."""
SURFACES = ("gateway stdio", "WebSocket", "HTTP run", "HTTP client gone", "ACP")


@dataclass
class Taken:
    """Milliseconds of one surface in one situation."""

    terminal: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    refused: int = 0
    survivors: int = 0


@contextmanager
def surface(program: Program, name: str) -> Iterator[Stopper]:
    model = program.model
    if name == "gateway stdio":
        with program.gateway() as server:
            yield GatewayStopper(server, model)
    elif name == "ACP":
        editor = program.stdio("acp")
        yield AcpStopper(editor, model, program.home)
        editor.close()
    else:
        with program.served() as (_, port):
            if name == "WebSocket":
                client = WebSocket(port, TOKEN)
                client.until(event("gateway.ready"))
                yield GatewayStopper(client, model)
                client.close()
            else:
                yield (RunStopper if name == "HTTP run" else GoneStopper)(port, model)


def stops(program: Program, stopper: Stopper, what: str, count: int) -> Taken:
    """So many stops, each followed by the next prompt at once; a session for each batch."""
    taken = Taken()
    for begin in range(0, count, BATCH):
        stopper.fresh()
        stopper.model.forget_asked()
        stopper.submit(PROMPTS[what])
        for _ in range(min(BATCH, count - begin)):
            stopper.wait_for(what)
            time.sleep(SETTLE[what])
            asked, ended = stopper.stop()
            taken.terminal.append((ended - asked) * 1e3)
            if what in SHARE:
                taken.survivors += len(left := processes(program.home))
                kill(left)
            resumed = now()
            try:
                # Without the time in which the processes were looked for.
                taken.accepted.append((stopper.submit(PROMPTS[what]) - resumed + ended - asked) * 1e3)
            except Refused:
                taken.refused += 1
                return taken
        stopper.wait_for(what)
        stopper.stop()
        kill(processes(program.home))
    return taken


def processes(home: str) -> list[int]:
    """What runs for this home besides servers: every process inherits the variable."""
    mark, found = f"HERMES_HOME={home}".encode(), []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                if words[0].endswith((b"sleep", b"bash", b"sh")):
                    found.append(int(name))
    return found


def kill(found: list[int]) -> None:
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def tell(figures: Figures, program: Program, name: str, what: str, taken: Taken) -> None:
    for kind, values in (("terminal event", taken.terminal), ("next accepted", taken.accepted)):
        if not values:
            continue
        values = sorted(values)
        worst = values[-1]
        p99 = values[min(len(values) - 1, int(len(values) * 0.99))]
        title = f"stop, {NAMES[what]}, {name}: {kind}"
        bound = GRACE_MS + 50 if what == "hostile" else P99_MS
        figures.add(title, program, statistics.median(values), goal=f"p99 < {bound:g}" if kind[0] == "t" else "")
        figures.note(title, program, p99=round(p99, 2), worst=round(worst, 2), n=len(values))


def main(measured: tuple[str, ...], count: int, only: Callable[[str], bool]) -> int:
    figures, broken = Figures(), []
    with programs(HERMES_YOLO_MODE="") as (hermes, floor):
        for what in filter(only, PROMPTS):
            for name in measured:
                with surface(hermes, name) as stopper:
                    taken = stops(hermes, stopper, what, max(2, count // SHARE.get(what, 1)))
                tell(figures, hermes, name, what, taken)
                broken += [f"{name}, {NAMES[what]}: a prompt was refused after a stop"] * bool(taken.refused)
                broken += [f"{name}, {NAMES[what]}: {taken.survivors} processes left"] * bool(taken.survivors)
            with surface(floor, "gateway stdio") as stopper:
                least = stops(floor, stopper, what, max(2, min(count, 100) // SHARE.get(what, 1)))
            for name in measured:
                tell(figures, floor, name, what, least)
    figures.tell()
    print("\n".join(broken) or "no prompt was refused after a stop, no process was left behind one")
    return bool(broken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--only", default=",".join(PROMPTS))
    parser.add_argument("--surfaces", default=",".join(SURFACES))
    options = parser.parse_args()
    chosen = options.only.split(",")
    sys.exit(main(tuple(options.surfaces.split(",")), options.stops, chosen.__contains__))
