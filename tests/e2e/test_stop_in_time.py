"""How fast a stop is, who hears of it, and what a tool may print meanwhile: through the real process.

Bounds are ten times what the design promises, so that a busy machine does not fail them.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, RunDriver, driving, http_driver
from tests.support.server_process import HttpServer, children_of, http_server

pytestmark = pytest.mark.e2e
LIMIT = 60
SOCKET_CLOSED_WITHIN = 0.2
EXIT_WITHIN = 15.0

LOUD_PLUGIN = """
import ctypes, os, subprocess, sys
from hermes.agent.ports import ToolFlags, ToolSpec

print("printed at import")

class Loud:
    spec = ToolSpec("loud", "prints", {"type": "object", "properties": {}})
    flags = ToolFlags(toolset="shell")

    async def run(self, ctx, arguments):
        print("printed by the plugin", flush=True)
        sys.__stdout__.write("through the first stdout")
        sys.__stdout__.flush()
        os.write(1, b"written to descriptor 1")
        libc = ctypes.CDLL(None)
        libc.puts(b"put by C")
        libc.fflush(None)
        subprocess.run(["echo", "by a child of a library"], check=True)
        return "was loud"

def tool(services):
    return Loud()
"""


def environment(provider: FakeProvider, **more: str) -> dict[str, str]:
    known = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake"}
    return known | more


def install_loud_plugin(where: Path) -> None:
    about = where / "loud-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[hermes.tools]\nloud = loud_plugin:tool\n")
    (where / "loud_plugin.py").write_text(LOUD_PLUGIN)


@pytest.mark.fault("B-011")
@pytest.mark.parametrize("surface", ("gateway stdio", "gateway websocket", "acp", "http run", "http chat"))
@pytest.mark.parametrize("hung", (False, True), ids=("a stream", "before the first byte"))
async def test_the_model_s_socket_is_closed_at_once(surface: str, hung: bool, tmp_path: Path) -> None:
    reply = Reply.of({"text": "x"}, faults={"hang": True}) if hung else Reply.of({"text": "x"}, {"wait_for": "never"})
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(reply)) as provider:
            async with driving(surface, tmp_path / "home", environment(provider)) as driver:
                await driver.start("please")
                await (provider.wait_for_request(1) if hung else provider.wait_chunks(1, 1))
                began = trio.current_time()
                with trio.fail_after(LIMIT):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(driver.stop)
                        assert (await provider.wait_closed(1)).closed_by == "client"
                        took = trio.current_time() - began
                assert took < SOCKET_CLOSED_WITHIN


@pytest.mark.fault("B-153")
@pytest.mark.parametrize("surface", ("gateway stdio", "acp"))
async def test_stdout_holds_frames_only_whatever_a_plugin_prints(surface: str, tmp_path: Path) -> None:
    install_loud_plugin(tmp_path / "plugins")
    call = Reply.of({"tool_call": {"name": "loud", "arguments": {}}})
    path = os.pathsep.join(filter(None, (str(tmp_path / "plugins"), os.environ.get("PYTHONPATH"))))
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(call, Reply.of({"text": "so it was"}))) as provider:
            environ = environment(provider, PYTHONPATH=path)
            async with driving(surface, tmp_path / "home", environ) as driver:
                await driver.start("be loud")
                assert (await driver.terminal())["status"] == "complete"
                assert "was loud" in str(provider.requests[-1].body)
                assert "put by C" in driver.server.stderr
                assert driver.server.stray == []


async def test_every_client_of_a_session_hears_of_its_one_end(tmp_path: Path) -> None:
    calls = [{"tool_call": {"name": "terminal", "arguments": {"command": f"sleep 700{n}"}}} for n in (6, 7)]
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(Reply.of(*calls))) as provider:
            async with http_server(tmp_path / "home", environ=environment(provider)) as server:
                async with (
                    http_driver("http run", server) as run,
                    http_driver("gateway websocket", server) as first,
                    http_driver("gateway websocket", server) as second,
                ):
                    assert isinstance(run, RunDriver)
                    watchers = [watcher for watcher in (first, second) if isinstance(watcher, GatewayDriver)]
                    await run.start("please")
                    for watcher in watchers:
                        resumed = await watcher.call("session.resume", {"session_id": "driver-session"})
                        watcher.session_id = resumed["session_id"]
                    while sum("sleep 700" in line for line in children_of(server).values()) < 2:
                        await trio.sleep(0.01)
                    await watchers[0].stop()
                    assert children_of(server) == {}
                    for watcher in watchers:
                        end = await watcher.terminal()
                        assert (end["status"], end["cause"]) == ("interrupted", "user_interrupt")
                    assert await run.terminal() == {"status": "interrupted", "cause": "user_interrupt"}


# The client library leaves its socket to the collector when the server closes first.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_signal_with_everything_open_ends_the_process_in_time(tmp_path: Path) -> None:
    replies = [
        Reply.of({"text": "x"}, {"wait_for": "never"}),
        Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": "sleep 7008 & sleep 7009"}}}),
        Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": "rm -rf build"}}}),
    ]
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies)) as provider:
            async with http_server(tmp_path / "home", environ=environment(provider)) as server:
                async with (
                    http_driver("http chat", server) as chat,
                    http_driver("http run", server) as run,
                    http_driver("gateway websocket", server) as socket,
                ):
                    await chat.start("stream")
                    await provider.wait_chunks(1, 1)
                    await run.start("run a tree")
                    while sum("sleep 700" in line for line in children_of(server).values()) < 2:
                        await trio.sleep(0.01)
                    await socket.start("ask")
                    await socket.wait_for_question()
                    took = await seconds_to_stop(server)
                assert took < EXIT_WITHIN
                assert children_of(server) == {}
                assert provider.open_requests == 0
    gc.collect()


async def seconds_to_stop(server: HttpServer) -> float:
    began = trio.current_time()
    assert await server.stop() == 0
    return trio.current_time() - began
