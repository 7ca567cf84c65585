"""A named endpoint whose key a command prints, through the real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Faults, Reply, Script
from tests.support.server_process import ServerProcess, assert_no_children, children_of, server_process

pytestmark = pytest.mark.e2e
HELLO = Reply.of({"text": "hello"})


def refused(status: int, message: str) -> Reply:
    return Reply(faults=Faults(status=status, body={"error": {"message": message}}))


@asynccontextmanager
async def gateway(home: Path, provider: FakeProvider, command: Any) -> AsyncIterator[ServerProcess]:
    home.mkdir(parents=True, exist_ok=True)
    office = {"base_url": provider.base_url, "default_model": "large-1", "key_cmd": command}
    config = {"providers": {"office": office}, "model": {"provider": "office"}, "logging": {"level": "DEBUG"}}
    (home / "config.yaml").write_text(json.dumps(config))
    with trio.fail_after(60):
        async with server_process(home, "gateway") as server:
            await server.event("gateway.ready")
            yield server


async def turn(server: ServerProcess, session: str, text: str = "hi") -> dict[str, Any]:
    seen = len(server.frames)
    await server.call("prompt.submit", {"session_id": session, "text": text})
    payload: dict[str, Any] = (await server.event("message.complete", after=seen))["params"]["payload"]
    return payload


def keys_seen(provider: FakeProvider) -> list[str]:
    return [
        record.headers["authorization"].removeprefix("Bearer ")
        for record in provider.requests
        if record.path.endswith("/completions")
    ]


def printed(server: ServerProcess, secret: str) -> list[str]:
    """Where a secret was written."""
    texts = {"stderr": server.stderr, "frames": json.dumps(server.frames)}
    for path in server.home.rglob("*"):
        if path.is_file() and path.name != "config.yaml":
            texts[path.name] = path.read_bytes().decode(errors="replace")
    return [
        text[max(0, text.index(secret) - 300) : text.index(secret) + 100] for text in texts.values() if secret in text
    ]


def counting(home: Path, then: str) -> str:
    """A command that counts its runs; ``$n`` is how many there have been."""
    return f"echo x >> {home}/../runs; n=$(wc -l < {home}/../runs | tr -d ' '); {then}"


async def test_the_key_is_asked_for_once_and_again_after_a_401(tmp_path: Path) -> None:
    home = tmp_path / "home"
    echoed = refused(401, "Incorrect API key provided: office-key-number-1 has expired")
    async with FakeProvider(Script.of(HELLO, echoed, HELLO)) as provider:
        async with gateway(home, provider, counting(home, "echo office-key-number-$n")) as server:
            session = (await server.call("session.create", {"title": "t"}))["session_id"]
            ends = [await turn(server, session) for _ in range(2)]
            assert [end["status"] for end in ends] == ["complete", "complete"]
            assert keys_seen(provider) == ["office-key-number-1", "office-key-number-1", "office-key-number-2"]
            assert not printed(server, "office-key-number")


async def test_a_key_that_stays_refused_ends_the_turn_after_one_more_try(tmp_path: Path) -> None:
    home = tmp_path / "home"
    refusals = [refused(401, f"invalid key office-key-number-{n}") for n in (1, 2, 3)]
    async with FakeProvider(Script.of(*refusals)) as provider:
        async with gateway(home, provider, counting(home, "echo office-key-number-$n")) as server:
            session = (await server.call("session.create", {"title": "t"}))["session_id"]
            end = await turn(server, session)
            assert end["status"] == "error"
            assert keys_seen(provider) == ["office-key-number-1", "office-key-number-2"]
            assert not printed(server, "office-key-number")


async def test_a_command_that_fails_fails_the_turn_in_clear_words_and_the_next_turn_asks_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = f"echo half-a-secret-0123; echo half-a-secret-4567 >&2; [ -e {tmp_path}/unlocked ]"
    async with FakeProvider(Script.of(HELLO)) as provider, gateway(home, provider, command) as server:
        session = (await server.call("session.create", {"title": "t"}))["session_id"]
        end = await turn(server, session)
        assert end["status"] == "error"
        assert "no key for custom:office: its key_cmd failed with exit code 1" in json.dumps(end)
        assert not provider.requests
        (tmp_path / "unlocked").touch()
        assert (await turn(server, session))["status"] == "complete"
        assert keys_seen(provider) == ["half-a-secret-0123"]
        assert not printed(server, "half-a-secret")


async def test_a_turn_that_waits_for_its_key_can_be_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with FakeProvider(Script.of(HELLO)) as provider:
        async with gateway(home, provider, ["sleep", "1000"]) as server:
            session = (await server.call("session.create", {"title": "t"}))["session_id"]
            await server.call("prompt.submit", {"session_id": session, "text": "hi"})
            while not children_of(server):
                await trio.sleep(0.02)
            stopped = await server.call("session.interrupt", {"session_id": session})
            assert stopped["settled"] is True and stopped["status"] == "interrupted"
            # The session itself wants to know the window of its model, until it is closed.
            await server.call("session.close", {"session_id": session})
            await assert_no_children(server)
            assert not provider.requests


async def test_the_command_sees_no_other_providers_key_and_model_lists_use_what_it_prints(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".env").write_text("OPENAI_API_KEY=sk-other-provider-0123456789abcdef\n")
    command = 'echo "key-${OPENAI_API_KEY:-none}-0123"'
    async with FakeProvider(Script.of(HELLO)) as provider, gateway(home, provider, command) as server:
        options = await server.call("model.options", {"refresh": True})
        office = next(row for row in options["providers"] if row["slug"] == "custom:office")
        assert "fake-model" in office["models"]
        session = (await server.call("session.create", {"title": "t"}))["session_id"]
        await turn(server, session)
        assert keys_seen(provider) == ["key-none-0123"]
