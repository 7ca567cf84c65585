"""Sessions that stayed busy, or whose history no provider would take, after a stop or a death."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import AcpDriver, GatewayDriver, RunDriver, StdioGateway, driving, http_driver
from tests.support.fault_play import (
    LIMIT,
    answer,
    calls,
    frame,
    model_environment,
    playing,
    say,
    stream,
    terminal,
    write_config,
)
from tests.support.mortal_server import mortal_servers
from tests.support.proof import PROOF, times
from tests.support.server_process import COMMAND, HttpServer, children_of, clean_environment

pytestmark = pytest.mark.e2e
MCP_PROGRAM = Path(__file__).parent.parent / "support" / "mcp_hostile_program.py"
REWIND = {"truncate_before_user_ordinal": 0, "confirm_truncate": True, "confirm_empty_truncate": True}


@pytest.mark.fault("B-028")
@pytest.mark.parametrize("cancels", [False, True])
async def test_a_session_whose_editor_left_in_the_middle_of_a_turn_takes_prompts_again(
    cancels: bool, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    script = Script.of(stream("a"), say("here again"), strict=True)
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            async with driving("acp", home, model_environment(provider)) as first:
                await first.start("go")
                await provider.wait_chunks(1, 1)
                if cancels:
                    await first.stop()
                await first.server.close_input()
                assert await first.server.exit_code() == 0
            async with driving("acp", home, model_environment(provider)) as second:
                assert isinstance(first, AcpDriver) and isinstance(second, AcpDriver)
                await second.server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                load = {"sessionId": first.session_id, "cwd": str(home), "mcpServers": []}
                await second.server.call("session/load", load)
                second.session_id = first.session_id
                await second.start("again")
                assert (await second.terminal())["status"] == "complete"


@pytest.mark.fault("B-030")
async def test_a_turn_ends_behind_an_editor_that_does_not_read_and_its_answer_comes_when_it_reads(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    write_config(home, None)
    pieces = [" ".join(f"{number}.{n}" for n in range(200)) + " " for number in range(1000)]
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(say(*pieces), say("more"))) as provider:
            process = await trio.lowlevel.open_process(
                [str(COMMAND), "acp"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=clean_environment(home) | model_environment(provider),
                cwd=home,
            )
            assert process.stdin is not None and process.stdout is not None
            try:
                lines = Lines(process.stdout)
                await tell(process, frame(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}}))
                await lines.answer(1)
                await tell(process, frame(2, "session/new", {"cwd": str(home), "mcpServers": []}))
                session_id = (await lines.answer(2))["result"]["sessionId"]
                prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "go"}]}
                await tell(process, frame(3, "session/prompt", prompt))
                # The model was heard to its end although nobody reads what it said, and the session is idle: it takes
                # the next prompt, and so does another one.
                assert (await provider.wait_closed(1)).closed_by == "server"
                await tell(process, frame(4, "session/prompt", prompt))
                assert (await provider.wait_closed(2)).closed_by == "server"
                await tell(process, frame(5, "session/new", {"cwd": str(home), "mcpServers": []}))
                await trio.sleep(10 if PROOF else 0.2)
                for number in (3, 4):
                    assert (await lines.answer(number))["result"]["stopReason"] == "end_turn"
                assert (await lines.answer(5))["result"]["sessionId"] != session_id
            finally:
                process.kill()
                await process.wait()
                await trio.aclose_forcefully(process.stdin)
                await trio.aclose_forcefully(process.stdout)


class Lines:
    """Frames of a pipe, read only when a test asks for one."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._data = b""
        self._answers: dict[Any, dict[str, Any]] = {}

    async def answer(self, number: int) -> dict[str, Any]:
        while number not in self._answers:
            while b"\n" not in self._data:
                chunk = await self._stream.receive_some()
                assert chunk, "the output ended"
                self._data += chunk
            line, _, self._data = self._data.partition(b"\n")
            one: dict[str, Any] = json.loads(line)
            if "id" in one and "method" not in one:
                self._answers[one["id"]] = one
        return self._answers[number]


async def tell(process: trio.Process, *frames: dict[str, Any]) -> None:
    assert process.stdin is not None
    await process.stdin.send_all(b"".join(json.dumps(one).encode() + b"\n" for one in frames))


