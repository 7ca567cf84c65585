"""``python -m tests.soak``: the full counts; exit status 1 if the server holds more afterwards than at half time."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from tests.soak.work import Counts, soak


def main() -> int:
    usual = Counts()
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--turns", type=int, default=usual.turns)
    parser.add_argument("--connections", type=int, default=usual.connections)
    parser.add_argument("--tools", type=int, default=usual.tools)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    counts = Counts(given.turns, given.connections, given.tools)
    print(f"seed {seed}, {counts}", flush=True)
    run = partial(soak, tell=partial(print, flush=True))
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        result = trio.run(run, Path(folder) / "home", counts, seed)
    print(f"{result.seconds:.0f} s\nat half time {result.first}\nafterwards   {result.last}")
    beyond = result.last.beyond(result.first)
    print(f"LEFT BEHIND: {'; '.join(beyond)}" if beyond else "nothing is left behind")
    return bool(beyond)


if __name__ == "__main__":
    sys.exit(main())
