"""Calls that work outside the loop, in processes and threads, stopped after many of their steps, at each level.

The processes, the threads and the clock are real. What must hold afterwards is the same as in the sweeps on virtual
time, and more: no process, no descriptor and no thread's place is left."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import Tool, ToolContext, ToolFailure, ToolSpec
from hermes.agent.tools.search import SearchFiles
from hermes.nurseries.key_commands import KeyCommands
from hermes.nurseries.mcp_servers import McpServers
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.plugin_process import CHILD, PluginHost
from hermes.nurseries.plugin_tools import adapt
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.nurseries.spare_threads import lend_threads
from tests.support import tool_context
from tests.support.core import PlainTool
from tests.support.mcp_rig import hostile
from tests.support.outside_sweep import LEVELS, Outside, Play, Stage, sweep
from tests.support.proof import times

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

RUNS = times(40, 1)
"""Of each level and seed."""


class Plugin:
    """A plugin in a process."""

    def __init__(self, function: str, timeout: float) -> None:
        self.spec = ToolSpec("outside", "a plugin", {"type": "object", "properties": {}})
        self.process = f"tests.support.plugin_functions:{function}"
        self.timeout = timeout


def plugin(function: str, timeout: float) -> Play:
    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        host = PluginHost(stage.services.supervisor, lambda: stage.environment)
        yield adapt(Plugin(function, timeout), host), {"mark": stage.mark, "name": "Ann"}

    return play


class Search(SearchFiles):
    spec = ToolSpec("outside", "a search", SearchFiles.spec.parameters)


def search(pattern: str) -> Play:
    """Without ripgrep, so that a pattern of Python's own runs in a child."""

    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        (stage.home / "text").write_text("a" * 40 + "!\nfirst line\n")
        made = tool_context.make_services(stage.home, ripgrep=None, child=(*CHILD, stage.mark))
        yield Search(made), {"pattern": pattern, "path": str(stage.home)}

    return play


def nested(depth: int) -> None:
    """Hold a thread, call back into the loop, and wait there for another one."""
    if depth:
        trio.from_thread.run(trio.to_thread.run_sync, nested, depth - 1)
    time.sleep(0.002)


@asynccontextmanager
async def threads(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
    async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(trio.to_thread.run_sync, nested, 2)
        return "through"

    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lend_threads, 0.005)
        yield PlainTool("outside", run), {}
        while limiter.total_tokens != 2:
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()


def mcp(behaviour: str, tool: str, **limits: float) -> Play:
    """A server that is started by the first call."""

    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        assert stage.tree is not None
        servers = McpServers(TransportHost(stage.services.supervisor, lambda: stage.environment, str(stage.home)))
        root = ReasonScope("server", "servers", None, tree=LiveTree())

        async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> Any:
            return await servers._servers["x"].call(tool, arguments, ctx.progress)

        with root:
            async with trio.open_nursery() as nursery:
                await nursery.start(servers.run, root)
                servers.configure([hostile(stage.home, behaviour, **limits)])
                yield PlainTool("outside", run), {"a": 1}
                nursery.cancel_scope.cancel()

    return play


def key_command(script: str) -> Play:
    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        keys = KeyCommands(stage.services.supervisor, lambda: stage.environment, str(stage.home), within=0.1)

        async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
            try:
                return await keys(("sh", "-c", script.format(stage.mark)))
            except Exception as error:
                raise ToolFailure(str(error)) from error

        yield PlainTool("outside", run), {}

    return play


PLAYS: dict[str, Outside] = {
    "a plugin that answers": Outside(plugin("greet", 20), "hello Ann"),
    "a plugin that reaches its limit": Outside(plugin("hang", 0.3), "gave no answer within 0.3 s"),
    "a search in a child": Outside(search("fi.st"), "first line"),
    "a search that would take for ever": Outside(search("(a+)+$"), "the call was cancelled", endless=True),
    "threads that wait for threads": Outside(threads, "through"),
    "an MCP server that starts and answers": Outside(mcp("plain", "echo"), '{"a": 1}'),
    "an MCP tool that never answers": Outside(mcp("plain", "mute", timeout=0.3), "gave no answer within 0.3 s"),
    "a key command that never ends": Outside(key_command("sleep {0} & sleep {0}"), "did not end within 0.1 s"),
    "a key command": Outside(key_command("echo key"), "key"),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", list(PLAYS))
def test_a_stop_of_work_outside_the_loop_leaves_nothing(name: str, level: str, tmp_path: Path) -> None:
    sweep(tmp_path, PLAYS[name], level, runs=RUNS)
