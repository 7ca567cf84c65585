"""Many sessions that stream at once, each with a WebSocket of its own, read by one thread without parsing.

A frame is looked at no closer than needed: its head says where it ends, a search says what it is. So the driver, in the
benchmark's own process, stays well below what the server needs, and what is measured is the server.
"""

from __future__ import annotations

import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from clients import WebSocket, event

STAMP = re.compile(rb"@(\d{12,}) ")
ANSWER = re.compile(rb'"id":(\d+)')


class FeedProcess:
    """The provider of ``feed.py``."""

    def __enter__(self) -> FeedProcess:
        command = [sys.executable, str(Path(__file__).with_name("feed.py"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def pace(self, rate: float) -> tuple[int, int, float]:
        """So many chunks a second in each stream from now on; open streams, chunks sent so far, its own worst lateness
        in milliseconds since the last call."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{rate}\n")
        self.process.stdin.flush()
        open_, sent, worst = self.process.stdout.readline().split()
        return int(open_), int(sent), float(worst)

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


class Peer(WebSocket):
    """One client with one session. What came is in ``deltas``, ``newest`` (the stamp), ``ends`` and ``answers``."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(port, token)
        self.until(event("gateway.ready"))
        self.session: str = self.call("session.create", {})["session_id"]
        self.rest = b""
        self.newest = 0
        self.ends: list[float] = []
        self.answers: dict[int, tuple[float, bytes]] = {}

    def submit(self, text: str) -> int:
        return self.send("prompt.submit", {"session_id": self.session, "text": text})

    def interrupt(self) -> int:
        return self.send("session.interrupt", {"session_id": self.session})

    def take(self, lateness: list[int]) -> None:
        """Read what is there; add how late each delta was, in nanoseconds."""
        data = self.rest + self._socket.recv(1 << 18)
        at, size = 0, len(data)
        moment = time.monotonic_ns()
        while size - at >= 2:
            length, start = data[at + 1] & 0x7F, at + 2
            if length >= 126:
                width = 2 if length == 126 else 8
                length, start = int.from_bytes(data[start : start + width], "big"), start + width
            if size < start + length:
                break
            at = start + length
            self._frame(data[start:at], moment, lateness)
        self.rest = data[at:]

    def _frame(self, frame: bytes, moment: int, lateness: list[int]) -> None:
        head = frame[:120]
        if b'"message.delta"' in head:
            for stamp in map(int, STAMP.findall(frame)):
                lateness.append(moment - stamp)
                self.newest = stamp
        elif b'"message.complete"' in head:
            self.ends.append(time.perf_counter())
        elif b'"method":' not in head and (answer := ANSWER.search(frame)):
            self.answers[int(answer[1])] = (time.perf_counter(), frame)


class Load:
    """All of them."""

    def __init__(self, port: int, token: str, count: int) -> None:
        self.peers = [Peer(port, token) for _ in range(count)]
        self.lateness: list[int] = []
        self._poll = select.epoll()
        self._by_descriptor = {}
        for peer in self.peers:
            self._by_descriptor[peer._socket.fileno()] = peer
            self._poll.register(peer._socket.fileno(), select.EPOLLIN)

    def pump(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Read for so long, or until it holds; whether it does."""
        end = time.perf_counter() + seconds
        while not (done := until()) and (left := end - time.perf_counter()) > 0:
            for descriptor, _ in self._poll.poll(min(left, 0.05)):
                self._by_descriptor[descriptor].take(self.lateness)
        return done

    def start(self, text: str, within: float = 60.0) -> float:
        """Submit to all; seconds until every one was accepted, with time between for what they begin to say."""
        began = time.perf_counter()
        asked = []
        for peer in self.peers:
            asked.append((peer, peer.submit(text)))
            self.pump(0)
        if not self.pump(
            within, lambda: asked[-1][1] in asked[-1][0].answers and all(n in p.answers for p, n in asked)
        ):
            raise RuntimeError("not every prompt was accepted")
        for peer, number in asked:
            if b'"error"' in (answer := peer.answers.pop(number)[1]):
                raise RuntimeError(f"a prompt was refused: {answer.decode()}")
        return time.perf_counter() - began

    def stop_one(self, peer: Peer, text: str, within: float = 60.0) -> tuple[float, float, bool]:
        """Interrupt one session and submit again at the answer.

        Returns the seconds to its terminal event, those to the acceptance of the next prompt, and whether that was
        accepted at the first try."""
        before, began = len(peer.ends), time.perf_counter()
        number = peer.interrupt()
        if not self.pump(within, lambda: number in peer.answers):
            raise RuntimeError("an interrupt was not answered")
        again = peer.submit(text)
        if not self.pump(within, lambda: again in peer.answers and len(peer.ends) > before):
            raise RuntimeError("no terminal event, or no answer to the next prompt")
        peer.answers.pop(number)
        accepted, answer = peer.answers.pop(again)
        return peer.ends[before] - began, accepted - began, b'"error"' not in answer

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self._poll.close()
