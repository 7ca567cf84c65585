"""One node of a running turn cancelled by its id, through the real process: what ran beside it is as it was, and the
history that comes of it is accepted, also by the next server."""

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


def calls(*steps: tuple[str, dict[str, Any]]) -> Reply:
    return Reply.of(*({"tool_call": {"name": name, "arguments": given}} for name, given in steps))


def say(text: str) -> Reply:
    return Reply.of({"text": text})


@asynccontextmanager
async def playing(
    home: Path, provider: FakeProvider, config: dict[str, Any] | None = None
) -> AsyncIterator[GatewayDriver]:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps(config or {}))
    environ = {
        "OPENAI_BASE_URL": provider.base_url,
        "OPENAI_API_KEY": "test-key-0123456789",
        "HERMES_MODEL": "fake-model",
    }
    async with driving("gateway stdio", home, environ) as driver:
        assert isinstance(driver, GatewayDriver)
        yield driver


def nodes(tree: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    own = [tree] if tree["kind"] == kind else []
    return own + [node for child in tree["children"] for node in nodes(child, kind)]


async def nodes_of(driver: GatewayDriver, kind: str) -> list[dict[str, Any]]:
    return nodes((await driver.call("tree.get", {}))["tree"], kind)


def payloads(driver: GatewayDriver, kind: str) -> list[dict[str, Any]]:
    return [one["params"]["payload"] for one in driver.frames if one.get("params", {}).get("type") == kind]


def results(provider: FakeProvider) -> list[str]:
    """The results of tools in the newest request of the model."""
    return [str(row["content"]) for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]


async def test_one_of_three_parallel_calls_is_cancelled_and_every_later_request_is_accepted(tmp_path: Path) -> None:
    home, notes = tmp_path / "home", tmp_path / "notes"
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", str(PROGRAM), "plain", str(notes)],
        "supports_parallel_tool_calls": True,
    }
    config = {"mcp_servers": {"x": server}}
    three = calls(("mcp__x__echo", {"n": 1}), ("mcp__x__mute", {}), ("mcp__x__echo", {"n": 3}))
    script = Script.of(three, say("went on"), say("and on"), say("in the next life"), strict=True)
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            async with playing(home, provider, config) as driver:
                assert (await driver.call("mcp.servers.test", {"name": "x"}))["ok"] is True
                await driver.start("please")
                # The first is told at once; the third has ended and waits for its turn to be told.
                await driver.event("tool.complete", driver._turn_from)
                while True:
                    found = await nodes_of(driver, "tool_call")
                    if len(found) == 1 and notes.read_text().count("call echo") == 2:
                        break
                    await trio.sleep(0.02)
                assert found[0]["name"] == "mcp__x__mute"
                stopped = await driver.call("scope.cancel", {"node_id": found[0]["node_id"], "reason": "too long"})
                assert stopped["cancelled"] is True
                assert (await driver.terminal())["text"] == "went on"
                first, cancelled, third = results(provider)
                assert '{"n": 1}' in first and '{"n": 3}' in third
                assert "cancelled" in cancelled and "too long" in cancelled
                ended = payloads(driver, "tool.complete")
                assert [one["name"] for one in ended] == ["mcp__x__echo", "mcp__x__mute", "mcp__x__echo"]
                assert "got notifications/cancelled" in notes.read_text()
                again = await driver.request("scope.cancel", {"node_id": found[0]["node_id"]})
                assert again.get("result", {}).get("cancelled") is not True
                await driver.start("more")
                assert (await driver.terminal())["text"] == "and on"
                assert results(provider) == [first, cancelled, third]
                [listed] = (await driver.call("session.list", {}))["sessions"]
                assert await driver.server.stop() == 0
            async with playing(home, provider, config) as driver:
                resumed = await driver.call("session.resume", {"session_id": listed["id"]})
                driver.session_id = resumed["session_id"]
                await driver.start("more")
                assert (await driver.terminal())["text"] == "in the next life"
                assert results(provider) == [first, cancelled, third]


QUESTIONS: dict[str, tuple[Reply, str]] = {
    "clarify": (calls(("clarify", {"question": "Which?", "choices": ["a", "b"]})), ""),
    "approval": (calls(("terminal", {"command": "rm -rf ./kept"})), "kept"),
}


@pytest.mark.parametrize("method", list(QUESTIONS))
async def test_a_question_that_is_cancelled_by_its_node_is_withdrawn_and_the_turn_goes_on(
    method: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    asking, kept = QUESTIONS[method]
    script = Script.of(asking, say("without an answer"), say("and on"), strict=True)
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, playing(home, provider) as driver:
            if kept:
                (home / kept).mkdir()
            await driver.start("please")
            asked = await driver.find(lambda frame: frame.get("method") == method, driver._turn_from)
            [node] = await nodes_of(driver, "question")
            assert (node["name"], node["details"]["request_id"]) == (method, asked["id"])
            stopped = await driver.call("scope.cancel", {"node_id": node["node_id"], "reason": "nobody is here"})
            assert stopped["cancelled"] is True
            end = await driver.terminal()
            assert (end["status"], end["text"]) == ("complete", "without an answer")
            [withdrawn] = payloads(driver, "request.cancel")
            assert withdrawn["id"] == asked["id"]
            [read] = results(provider)
            assert "cancel" in read.lower() or "withdrawn" in read.lower(), read
            assert not kept or (home / kept).is_dir(), "it ran without a yes"
            # An answer that comes late is nobody's, and what is next works.
            await driver.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"choice": "once", "answer": "a"}})
            await driver.start("more")
            assert (await driver.terminal())["text"] == "and on"
            assert not kept or (home / kept).is_dir(), "it ran after all"
            assert await nodes_of(driver, "question") == []
