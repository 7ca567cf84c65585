"""A short chaos run with a seed of its own. A failure prints it: ``CHAOS_SEED`` plays it again; ``PROOF=1`` is long."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import trio

from tests.chaos.play import play

pytestmark = [
    pytest.mark.e2e,
    # Connections are torn on purpose, also under the hands of the client library.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECONDS = 1800.0 if os.environ.get("PROOF") else 25.0


async def test_whatever_goes_wrong_at_once_the_promises_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(2**32))
    try:
        # A bound for a run that hangs, not a measure: each wait inside has its own.
        with trio.fail_after(600 + SECONDS * 3):
            trace = await play(tmp_path / "home", seed, SECONDS, 8, frozenset())
    except BaseException as error:
        error.add_note(f"CHAOS_SEED={seed}")
        raise
    with capsys.disabled():
        print(f" [seed {seed}: {sum(trace.counts.values())} things done]", end="")
