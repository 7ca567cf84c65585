"""Several servers on one home: one runs a turn of a session at a time, and a dead one keeps nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.mortal_server import mortal_servers
from tests.support.server_process import ServerProcess, free_port, http_status

pytestmark = pytest.mark.e2e
AT_ONCE = 5.0
"""Seconds; a lease that nobody gives back lasts thirty."""

SCRIPT = Script.of(
    Reply.of({"text": ["Wait ", "for "]}, {"wait_for": "never"}, when={"last_user_contains": "hang"}),
    Reply.of({"echo": "you said "}, when={"last_role": "user"}),
    strict=True,
)


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}


async def say(server: Any, session_id: str, text: str) -> dict[str, Any]:
    at = len(server.frames)
    await server.call("prompt.submit", {"session_id": session_id, "text": text})
    frame = await server.event("message.complete", after=at)
    payload: dict[str, Any] = frame["params"]["payload"]
    return payload


async def refused_on_the_gateway(second: ServerProcess, key: str, name: str) -> None:
    other = (await second.call("session.resume", {"session_id": key}))["session_id"]
    cut = {"truncate_before_user_ordinal": 0, "confirm_truncate": True, "confirm_empty_truncate": True}
    for method, params in (
        ("prompt.submit", {"text": "me"}),
        ("prompt.submit", {"text": "me", **cut}),
        ("session.undo", {}),
        ("session.undo_rewind", {}),
    ):
        response = await second.request(method, {"session_id": other, **params})
        assert response["error"]["code"] == 4090, response
        assert response["error"]["data"]["owner"].startswith(name)
    history = await second.call("session.history", {"session_id": other})
    assert history["messages"][0]["text"] == "first"


async def refused_by_acp(editor: ServerProcess, key: str, name: str) -> None:
    await editor.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    await editor.call("session/load", {"sessionId": key, "cwd": str(editor.home), "mcpServers": []})
    response = await editor.request("session/prompt", {"sessionId": key, "prompt": [{"type": "text", "text": "me"}]})
    assert name in response.get("error", {}).get("message", ""), response


async def refused_over_http(web: ServerProcess, port: int, key: str, name: str) -> None:
    while await http_status(port, "/health") != 200:
        await trio.sleep(0.02)
    headers = {"Authorization": f"Bearer {(web.home / 'server.key').read_text().strip()}", "X-Hermes-Session-Id": key}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": "me"}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 409, answer.text
        assert answer.json()["error"]["code"] == "session_active_turn"
        assert name in answer.text


@pytest.mark.fault("B-112")
async def test_a_session_that_another_process_works_in_is_refused_on_every_surface_and_the_owner_named(
    tmp_path: Path,
) -> None:
    with trio.fail_after(120):
        async with FakeProvider(SCRIPT) as provider:
            async with mortal_servers(tmp_path / "home", environment(provider)) as servers:
                owner = await servers.start("gateway")
                made = await owner.call("session.create", {})
                key, name = made["stored_session_id"], f"pid {owner.pid} on "
                await say(owner, made["session_id"], "first")
                await owner.call("prompt.submit", {"session_id": made["session_id"], "text": "hang"})
                await refused_on_the_gateway(await servers.start("gateway"), key, name)
                await refused_by_acp(await servers.start("acp"), key, name)
                port = free_port()
                await refused_over_http(await servers.start("serve", "--port", str(port)), port, key, name)
                assert [record.body["messages"][-1]["content"] for record in provider.requests] == ["first", "hang"]


async def test_the_lease_of_a_killed_server_is_free_at_once(tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(SCRIPT) as provider:
            async with mortal_servers(tmp_path / "home", environment(provider)) as servers:
                owner = await servers.start("gateway")
                second = await servers.start("gateway")
                made = await owner.call("session.create", {})
                await say(owner, made["session_id"], "first")
                await owner.call("prompt.submit", {"session_id": made["session_id"], "text": "hang"})
                other = await second.call("session.resume", {"session_id": made["stored_session_id"]})
                refused = await second.request("prompt.submit", {"session_id": other["session_id"], "text": "me"})
                assert refused["error"]["code"] == 4090
                await servers.kill(owner)
                with trio.fail_after(AT_ONCE):
                    end = await say(second, other["session_id"], "me now")
                assert end["status"] == "complete"
                assert end["text"] == "you said me now"


async def test_a_process_that_finds_the_history_changed_reads_it_again_before_its_turn(tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(SCRIPT) as provider:
            async with mortal_servers(tmp_path / "home", environment(provider)) as servers:
                first, second = await servers.start("gateway"), await servers.start("gateway")
                here = await first.call("session.create", {})
                await say(first, here["session_id"], "one")
                there = await second.call("session.resume", {"session_id": here["stored_session_id"]})
                await say(second, there["session_id"], "two")
                await say(first, here["session_id"], "three")
                await say(second, there["session_id"], "four")
                said = [one["content"] for one in provider.requests[-1].body["messages"] if one["role"] == "user"]
                assert said == ["one", "two", "three", "four"]
                # A cut over there is seen here too: the row that is gone is stale, the one before it is not.
                history = (await first.call("session.history", {"session_id": here["session_id"]}))["messages"]
                ids = [message["row_id"] for message in history if message["role"] == "user"]
                assert len(ids) == 3
                cut = {"session_id": there["session_id"], "text": "instead", "confirm_truncate": True}
                at = len(second.frames)
                await second.call("prompt.submit", {**cut, "truncate_before_row_id": ids[1]})
                await second.event("message.complete", after=at)
                late = {"session_id": here["session_id"], "text": "late", "confirm_truncate": True}
                refused = await first.request("prompt.submit", {**late, "truncate_before_row_id": ids[2]})
                assert refused["error"]["code"] == 4018, refused
                await say(first, here["session_id"], "last")
                said = [one["content"] for one in provider.requests[-1].body["messages"] if one["role"] == "user"]
                assert said == ["one", "instead", "last"]