@pytest.mark.fault("B-032")
async def test_a_stop_in_the_second_of_three_calls_leaves_a_history_that_a_strict_provider_takes(
    tmp_path: Path,
) -> None:
    work = (terminal("echo done-one", "sleep 7021", "echo done-three"), say("next"))
    async with playing(tmp_path / "home", *work) as (driver, provider):
        await driver.start("go")
        while not any("sleep 7021" in line for line in children_of(driver.server).values()):
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        results = [row["content"] for row in provider.requests[1].body["messages"] if row["role"] == "tool"]
        assert len(results) == 3
        assert "done-one" in results[0]
        for result in results[1:]:
            assert "interrupt" in result.lower() or "cancel" in result.lower() or "stopped" in result.lower(), result


@pytest.mark.fault("B-032")
@pytest.mark.parametrize("surface", ["gateway websocket", "acp", "http run"])
async def test_a_stop_in_one_call_and_in_the_second_of_three_side_by_side_leaves_a_whole_history(
    surface: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    peer = {"command": sys.executable, "args": [str(MCP_PROGRAM), "plain", str(notes)]}
    config = {"mcp_servers": {"peer": {**peer, "supports_parallel_tool_calls": True}}}
    three = calls(("mcp_peer_echo", {}), ("mcp_peer_mute", {}), ("mcp_peer_echo", {}))
    work = (terminal("sleep 7021"), three, say("next"))
    async with playing(tmp_path / "home", *work, surface=surface, config=config) as (driver, provider):
        await driver.start("one call")
        while not any("sleep 7021" in line for line in children_of(driver.server).values()):
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("three calls")
        while notes.read_text().count("call echo") < 2 or "call mute" not in notes.read_text():
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        rows = provider.requests[-1].body["messages"]
        results = {row["tool_call_id"]: row["content"] for row in rows if row["role"] == "tool"}
        asked = [call["id"] for row in rows for call in row.get("tool_calls") or ()]
        assert list(results) == asked and len(asked) == 4
        told = list(results.values())
        stopped = [any(word in text for word in ("interrupted", "cancelled", "stopped")) for text in told]
        # An echo has its result, unless the stop overtook it.
        assert stopped[0] and stopped[2], told


@pytest.mark.fault("B-034")
@pytest.mark.parametrize("work", [terminal("sleep 7022"), stream("half an ", "answer")], ids=["tool", "stream"])
async def test_a_session_of_a_killed_server_is_shown_as_interrupted_and_takes_the_next_prompt(
    work: Reply, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(work, say("next"), strict=True)) as provider:
            async with mortal_servers(home, model_environment(provider)) as servers, trio.open_nursery() as nursery:
                first = StdioGateway(await servers.start("gateway"))
                nursery.start_soon(first.pump)
                await first.start("go")
                await provider.wait_for_request(1)
                if work.step_specs[0].tool_call:
                    await first.wait_for_tool()
                else:
                    await provider.wait_chunks(1, 2)
                    await first.event("message.delta")
                key = next(f["result"] for f in first.frames if "stored_session_id" in f.get("result", {}))
                await servers.kill(first.server)
                second = StdioGateway(await servers.start("gateway"))
                nursery.start_soon(second.pump)
                await second.call("client.capabilities", {"server_requests": True})
                resumed = await second.call("session.resume", {"session_id": key["stored_session_id"]})
                assert resumed.get("running") in (False, None)
                lost = resumed["inflight"]
                assert (lost["status"], lost["error_surface"]["code"]) == ("error", "server_restart")
                second.session_id = resumed["session_id"]
                await second.start("again")
                assert (await second.terminal())["status"] == "complete"
                nursery.cancel_scope.cancel()


@pytest.mark.fault("B-036")
async def test_a_session_is_never_shown_as_running_once_the_end_of_its_turn_was_told(tmp_path: Path) -> None:
    turns = times(200, 15)
    replies = [say(f"answer {number}") for number in range(turns)]
    async with playing(tmp_path / "home", *replies, surface="gateway websocket", limit=20 + turns) as (driver, _):
        assert isinstance(driver.server, HttpServer)
        async with http_driver("gateway websocket", driver.server) as other:
            assert isinstance(other, GatewayDriver)
            for _ in range(turns):
                await driver.start("go")
                await driver.event("message.complete", driver._turn_from)
                for client in (driver, other):
                    listed = await client.call("session.active_list", {})
                    assert [one["status"] for one in listed["sessions"]] == ["idle"]
                status = await driver.call("session.status", {"session_id": driver.session_id})
                assert "running: yes" not in str(status).lower()


@pytest.mark.fault("B-036")
async def test_a_run_is_never_shown_as_running_once_its_end_was_told(tmp_path: Path) -> None:
    turns = times(200, 8)
    replies = [say(f"answer {number}") for number in range(turns)]
    async with playing(tmp_path / "home", *replies, surface="http run", limit=20 + turns) as (driver, _):
        async with http_driver("http run", driver.server) as other:
            assert isinstance(other, RunDriver)
            for _ in range(turns):
                await driver.start("go")
                other.run_id = driver.run_id
                await driver._events("run.completed")
                for client in (driver, other):
                    assert (await client.status())["status"] == "completed"


@pytest.mark.fault("B-038")
async def test_an_edit_is_refused_as_busy_only_and_accepted_after_the_stop(tmp_path: Path) -> None:
    work = (stream("a"), say("next"))
    async with playing(tmp_path / "home", *work) as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 1)
        session = {"session_id": driver.session_id}
        edit = {**session, "text": "edited", **REWIND}
        refused = (await driver.request("prompt.submit", edit))["error"]
        assert refused["code"] == 4009
        assert (refused["data"]["reason"], refused["data"]["state"]) == ("session_busy", "running")
        assert refused["data"]["active"] and "session.interrupt" in refused["data"]["retry"]
        driver._turn_from = len(driver.frames)
        await driver.server.send(frame("stop", "session.interrupt", session))
        while "error" in (response := await driver.request("prompt.submit", edit)):
            assert response["error"]["code"] == 4009
            data = response["error"]["data"]
            assert data["active"] == refused["data"]["active"] and data["state"] in ("running", "stopping")
        assert response["result"]["status"] == "streaming"
        assert (await answer(driver, "stop"))["result"]["status"] == "interrupted"
        await driver.find(
            lambda one: (
                one.get("params", {}).get("type") == "message.complete"
                and one["params"]["payload"]["status"] == "complete"
            )
        )


