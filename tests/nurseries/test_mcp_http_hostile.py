"""A streamable HTTP server that drops its streams, lies or forgets the session: the call fails, the next one works."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import trio

from hermes.agent.ports import ToolFailure
from hermes.nurseries.mcp_config import McpServerConfig
from tests.support.hostile_http import hostile_http
from tests.support.mcp_rig import mcp_rig

pytestmark = pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted.*:ResourceWarning")


@pytest.mark.parametrize(
    "behaviour",
    [
        "no answer at all",
        "stream that ends",
        "half an event",
        "garbage",
        "cut body",
        "error",
        "forgotten session",
    ],
)
async def test_a_call_whose_answer_is_lost_fails_and_the_next_one_works(behaviour: str, tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with hostile_http() as server:
            url = f"http://127.0.0.1:{server.port}/mcp"
            config = McpServerConfig("x", "http", url=url, timeout=4.0, connect_timeout=10.0)
            async with mcp_rig(tmp_path, config) as rig:
                assert (await rig.call("echo")).content == "said"
                server.behaviour = behaviour
                began = trio.current_time()
                with pytest.raises(ToolFailure):
                    await rig.call("echo")
                assert trio.current_time() - began < 5, "it is not waited for longer than its own limit"
                rig.servers._servers["x"].retry_now()
                assert (await rig.call("echo")).content == "said"
    gc.collect()
