"""What a turn costs in a session that is long already: wall time, and CPU of the server, behind 100, 1,000 and 10,000
messages. The request grows with the conversation and its bytes must be sent; nothing else of a turn may grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from clients import Stdio, cpu_seconds, event, now
from report import Figures, Program, compare

MESSAGES = (100, 1_000, 10_000)
WARM, TURNS = 5, 40


def measure(program: Program, figures: Figures) -> None:
    if program.name != "hermes":
        return
    # The figures are about long conversations, not about making them shorter.
    Path(program.home, "config.yaml").write_text("compression:\n  enabled: false\n")
    keys = {count: seeded(program, count) for count in MESSAGES}
    with program.gateway() as server:
        for count, key in keys.items():
            session = server.call("session.resume", {"session_id": key})["session_id"]
            for _ in range(WARM):
                turn(server, session)
            before = cpu_seconds(server.pid)
            for _ in range(TURNS):
                figures.add(f"turn behind {count} messages", program, turn(server, session) * 1e3)
            spent = cpu_seconds(server.pid) - before
            figures.add(f"turn behind {count} messages: CPU", program, spent / TURNS * 1e3)


def seeded(program: Program, messages: int) -> str:
    """The key of a stored session of that many messages."""
    command = [sys.executable, "-m", "hermes.testing.seed", str(messages), "--home", program.home]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=program.env).stdout.strip()


def turn(server: Stdio, session: str) -> float:
    """Seconds from the submission to the end."""
    began = now()
    server.send("prompt.submit", {"session_id": session, "text": "hello"})
    moment, _ = server.until(event("message.complete", session))
    return float(moment - began)


if __name__ == "__main__":
    compare(measure, repetitions=2)
