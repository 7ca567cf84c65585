"""What the one-file build runs: the ``hermes`` command, and the few modules that children of it are started with.

There is no interpreter beside the build, so the build stands in for one: ``hermes -m hermes.nurseries.plugin_child``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PLUGIN_CHILD = ["-m", "hermes.nurseries.plugin_child"]
PR_SET_PDEATHSIG = 1


def end_with_the_launcher() -> None:
    """The build is two processes: a launcher that has unpacked it and passes signals on, and this one. A launcher
    that is killed cannot pass anything on; the server must not outlive it."""
    if sys.platform != "linux":
        return
    launcher = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != launcher:
        sys.exit(0)


def run() -> None:
    if sys.argv[1:] == PLUGIN_CHILD:
        from hermes.nurseries.plugin_child import main as plugin_child

        plugin_child()
        return
    end_with_the_launcher()
    from hermes.cli import main

    main()


run()
