"""The one-file build against the installed command: from the start of the process to the first word of an answer.

Builds the file if the sources have changed (about forty seconds of processor time). The bound is a factor of two.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from clients import ROOT, Stdio, event

sys.path.insert(0, str(ROOT))
from tests.support.binary import binary, can_build

REPETITIONS = 9
BOUND = 2
HISTORY = Path(__file__).with_name("history.jsonl")


def first_answer(command: list[str]) -> float:
    """Milliseconds."""
    home = tempfile.mkdtemp()
    try:
        server = Stdio([*command, "gateway"], os.environ | {"HERMES_HOME": home}, home)
        session = server.call("session.create", {})["session_id"]
        server.send("prompt.submit", {"session_id": session, "text": "Hello"})
        moment, _ = server.until(event("message.delta", session))
        server.close()
        return (moment - server.spawned) * 1e3
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    if not can_build():
        print("PyInstaller is not installed; nothing to compare")
        return
    built = binary()
    installed = Path(sys.executable).with_name("hermes")
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        theirs.append(first_answer([str(installed)]))
        ours.append(first_answer([str(built)]))
    ratio = min(ours) / min(theirs)
    size = built.stat().st_size / 1e6
    usual = f"medians {statistics.median(ours):.0f} and {statistics.median(theirs):.0f} ms"
    print(f"one file ({size:.0f} MB): first answer after {min(ours):.0f} ms; installed: {min(theirs):.0f} ms; {usual}")
    print(f"ratio {ratio:.2f} (bound {BOUND})")
    row = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "python": platform.python_version()}
    row |= {"figure": "one file: spawn to first delta", "unit": "ms", "hermes": round(min(ours), 4), "n": len(ours)}
    row |= {"floor": round(min(theirs), 4), "ratio": round(ratio, 2)}
    with HISTORY.open("a") as history:
        history.write(json.dumps(row) + "\n")
    if ratio > BOUND:
        sys.exit("the one-file build starts too slowly")


if __name__ == "__main__":
    main()
