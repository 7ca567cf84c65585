"""A browser that is attached after the first turn: the next turn has its tools, a turn after it has left has not."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
import trio
from trio_websocket import open_websocket

from hermes.testing import Reply, Script
from tests.support.http_clients import served

pytestmark = pytest.mark.e2e
PROTOCOL = "hermes-browser-control-v1"
CONFIG = {"browser": {"extension_control": {"enabled": True}}}
SCRIPT = Script.of(
    Reply.of({"text": "first"}),
    Reply.of({"tool_call": {"name": "browser_navigate", "arguments": {"url": "https://docs.example/"}}}),
    Reply.of({"text": "second"}),
    Reply.of({"text": "third"}),
)
BODY = {
    "protocol_version": 1,
    "session_id": "s",
    "controller_id": "ext-1",
    "browser_profile_id": "work",
    "capabilities": ["browser_navigate"],
}


async def test_the_tools_of_a_browser_come_and_go_with_it(tmp_path: Path) -> None:
    async with served(tmp_path / "home", SCRIPT, config=CONFIG) as run:
        headers = {"Authorization": f"Bearer {run.server.key}"}
        async with httpx2.AsyncClient(base_url=run.server.origin, headers=headers, timeout=30) as client:

            async def turn(text: str) -> str:
                body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
                answer = await client.post("/v1/chat/completions", json=body, headers={"X-Hermes-Session-Id": "s"})
                content: str = answer.json()["choices"][0]["message"]["content"]
                return content

            assert await turn("one") == "first"
            ticket = (await client.post("/v1/browser-control/register", json=BODY)).json()["ticket"]
            protocols = [PROTOCOL, f"hermes-browser-control-ticket.{ticket}"]
            async with open_websocket(
                "127.0.0.1", run.server.port, "/v1/browser-control/ws", use_ssl=False, subprotocols=protocols
            ) as browser:

                async def act() -> None:
                    command = json.loads(await browser.get_message())["params"]
                    result = {"command_id": command["command_id"], "ok": True, "result": {"title": "Docs"}}
                    frame = {"method": "browser.controller.result", "params": result}
                    await browser.send_message(json.dumps(frame))
                    await browser.send_message(json.dumps({"method": "browser.controller.detach", "params": {}}))
                    await browser.get_message()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(act)
                    assert await turn("two") == "second"
            assert await turn("three") == "third"
        names = [{tool["function"]["name"] for tool in one.body.get("tools", ())} for one in run.provider.requests]
        talks = [known for known in names if known]
        assert ["browser_navigate" in known for known in talks] == [False, True, True, False]
        assert "terminal" in talks[0] and talks[0] == talks[-1]
