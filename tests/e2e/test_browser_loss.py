"""A browser that comes, goes, is replaced and is stopped in the middle of a command, through the real server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from hermes.testing import Reply, Script
from tests.support.http_clients import Served, served

pytestmark = pytest.mark.e2e

PROTOCOL = "hermes-browser-control-v1"
TICKET = "hermes-browser-control-ticket."
CONFIG: dict[str, Any] = {"browser": {"extension_control": {"enabled": True}}}
GO = Reply.of({"tool_call": {"name": "browser_navigate", "arguments": {"url": "https://docs.example/"}}})


class Browsers:
    def __init__(self, run: Served, http: httpx2.AsyncClient) -> None:
        self.run = run
        self.http = http
        self.url = f"ws://127.0.0.1:{run.server.port}/v1/browser-control/ws"

    async def ticket(self, controller: str = "c1") -> str:
        body = {"protocol_version": 1, "session_id": "s", "controller_id": controller, "browser_profile_id": "p"}
        answer = await self.http.post(
            "/v1/browser-control/register", json={**body, "capabilities": ["browser_navigate"]}
        )
        return str(answer.json()["ticket"])

    @asynccontextmanager
    async def attached(self, controller: str = "c1") -> AsyncIterator[WebSocketConnection]:
        protocols = [PROTOCOL, TICKET + await self.ticket(controller)]
        async with open_websocket_url(self.url, subprotocols=protocols) as socket:
            yield socket

    async def status_of(self, query: str, protocols: list[str]) -> bytes:
        """What a handshake is answered with."""
        head = f"GET /v1/browser-control/ws{query} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        head += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
        head += f"Sec-WebSocket-Protocol: {', '.join(protocols)}\r\n\r\n"
        async with await trio.open_tcp_stream("127.0.0.1", self.run.server.port) as stream:
            await stream.send_all(head.encode())
            return (await stream.receive_some()).split(b" ")[1]

    async def start(self) -> str:
        answer = await self.http.post("/v1/runs", json={"input": "go", "session_id": "s"})
        return str(answer.json()["run_id"])

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        text = (await self.http.get(f"/v1/runs/{run_id}/events")).text
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


@asynccontextmanager
async def browsers(home: Path, *replies: Reply) -> AsyncIterator[Browsers]:
    async with served(home, Script(replies=list(replies), when_used_up="echo"), config=CONFIG) as run:
        headers = {"Authorization": f"Bearer {run.server.key}"}
        async with httpx2.AsyncClient(base_url=run.server.origin, headers=headers, timeout=60) as http:
            assert (await http.post("/api/sessions", json={"id": "s"})).status_code == 201
            yield Browsers(run, http)


async def heard(socket: WebSocketConnection) -> dict[str, Any]:
    with trio.fail_after(20):
        frame: dict[str, Any] = json.loads(await socket.get_message())
        return frame


def ended(events: list[dict[str, Any]]) -> tuple[bool, str]:
    """Whether the call failed, and how the run ended."""
    call = next(event for event in events if event["event"] == "tool.completed")
    return call["error"], events[-1]["event"]


async def test_a_command_outlives_its_connection_and_is_answered_over_the_next(tmp_path: Path) -> None:
    async with browsers(tmp_path / "home", GO, Reply.of({"text": "there"})) as play:
        async with play.attached() as first:
            run_id = await play.start()
            command = (await heard(first))["params"]
        async with play.attached() as second:
            result = {"command_id": command["command_id"], "ok": True, "result": {"title": "Docs"}}
            await second.send_message(json.dumps({"method": "browser.controller.result", "params": result}))
            assert ended(await play.events(run_id)) == (False, "run.completed")


async def test_a_stop_reaches_the_browser_at_once_and_a_late_result_changes_nothing(tmp_path: Path) -> None:
    async with browsers(tmp_path / "home", GO, GO, Reply.of({"text": "again"})) as play, play.attached() as socket:
        run_id = await play.start()
        command = await heard(socket)
        assert (await play.http.post(f"/v1/runs/{run_id}/stop")).json()["status"] == "stopping"
        told = await heard(socket)
        assert (told["method"], told["params"]["command_id"]) == (
            "browser.controller.cancel",
            command["params"]["command_id"],
        )
        late = {"command_id": command["params"]["command_id"], "ok": True, "result": "late"}
        await socket.send_message(json.dumps({"method": "browser.controller.result", "params": late}))
        assert (await play.events(run_id))[-1]["event"] == "run.cancelled"
        run_id = await play.start()
        params = (await heard(socket))["params"]
        # Only the literal true is a success.
        result = {"command_id": params["command_id"], "ok": "true", "result": "no"}
        await socket.send_message(json.dumps({"method": "browser.controller.result", "params": result}))
        assert ended(await play.events(run_id)) == (True, "run.completed")


async def test_another_browser_takes_the_conversation_over_and_the_first_is_heard_no_more(tmp_path: Path) -> None:
    async with browsers(tmp_path / "home", GO, Reply.of({"text": "one"}), GO, Reply.of({"text": "two"})) as play:
        async with play.attached("c1") as first:
            run_id = await play.start()
            params = (await heard(first))["params"]
            async with play.attached("c2") as second:
                assert ended(await play.events(run_id)) == (True, "run.completed")
                run_id = await play.start()
                command = (await heard(second))["params"]
                assert command["controller_id"] == "c2"
                for socket, words in ((first, "wrong"), (second, "right")):
                    result = {"command_id": command["command_id"], "ok": True, "result": words}
                    await socket.send_message(json.dumps({"method": "browser.controller.result", "params": result}))
                events = await play.events(run_id)
                assert ended(events) == (False, "run.completed")
                assert command["command_id"] != params["command_id"]
        answered = [one for record in play.run.provider.requests for one in record.body["messages"]]
        assert any("right" in str(one.get("content")) for one in answered)
        assert not any("wrong" in str(one.get("content")) for one in answered)


async def test_a_ticket_is_good_for_one_connection_whatever_page_shows_it(tmp_path: Path) -> None:
    async with browsers(tmp_path / "home") as play:
        ticket = await play.ticket()
        bad: list[tuple[str, list[str]]] = [
            (f"?ticket={ticket}", [PROTOCOL, TICKET + ticket]),
            ("", [TICKET + ticket]),
            ("", [PROTOCOL]),
            ("", [PROTOCOL, TICKET + ticket, TICKET + ticket]),
            ("", [PROTOCOL, TICKET + "x" * 43]),
        ]
        good = [PROTOCOL, TICKET + ticket]
        origin = [(b"Origin", b"chrome-extension://abcdef")]
        for query, protocols in bad:
            assert await play.status_of(query, protocols) == b"401"
        async with open_websocket_url(play.url, subprotocols=good, extra_headers=origin) as socket:
            assert socket.subprotocol == PROTOCOL
            for junk in ("x", "[]", "{}", '{"method": 5}', "[" * 100_000, b"\x00\x01"):
                await socket.send_message(junk)
            await socket.send_message('{"method": "browser.controller.heartbeat", "params": {"nonce": "1"}}')
            assert (await heard(socket))["params"] == {"nonce": "1", "ok": True}
        assert await play.status_of("", good) == b"401"
