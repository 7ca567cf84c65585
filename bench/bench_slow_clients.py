"""Delay from the model's chunk to the client: a client that is alone, and the last hundredth of 200, 20 of which stall.

The floor writes to 180 clients, one after the other, and has none that stall: it would wait for them. The last of many
is later than one that is alone whatever the server does, by the writes to all others.
"""

from __future__ import annotations

from clients import Crowd, WebSocket, event
from report import TOKEN, Figures, Program, compare

CHUNKS, PAUSE_MS = 200, 20
HEALTHY, STALLED = 180, 20
FLOOD = "burst 6000 200"


def measure(program: Program, figures: Figures) -> None:
    with program.served() as (_, port):
        client = WebSocket(port, TOKEN)
        session = client.call("session.create", {})["session_id"]
        run(client, session, "warm")
        one = late(client, port, session, 1, 0)
        many = late(client, port, session, HEALTHY, STALLED if program.name == "hermes" else 0)
        figures.add("chunk to client, 99 %, alone", program, one * 1e3)
        figures.add(f"chunk to client, 99 %, {HEALTHY} beside {STALLED} that stall", program, many * 1e3)
        figures.add(f"{HEALTHY} clients against one, 99 %", program, many / one, "x")
        client.close()


def late(client: WebSocket, port: int, session: str, count: int, stalled: int) -> float:
    """Seconds within which 99 of 100 chunks have arrived."""
    crowd = Crowd(port, TOKEN, session, count, stalled=stalled)
    try:
        if stalled:
            # Fills what lies between the server and those that do not read.
            run(client, session, FLOOD)
            crowd.wait_idle()
        run(client, session, f"timed {CHUNKS} {PAUSE_MS}")
    finally:
        crowd.close()
    return sorted(crowd.delays)[int(len(crowd.delays) * 0.99) - 1]


def run(client: WebSocket, session: str, text: str) -> None:
    client.send("prompt.submit", {"session_id": session, "text": text})
    client.until(event("message.complete", session))


if __name__ == "__main__":
    compare(measure, repetitions=3)
