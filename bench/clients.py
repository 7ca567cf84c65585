"""Clients and a model server for the benchmarks: standard library only, blocking, one thread each.

The provider runs in a process of its own and costs so little that what is measured is the server. A prompt says what
it answers: ``burst N [DIGITS]`` sends N chunks at once, ``paced N MS`` one every MS milliseconds, ``timed N MS`` the
same with the moment of its sending in each, ``hang`` sends the head of an answer and then nothing, ``tool COMMAND``
calls the terminal once; everything else gets one word.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import re
import selectors
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

Frame = dict[str, Any]
now = time.perf_counter
ROOT = Path(__file__).parent.parent
STAMP = re.compile(rb"@(\d{12,}) ")
TICK = os.sysconf("SC_CLK_TCK")
SO_TIMESTAMPNS = 35
"""``asm-generic/socket.h``; the module ``socket`` does not have it."""
A_MOMENT = 0.006
"""Seconds; less than there is between two timed chunks."""


def dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- the model -------------------------------------------------------------------------------------------------------


class _Provider(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            while self._one():
                pass
        except OSError:
            return

    def _one(self) -> bool:
        line = self.rfile.readline()
        if not line:
            return False
        length = 0
        while (header := self.rfile.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = json.loads(self.rfile.read(length) or b"{}")
        if not line.startswith(b"POST"):
            models = dumps(
                {"object": "list", "data": [{"id": "bench", "object": "model", "context_length": 1_000_000}]}
            )
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(models)
            )
            self.wfile.write(models.encode())
            return True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        last = body["messages"][-1]
        if last["role"] == "user":
            os.write(1, b"asked\n")
        words = _text(last).split(maxsplit=2) if last["role"] == "user" else []
        match words:
            case ["burst", count, *digits]:
                # No word twice: an answer that repeats itself is cut off.
                width = int(digits[0]) if digits else 1
                self._send([{"content": f"word {number:0{width}} "} for number in range(int(count))])
            case ["paced", count, pause, *_]:
                for number in range(int(count)):
                    self._send([{"content": f"word {number} "}])
                    time.sleep(float(pause) / 1000)
            case ["timed", count, pause, *_]:
                for _ in range(int(count)):
                    self._send([{"content": f"@{time.monotonic_ns()} "}])
                    time.sleep(float(pause) / 1000)
            case ["hang", *_]:
                self._send([{"role": "assistant", "content": ""}])
                self.rfile.read(1)
                return False
            case ["tool", *command]:
                call = {"name": "terminal", "arguments": dumps({"command": " ".join(command)})}
                self._send(
                    [{"tool_calls": [{"index": 0, "id": f"c{time.time_ns()}", "type": "function", "function": call}]}]
                )
                self._finish("tool_calls")
                return True
            case _:
                self._send([{"content": "done"}])
        self._finish("stop")
        return True

    def _send(self, deltas: list[Frame]) -> None:
        self._chunk("".join(_event({"index": 0, "delta": delta, "finish_reason": None}) for delta in deltas))

    def _finish(self, reason: str) -> None:
        end = _event({"index": 0, "delta": {}, "finish_reason": reason})
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        tail = f"data: {dumps({'id': 'x', 'object': 'chat.completion.chunk', 'choices': [], 'usage': usage})}\n\n"
        self._chunk(end + tail + "data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _event(choice: Frame) -> str:
    frame = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "bench", "choices": [choice]}
    return f"data: {dumps(frame)}\n\n"


def _text(message: Frame) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class _Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


def serve_model() -> None:
    with _Threads(("127.0.0.1", 0), _Provider) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


class Model:
    """The provider's process."""

    def __enter__(self) -> Model:
        self.process = subprocess.Popen([sys.executable, __file__, "model"], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._asked = threading.Semaphore(0)
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()
        return self

    def _listen(self, told: IO[bytes]) -> None:
        for _ in told:
            self._asked.release()

    def forget_asked(self) -> None:
        while self._asked.acquire(blocking=False):
            pass

    def wait_asked(self, within: float = 10.0) -> None:
        """Until it was asked to answer a prompt once more than was waited for."""
        if not self._asked.acquire(timeout=within):
            raise TimeoutError("the model was not asked")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


# --- a server on standard input and output ---------------------------------------------------------------------------


class Stdio:
    """A child process that speaks JSON-RPC lines. ``frames`` holds (moment, frame) in the order of arrival."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: str) -> None:
        self.spawned = now()
        self.process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._number = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, method: str, params: Frame) -> int:
        self._number += 1
        frame = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._in.write(dumps(frame).encode() + b"\n")
        self._in.flush()
        return self._number

    def tell(self, method: str, params: Frame) -> None:
        """A notification."""
        self._in.write(dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")
        self._in.flush()

    def read(self) -> Frame:
        line = self._out.readline()
        if not line:
            raise EOFError("the server has ended")
        frame: Frame = json.loads(line)
        return frame

    def until(self, wanted: Callable[[Frame], bool]) -> tuple[float, Frame]:
        while True:
            frame = self.read()
            if wanted(frame):
                return now(), frame

    def call(self, method: str, params: Frame) -> Frame:
        number = self.send(method, params)
        _, frame = self.until(lambda frame: frame.get("id") == number)
        if "error" in frame:
            raise RuntimeError(f"{method}: {frame['error']}")
        result: Frame = frame["result"]
        return result

    def close(self) -> None:
        self._in.close()
        self._out.read()
        self.process.wait()


def event(kind: str, session: str | None = None) -> Callable[[Frame], bool]:
    """The gateway's frames of one type."""

    def wanted(frame: Frame) -> bool:
        params = frame.get("params") or {}
        return (
            frame.get("method") == "event"
            and params.get("type") == kind
            and session in (None, params.get("session_id"))
        )

    return wanted


# --- HTTP and WebSocket ----------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def connect(port: int, within: float = 20.0) -> socket.socket:
    """A connection to a server that may still be starting."""
    until = now() + within
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError:
            if now() > until:
                raise
            time.sleep(0.002)


def post_lines(port: int, path: str, body: Frame, token: str) -> Iterator[bytes]:
    """The lines of a streamed answer, with the chunk framing left in: fine for counting ``data:`` lines."""
    data = dumps(body).encode()
    with connect(port) as connection, connection.makefile("rb") as lines:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        )
        connection.sendall(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        )
        yield from lines


