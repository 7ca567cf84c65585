"""What a process of our own settles before it serves."""

from __future__ import annotations

import subprocess
import sys

from hermes.start import COLLECTOR

PROGRAM = """
import gc
from hermes.start import settle_memory
settle_memory()
print(gc.get_freeze_count() > 0, *gc.get_threshold())
"""


def test_the_collector_looks_often_and_not_at_what_was_loaded() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == ["True", *map(str, COLLECTOR)]
