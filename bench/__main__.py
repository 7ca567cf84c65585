"""All benchmarks in one run: ``python bench`` (``make bench``) takes a few minutes with small counts, ``--full`` (or
``PROOF=1``) all counts, for a quiet machine.

Hermes and the floor take turns in the same run, so that what counts is the ratio. ``--full`` adds the figures to
``bench/history.jsonl`` and writes ``docs/reference/benchmarks.md``; ``--keep`` does that with small counts. The exit
status is 1 if an absolute promise was broken (a prompt refused after a stop, a process left, a stream lost), whatever
the figures are. What does not fit into ``--minutes`` is left out, and that is told.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page import page
from report import KEPT_IN, REPEATED

HERE = Path(__file__).parent
HISTORY = HERE / "history.jsonl"
PAGE = HERE.parent / "docs" / "reference" / "benchmarks.md"
Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One program: its arguments, and how often each side has its turn, with small counts and with all."""

    name: str
    title: str
    small: str = ""
    full: str = ""
    repeated: tuple[int, int] = (1, 2)


PARTS = (
    Part("start", "Cold start", repeated=(2, 5)),
    Part("stops", "Stops", "--stops 9", "--stops 400"),
    Part(
        "many",
        "Sessions that stream at once",
        "--sessions 1,10,100 --seconds 3 --stops 20",
        "--sessions 1,10,100,1000 --seconds 6 --stops 1000 --rates 5,6,7,8,10,12,15,20",
    ),
    Part("turn", "One turn", repeated=(1, 3)),
    Part("stream", "A delta on every surface"),
    Part("subscribers", "A delta to many clients"),
    Part("long_session", "Turns of a long session", repeated=(1, 1)),
    Part("restart", "Restart", "--sessions 1000 --repeat 2", "--sessions 10000 --repeat 5"),
    Part("http", "Requests over HTTP"),
    Part("sessions", "Resume, rewind, prompts at once", "--messages 1000 --sessions 30 --repeat 2", "--repeat 3"),
    Part("loop", "The loop without a surface", "--chunks 1000 --idle 500 --streaming 50"),
    Part("store", "The store", "--messages 1000 --writers 30 --appends 5 --repeat 2", "--repeat 3"),
    Part("slow_clients", "Clients that do not read", repeated=(1, 1)),
)


def run_part(part: Part, full: bool, rows: list[Row]) -> int:
    """The exit status; its figures are added to ``rows``."""
    print(f"\n== {part.title} (bench_{part.name}.py)", flush=True)
    with tempfile.NamedTemporaryFile("r") as kept:
        command = [sys.executable, str(HERE / f"bench_{part.name}.py"), *(part.full if full else part.small).split()]
        env = os.environ | {KEPT_IN: kept.name, REPEATED: str(part.repeated[full])}
        status = subprocess.run(command, env=env, check=False).returncode
        rows += [{"part": part.title} | json.loads(line) for line in kept]
    return status


def chosen_parts(only: str) -> Iterator[Part]:
    wanted = only.split(",") if only else []
    return (part for part in PARTS if not wanted or part.name in wanted)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", default=os.environ.get("PROOF") == "1")
    parser.add_argument("--keep", action="store_true", help="write the history and the page, also without --full")
    parser.add_argument("--only", default="", help="parts, as: " + ",".join(part.name for part in PARTS))
    parser.add_argument("--minutes", type=float, default=12.0)
    options = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    rows: list[Row] = []
    failed, left_out = [], []
    for part in chosen_parts(options.only):
        if time.monotonic() - began > options.minutes * 60:
            left_out.append(part.title)
            continue
        since = time.monotonic()
        if status := run_part(part, options.full, rows):
            failed.append(f"{part.title} (status {status})")
        print(f"{time.monotonic() - since:.0f} s", flush=True)
    took = time.monotonic() - began
    print(f"\n{took / 60:.1f} minutes. BROKEN: {', '.join(failed) or 'nothing'}.")
    print(f"Left out: {', '.join(left_out) or 'nothing'}.")
    if options.full or options.keep:
        run = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "python": platform.python_version()}
        with HISTORY.open("a") as history:
            history.writelines(json.dumps(run | row) + "\n" for row in rows)
        machine = {
            "cores": os.cpu_count(),
            "architecture": platform.machine(),
            "system": platform.system(),
            "memory": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "load": round(load, 2),
        }
        PAGE.write_text(page(rows, run | machine, full=options.full, failed=failed, left_out=left_out, seconds=took))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
