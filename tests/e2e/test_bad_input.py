"""Bad input through the real process: the specified error, and the connection stays usable."""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import trio_websocket

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import driving
from tests.support.server_process import http_server, server_process

pytestmark = pytest.mark.e2e
LONG = 20 * 1024 * 1024

BAD_LINES: list[tuple[bytes, int]] = [
    (b"{broken", -32700),
    (b'{"id": 1, "method": "ping"', -32700),
    (b"\xff\xfe{}", -32700),
    (b'{"id": 1, "method": "p\xc3"}', -32700),
    (b"[]", -32600),
    (b'[{"id": 1, "method": "ping"}]', -32600),
    (b"null", -32600),
    (b'"text"', -32600),
    (b'{"id": 5}', -32600),
    (b'{"id": 5, "method": 7}', -32600),
    (b'{"id": 5, "method": "no.such.method"}', -32601),
]


@pytest.mark.parametrize("command", ("gateway", "acp"))
async def test_every_bad_line_gets_its_error_and_the_next_line_works(command: str, tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path / "home", command) as server:
            for line, code in BAD_LINES:
                at = len(server.frames)
                await server.send_bytes(line + b"\n")
                frame = await server.frame(lambda frame: "error" in frame, after=at)
                assert frame["error"]["code"] == code, (line, frame)
                assert "Traceback" not in json.dumps(frame)
            if command == "gateway":
                assert await server.call("ping") == {"pong": True}
            else:
                assert (await server.call("initialize", {"protocolVersion": 1}))["protocolVersion"] == 1
            assert server.stray == []


