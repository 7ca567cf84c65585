"""The harness for tests from outside finds what it is meant to find."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.support.server_process import (
    assert_no_children,
    assert_no_connection_to,
    children_of,
    clean_environment,
    connections_to,
    free_port,
    http_status,
    processes_of,
    scripted_model,
    server_process,
)

pytestmark = pytest.mark.e2e


async def test_a_command_starts_talks_and_is_gone_afterwards(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with scripted_model(tmp_path, "replies: []") as provider:
            address = re.search(r"http://127\.0\.0\.1:(\d+)", provider.stray[0])
            assert address is not None
            assert await http_status(int(address[1]), "/v1/models") == 200
            assert list(processes_of(tmp_path)) == [provider.pid]
            assert children_of(provider) == {}
        assert processes_of(tmp_path) == {}


async def test_an_open_connection_and_its_end_are_seen(tmp_path: Path) -> None:
    program = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
    with trio.fail_after(60):
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener:
            port = listener.socket.getsockname()[1]
            async with scripted_model(tmp_path, "replies: []") as server:
                client = await trio.lowlevel.open_process(
                    [sys.executable, "-c", program, str(port)],
                    stdin=subprocess.PIPE,
                    env=clean_environment(tmp_path),
                )
                async with await listener.accept():
                    assert connections_to(client.pid, port) == 1
                    assert client.pid in children_of(server)
                assert client.stdin is not None
                await client.stdin.aclose()
                await client.wait()
                await assert_no_children(server)
                await assert_no_connection_to(server, port)


async def test_a_command_that_ends_early_fails_the_wait_with_its_stderr(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path, "--mode", "rpc") as server:
            assert await server.exit_code() == 2
            with pytest.raises(AssertionError, match="the output ended"):
                await server.next_frame()
            assert server.stray == []


async def test_a_signal_ends_it(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with scripted_model(tmp_path, "replies: []") as provider:
            assert await provider.stop(signal.SIGKILL) == -signal.SIGKILL


async def test_nobody_answers_on_a_free_port() -> None:
    assert await http_status(free_port(), "/health") is None


async def test_what_a_test_raises_comes_out_of_the_harness(tmp_path: Path) -> None:
    with trio.fail_after(60):
        with pytest.raises(BaseExceptionGroup) as raised:
            async with scripted_model(tmp_path, "replies: []"):
                raise AssertionError("the test failed")
        assert raised.value.split(AssertionError)[1] is None
