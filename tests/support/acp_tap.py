"""Stands between a client and its agent and writes down every line: ``python acp_tap.py RECORD COMMAND…``.

Run as a program of its own by clients that we did not write. Each run has a record of its own, ``RECORD.pid``; a line
of it is ``>`` or ``<`` (to or from the agent) and the frame. The agent's exit code is the tap's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO


def copy(source: int, target: int, mark: bytes, record: IO[bytes], lock: threading.Lock) -> None:
    pieces: list[bytes] = []
    while data := os.read(source, 65536):
        pieces.append(data)
        lines: list[bytes] = []
        # A frame of megabytes is not joined anew with every piece of it.
        if b"\n" in data:
            *lines, rest = b"".join(pieces).split(b"\n")
            pieces = [rest]
        with lock:
            record.writelines(mark + line + b"\n" for line in lines)
            record.flush()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(target, view) :]
        except OSError:
            return


def main() -> int:
    record_path, *command = sys.argv[1:]
    with open(f"{record_path}.{os.getpid()}", "ab") as record:
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert agent.stdin is not None
        assert agent.stdout is not None
        lock = threading.Lock()

        def to_agent() -> None:
            assert agent.stdin is not None
            copy(0, agent.stdin.fileno(), b">", record, lock)
            agent.stdin.close()

        threading.Thread(target=to_agent, daemon=True).start()
        copy(agent.stdout.fileno(), 1, b"<", record, lock)
        return agent.wait()


if __name__ == "__main__":
    code = main()
    # A thread may still read an input that nobody closes.
    sys.stdout.flush()
    os._exit(code & 0xFF)
