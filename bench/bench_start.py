"""Cold starts: from the spawn of each surface to its first words, and to the first word of the first answer."""

from __future__ import annotations

import time

from clients import connect, event, now
from report import Figures, Program, compare


def measure(program: Program, figures: Figures) -> None:
    server = program.stdio()
    server.until(event("gateway.ready"))
    figures.add("gateway: spawn to ready", program, (now() - server.spawned) * 1e3)
    session = server.call("session.create", {})["session_id"]
    server.send("prompt.submit", {"session_id": session, "text": "hello"})
    moment, _ = server.until(event("message.delta", session))
    figures.add("gateway: spawn to first delta", program, (moment - server.spawned) * 1e3)
    server.until(event("message.complete", session))
    server.close()

    editor = program.stdio("acp")
    editor.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    figures.add("acp: spawn to initialize answered", program, (now() - editor.spawned) * 1e3)
    editor.close()

    began = now()
    with program.served() as (_, port), connect(port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        figures.add("serve: spawn to health", program, (now() - began) * 1e3)
    time.sleep(0.05)


if __name__ == "__main__":
    compare(measure)
