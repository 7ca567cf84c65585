"""Arguments that a model should never write, for the tools of an attached browser: each call has one result in words,
and the next call reaches the browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket

from hermes.nurseries.browser_tools import ACTIONS, ARTIFACT_ACTIONS
from hermes.testing import Reply, Script
from tests.e2e.test_hostile_arguments import HUGE, LONG
from tests.support.http_clients import Served, served

pytestmark = pytest.mark.e2e

AT_ONCE = 5
"""Fewer than what counts as going in circles."""
PROTOCOL = "hermes-browser-control-v1"
WRONG: dict[str, tuple[Any, ...]] = {
    "string": ("", "a\0b", LONG, "\ud800", 5, None, ["a"], {"a": 1}),
    "number": (-1, HUGE, "two", [1], None, True),
    "boolean": ("yes", 2, []),
    "object": ("x", [1], 5),
}
RIGHT = {"string": "x", "number": 1, "boolean": True, "object": {}}
CONFIG = {"browser": {"extension_control": {"enabled": True, "developer_mode": True}}}
OFFERED = [*ACTIONS, *ARTIFACT_ACTIONS]


def calls_of(action: str) -> list[dict[str, Any]]:
    """One argument wrong at a time, none at all, and one that nobody knows."""
    _, properties, _ = ACTIONS.get(action) or ARTIFACT_ACTIONS[action]
    sound = {name: RIGHT[schema["type"]] for name, schema in properties.items()}
    wrong = [{**sound, name: value} for name, schema in properties.items() for value in WRONG[schema["type"]]]
    return [{}, {"more": {"a": 1}}, *wrong]


async def answer(browser: WebSocketConnection, seen: list[str]) -> None:
    while True:
        frame = json.loads(await browser.get_message())
        command = frame.get("params", {})
        if "command_id" not in command:
            continue
        seen.append(command.get("action", ""))
        result = {"command_id": command["command_id"], "ok": True, "result": {"title": "Docs"}}
        await browser.send_message(json.dumps({"method": "browser.controller.result", "params": result}))


async def turn(run: Served, client: httpx2.AsyncClient, steps: list[dict[str, Any]]) -> list[str]:
    run.provider.replace_script(
        Script.of(Reply.of(*({"tool_call": step} for step in steps)), Reply.of({"text": "read"}), strict=True)
    )
    body = {"model": "hermes-agent", "messages": [{"role": "user", "content": "please"}]}
    done = await client.post("/v1/chat/completions", json=body, headers={"X-Hermes-Session-Id": "s"})
    assert done.json()["choices"][0]["message"]["content"] == "read", done.text
    messages = run.provider.requests[-1].body["messages"]
    last = max(at for at, row in enumerate(messages) if row["role"] == "user")
    return [str(row["content"]) for row in messages[last:] if row["role"] == "tool"]


async def test_no_argument_for_a_browser_costs_more_than_its_own_call(tmp_path: Path) -> None:
    registration = {
        "protocol_version": 1,
        "session_id": "s",
        "controller_id": "ext-1",
        "browser_profile_id": "work",
        "capabilities": OFFERED,
    }
    seen: list[str] = []
    async with served(tmp_path / "home", Script.of(), config=CONFIG, limit=120) as run:
        headers = {"Authorization": f"Bearer {run.server.key}"}
        async with httpx2.AsyncClient(base_url=run.server.origin, headers=headers, timeout=60) as client:
            assert await turn(run, client, []) == []
            registered = await client.post("/v1/browser-control/register", json=registration)
            assert "ticket" in registered.json(), registered.text
            ticket = registered.json()["ticket"]
            protocols = [PROTOCOL, f"hermes-browser-control-ticket.{ticket}"]
            async with (
                open_websocket(
                    "127.0.0.1", run.server.port, "/v1/browser-control/ws", use_ssl=False, subprotocols=protocols
                ) as browser,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(answer, browser, seen)
                for action in OFFERED:
                    steps = [{"name": action, "arguments": json.dumps(one)} for one in calls_of(action)]
                    for at in range(0, len(steps), AT_ONCE):
                        some = steps[at : at + AT_ONCE]
                        for step, text in zip(some, await turn(run, client, some), strict=True):
                            assert "the tool failed" not in text and "Traceback" not in text, (step, text)
                    offered = run.provider.requests[-1].body["tools"]
                    assert action in {tool["function"]["name"] for tool in offered}
                [sound] = await turn(run, client, [{"name": "browser_navigate", "arguments": {"url": "https://a.b/"}}])
                assert "Docs" in sound and seen[-1] == "browser_navigate"
                nursery.cancel_scope.cancel()
        logs = "".join(path.read_text() for path in (tmp_path / "home" / "logs").glob("*.log"))
        assert "Traceback" not in logs, logs[-3000:]
