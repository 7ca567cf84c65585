"""How often a test repeats what it tries: a few times always, as often as promised under ``PROOF=1``."""

from __future__ import annotations

import os

PROOF = os.environ.get("PROOF") == "1"


def times(full: int, scaled: int) -> int:
    """The full count where the proof is asked for, else the scaled one."""
    return full if PROOF else scaled
