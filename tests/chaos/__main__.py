"""``python -m tests.chaos --seconds 60 --seed 7``: play, and say what was done; exit status 1 if it broke."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import trio

from tests.chaos.injuries import INJURIES
from tests.chaos.peace import first_violation
from tests.chaos.play import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="what a failure has printed")
    parser.add_argument("--round", type=float, default=8, help="seconds of trouble between two looks")
    parser.add_argument("--without", action="append", default=[], choices=sorted(INJURIES), help="leave this out")
    parser.add_argument("--home", type=Path, default=None, help="keep the home here")
    parser.add_argument("--verbose", action="store_true", help="how long each round took")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        home = given.home or Path(folder) / "home"
        try:
            trace = trio.run(play, home, seed, given.seconds, given.round, frozenset(given.without), given.verbose)
        except BaseException as error:
            if first_violation(error) is None:
                raise
            print(f"BROKEN {notes_of(error)}\n\nagain: python -m tests.chaos --seed {seed} --seconds {given.seconds:g}")
            return 1
    print(json.dumps(dict(trace.counts.most_common()), indent=1))
    print(f"nothing is broken: seed {seed}, {given.seconds:g} s, {sum(trace.counts.values())} things done")
    return 0


def notes_of(error: BaseException) -> str:
    """A nursery wraps what it lets out: the notes are somewhere inside."""
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "\n".join([*getattr(error, "__notes__", []), *filter(None, map(notes_of, inner))])


if __name__ == "__main__":
    sys.exit(main())
