"""Requests that are nearly right, byte by byte: each is answered or its connection closed, and the next one works."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.blocking_server import PATIENCE, running
from tests.fuzz.from_schema import JSON
from tests.support.server_process import START_TIMEOUT, free_port

pytestmark = pytest.mark.e2e
EXAMPLES = 2000 if os.environ.get("PROOF") else 100
QUIET = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=(Phase.generate,),
)
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "message": "hi"}
ROUTES = (
    *("/v1/chat/completions", "/v1/responses", "/v1/runs", "/api/sessions", "/api/sessions/none/chat"),
    *("/v1/runs/none/stop", "/v1/runs/none/approval", "/v1/runs/none/steer", "/v1/artifacts/upload"),
)
ODD = st.sampled_from([b"\r\n", b"\n", b"\0", b" ", b":", b"\xff", b"9" * 30, b"Content-Length: 5\r\n", b"HTTP/0.9"])


@dataclass(frozen=True)
class Server:
    port: int
    key: str

    def send(self, data: bytes, *, whole: bool = True) -> tuple[int | None, bytes]:
        """The status of the answer, None if the connection was closed without one; and the body.

        A client that closes its side has gone: it does so only where the server may wait for the rest of a request."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as stream:
            received = b""
            try:
                stream.sendall(data)
                if not whole and not select.select([stream], [], [], 0.3)[0]:
                    stream.shutdown(socket.SHUT_WR)
                while chunk := stream.recv(65536):
                    received += chunk
                    if not whole:
                        # The connection may stay open now: nobody asked for its end any more.
                        stream.shutdown(socket.SHUT_WR)
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
        head, _, body = received.partition(b"\r\n\r\n")
        found = re.match(rb"HTTP/1\.[01] (\d{3})", head)
        assert found or not received, f"an answer without a status line: {received[:200]!r}"
        return (int(found[1]) if found else None), body

    def request(self, path: str, body: bytes, method: str = "POST") -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "Content-Type: application/json"]
        lines += [f"Authorization: Bearer {self.key}", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def is_well(self) -> bool:
        return self.send(self.request("/health", b"", "GET"))[0] == 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("fuzz") / "home"
    port = free_port()
    with running(home, "serve", "--port", str(port)):
        ends = time.monotonic() + 2 * START_TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < ends
        made = Server(port, (home / "server.key").read_text().strip())
        yield made
        assert made.is_well()


@QUIET
@given(data=st.data())
def test_a_request_that_is_nearly_right_breaks_nothing(server: Server, data: st.DataObject) -> None:
    route = data.draw(st.sampled_from(ROUTES))
    raw = bytearray(server.request(route, json.dumps(HELLO).encode()))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(raw)))
        match data.draw(st.integers(0, 2)):
            case 0:
                raw[at:at] = data.draw(ODD)
            case 1:
                del raw[at : at + data.draw(st.integers(1, 12))]
            case _:
                raw[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
    status, body = server.send(bytes(raw), whole=False)
    assert status is None or status < 500, (bytes(raw), body[:500])
    assert server.is_well()


@QUIET
@given(data=st.data())
def test_a_body_that_is_nearly_right_is_refused_in_the_form_of_an_error(server: Server, data: st.DataObject) -> None:
    route = data.draw(st.sampled_from(ROUTES))
    body = data.draw(
        st.one_of(JSON, bent_hello()).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=80)
    )
    status, answer = server.send(server.request(route, body))
    assert status is not None and status < 500, (route, body, answer[:500])
    if status >= 400:
        error = json.loads(answer)["error"]
        assert isinstance(error["message"], str) and isinstance(error["type"], str), answer
        assert "log_id" not in str(error)


def bent_hello() -> st.SearchStrategy[Any]:
    """One member is something else."""
    return st.tuples(st.sampled_from(sorted(HELLO)), JSON).map(lambda pair: HELLO | {pair[0]: pair[1]})


@QUIET
@given(data=st.binary(max_size=400))
def test_bytes_that_are_no_request_cost_only_their_connection(server: Server, data: bytes) -> None:
    status, _ = server.send(data + b"\r\n\r\n", whole=False)
    assert status is None or 400 <= status < 500
    assert server.is_well()
