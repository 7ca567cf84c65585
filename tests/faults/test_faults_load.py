"""Slow readers, floods, busy tools and hostile output, through the real process."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import trio
import trio_websocket

from hermes.testing import FakeProvider, Reply, Script
from tests.protocols.gateway import test_gateway_slow_clients as slow_clients
from tests.support.drivers import GatewayDriver, driving
from tests.support.proof import times
from tests.support.server_process import HttpServer, assert_no_children, children_of
from tests.support.sse_client import streaming

pytestmark = [
    pytest.mark.e2e,
    # The client library leaves its socket to the collector when the server closes first.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
NEVER = Reply.of({"text": ["Hello ", "there "]}, {"wait_for": "never"})
LARGE = 64 * 1024 * 1024


def terminal(command: str, **more: Any) -> Reply:
    return Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": command}}}, **more)


def said(text: str) -> Reply:
    return Reply.of({"text": text})


@asynccontextmanager
async def playing(
    home: Path, *replies: Reply, surface: str = "gateway stdio", config: str = "{}\n", within: float = 60
) -> AsyncIterator[tuple[GatewayDriver, FakeProvider]]:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.yaml").write_text(config)
    with trio.fail_after(within):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving(surface, home, environ) as driver:
                yield cast(GatewayDriver, driver), provider


@asynccontextmanager
async def sleepy(driver: GatewayDriver) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    """One more client of the driver's session, that reads only when the test does."""
    server = cast(HttpServer, driver.server)
    url = f"ws://127.0.0.1:{server.port}/api/ws?token={server.key}"
    socket = None
    try:
        async with trio_websocket.open_websocket_url(url, max_message_size=LARGE) as socket:
            asked = {"session_id": driver.session_id, "omit_messages": True}
            frame = {"jsonrpc": "2.0", "id": 1, "method": "session.activate", "params": asked}
            await socket.send_message(json.dumps(frame))
            while json.loads(await socket.get_message()).get("id") != 1:
                pass
            yield socket
    finally:
        if socket is not None:
            await trio.aclose_forcefully(socket._stream)


async def rest_of(socket: trio_websocket.WebSocketConnection) -> list[Any]:
    """Everything up to the end of the turn or of the connection."""
    found: list[Any] = []
    try:
        while not found or found[-1].get("params", {}).get("type") != "message.complete":
            found.append(json.loads(await socket.get_message()))
    except trio_websocket.ConnectionClosed:
        found.append(None)
    return found


def long_pieces(count: int, size: int) -> list[str]:
    """Much text that never repeats itself, which would be cut."""
    return [f"{number}:{random.Random(number).randbytes(size).hex()} " for number in range(count)]


@pytest.mark.fault("B-144")
async def test_a_client_that_never_reads_is_closed_and_nobody_else_waits_for_it(autojump_clock: Any) -> None:
    await slow_clients.test_a_client_that_never_reads_is_cut_off_and_nobody_else_notices(autojump_clock)


@pytest.mark.fault("B-146")
async def test_a_client_that_pauses_in_a_burst_is_not_cut_off_and_misses_nothing(tmp_path: Path) -> None:
    words = [f"w{number} " for number in range(5000)]
    replies = (said("ready"), Reply.of({"text": words}))
    # The window and the write deadline bound a pause: here both are longer than the whole answer takes.
    config = "limits: {replay_events: 20000, write_deadline: 60}\n"
    async with playing(tmp_path / "home", *replies, surface="gateway websocket", config=config) as (driver, _):
        await driver.start("one")
        await driver.terminal()
        async with sleepy(driver) as socket:
            await driver.start("two")
            assert (await driver.terminal())["status"] == "complete"
            frames = await rest_of(socket)
            assert frames[-1] is not None, "it was cut off"
            told = [one["params"] for one in frames if "seq" in one.get("params", {})]
            assert "".join(one["payload"]["text"] for one in told if one["type"] == "message.delta") == "".join(words)
            numbers = [one["seq"] for one in told]
            assert numbers == sorted(set(numbers))


@pytest.mark.fault("B-148")
async def test_every_request_of_a_flood_is_answered_once_or_the_connection_is_closed(tmp_path: Path) -> None:
    count = 10_000
    async with playing(tmp_path / "home", said("x"), surface="gateway websocket") as (driver, _):
        driver.session_id = (await driver.call("session.create", {}))["session_id"]
        seen: list[int] = []
        closed = False
        async with sleepy(driver) as socket, trio.open_nursery() as nursery:

            async def flood() -> None:
                for number in range(100, 100 + count):
                    frame = {"jsonrpc": "2.0", "id": number, "method": "session.status"}
                    frame["params"] = {"session_id": driver.session_id}
                    try:
                        await socket.send_message(json.dumps(frame))
                    except trio_websocket.ConnectionClosed:
                        return

            nursery.start_soon(flood)
            # It does not read for a while: answers pile up.
            await trio.sleep(0.3)
            while len(seen) < count and not closed:
                try:
                    frame = json.loads(await socket.get_message())
                except trio_websocket.ConnectionClosed:
                    closed = True
                else:
                    seen += [frame["id"]] if "method" not in frame else []
            nursery.cancel_scope.cancel()
        assert len(set(seen)) == len(seen)
        assert closed or sorted(seen) == list(range(100, 100 + count))
        await driver.call("ping", {})


