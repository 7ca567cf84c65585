"""A session made over one protocol goes on over the other two, in other processes, on the same store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Script
from tests.support.drivers import SocketGateway, http_driver
from tests.support.server_process import http_server, server_process

pytestmark = pytest.mark.e2e


async def say_over_gateway(home: Path, environ: dict[str, str], key: str | None, text: str) -> tuple[str, list[str]]:
    """Submit over ``hermes gateway``; returns the session's key and the texts of its history."""
    async with server_process(home, "gateway", environ=environ) as server:
        if key is None:
            session = await server.call("session.create", {"cwd": str(home)})
            key = session["stored_session_id"]
        else:
            session = await server.call("session.resume", {"session_id": key})
        at = len(server.frames)
        await server.call("prompt.submit", {"session_id": session["session_id"], "text": text})
        await server.event("message.complete", after=at)
        history = await server.call("session.history", {"session_id": session["session_id"]})
        assert key is not None
        return key, [message["text"] for message in history["messages"]]


async def say_over_acp(home: Path, environ: dict[str, str], key: str | None, text: str) -> tuple[str, list[str]]:
    async with server_process(home, "acp", environ=environ) as server:
        await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        where = {"cwd": str(home), "mcpServers": []}
        if key is None:
            key = (await server.call("session/new", where))["sessionId"]
        else:
            await server.call("session/load", {"sessionId": key, **where})
        answer = await server.call("session/prompt", {"sessionId": key, "prompt": [{"type": "text", "text": text}]})
        assert answer["stopReason"] == "end_turn"
        said: dict[str, str] = {}
        texts: list[str] = []
        for frame in server.frames:
            update: dict[str, Any] = frame.get("params", {}).get("update", {})
            kind = update.get("sessionUpdate")
            if kind in ("user_message_chunk", "agent_message_chunk"):
                piece = update["content"]["text"]
                if said.get("kind") == kind and texts:
                    texts[-1] += piece
                else:
                    texts.append(piece)
                said["kind"] = kind
        assert key is not None
        return key, texts


async def say_over_http(home: Path, environ: dict[str, str], key: str | None, text: str) -> tuple[str, list[str]]:
    async with http_server(home, environ=environ) as server:
        headers = {"Authorization": f"Bearer {server.key}"} | ({"X-Hermes-Session-Id": key} if key else {})
        async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=30) as client:
            body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            key = answer.headers["x-hermes-session-id"]
            rows = (await client.get(f"/api/sessions/{key}/messages")).json()
            return key, [row["content"] for row in rows["data"]]


WAYS = {"gateway": say_over_gateway, "acp": say_over_acp, "http": say_over_http}


@pytest.mark.parametrize("order", (("gateway", "acp", "http"), ("acp", "http", "gateway"), ("http", "gateway", "acp")))
async def test_a_session_goes_on_over_the_other_two_protocols(order: tuple[str, ...], tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(Script()) as provider:
            environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}
            key: str | None = None
            for number, way in enumerate(order):
                key, texts = await WAYS[way](tmp_path / "home", environ, key, f"question {number}")
                mine = [text for text in texts if "question" in text]
                assert len(texts) == 2 * (number + 1) or way == "acp", texts
                assert any(f"question {number}" in text for text in mine)
            # Everything was in the last request: three questions and the answers to two of them.
            last = provider.requests[-1].body
            assert [message["role"] for message in last["messages"] if message["role"] != "system"] == [
                "user",
                "assistant",
                "user",
                "assistant",
                "user",
            ]


async def test_one_turn_ends_once_on_every_surface_that_watches_it(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with FakeProvider(Script.of({"steps": [{"text": ["one ", "two "]}, {"wait_for": "never"}]})) as provider:
            environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}
            async with http_server(tmp_path / "home", environ=environ) as server:
                async with http_driver("gateway websocket", server) as first, http_driver("http run", server) as run:
                    await run.start("go on")
                    await provider.wait_chunks(1, 2)
                    assert isinstance(first, SocketGateway)
                    await first.call("client.capabilities", {"server_requests": True})
                    live = await first.call("session.resume", {"session_id": "driver-session"})
                    assert live["running"] is True
                    assert live["inflight"]["assistant"].startswith("one two")
                    stopped = await first.call(
                        "session.interrupt", {"session_id": live["session_id"], "reason": "seen enough"}
                    )
                    assert stopped["settled"] is True
                    ends = [one for one in first.frames if one.get("params", {}).get("type") == "message.complete"]
                    assert len(ends) == 1
                    assert ends[0]["params"]["payload"]["cause"] == "user_interrupt"
                    assert ends[0]["params"]["payload"]["reason"] == "seen enough"
                    end = await run.terminal()
                    assert end == {"status": "interrupted", "cause": "user_interrupt"}
