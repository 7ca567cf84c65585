"""CPU of the server for each streamed delta, on every surface, while the model writes as fast as it can."""

from __future__ import annotations

from clients import Stdio, WebSocket, cpu_seconds, event, post_lines
from report import TOKEN, Figures, Program, compare

CHUNKS = 3000
PACED, PAUSE_MS = 300, 2
"""With pauses each chunk is a wake-up of its own; without, many arrive in one read."""


def measure(program: Program, figures: Figures) -> None:
    with program.gateway() as server:
        stream(program, figures, "stdio", server.pid, server)
    with program.websocket() as (pid, client):
        stream(program, figures, "WebSocket", pid, client)
    with program.served() as (pid, port):
        for figure, text, count in prompts():
            body = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": text}]}
            list(
                post_lines(
                    port, "/v1/chat/completions", body | {"messages": [{"role": "user", "content": "hi"}]}, TOKEN
                )
            )
            before = cpu_seconds(pid)
            words = sum(line.count(b"word ") for line in post_lines(port, "/v1/chat/completions", body, TOKEN))
            assert words == count, words
            figures.add(f"SSE: CPU per delta, {figure}", program, (cpu_seconds(pid) - before) / count * 1e6, "us")


def stream(program: Program, figures: Figures, surface: str, pid: int, peer: Stdio | WebSocket) -> None:
    session = peer.call("session.create", {})["session_id"]
    for text in ("warm", "warm", "warm"):
        peer.send("prompt.submit", {"session_id": session, "text": text})
        peer.until(event("message.complete", session))
    for figure, text, count in prompts():
        before = cpu_seconds(pid)
        peer.send("prompt.submit", {"session_id": session, "text": text})
        peer.until(event("message.complete", session))
        figures.add(f"{surface}: CPU per delta, {figure}", program, (cpu_seconds(pid) - before) / count * 1e6, "us")


def prompts() -> tuple[tuple[str, str, int], ...]:
    return (("burst", f"burst {CHUNKS}", CHUNKS), ("paced", f"paced {PACED} {PAUSE_MS}", PACED))


if __name__ == "__main__":
    compare(measure, repetitions=3)
