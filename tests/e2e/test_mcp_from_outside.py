"""Tool servers as a host meets them, through the real process: a changed list, a reload that asks, a cancelled call."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving

pytestmark = pytest.mark.e2e

LIMIT = 90
PROGRAM = Path(__file__).parent.parent / "support" / "mcp_hostile_program.py"


def use(name: str, **arguments: Any) -> Reply:
    return Reply.of({"tool_call": {"name": f"mcp__x__{name}", "arguments": arguments}})


def offered(provider: FakeProvider) -> set[str]:
    names = {tool["function"]["name"] for tool in provider.requests[-1].body["tools"]}
    return {name.removeprefix("mcp__x__") for name in names if name.startswith("mcp__x__")}


async def turn(driver: GatewayDriver) -> None:
    await driver.start("please")
    assert (await driver.terminal())["status"] == "complete"


@asynccontextmanager
async def playing(
    home: Path, servers: dict[str, Any], *replies: Reply
) -> AsyncIterator[tuple[GatewayDriver, FakeProvider]]:
    home.mkdir(mode=0o700)
    configure(home, servers)
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving("gateway stdio", home, environ) as driver:
                assert isinstance(driver, GatewayDriver)
                yield driver, provider


def configure(home: Path, servers: dict[str, Any]) -> None:
    (home / "config.yaml").write_text(json.dumps({"mcp_servers": servers}))


def program(notes: Path, behaviour: str = "plain", **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", str(PROGRAM), behaviour, str(notes)], **more}


def read_by_the_model(provider: FakeProvider) -> list[str]:
    return [str(row["content"]) for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]


async def noted(notes: Path, words: str, count: int = 1) -> None:
    while not notes.exists() or notes.read_text().count(words) < count:
        await trio.sleep(0.02)


async def test_a_list_that_changes_in_mid_turn_changes_nothing_for_that_turn(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    say = Reply.of({"text": "well"})
    replies = [use("rename"), use("echo", word="after"), say, use("echo", word="next"), say]
    async with playing(tmp_path / "home", {"x": program(notes)}, *replies) as (driver, provider):
        await turn(driver)
        lists = [request.body["tools"] for request in provider.requests]
        assert all(tools == lists[0] for tools in lists)
        assert "after" in read_by_the_model(provider)[-1]
        await noted(notes, "got tools/list", 2)
        await turn(driver)
        assert provider.requests[-1].body["tools"] == lists[0]
        assert "next" in read_by_the_model(provider)[-1]


@pytest.mark.parametrize("changed", [False, True])
async def test_a_reload_in_a_running_call_ends_it_only_if_its_server_was_changed(changed: bool, tmp_path: Path) -> None:
    home, notes = tmp_path / "home", tmp_path / "notes"
    replies = [use("mute"), use("echo", word="hello"), Reply.of({"text": "well"})]
    async with playing(home, {"x": program(notes)}, *replies) as (driver, provider):
        await driver.start("please")
        started = await driver.event("tool.start", driver._turn_from)
        await noted(notes, "call mute")
        configure(home, {"x": program(notes, timeout=77.0)} if changed else {"x": program(notes)})
        done = await driver.call("reload.mcp", {"confirm": True})
        assert done["status"] == "reloaded"
        if not changed:
            assert notes.read_text().count("started") == 1 and "got notifications/cancelled" not in notes.read_text()
            node = started["params"]["payload"]["node_id"]
            await driver.call("scope.cancel", {"node_id": node, "reason": "enough"})
        assert (await driver.terminal())["status"] == "complete"
        muted, echoed = read_by_the_model(provider)
        assert ("was closed" in muted, "enough" in muted) == (changed, not changed)
        assert "hello" in echoed
        assert notes.read_text().count("started") == (2 if changed else 1)


async def test_a_server_that_dies_hangs_or_prints_garbage_in_a_call_costs_that_call_alone(tmp_path: Path) -> None:
    notes = {name: tmp_path / name for name in ("x", "hung", "noisy", "sound")}
    servers = {
        "x": program(notes["x"]),
        "hung": program(notes["hung"], "stuck", timeout=1.0),
        "noisy": program(notes["noisy"], "garbage"),
        "sound": program(notes["sound"]),
    }

    def steps(*names: str) -> Reply:
        return Reply.of(*({"tool_call": {"name": f"mcp__{name}", "arguments": {}}} for name in names))

    replies = [
        steps("x__die", "hung__mute", "noisy__echo", "sound__echo"),
        steps("x__echo", "hung__echo", "noisy__echo", "sound__echo"),
        Reply.of({"text": "well"}),
    ]
    async with playing(tmp_path / "home", servers, *replies) as (driver, provider):
        for name in servers:
            assert (await driver.call("mcp.servers.test", {"name": name}))["ok"] is True
        await turn(driver)
        died, hung, noisy, sound, *again = read_by_the_model(provider)
        assert "ended with exit code 3" in died and "something broke" in died
        assert "gave no answer within 1 s" in hung
        assert ("error" in noisy, "error" in sound) == (False, False)
        assert not any("error" in text for text in again), again
        assert notes["sound"].read_text().count("started") == 1
        assert notes["x"].read_text().count("started") == 2


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
