"""One warm turn, one tool, and how soon an interrupt has its terminal event: while streaming, while the model is
silent, while a tool runs."""

from __future__ import annotations

import time

from clients import Stdio, cpu_seconds, event, now
from report import Figures, Program, compare

TURNS = 20


def measure(program: Program, figures: Figures) -> None:
    with program.gateway() as server:
        session = server.call("session.create", {})["session_id"]
        for _ in range(3):
            turn(server, session, "hello")
        for _ in range(TURNS):
            before, began = cpu_seconds(server.pid), now()
            server.send("prompt.submit", {"session_id": session, "text": "hello"})
            moment, _ = server.until(event("message.delta", session))
            figures.add("warm turn: submit to first delta", program, (moment - began) * 1e3)
            server.until(event("message.complete", session))
            time.sleep(0.02)
            figures.add("warm turn: CPU", program, (cpu_seconds(server.pid) - before) * 1e3)
        for _ in range(TURNS):
            began = now()
            server.send("prompt.submit", {"session_id": session, "text": "tool true"})
            moment, _ = server.until(event("tool.complete", session))
            figures.add("tool `true`: submit to tool.complete", program, (moment - began) * 1e3)
            moment, _ = server.until(event("message.complete", session))
            figures.add("tool `true`: submit to end of turn", program, (moment - began) * 1e3)
        for _ in range(TURNS // 2):
            interrupt(program, figures, server, session, "streaming", "paced 1000 5", "message.delta")
            interrupt(program, figures, server, session, "the model silent", "hang", "message.start")
            interrupt(program, figures, server, session, "a tool running", "tool sleep 10", "tool.start")


def turn(server: Stdio, session: str, text: str) -> None:
    server.send("prompt.submit", {"session_id": session, "text": text})
    server.until(event("message.complete", session))


def interrupt(program: Program, figures: Figures, server: Stdio, session: str, what: str, text: str, sign: str) -> None:
    server.send("prompt.submit", {"session_id": session, "text": text})
    server.until(event(sign, session))
    time.sleep(0.05)
    began = now()
    server.send("session.interrupt", {"session_id": session})
    moment, _ = server.until(event("message.complete", session))
    figures.add(f"interrupt, {what}: terminal event", program, (moment - began) * 1e3)
    time.sleep(0.02)


if __name__ == "__main__":
    compare(measure, repetitions=3)