async def test_a_twenty_megabyte_prompt_is_taken_or_refused_and_the_connection_lives(tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with server_process(tmp_path / "home", "gateway") as server:
            session = await server.call("session.create", {"cwd": str(tmp_path)})
            response = await server.request("session.title", {"session_id": session["session_id"], "title": "x" * LONG})
            assert "error" in response or len(response["result"]["title"]) <= 100
            assert await server.call("ping") == {"pong": True}


GATEWAY_REFUSALS: list[tuple[str, dict[str, Any], int]] = [
    ("prompt.submit", {"session_id": "ffffffff", "text": "x"}, 4001),
    ("session.interrupt", {"session_id": "ffffffff"}, 4001),
    ("session.resume", {"session_id": "20200101_000000_ffffff_no"}, 4007),
    ("session.resume", {}, 4006),
    ("session.create", {"cwd": "/", "surprise": 1}, 4000),
    ("session.create", {"cwd": "/\0"}, -32602),
    ("session.events.since", {"session_id": "ffffffff", "last_seen": 0}, 4001),
    ("session.title", {"session_id": "ffffffff"}, 4001),
]


async def test_refused_calls_change_nothing_durable(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(60):
        async with server_process(home, "gateway") as server:
            for method, params, code in GATEWAY_REFUSALS:
                response = await server.request(method, params)
                assert response["error"]["code"] == code, (method, params, response)
            session = await server.call("session.create", {"cwd": str(tmp_path)})
            wrong = [
                {"truncate_before_row_id": True, "confirm_truncate": True},
                {"truncate_before_row_id": "7", "confirm_truncate": True},
                {"truncate_before_row_id": 99, "confirm_truncate": True},
                {"truncate_before_user_ordinal": 0},
                {"confirm_truncate": True},
            ]
            codes = [4004, 4004, 4018, 4029, 4004]
            for more, code in zip(wrong, codes, strict=True):
                response = await server.request(
                    "prompt.submit", {"session_id": session["session_id"], "text": "x", **more}
                )
                assert response["error"]["code"] == code, (more, response)
            assert await server.call("ping") == {"pong": True}
            await server.close_input()
            await server.exit_code()
        with closing(sqlite3.connect(f"file:{home}/sessions.db?mode=ro", uri=True)) as database, database:
            assert database.execute("SELECT count(*) FROM messages").fetchone() == (0,)


async def test_http_refuses_each_bad_request_in_the_envelope_and_goes_on(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with http_server(tmp_path / "home") as server:
            async with httpx2.AsyncClient(base_url=server.origin, timeout=30) as client:
                right = {"Authorization": f"Bearer {server.key}"}
                chat = "/v1/chat/completions"
                cases: list[tuple[str, str, dict[str, str], bytes, int]] = [
                    ("GET", "/v1/models", {}, b"", 401),
                    ("GET", "/v1/models", {"Authorization": "Bearer wrong"}, b"", 401),
                    ("GET", "/v1/models", {"Authorization": "Bearer \u00e9"}, b"", 401),
                    ("POST", chat, right, b"{broken", 400),
                    ("POST", chat, right, b"[]", 400),
                    ("POST", chat, right, b'{"messages": []}', 400),
                    ("POST", chat, right, b'{"messages": "hello"}', 400),
                    ("POST", chat, right, b'{"messages": [{"role": "user", "content": "\xff"}]}', 400),
                    ("GET", "/v1/runs/run_unknown", right, b"", 404),
                    ("POST", "/v1/runs/run_unknown/stop", right, b"", 404),
                    ("POST", "/v1/runs", right, b'{"input": ""}', 400),
                    ("GET", "/v1/nothing", right, b"", 404),
                    ("DELETE", "/v1/models", right, b"", 405),
                ]
                for method, path, headers, body, status in cases:
                    sent = {name: value.encode("latin-1") for name, value in headers.items()}
                    answer = await client.request(method, path, headers=sent, content=body)
                    assert answer.status_code == status, (method, path, body, answer.text)
                    assert "message" in answer.json()["error"], answer.text
                    assert answer.headers["x-content-type-options"] == "nosniff"
                assert (await client.get("/v1/models", headers=right)).status_code == 200
                big = await client.post(chat, headers=right, content=b"x" * LONG)
                assert big.status_code == 413
                assert (await client.get("/v1/models", headers=right)).status_code == 200


@pytest.mark.parametrize("name", ("read_file", "write_file", "search_files", "patch"))
async def test_a_path_of_the_model_that_is_none_fails_that_call_alone(name: str, tmp_path: Path) -> None:
    arguments = {"path": "a\0b", "content": "x", "pattern": "x", "old_string": "x", "new_string": "y"}
    wanted = {
        "read_file": ("path",),
        "write_file": ("path", "content"),
        "search_files": ("path", "pattern"),
        "patch": ("path", "old_string", "new_string"),
    }[name]
    call = {"tool_call": {"name": name, "arguments": {key: arguments[key] for key in wanted}}}
    with trio.fail_after(60):
        async with FakeProvider(Script.of(Reply.of(call), Reply.of({"text": "I see"}))) as provider:
            environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789"}
            environ["HERMES_MODEL"] = "fake-model"
            async with driving("gateway stdio", tmp_path / "home", environ) as driver:
                await driver.start("please")
                assert (await driver.terminal())["status"] == "complete"
                assert "NUL" in str(provider.requests[-1].body)
                assert "Traceback" not in driver.server.stderr


# The client library leaves its socket to the collector when the server closes first.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("query", ("", "?token=wrong", "?token="))
async def test_a_websocket_without_the_right_key_is_closed_with_4401_and_nothing_else(
    query: str, tmp_path: Path
) -> None:
    with trio.fail_after(60):
        async with http_server(tmp_path / "home") as server:
            url = f"ws://127.0.0.1:{server.port}/api/ws{query}"
            with pytest.raises((trio_websocket.ConnectionClosed, trio_websocket.HandshakeError)) as closed:
                async with trio_websocket.open_websocket_url(url) as socket:
                    await socket.get_message()
            if isinstance(closed.value, trio_websocket.ConnectionClosed):
                assert closed.value.reason.code == 4401
    # Here, where its warning is expected, and not in a later test.
    del closed
    gc.collect()


@pytest.mark.parametrize("command", ("gateway", "acp"))
async def test_a_client_that_closes_its_reading_end_ends_the_process_without_a_trace(
    command: str, tmp_path: Path
) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path / "home", command) as server:
            await server.send_bytes(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\n')
            await server.wait_until(lambda: len(server.frames) > 0)
            assert server.process.stdout is not None
            await server.process.stdout.aclose()
            for _ in range(50):
                try:
                    await server.send_bytes(b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n')
                except trio.BrokenResourceError:
                    break
                await trio.sleep(0.02)
            await server.exit_code()
            assert "Traceback" not in server.stderr


async def test_stdout_holds_frames_only_though_a_child_prints(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path / "home", "gateway") as server:
            session = await server.call("session.create", {"cwd": str(tmp_path)})
            text = "run: echo to-stdout; echo to-stderr >&2; echo to-parent > /proc/$PPID/fd/1 || true"
            await server.call("prompt.submit", {"session_id": session["session_id"], "text": text})
            await server.event("message.complete")
            assert server.stray == []


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
async def test_each_signal_ends_the_server_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path / "home", "gateway") as server:
            await server.event("gateway.ready")
            assert await server.stop(number) == 0


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path / "home", "gateway") as server:
            session = await server.call("session.create", {"cwd": str(tmp_path)})
            text = "run: trap '' TERM; while true; do sleep 0.1; done"
            await server.call("prompt.submit", {"session_id": session["session_id"], "text": text})
            await server.event("tool.start")
            while not any("sleep 0.1" in line for line in command_lines(tmp_path / "home")):
                await trio.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)
            await server.wait_until(lambda: "stopping" in server.stderr, "the first signal to be noticed")
            server.process.send_signal(signal.SIGTERM)
            assert await server.exit_code() == 130


def command_lines(home: Path) -> list[str]:
    from tests.support.server_process import processes_of

    assert os.path.isdir("/proc")
    return list(processes_of(home).values())
