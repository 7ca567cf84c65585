"""Tool servers as a host meets them, through the real process: a changed list, a reload that asks, a cancelled call."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving

pytestmark = pytest.mark.e2e

PROGRAM = Path(__file__).parent.parent / "support" / "mcp_hostile_program.py"


def use(name: str, **arguments: Any) -> Reply:
    return Reply.of({"tool_call": {"name": f"mcp__x__{name}", "arguments": arguments}})


def offered(provider: FakeProvider) -> set[str]:
    names = {tool["function"]["name"] for tool in provider.requests[-1].body["tools"]}
    return {name.removeprefix("mcp__x__") for name in names if name.startswith("mcp__x__")}


async def turn(driver: GatewayDriver) -> None:
    await driver.start("please")
    assert (await driver.terminal())["status"] == "complete"


async def test_a_changed_list_waits_for_a_reload_which_asks_until_it_is_told_not_to(tmp_path: Path) -> None:
    home, notes = tmp_path / "home", tmp_path / "notes"
    home.mkdir(mode=0o700)
    server = {"command": sys.executable, "args": ["-I", "-S", str(PROGRAM), "plain", str(notes)]}
    (home / "config.yaml").write_text(json.dumps({"mcp_servers": {"x": server}}))
    say = Reply.of({"text": "well"})
    replies = [use("rename"), say, say, say, use("mute"), say, use("echo", word="hello"), say]
    with trio.fail_after(90):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving("gateway stdio", home, environ) as driver:
                assert isinstance(driver, GatewayDriver)
                await turn(driver)
                await turn(driver)
                assert offered(provider) == {"echo", "mute", "die", "rename"}
                for params in ({}, {"confirm": False}):
                    asked = await driver.call("reload.mcp", params)
                    assert asked["status"] == "confirm_required" and asked["message"]
                at = len(driver.frames)
                done = await driver.call("reload.mcp", {"always": True})
                assert done["status"] == "reloaded" and done["loaded_rev"]
                await driver.event("session.info", at)
                await turn(driver)
                assert offered(provider) == {"echo", "mute", "die", "rename", "renamed"}
                assert (await driver.call("reload.mcp", {}))["status"] == "reloaded"
                assert "mcp_reload_confirm: false" in (home / "config.yaml").read_text()

                await driver.start("please")
                node = (await driver.event("tool.start", driver._turn_from))["params"]["payload"]["node_id"]
                while "call mute" not in notes.read_text():
                    await trio.sleep(0.02)
                assert (await driver.call("scope.cancel", {"node_id": node, "reason": "enough"}))["cancelled"] is True
                assert (await driver.terminal())["status"] == "complete"
                while "got notifications/cancelled" not in notes.read_text():
                    await trio.sleep(0.02)
                await turn(driver)
                (*_, row) = [one for one in provider.requests[-1].body["messages"] if one["role"] == "tool"]
                assert "hello" in row["content"]
                assert notes.read_text().count("started") == 1
