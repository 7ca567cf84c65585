"""CPU of the server for each streamed delta, with one client of the session, with ten and with a hundred.

The floor writes each delta to each client by itself: what that costs is mostly the kernel's.
"""

from __future__ import annotations

import contextlib
import threading

from clients import WebSocket, cpu_seconds, event
from report import TOKEN, Figures, Program, compare

CHUNKS = 1500
PACED, PAUSE_MS = 150, 2
CLIENTS = (10, 100)


def measure(program: Program, figures: Figures) -> None:
    with program.served() as (pid, port):
        client = WebSocket(port, TOKEN)
        session = client.call("session.create", {})["session_id"]
        for text in ("warm", "warm"):
            run(client, session, text)
        alone = costs(client, session, pid)
        others: list[WebSocket] = []
        for figure, one in alone.items():
            figures.add(f"CPU per delta, one client, {figure}", program, one * 1e6, "us")
        for clients in CLIENTS:
            others += [follow(port, session) for _ in range(clients - 1 - len(others))]
            for figure, many in costs(client, session, pid).items():
                figures.add(f"CPU per delta, {clients} clients, {figure}", program, many * 1e6, "us")
                figures.add(f"{clients} clients against one, {figure}", program, many / alone[figure], "x")
        for other in [*others, client]:
            other.close()


def costs(client: WebSocket, session: str, pid: int) -> dict[str, float]:
    found = {}
    for figure, text, count in (("burst", f"burst {CHUNKS}", CHUNKS), ("paced", f"paced {PACED} {PAUSE_MS}", PACED)):
        before = cpu_seconds(pid)
        run(client, session, text)
        found[figure] = (cpu_seconds(pid) - before) / count
    return found


def run(client: WebSocket, session: str, text: str) -> None:
    client.send("prompt.submit", {"session_id": session, "text": text})
    client.until(event("message.complete", session))


def follow(port: int, session: str) -> WebSocket:
    """One more client of the session, whose frames a thread takes and drops."""
    client = WebSocket(port, TOKEN)
    client.call("session.activate", {"session_id": session, "omit_messages": True})

    def drain() -> None:
        with contextlib.suppress(OSError):
            while client.drop():
                pass

    threading.Thread(target=drain, daemon=True).start()
    return client


if __name__ == "__main__":
    compare(measure, repetitions=3)
