"""A server that has done much holds what it held at half time. ``PROOF=1``: the full counts, and the memory too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.soak.work import Counts, soak

pytestmark = [
    pytest.mark.e2e,
    # The client library leaves its socket to the collector when a connection is reset.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
PROOF = bool(os.environ.get("PROOF"))
COUNTS = Counts() if PROOF else Counts(turns=600, connections=120, tools=30)
SEED = 20_27


async def test_turns_connections_and_cancelled_tools_leave_nothing_behind(tmp_path: Path) -> None:
    with trio.fail_after(60 + COUNTS.turns / 2):
        result = await soak(tmp_path / "home", COUNTS, SEED, memory=PROOF)
    assert result.last.beyond(result.first, memory=PROOF) == []