@pytest.mark.fault("B-038")
async def test_what_needs_an_idle_session_is_refused_over_http_with_what_holds_it(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a"), surface="http run") as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 1)
        turn_id = (await driver.status())["turn_id"]
        refused = await driver.client.delete("/api/sessions/driver-session")
        assert refused.status_code == 409
        assert turn_id in refused.text and "session.interrupt" in refused.text and '"running"' in refused.text
        await driver.stop()
        while (gone := await driver.client.delete("/api/sessions/driver-session")).status_code == 409:
            assert turn_id in gone.text
        assert gone.status_code == 200


@pytest.mark.fault("B-034")
async def test_a_run_of_a_killed_server_ends_as_interrupted_with_a_reason(tmp_path: Path) -> None:
    home = tmp_path / "home"
    points = times(10, 2)
    replies = [terminal("sleep 7022") for _ in range(points)]
    write_config(home, None)
    with trio.fail_after(20 + 5 * points):
        async with FakeProvider(Script.of(*replies, say("next"), strict=True)) as provider:
            dead = ""
            for point in range(points + 1):
                async with driving("http run", home, model_environment(provider)) as driver:
                    assert isinstance(driver, RunDriver)
                    if dead:
                        driver.run_id = dead
                        status = await driver.status()
                        assert (status["status"], status["interrupted"]) == ("interrupted", True)
                        assert (status["cause"], status["reason"]) == ("shutdown", "server_restart")
                        assert (await driver.terminal())["status"] == "interrupted"
                    await driver.start(f"go {point}")
                    if point == points:
                        assert (await driver.terminal())["status"] == "complete"
                        break
                    await driver.wait_for_tool()
                    await trio.sleep(0.02 * point)
                    dead = driver.run_id
                    driver.server.process.kill()
                    await driver.server.process.wait()
