"""Deaths of hosts, servers and peers: what they had started goes too, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from hermes.nurseries import mcp_connection
from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import AcpDriver, StdioGateway
from tests.support.fault_play import LIMIT, model_environment, say, stream, terminal, user_texts, write_config
from tests.support.mcp_rig import hostile, mcp_rig
from tests.support.mortal_server import mortal_servers
from tests.support.proof import times
from tests.support.server_process import (
    COMMAND,
    assert_no_children,
    clean_environment,
    free_port,
    kill_leftovers,
    processes_of,
)

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
TREE = "sleep 7001 & (setsid sleep 7002 &); sleep 7003"
CALL = """
import json, subprocess, sys, time
server = subprocess.Popen([sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def send(number, method, **params):
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(request).encode() + b"\\n")
    server.stdin.flush()
def call(number, method, **params):
    send(number, method, **params)
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == number:
            return answer["result"]
"""
GATEWAY_HOST = (
    CALL
    + """
session = call(1, "session.create")["session_id"]
call(2, "prompt.submit", session_id=session, text="go")
time.sleep(600)
"""
)
# It reads no more once it has said what it wants.
EDITOR = (
    CALL
    + """
call(1, "initialize", protocolVersion=1, clientCapabilities={})
session = call(2, "session/new", cwd=sys.argv[3], mcpServers=[])["sessionId"]
send(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
time.sleep(600)
"""
)
EMBEDDER = """
import os, sys
from hermes import AIAgent
key, url = os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"]
with AIAgent(home=sys.argv[3], cwd=sys.argv[3], model="fake-model", base_url=url, api_key=key) as agent:
    assert agent.run_conversation("go")["completed"]
"""


async def until(home: Path, count: int) -> None:
    while sum("sleep 700" in line for line in processes_of(home).values()) < count:
        await trio.sleep(0.01)


async def gone(home: Path, within: float = 10) -> None:
    with trio.move_on_after(within):
        while processes_of(home):
            await trio.sleep(0.02)
    assert processes_of(home) == {}


def noise(count: int) -> list[str]:
    """More than a pipe takes."""
    return [" ".join(f"{number}.{n}" for n in range(200)) + " " for number in range(count)]


async def host_of(program: str, surface: str, home: Path, provider: FakeProvider) -> trio.Process:
    return await trio.lowlevel.open_process(
        [sys.executable, "-c", program, str(COMMAND), surface, str(home)],
        cwd=home,
        env=clean_environment(home) | model_environment(provider),
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.fault("B-068")
@pytest.mark.fault("B-074")
@pytest.mark.parametrize(("surface", "program"), [("gateway", GATEWAY_HOST), ("acp", EDITOR)])
async def test_a_host_that_is_killed_while_the_provider_says_nothing_takes_its_server_along(
    surface: str, program: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    write_config(home, None)
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(Reply.of({"text": "x"}, faults={"hang": True}))) as provider:
            host = await host_of(program, surface, home, provider)
            try:
                await provider.wait_for_request(1)
                host.kill()
                await host.wait()
                await gone(home)
                assert (await provider.wait_closed(1)).closed_by == "client"
            finally:
                kill_leftovers(home)


@pytest.mark.fault("B-072")
async def test_an_agent_with_a_blocked_output_and_a_running_command_ends_with_a_killed_parent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, None)
    work = Reply.of({"text": noise(400)}, {"tool_call": {"name": "terminal", "arguments": {"command": TREE}}})
    with trio.fail_after(LIMIT + 10):
        async with FakeProvider(Script.of(work)) as provider:
            host = await host_of(EDITOR, "acp", home, provider)
            try:
                await until(home, 3)
                host.kill()
                await host.wait()
                await gone(home, 15)
            finally:
                kill_leftovers(home)


@pytest.mark.fault("B-062")
@pytest.mark.parametrize("second", [["acp"], ["serve", "--port"]], ids=["acp", "serve"])
async def test_whatever_starts_next_ends_what_a_killed_server_left(second: list[str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    more = [str(free_port())] if "--port" in second else []
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(terminal(TREE))) as provider:
            async with mortal_servers(home, model_environment(provider)) as servers, trio.open_nursery() as nursery:
                first = StdioGateway(await servers.start("gateway"))
                nursery.start_soon(first.pump)
                await first.start("go")
                await until(home, 3)
                await servers.kill(first.server)
                await assert_no_children(await servers.start(*second, *more), within=10)
                nursery.cancel_scope.cancel()


@pytest.mark.fault("B-034")
async def test_an_editor_goes_on_with_its_session_after_its_agent_was_killed_in_a_tool(tmp_path: Path) -> None:
    points, home = times(10, 2), tmp_path / "home"
    work = [terminal("sleep 7022")] * points
    with trio.fail_after(LIMIT + 10 * points):
        async with FakeProvider(Script.of(*work, say("next"), strict=True)) as provider:
            async with mortal_servers(home, model_environment(provider)) as servers:
                key, prompts = "", [f"go {point}" for point in range(points + 1)]
                for point, text in enumerate(prompts):
                    driver = AcpDriver(await servers.start("acp"))
                    if key:
                        await driver.server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                        where = {"sessionId": key, "cwd": str(home), "mcpServers": []}
                        await driver.server.call("session/load", where)
                        driver.session_id = key
                    await driver.start(text)
                    if point == points:
                        assert (await driver.terminal())["status"] == "complete"
                        break
                    await driver.wait_for_tool()
                    key = driver.session_id
                    await trio.sleep(0.02 * point)
                    await servers.kill(driver.server)
                # The provider refuses a history in which a call lacks its one result.
                assert user_texts(provider.requests[-1]) == prompts


@pytest.mark.fault("B-070")
async def test_a_peer_that_answers_no_ping_is_gone_before_the_next_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connection, "SIGN_OF_LIFE", 0.1)
    rounds = times(50, 4)
    async with mcp_rig(tmp_path, hostile(tmp_path, "stuck")) as rig:
        with trio.fail_after(LIMIT + 2 * rounds):
            await rig.call("echo")
            for number in range(rounds):
                (old,) = rig.children()
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(rig.call, "mute")
                        while rig.notes().count("stuck") <= number:
                            await trio.sleep(0.01)
                        scope.cancel()
                rig.servers._servers["x"]._failures = 0
                await rig.call("echo")
                assert not Path(f"/proc/{old}").exists(), "the old one was there when the new one was used"
                assert len(rig.children()) == 1
            assert sum(note.startswith("started") for note in rig.notes()) == rounds + 1


@pytest.mark.fault("B-074")
async def test_what_a_killed_embedding_program_left_is_ended_by_the_next_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, None)
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(terminal(TREE), say("here again"), stream("x"))) as provider:
            try:
                host = await host_of(EMBEDDER, "-", home, provider)
                await until(home, 3)
                host.kill()
                await host.wait()
                after = await host_of(EMBEDDER, "-", home, provider)
                assert await after.wait() == 0
                await gone(home)
                assert os.path.exists(home)
            finally:
                kill_leftovers(home)
