"""A provider for a thousand streams: one thread, one epoll, no JSON, in a process of its own.

A prompt that holds ``feed SECONDS`` is answered with chunks for so long, five a second until told otherwise, each with
the moment (CLOCK_MONOTONIC, in nanoseconds) at which it was due; every stream begins at a moment of its own within the
first interval. A chunk that is sent late still carries the moment at which it was due, so no lateness is hidden.
``python feed.py`` prints its port; each line on standard input is a rate for all streams from now on, and is answered
with what it does: the streams that are open, the chunks that were sent, the worst lateness of its own since the last
line in milliseconds.
"""

from __future__ import annotations

import heapq
import random
import re
import select
import socket
import sys
import time
from contextlib import suppress

ASKED = re.compile(rb"feed (\d+)")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"bench","object":"model","context_length":1000000}]}'
BEFORE = b'data: {"id":"x","object":"chat.completion.chunk","created":0,"model":"bench","choices":[{"index":0,"delta":'
AFTER = b',"finish_reason":null}]}\n\n'
END = (
    BEFORE
    + b'{},"finish_reason":"stop"}]}\n\ndata: {"id":"x","object":"chat.completion.chunk","choices":[],"usage":'
    + b'{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}\n\ndata: [DONE]\n\n'
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Feed:
    """The streams, by descriptor, and the moments at which they are due."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.listener.setblocking(False)
        self.poll = select.epoll()
        self.poll.register(self.listener.fileno(), select.EPOLLIN)
        self.poll.register(0, select.EPOLLIN)
        self.connections: dict[int, tuple[socket.socket, bytearray]] = {}
        self.streams: dict[int, tuple[int, int]] = {}
        """By descriptor: the number of this stream, the moment of its end."""
        self.every = 200_000_000
        self.due: list[tuple[int, int, int]] = []
        self.number = self.sent = self.worst = 0

    def run(self) -> None:
        while True:
            wait = (self.due[0][0] - time.monotonic_ns()) / 1e9 if self.due else 1.0
            for descriptor, _ in self.poll.poll(max(0.0, min(wait, 1.0))):
                if descriptor == self.listener.fileno():
                    self._accept()
                elif descriptor == 0:
                    if not (line := sys.stdin.readline()):
                        return
                    self.every = int(1e9 / float(line))
                    print(len(self.streams), self.sent, self.worst / 1e6, flush=True)
                    self.worst = 0
                else:
                    self._read(descriptor)
            self._send_what_is_due()

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                connection, _ = self.listener.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections[connection.fileno()] = (connection, bytearray())
                self.poll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, descriptor: int) -> None:
        connection, data = self.connections[descriptor]
        try:
            more = connection.recv(1 << 18)
        except OSError:
            more = b""
        if not more:
            self._close(descriptor)
            return
        data += more
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        length = LENGTH.search(data, 0, end)
        if len(data) < end + 4 + (int(length[1]) if length else 0):
            return
        asked = ASKED.findall(data, end)
        if data.startswith(b"GET"):
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(MODELS)
                + MODELS
            )
        elif not asked:
            connection.sendall(HEAD + chunk(BEFORE + b'{"content":"done"}' + AFTER + END) + b"0\r\n\r\n")
        else:
            connection.sendall(HEAD)
            first = time.monotonic_ns() + random.randrange(self.every)
            self.number += 1
            self.streams[descriptor] = (self.number, first + int(asked[-1]) * 1_000_000_000)
            heapq.heappush(self.due, (first, descriptor, self.number))
        data.clear()

    def _send_what_is_due(self) -> None:
        due, streams = self.due, self.streams
        while due and due[0][0] <= (now := time.monotonic_ns()):
            moment, descriptor, number = heapq.heappop(due)
            stream = streams.get(descriptor)
            if stream is None or stream[0] != number:
                continue
            connection = self.connections[descriptor][0]
            try:
                if moment >= stream[1]:
                    del streams[descriptor]
                    connection.send(chunk(END) + b"0\r\n\r\n")
                    continue
                connection.send(chunk(BEFORE + b'{"content":"@%d "}' % moment + AFTER))
            except OSError:
                self._close(descriptor)
                continue
            self.sent += 1
            self.worst = max(self.worst, now - moment)
            heapq.heappush(due, (moment + self.every, descriptor, number))

    def _close(self, descriptor: int) -> None:
        self.streams.pop(descriptor, None)
        connection, _ = self.connections.pop(descriptor)
        self.poll.unregister(descriptor)
        connection.close()


if __name__ == "__main__":
    feed = Feed()
    print(feed.listener.getsockname()[1], flush=True)
    feed.run()