class WebSocket:
    """A client of the gateway's WebSocket. Same verbs as ``Stdio``."""

    def __init__(self, port: int, token: str, *, receive_buffer: int | None = None) -> None:
        self._socket = connect(port)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET /api/ws?token={token} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._file = self._socket.makefile("rb")
        while self._file.readline().strip():
            pass
        self._number = 0

    def send(self, method: str, params: Frame) -> int:
        self._number += 1
        data = dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}).encode()
        size = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
        # A mask of zeros: the bytes stay as they are.
        self._socket.sendall(b"\x81" + size + b"\0\0\0\0" + data)
        return self._number

    def read(self) -> Frame:
        while True:
            first, second = self._file.read(2)
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(self._file.read(2 if size == 126 else 8), "big")
            data = self._file.read(size)
            if first & 0x0F == 1:
                frame: Frame = json.loads(data)
                return frame

    def drop(self) -> int:
        """Take what has come without looking at it; 0 at the end."""
        return len(self._socket.recv(1 << 20))

    until = Stdio.until
    call = Stdio.call

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Crowd:
    """Many clients of one session, read by one thread; ``delays`` has the seconds that each timed chunk took to each.

    What counts is when the kernel had a chunk for its client, where it says so (Linux), and the thread reads a moment
    later: one thread in the place of 180 programs would come to the last of them two milliseconds after that, and would
    take a core, or its cache, from the server that is measured.

    Parameters: ``stalled``, how many more there are that never read.
    """

    def __init__(self, port: int, token: str, session: str, count: int, *, stalled: int = 0) -> None:
        self.delays: list[float] = []
        self._clients = [self._join(port, token, session) for _ in range(count)]
        self._clients += [self._join(port, token, session, receive_buffer=4096) for _ in range(stalled)]
        self._readers = selectors.DefaultSelector()
        for client in self._clients[:count]:
            client._socket.setblocking(False)
            self._readers.register(client._socket, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                client._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._since_epoch = time.time_ns() - time.monotonic_ns()
        self._newest = dict.fromkeys((client._socket for client in self._clients), 0)
        self._stop = threading.Event()
        self._is_idle = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _join(port: int, token: str, session: str, *, receive_buffer: int | None = None) -> WebSocket:
        client = WebSocket(port, token, receive_buffer=receive_buffer)
        client.call("session.activate", {"session_id": session, "omit_messages": True})
        return client

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._readers.select(timeout=0.1):
                self._is_idle.set()
                continue
            time.sleep(A_MOMENT)
            for key, _ in self._readers.select(timeout=0):
                data, more, _, _ = key.fileobj.recvmsg(1 << 16, 64)  # type: ignore[union-attr]
                at = self._arrived(more)
                for sent in map(int, STAMP.findall(data)):
                    # The whole text comes once more when the answer is complete.
                    if sent > self._newest[key.fileobj]:  # type: ignore[index]
                        self._newest[key.fileobj] = sent  # type: ignore[index]
                        self.delays.append((at - sent) / 1e9)

    def wait_idle(self) -> None:
        """Until there was nothing to read for a moment."""
        self._is_idle.clear()
        self._is_idle.wait()

    def _arrived(self, more: list[tuple[int, int, bytes]]) -> int:
        for _, kind, value in more:
            if kind == SO_TIMESTAMPNS:
                seconds, rest = struct.unpack_from("qq", value)
                return seconds * 1_000_000_000 + rest - self._since_epoch
        return time.monotonic_ns()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._readers.close()
        for client in self._clients:
            client.close()


# --- processes -------------------------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far; finer than ticks where the scheduler tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 + sum(
            int(task.read_text().split()[0]) / 1e9
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat")
            if task.parent.name != str(pid)
        )
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK


def resident_bytes(pid: int) -> int:
    """Memory that belongs to this process alone."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["model"])
    parser.parse_args()
    threading.stack_size(256 * 1024)
    serve_model()
