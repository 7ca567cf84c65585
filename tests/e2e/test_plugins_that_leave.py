"""A plugin that raises what ends a program, through the real process: it costs its call alone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving
from tests.support.plugins import install_plugin

pytestmark = pytest.mark.e2e

LIMIT = 90
SOURCE = """
import trio
from hermes.agent.ports import ToolSpec

class Leaver:
    spec = ToolSpec("leave", "a plugin", {"type": "object", "properties": {"how": {"type": "string"}}})

    async def run(self, ctx, arguments):
        error = {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "base": BaseException("x")}[arguments["how"]]

        async def leave():
            raise error

        if arguments.get("deep"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leave)
                nursery.start_soon(trio.sleep_forever)
        await leave()

    def preview(self, arguments):
        raise KeyboardInterrupt

    def paths(self, arguments):
        raise SystemExit

def tool(services):
    return Leaver()
"""


async def test_only_a_signal_ends_the_server_whatever_a_plugin_raises(tmp_path: Path) -> None:
    ways = [{"how": how, "deep": deep} for how in ("interrupt", "exit", "base") for deep in (False, True)]
    steps = ({"tool_call": {"name": "leave", "arguments": way}} for way in ways)
    script = Script.of(Reply.of(*steps), Reply.of({"text": "all failed"}), Reply.of({"text": "and on"}), strict=True)
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
                **install_plugin(tmp_path / "plugins", "leaver", SOURCE),
            }
            async with driving("gateway stdio", tmp_path / "home", environ) as driver:
                assert isinstance(driver, GatewayDriver)
                await driver.start("please")
                assert (await driver.terminal())["text"] == "all failed"
                read = [row["content"] for row in provider.requests[1].body["messages"] if row["role"] == "tool"]
                assert len(read) == len(ways)
                assert all("the tool leave failed" in text for text in read), read
                assert "KeyboardInterrupt" in read[0] and "SystemExit" in read[2]
                await driver.start("more")
                assert (await driver.terminal())["text"] == "and on"
                driver.server.process.send_signal(signal.SIGINT)
                assert await driver.server.exit_code() == 0
