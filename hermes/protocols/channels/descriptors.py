"""Taking standard input and output for a protocol. Imports nothing heavy: this is the first thing a stdio host does."""

from __future__ import annotations

import os
import sys

from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class StdioDescriptors:
    """Private, non-inheritable descriptors of what was standard input and output."""

    input: int
    output: int


def claim_stdio() -> StdioDescriptors:
    """Take descriptors 0 and 1 for the protocol. Afterwards 0 is the null device, 1 is a copy of 2, and
    ``sys.stdout`` is ``sys.stderr``."""
    if sys.stdout is not None:
        sys.stdout.flush()
    claimed = StdioDescriptors(_private_copy(0, os.O_RDONLY), _private_copy(1, os.O_WRONLY))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        # Started without a standard error: stray output goes nowhere.
        os.dup2(null, 1)
        os.dup2(null, 2)
    if null > 2:
        os.close(null)
    sys.stdout = sys.stderr
    return claimed


def _private_copy(fd: int, flags: int) -> int:
    try:
        copy = os.dup(fd)
    except OSError:
        # Started with this descriptor closed: the same as an input that has ended, an output that nobody reads.
        copy = os.open(os.devnull, flags)
    os.set_inheritable(copy, False)
    return copy
