"""Tool servers that list odd and broken tools, through the real process: the good ones work, the bad ones are named."""

from __future__ import annotations

import json
import re
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
PROGRAM = Path(__file__).parent.parent / "support" / "mcp_listing_program.py"
# What is a name of a function for OpenAI, for Anthropic and for Google.
ACCEPTED_EVERYWHERE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

GOOD_NAMES = [
    "plain",
    "terminal",
    "with space",
    " ",
    "tab\tand\nline",
    "日本語",
    "русский",
    "emoji 🙂",
    "a.b",
    "a_b",
    "a/b",
    "mcp__x__plain",
    "A_B",
    "\x00",
    "..",
    "-",
    '"quoted"',
    "l" * 300 + "1",
    "l" * 300 + "2",
]
ODD_BUT_GOOD: list[dict[str, Any]] = [
    {"name": "no schema"},
    {"name": "no type", "inputSchema": {}},
    {"name": "number as description", "description": 5, "inputSchema": {"type": "object"}},
    {"name": "wrong in what is not used", "annotations": "x", "icons": 3, "outputSchema": [], "execution": 1},
    {"name": "no properties", "inputSchema": {"type": "object", "properties": None, "required": "all"}},
]
BAD: list[Any] = [
    {"name": "", "inputSchema": {"type": "object"}},
    {"inputSchema": {"type": "object"}},
    {"name": 7, "inputSchema": {"type": "object"}},
    None,
    "text",
    {"name": "text as schema", "inputSchema": "object"},
    {"name": "list as schema", "inputSchema": {"type": "array"}},
    {"name": "words as properties", "inputSchema": {"type": "object", "properties": {"a": "string"}}},
    {"name": "plain", "inputSchema": {"type": "object"}},
]
HALF = '{"name": "half \\ud83d", "description": "\\udc00", "inputSchema": {"type": "object"}}'


def sound(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {}}}


@asynccontextmanager
async def playing(
    home: Path, listings: dict[str, str], *replies: Reply
) -> AsyncIterator[tuple[GatewayDriver, FakeProvider]]:
    home.mkdir(mode=0o700)
    servers = {}
    for number, (name, listing) in enumerate(listings.items()):
        path = home / f"listing{number}"
        path.write_text(listing)
        servers[name] = {"command": sys.executable, "args": ["-I", "-S", str(PROGRAM), str(path)]}
    (home / "config.yaml").write_text(json.dumps({"mcp_servers": servers}))
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


async def notices(driver: GatewayDriver) -> dict[str, str]:
    rows = (await driver.call("mcp.servers.status", {}))["servers"]
    return {row["name"]: row.get("notice", "") for row in rows}


async def call_all(driver: GatewayDriver, provider: FakeProvider, names: list[str]) -> list[str]:
    """Have the model call the tools of these names; what the server was called with."""
    steps = ({"tool_call": {"name": name, "arguments": {}}} for name in names)
    provider.replace_script(Script.of(Reply.of(*steps), Reply.of({"text": "done"}), strict=True))
    await driver.start("go")
    assert (await driver.terminal())["status"] == "complete"
    rows = [row for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]
    return [re.search(r'"called": (".*")', row["content"]).group(1) for row in rows]  # type: ignore[union-attr]


def offered(provider: FakeProvider) -> list[str]:
    names = [tool["function"]["name"] for tool in provider.requests[-1].body["tools"]]
    return [name for name in names if name.startswith("mcp__")]


async def test_good_tools_of_a_listing_work_whatever_their_names_and_bad_ones_are_named(tmp_path: Path) -> None:
    good = [sound(name) for name in GOOD_NAMES] + ODD_BUT_GOOD
    listing = json.dumps([*BAD[:5], *good, *BAD[5:]])[:-1] + f", {HALF}]"
    async with playing(tmp_path / "home", {"x y": listing}, Reply.of({"text": "hello"})) as (driver, provider):
        tested = await driver.call("mcp.servers.test", {"name": "x y"})
        await driver.start("hello")
        assert (await driver.terminal())["status"] == "complete"
        names = offered(provider)
        assert len(names) == len(set(names)) == len(good) + 1
        assert [name for name in names if not ACCEPTED_EVERYWHERE.fullmatch(name)] == []
        called = await call_all(driver, provider, names)
        assert [json.loads(text) for text in called] == [*(tool["name"] for tool in good), "half \ufffd"]
        notice = (await notices(driver))["x y"]
        assert notice.startswith("tools that cannot be used: no. 1 (it has no name), no. 2 (it has no name), no. 3")
        assert "no. 4 (it is not an object)" in notice and notice.endswith("and 4 more")
        assert (tested["ok"], tested["notice"]) == (True, notice)
        [row] = next(
            frame["params"]["payload"]["mcp_servers"]
            for frame in reversed(driver.frames)
            if frame.get("params", {}).get("type") == "session.info"
        )
        assert (row["status"], row["tool_count"], row["notice"]) == ("connected", len(names), notice)
        assert f"MCP server x y lists {notice}" in driver.server.stderr + logged(driver.server.home)


def logged(home: Path) -> str:
    return "".join(path.read_text() for path in (home / "logs").glob("*.log"))


async def test_each_bad_tool_is_named_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    listing = json.dumps([sound("plain"), *BAD[5:]])
    async with playing(tmp_path / "home", {"x": listing}) as (driver, _provider):
        tested = await driver.call("mcp.servers.test", {"name": "x"})
        assert [tool["name"] for tool in tested["tools"]] == ["mcp__x__plain"]
        assert tested["notice"] == (
            "tools that cannot be used: 'text as schema' (its inputSchema is not the schema of an object), "
            "'list as schema' (its inputSchema is not the schema of an object), "
            "'words as properties' (the properties of its inputSchema are not schemas), "
            "'plain' (it is there twice)"
        )


async def test_a_listing_without_any_good_tool_and_one_that_is_no_list_hurt_nobody_else(tmp_path: Path) -> None:
    listings = {"none": json.dumps(BAD[:3]), "no_list": '"tools"', "empty": "[]", "sound": json.dumps([sound("a")])}
    async with playing(tmp_path / "home", listings, Reply.of({"text": "hello"})) as (driver, provider):
        told = {name: await driver.call("mcp.servers.test", {"name": name}) for name in listings}
        assert {name: (one["ok"], len(one["tools"])) for name, one in told.items()} == {
            "none": (True, 0),
            "no_list": (False, 0),
            "empty": (True, 0),
            "sound": (True, 1),
        }
        assert "not of the protocol" in told["no_list"]["error"]
        assert "no. 3 (it has no name)" in told["none"]["notice"]
        await driver.start("hello")
        assert (await driver.terminal())["status"] == "complete"
        assert offered(provider) == ["mcp__sound__a"]


async def test_two_servers_whose_tools_would_share_a_name_keep_the_first_and_name_the_other(tmp_path: Path) -> None:
    listings = {"a": json.dumps([sound("b__c")]), "a__b": json.dumps([sound("c"), sound("d")])}
    async with playing(tmp_path / "home", listings, Reply.of({"text": "hello"})) as (driver, provider):
        for name in listings:
            await driver.call("mcp.servers.test", {"name": name})
        await driver.start("hello")
        assert (await driver.terminal())["status"] == "complete"
        assert offered(provider) == ["mcp__a__b__c", "mcp__a__b__d"]
        assert [json.loads(text) for text in await call_all(driver, provider, offered(provider))] == ["b__c", "d"]
        assert await notices(driver) == {
            "a": "",
            "a__b": "tools that cannot be used: 'c' (server a has mcp__a__b__c)",
        }
