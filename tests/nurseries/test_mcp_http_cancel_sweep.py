"""A call of a tool server over streamable HTTP, stopped after many of its steps, at each level of a turn."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import Tool, ToolContext
from hermes.nurseries.mcp_config import McpServerConfig
from hermes.nurseries.mcp_servers import McpServers
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.scopes import LiveTree, ReasonScope
from tests.support.core import PlainTool
from tests.support.hostile_http import hostile_http
from tests.support.outside_sweep import LEVELS, Outside, Play, Stage, sweep
from tests.support.proof import times

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted.*:ResourceWarning"),
]

RUNS = times(40, 4)
"""Of each level and seed."""


def mcp_http(behaviour: str = "", *, connected: bool = False, **limits: float) -> Play:
    """A server that is connected to by the first call, or before it (``connected``)."""

    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        async with hostile_http() as server:
            servers = McpServers(TransportHost(stage.services.supervisor, dict, str(stage.home)))
            root = ReasonScope("server", "servers", None, tree=LiveTree())
            url = f"http://127.0.0.1:{server.port}/mcp"

            async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> Any:
                return await servers._servers["x"].call("echo", arguments, ctx.progress)

            with root:
                async with trio.open_nursery() as nursery:
                    await nursery.start(servers.run, root)
                    servers.configure(
                        [McpServerConfig("x", "http", url=url, **{"timeout": 20.0, "connect_timeout": 20.0, **limits})]
                    )
                    if connected:
                        assert (await servers.try_one("x", 20))["ok"] is True
                    server.behaviour = behaviour
                    yield PlainTool("outside", run), {"a": 1}
                    # Whatever became of that call: the connection is as good as before, or another one is.
                    server.behaviour = ""
                    with trio.fail_after(20):
                        answer = await servers._servers["x"].call("echo", {}, lambda _text: None)
                    assert answer.content == "said"
                    nursery.cancel_scope.cancel()

    return play


PLAYS: dict[str, Outside] = {
    "the first call": Outside(mcp_http(), "said", garbage=True),
    "a later call": Outside(mcp_http(connected=True), "said", garbage=True),
    "no end": Outside(mcp_http("no end", connected=True, timeout=0.2), "gave no answer within 0.2 s", garbage=True),
    "no answer at all": Outside(mcp_http("no answer at all", connected=True), "error", garbage=True),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", list(PLAYS))
def test_a_stop_of_a_call_over_http_leaves_nothing_and_the_next_call_works(
    name: str, level: str, tmp_path: Path
) -> None:
    sweep(tmp_path, PLAYS[name], level, runs=RUNS)
