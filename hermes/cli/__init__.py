"""The ``hermes`` command: one small file per subcommand, loaded when it is called.

This folder is the only one that prints. Commands whose standard output belongs to a protocol (``acp``, ``gateway``)
print for people on standard error only. Hosts start these two as often as they like, mostly without any option; then
they start without the command line's machinery (``stdio_host``).
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence

from hermes.errors import HermesError

PLAIN = (["gateway"], ["acp"])
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ALLOCATIONS_BETWEEN_COLLECTIONS = 20_000


def own_process() -> None:
    """Imports make tens of thousands of objects that stay: looking for garbage among them costs a tenth of a start."""
    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS, 10, 10)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Started with it closed: the next file to be opened would take its number, and be read as the input.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def leave_output() -> None:
    """Nobody takes what is written any more. What is in the buffer must go somewhere, or the interpreter's own flush at
    its end fails and changes the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 used or configured wrongly, 130 interrupted."""
    if arguments is None:
        own_process()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given in PLAIN:
            from hermes.cli.stdio_host import run
        else:
            from hermes.cli.root import run
        code = run(given)
    except KeyboardInterrupt:
        code = 130
    except HermesError as error:
        sys.stderr.write(f"hermes: {error.message}\n")
        code = 2
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        leave_output()
        sys.stderr.write(f"hermes: not everything could be written: {error.strerror}\n")
        code = 1
    sys.exit(code)


def acp_main() -> None:
    """``hermes-acp``, the name editors look for."""
    own_process()
    main(["acp", *sys.argv[1:]])