@pytest.mark.fault("B-150")
async def test_a_tool_that_uses_the_whole_processor_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    burn = "python3 -c 'import time\nend = time.time() + 0.8\nwhile time.time() < end: pass\nprint(\"x\" * 10_000_000)'"
    async with playing(tmp_path / "home", terminal(burn), said("done"), surface="gateway websocket") as (driver, _):
        server = cast(HttpServer, driver.server)
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=20) as client:
            await client.get("/metrics")
            await driver.start("go")
            await driver.wait_for_tool()
            while not any(one.get("params", {}).get("type") == "message.complete" for one in driver.frames):
                with trio.fail_after(20):
                    await driver.call("ping", {})
                await trio.sleep(0.02)
            assert (await driver.terminal())["status"] == "complete"
            metrics = (await client.get("/metrics")).text
        line = next(one for one in metrics.splitlines() if one.startswith("hermes_loop_longest_round_seconds"))
        assert float(line.split()[-1]) < 1.0, line


@pytest.mark.fault("B-157")
@pytest.mark.parametrize(
    "command",
    ["head -c 10000000 /dev/zero | tr '\\0' x", "head -c 100000 /dev/zero", "printf 'half \\303'"],
    ids=["no newline", "NULs", "half a character"],
)
async def test_whatever_a_tool_prints_its_result_is_text_and_the_turn_goes_on(command: str, tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal(command), said("done")) as (driver, provider):
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete"
        content = provider.requests[-1].body["messages"][-1]["content"]
        result = json.loads(content)
        assert result["exit_code"] == 0
        assert len(result["output"]) < 60_000 and "\0" not in result["output"]


@pytest.mark.fault("B-171")
async def test_a_stop_ends_every_part_of_a_pipeline(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal("(sleep 7021; echo x) | cat | tee /dev/null"), said("x")) as (
        driver,
        _,
    ):
        await driver.start("go")
        await driver.wait_for_tool()
        while not any("sleep 7021" in line for line in children_of(driver.server).values()):
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        assert children_of(driver.server) == {}
        await assert_no_children(driver.server)


@pytest.mark.fault("B-134")
async def test_sessions_side_by_side_keep_their_directory_and_their_variables(tmp_path: Path) -> None:
    count, turns, calls = times(50, 8), times(10, 3), times(10, 2)
    replies = [Reply.of({"text": "ok"}, when={"last_role": "tool"})]
    for number in range(count):
        for turn in range(turns):
            commands = ['pwd; echo "$MINE"'] * calls
            if turn == 0:
                commands[0] = f"export MINE=value-{number}; {commands[0]}"
            asked = [{"tool_call": {"name": "terminal", "arguments": {"command": one}}} for one in commands]
            replies.append(Reply.of(*asked, when={"last_user_contains": f"<{number}.{turn}>", "last_role": "user"}))
    async with playing(tmp_path / "home", *replies, within=60 + times(1200, 0)) as (driver, provider):
        await driver.call("client.capabilities", {"server_requests": True})

        async def one(number: int) -> None:
            folder = tmp_path / f"work{number}"
            folder.mkdir()
            session_id = (await driver.call("session.create", {"cwd": str(folder)}))["session_id"]
            for turn in range(turns):
                at = len(driver.frames)
                await driver.call("prompt.submit", {"session_id": session_id, "text": f"<{number}.{turn}>"})
                await driver.find(
                    lambda frame: (
                        frame.get("params", {}).get("type") == "message.complete"
                        and frame["params"]["session_id"] == session_id
                    ),
                    at,
                )
            mine = [r for r in provider.requests if f"<{number}." in json.dumps(r.body["messages"])][-1]
            rows = [json.loads(row["content"])["output"] for row in mine.body["messages"] if row["role"] == "tool"]
            assert len(rows) == turns * calls
            assert {row.splitlines()[0] for row in rows} == {str(folder)}
            assert {word for row in rows for word in row.split() if "value-" in word} == {f"value-{number}"}

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(one, number)


@pytest.mark.fault("B-108")
async def test_a_run_ends_although_one_reader_stalls_and_another_has_left(tmp_path: Path) -> None:
    pieces = long_pieces(200, 10_000)
    replies = (Reply.of({"wait_for": "readers"}, {"text": pieces}),)
    async with playing(tmp_path / "home", *replies, surface="http run") as (any_driver, provider):
        driver: Any = any_driver
        await driver.start("go")
        path = f"/v1/runs/{driver.run_id}/events"
        async with streaming(driver.server.port, "GET", path, headers=driver.headers) as stalled:
            async with streaming(driver.server.port, "GET", path, headers=driver.headers) as leaving:
                assert await leaving.line() is not None
            assert await stalled.line() is not None
            provider.release("readers")
            while (await driver.status())["status"] not in ("completed", "failed", "cancelled"):
                await trio.sleep(0.01)
            assert (await driver.status())["status"] == "completed"
        assert (await driver.status())["output"] == "".join(pieces)


@pytest.mark.fault("B-100")
async def test_a_stream_that_is_taken_up_again_has_the_same_kinds_of_events(tmp_path: Path) -> None:
    task = {"tool_call": {"name": "delegate_task", "arguments": {"tasks": [{"goal": "look around"}]}}}
    script = (
        Reply.of({"text": "seen"}, when={"last_user_contains": "look around"}),
        Reply.of(task),
        said("done"),
    )
    async with playing(tmp_path / "home", *script, surface="http run") as (any_driver, _):
        driver: Any = any_driver
        await driver.start("go")
        first = await driver._events(None)
        again = await driver._events(None)
        assert again == first
        kinds = {one["event"] for one in first}
        assert any("subagent" in kind for kind in kinds), kinds
        path = f"/v1/runs/{driver.run_id}/events"
        rest = []
        headers = {**driver.headers, "Last-Event-ID": "1"}
        async with streaming(driver.server.port, "GET", path, headers=headers) as answer:
            while (event := await answer.data()) is not None:
                rest.append(event)
        assert rest == [one for one in first if one["seq"] > 1]
