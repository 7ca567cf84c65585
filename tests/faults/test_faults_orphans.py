"""Processes that outlived what had started them, and bystanders that did not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from hermes.agent.ports import ToolFailure
from hermes.nurseries import process_tree, processes
from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import StdioGateway
from tests.support.fault_play import (
    LIMIT,
    delegate,
    events,
    frame,
    model_environment,
    playing,
    say,
    stream,
    terminal,
    write_config,
)
from tests.support.mcp_rig import hostile, mcp_rig
from tests.support.mortal_server import mortal_servers
from tests.support.server_process import (
    COMMAND,
    assert_no_children,
    children_of,
    clean_environment,
    kill_leftovers,
    processes_of,
)

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
TREE = "sleep 7001 & (setsid sleep 7002 &); sleep 7003"
HOST = """
import json, subprocess, sys, time
server = subprocess.Popen([sys.argv[1], "gateway"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def call(number, method, **params):
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(request).encode() + b"\\n")
    server.stdin.flush()
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == number:
            return answer["result"]
session = call(1, "session.create")["session_id"]
call(2, "prompt.submit", session_id=session, text="go")
time.sleep(600)
"""


async def wait_for_tree(home: Path, count: int = 3) -> None:
    while sum("sleep 700" in line for line in processes_of(home).values()) < count:
        await trio.sleep(0.01)


async def wait_until_gone(home: Path, within: float = 10) -> None:
    with trio.move_on_after(within):
        while processes_of(home):
            await trio.sleep(0.02)
    assert processes_of(home) == {}


@pytest.mark.fault("B-060")
async def test_a_stop_ends_the_whole_tree_of_a_command(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal(TREE)) as (driver, _provider):
        await driver.start("go")
        await wait_for_tree(driver.server.home)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        assert children_of(driver.server) == {}


@pytest.mark.fault("B-062")
async def test_the_next_start_ends_what_a_killed_server_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(terminal(TREE))) as provider:
            async with mortal_servers(home, model_environment(provider)) as servers, trio.open_nursery() as nursery:
                first = StdioGateway(await servers.start("gateway"))
                nursery.start_soon(first.pump)
                await first.start("go")
                await wait_for_tree(home)
                await servers.kill(first.server)
                second = await servers.start("gateway")
                await second.event("gateway.ready")
                await assert_no_children(second)
                nursery.cancel_scope.cancel()


@pytest.mark.fault("B-064")
async def test_a_stop_of_one_child_agent_ends_its_commands_and_leaves_its_sibling(tmp_path: Path) -> None:
    work = (
        delegate("alpha", "beta"),
        terminal(TREE, when="alpha"),
        stream("still here", gate="open", when={"last_user_contains": "beta", "last_role": "user"}),
        say("both", when={"last_role": "tool"}),
    )
    async with playing(tmp_path / "home", *work) as (driver, provider):
        await driver.start("go")
        await wait_for_tree(driver.server.home)
        await provider.wait_for_request(3)
        (alpha,) = {one["subagent_id"] for one in events(driver, "subagent.start") if "alpha" in one["goal"]}
        named = {"session_id": driver.session_id, "subagent_id": alpha}
        assert (await driver.call("subagent.interrupt", named))["found"] is True
        await assert_no_children(driver.server)
        assert events(driver, "message.complete") == [] and provider.open_requests == 1
        provider.release("open")
        assert (await driver.terminal())["status"] == "complete"
        ends = {one["goal"]: one["status"] for one in events(driver, "subagent.complete")}
        assert ends == {"alpha": "interrupted", "beta": "completed"}


@pytest.mark.fault("B-066")
async def test_a_timeout_ends_a_command_whose_grandchild_holds_the_output(tmp_path: Path) -> None:
    command = "bash -c 'setsid sleep 7066 & sleep 7066' | cat"
    async with playing(tmp_path / "home", terminal(command, timeout=1), say("next")) as (driver, provider):
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete"
        (result,) = [row["content"] for row in provider.requests[1].body["messages"] if row["role"] == "tool"]
        assert "timed out" in result.lower() or "timeout" in result.lower(), result
        await assert_no_children(driver.server)


@pytest.mark.fault("B-068")
@pytest.mark.parametrize("end", ["end of input", "SIGTERM"])
async def test_a_server_with_a_silent_provider_ends_with_its_host(end: str, tmp_path: Path) -> None:
    async with playing(tmp_path / "home", Reply.of({"text": "x"}, faults={"hang": True})) as (driver, provider):
        await driver.start("go")
        await provider.wait_for_request(1)
        with trio.fail_after(10):
            if end == "SIGTERM":
                assert await driver.server.stop() == 0
            else:
                await driver.server.close_input()
                assert await driver.server.exit_code() == 0
        assert (await provider.wait_closed(1)).closed_by == "client"


@pytest.mark.fault("B-068")
@pytest.mark.fault("B-074")
async def test_a_host_that_is_killed_takes_its_server_and_its_commands_along(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, None)
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(terminal(TREE))) as provider:
            host = await trio.lowlevel.open_process(
                [sys.executable, "-c", HOST, str(COMMAND)],
                cwd=home,
                env=clean_environment(home) | model_environment(provider),
                stderr=subprocess.DEVNULL,
            )
            try:
                await wait_for_tree(home)
                host.kill()
                await host.wait()
                await wait_until_gone(home)
            finally:
                kill_leftovers(home)


@pytest.mark.fault("B-070")
async def test_a_peer_that_dies_again_and_again_is_one_process_at_a_time(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "plain")) as rig:
        with trio.fail_after(LIMIT):
            seen = set()
            for _ in range(8):
                await rig.call("echo")
                (child,) = rig.children()
                seen.add(child)
                rig.servers._servers["x"]._failures = 0
                with pytest.raises(ToolFailure):
                    await rig.call("die")
            assert len(seen) == 8
            assert sum(Path(f"/proc/{pid}").exists() for pid in seen) <= 1


@pytest.mark.fault("B-072")
async def test_an_agent_whose_output_is_blocked_ends_with_its_input(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, None)
    pieces = [" ".join(f"{number}.{n}" for n in range(200)) + " " for number in range(400)]
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(stream(*pieces))) as provider:
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
                hello = frame(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                new = frame(2, "session/new", {"cwd": str(home), "mcpServers": []})
                await process.stdin.send_all(b"".join(json.dumps(one).encode() + b"\n" for one in (hello, new)))
                heard = b""
                while b'"sessionId":"' not in heard.replace(b" ", b""):
                    heard += await process.stdout.receive_some()
                session_id = heard.replace(b" ", b"").split(b'"sessionId":"')[1].split(b'"')[0].decode()
                words: dict[str, Any] = {"sessionId": session_id, "prompt": [{"type": "text", "text": "go"}]}
                await process.stdin.send_all(json.dumps(frame(3, "session/prompt", words)).encode() + b"\n")
                await provider.wait_chunks(1, len(pieces))
                await process.stdin.aclose()
                with trio.fail_after(15):
                    await process.wait()
                await wait_until_gone(home)
            finally:
                kill_leftovers(home)
                await process.wait()
                await trio.aclose_forcefully(process.stdout)


@pytest.mark.fault("B-076")
async def test_a_job_that_its_own_shell_failed_to_end_is_ended_with_the_call(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal("sleep 7076 & kill %1; true"), say("next")) as (driver, _provider):
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete"
        await assert_no_children(driver.server)


# --- and no bystander -------------------------------------------------------------------------------------------------


@pytest.mark.fault("B-059")
async def test_a_later_holder_of_a_pid_is_not_signalled() -> None:
    async with trio.open_nursery() as nursery:
        bystander = await nursery.start(trio.run_process, ["sleep", "7059"])
        stat = process_tree.read_stat(bystander.pid)
        assert stat is not None
        process_tree.send_signal(replace(stat, start=stat.start - 1), signal.SIGKILL)
        await trio.sleep(0.05)
        assert bystander.poll() is None
        nursery.cancel_scope.cancel()


@pytest.mark.fault("B-059")
async def test_a_group_in_which_nothing_of_ours_was_seen_is_not_signalled() -> None:
    bystander = await trio.lowlevel.open_process(["sleep", "7059"], start_new_session=True)
    try:
        entry = cast(Any, SimpleNamespace(pid=bystander.pid))
        processes._signal(entry, {}, signal.SIGKILL)
        own = process_tree.read_stat(os.getpid())
        assert own is not None
        processes._signal(entry, {own.pid: own}, signal.SIGURG)  # ignored by whoever has not asked for it
        await trio.sleep(0.05)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        await bystander.wait()


@pytest.mark.fault("B-059")
async def test_a_stop_beside_children_that_have_ended_already_leaves_the_server_alive(tmp_path: Path) -> None:
    work = (terminal("true & true & exec sleep 0.01", "sleep 7001"), say("next"))
    async with playing(tmp_path / "home", *work) as (driver, _provider):
        await driver.start("go")
        await wait_for_tree(driver.server.home, 1)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
