"""``python -m tests.fuzz --seconds 60 [target ...]``: atheris on each target; where it is missing, says so."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help="all of them, if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    given = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed (pip install '.[fuzz]'): nothing was tried")
        return 0
    broken = [name for name in given.targets or TARGETS if not _fuzz(name, given.seconds)]
    print(f"broken: {', '.join(broken)}" if broken else "nothing is broken")
    return bool(broken)


def _fuzz(name: str, seconds: int) -> bool:
    """In a process of its own: the fuzzer never returns."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number, seed in enumerate(SEEDS):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        command = [sys.executable, "-m", "tests.fuzz.with_atheris", name, folder, f"-max_total_time={seconds}"]
        command += ["-print_final_stats=1", f"-artifact_prefix={folder}/"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    stats = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    print(f"{name}: {'held' if done.returncode == 0 else 'BROKEN'} {' '.join(stats)}", flush=True)
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-5000:])
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
