"""Five ways to stop a turn, each as its clients do: a gateway on pipes or a WebSocket, the stop of an HTTP run, an HTTP
client that goes away, an editor's cancel.

``submit`` returns when the prompt was accepted, ``wait_for`` when the turn is where it is to be stopped, ``stop`` when
its one terminal event is there. All of them read as blocking programs do, one thread each.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, BinaryIO, Protocol

from clients import Frame, Model, Stdio, WebSocket, connect, dumps, event, now
from report import TOKEN


class Refused(Exception):
    """A prompt was not accepted at the first try."""


class Stopper(Protocol):
    model: Model

    def fresh(self) -> None:
        """The next prompt begins a session of its own."""
        ...

    def submit(self, text: str) -> float:
        """The moment at which it was accepted. Raises ``Refused``."""
        ...

    def wait_for(self, what: str) -> None: ...

    def stop(self) -> tuple[float, float]:
        """The moment at which it was asked for, and that of the terminal event."""
        ...


class GatewayStopper:
    def __init__(self, peer: Stdio | WebSocket, model: Model) -> None:
        self.peer, self.model = peer, model
        self.session = ""
        peer.call("client.capabilities", {"server_requests": True})

    def fresh(self) -> None:
        self.session = self.peer.call("session.create", {})["session_id"]

    def submit(self, text: str) -> float:
        number = self.peer.send("prompt.submit", {"session_id": self.session, "text": text})
        moment, frame = self.peer.until(lambda one: one.get("id") == number and "method" not in one)
        if "error" in frame:
            raise Refused(frame["error"])
        return moment

    def wait_for(self, what: str) -> None:
        if what == "streaming":
            self.peer.until(event("message.delta", self.session))
        elif what == "silent":
            self.model.wait_asked()
        elif what == "question":
            self.peer.until(lambda one: one.get("method") == "approval")
        else:
            self.peer.until(event("tool.start", self.session))

    def stop(self) -> tuple[float, float]:
        began = now()
        number = self.peer.send("session.interrupt", {"session_id": self.session})
        ended, ended_at, answered = event("message.complete", self.session), 0.0, False
        while not (ended_at and answered):
            frame = self.peer.read()
            if ended(frame):
                ended_at = now()
            answered = answered or (frame.get("id") == number and "method" not in frame)
        return began, ended_at


class AcpStopper:
    def __init__(self, peer: Stdio, model: Model, cwd: str) -> None:
        self.peer, self.model, self.cwd = peer, model, cwd
        self.session = ""
        self.prompt = 0
        peer.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})

    def fresh(self) -> None:
        self.session = self.peer.call("session/new", {"cwd": self.cwd, "mcpServers": []})["sessionId"]

    def submit(self, text: str) -> float:
        """A prompt is answered at its end: that it was accepted shows in its request to the model."""
        prompt = [{"type": "text", "text": text}]
        self.prompt = self.peer.send("session/prompt", {"sessionId": self.session, "prompt": prompt})
        self.model.wait_asked()
        return now()

    def wait_for(self, what: str) -> None:
        kinds = {"streaming": "agent_message_chunk", "tree": "tool_call", "hostile": "tool_call"}
        if what == "question":
            self.peer.until(lambda one: one.get("method") == "session/request_permission")
        elif what in kinds:
            self.peer.until(lambda one: (one.get("params") or {}).get("update", {}).get("sessionUpdate") == kinds[what])

    def stop(self) -> tuple[float, float]:
        began = now()
        self.peer.tell("session/cancel", {"sessionId": self.session})
        ended, frame = self.peer.until(lambda one: one.get("id") == self.prompt and "method" not in one)
        if "error" in frame or frame["result"]["stopReason"] != "cancelled":
            raise Refused(frame)
        return began, ended


class Answer:
    """The answer to a request that is read while it comes; ``kept`` connections are used again."""

    def __init__(self, port: int, method: str, path: str, body: Frame | None = None, *, session: str = "") -> None:
        data = dumps(body).encode() if body is not None else b""
        head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"]
        head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        head += [f"X-Hermes-Session-Id: {session}"] * bool(session)
        self.socket: socket.socket = connect(port)
        self.socket.sendall("\r\n".join([*head, "", ""]).encode() + data)
        self.lines: BinaryIO = self.socket.makefile("rb")
        self.status = int(self.lines.readline().split()[1])
        self.length = -1
        while line := self.lines.readline().strip():
            if line.lower().startswith(b"content-length:"):
                self.length = int(line.split(b":")[1])

    def until(self, words: bytes) -> tuple[float, bytes]:
        """The next line that holds these words. Chunk sizes stand between the lines and are passed over."""
        while line := self.lines.readline():
            if words in line:
                return now(), line
        raise EOFError(f"the stream ended without {words!r}")

    def whole(self) -> Any:
        body = json.loads(self.lines.read(self.length))
        self.close()
        return body

    def close(self) -> None:
        # A file made of a socket keeps it open.
        self.lines.close()
        self.socket.close()


class RunStopper:
    def __init__(self, port: int, model: Model) -> None:
        self.port, self.model = port, model
        self.session, self.run = "", ""
        self.events: Answer | None = None

    def fresh(self) -> None:
        self.session = f"bench-{time.monotonic_ns()}"

    def submit(self, text: str) -> float:
        answer = Answer(self.port, "POST", "/v1/runs", {"input": text, "session_id": self.session})
        moment, body = now(), answer.whole()
        if answer.status != 202:
            raise Refused(body)
        self.run = body["run_id"]
        self.events = Answer(self.port, "GET", f"/v1/runs/{self.run}/events")
        return moment

    def wait_for(self, what: str) -> None:
        assert self.events is not None
        if what == "silent":
            self.model.wait_asked()
            return
        words = {"streaming": b"message.delta", "question": b"approval.request"}
        self.events.until(words.get(what, b"tool.started"))

    def stop(self) -> tuple[float, float]:
        assert self.events is not None
        began = now()
        stopped = Answer(self.port, "POST", f"/v1/runs/{self.run}/stop", {})
        ended, _ = self.events.until(b"run.cancelled")
        self.events.close()
        stopped.close()
        return began, ended


class GoneStopper:
    """A completion whose client closes the connection; a WebSocket watches how the turn ends."""

    def __init__(self, port: int, model: Model) -> None:
        self.port, self.model = port, model
        self.session, self.watched = "", ""
        self.answer: Answer | None = None
        self.watcher = WebSocket(port, TOKEN)
        self.watcher.until(event("gateway.ready"))

    def fresh(self) -> None:
        self.session, self.watched = f"bench-{time.monotonic_ns()}", ""

    def submit(self, text: str) -> float:
        body = {"model": "hermes-agent", "stream": True, "messages": [{"role": "user", "content": text}]}
        self.answer = Answer(self.port, "POST", "/v1/chat/completions", body, session=self.session)
        if self.answer.status != 200:
            raise Refused(self.answer.status)
        moment, _ = self.answer.until(b"data: {")
        if not self.watched:
            seen = self.watcher.call("session.resume", {"session_id": self.session, "omit_messages": True})
            self.watched = seen["session_id"]
        return moment

    def wait_for(self, what: str) -> None:
        assert self.answer is not None
        if what == "silent":
            self.model.wait_asked()
            return
        self.answer.until({"streaming": b"word", "question": b"approval"}.get(what, b"tool"))

    def stop(self) -> tuple[float, float]:
        assert self.answer is not None
        began = now()
        self.answer.close()
        ended, _ = self.watcher.until(event("message.complete", self.watched))
        return began, ended
