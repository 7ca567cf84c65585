"""A model, or a way of thinking, for the next turn only; and names that need the endpoint's own list."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.server_process import ServerProcess, server_process

pytestmark = pytest.mark.e2e
CONFIG = {"model": {"provider": "lab", "default": "m-1"}, "model_aliases": {"quick": "m-2"}}


@asynccontextmanager
async def gateway(home: Path, provider: FakeProvider, **more: Any) -> AsyncIterator[tuple[ServerProcess, str]]:
    home.mkdir(parents=True, exist_ok=True)
    lab = {"base_url": provider.base_url, "models": ["m-1", "m-2"]}
    spare = {"base_url": provider.base_url.replace("127.0.0.1", "localhost")}
    (home / "config.yaml").write_text(json.dumps({**CONFIG, **more, "providers": {"lab": lab, "spare": spare}}))
    with trio.fail_after(60):
        async with server_process(home, "gateway") as server:
            await server.event("gateway.ready")
            yield server, (await server.call("session.create", {}))["session_id"]


async def turn(server: ServerProcess, session: str) -> None:
    seen = len(server.frames)
    await server.call("prompt.submit", {"session_id": session, "text": "hi"})
    await server.event("message.complete", after=seen)


async def choose(server: ServerProcess, session: str, line: str) -> dict[str, Any]:
    return await server.request("config.set", {"key": "model", "value": line, "session_id": session})


def asked(provider: FakeProvider) -> list[tuple[str, str | None]]:
    return [(record.body["model"], record.body.get("reasoning_effort")) for record in provider.requests if record.body]


async def test_a_reasoning_level_for_once_holds_for_one_turn(tmp_path: Path) -> None:
    async with FakeProvider() as provider, gateway(tmp_path / "home", provider) as (server, session):
        await choose(server, session, "--reasoning high")
        await choose(server, session, "m-2 --reasoning low --once")
        await turn(server, session)
        await turn(server, session)
        assert asked(provider) == [("m-2", "low"), ("m-1", "high")]


async def test_a_choice_for_once_waits_while_words_go_into_the_running_turn(tmp_path: Path) -> None:
    script = Script.of(
        Reply.of({"text": "one "}, {"wait_for": "never"}), Reply.of({"text": "two"}), Reply.of({"text": "3"})
    )
    async with FakeProvider(script) as provider, gateway(tmp_path / "home", provider) as (server, session):
        await server.call("prompt.submit", {"session_id": session, "text": "hi"})
        await server.event("message.delta")
        assert (await choose(server, session, "m-2 --once"))["result"]["deferred"] is True
        answer = await server.call("prompt.submit", {"session_id": session, "text": "no, rather this"})
        assert answer["status"] == "redirected"
        await server.event("message.complete")
        await turn(server, session)
        assert [model for model, _ in asked(provider)] == ["m-1", "m-1", "m-2"]


async def test_a_new_session_understands_the_users_short_names_and_ignores_blanks(tmp_path: Path) -> None:
    async with FakeProvider() as provider, gateway(tmp_path / "home", provider) as (server, _):
        for model in ("quick", " m-2 "):
            session = (await server.call("session.create", {"model": model}))["session_id"]
            await turn(server, session)
        refused = await server.request("session.create", {"model": " gpt-5.5 ", "provider": " anthropic "})
        assert [model for model, _ in asked(provider)] == ["m-2", "m-2"]
        assert (refused["error"]["code"], refused["error"]["data"]["model"]) == (-32602, "gpt-5.5")


async def test_a_provider_alone_is_asked_for_what_it_serves(tmp_path: Path) -> None:
    async with FakeProvider(Script(models=["only"])) as provider:
        async with gateway(tmp_path / "home", provider) as (server, session):
            chosen = (await choose(server, session, "--provider spare"))["result"]
            assert (chosen["value"], chosen.get("warning")) == ("only", None)
    async with FakeProvider(Script(models=["one", "two"])) as provider:
        async with gateway(tmp_path / "home2", provider) as (server, session):
            error = (await choose(server, session, "--provider spare"))["error"]
            assert (error["code"], error["data"]) == (4002, {"candidates": ["one", "two"]})
            # Its list is known now: the name needs no warning.
            assert "warning" not in (await choose(server, session, "two --provider spare"))["result"]


@pytest.mark.parametrize("line", ["lab::m-2", "LAB:m-2", "custom:lab:m-2", "custom:lab::m-2"])
async def test_a_provider_in_front_of_a_model_may_be_written_in_several_ways(tmp_path: Path, line: str) -> None:
    async with FakeProvider() as provider, gateway(tmp_path / "home", provider) as (server, session):
        assert (await choose(server, session, line))["result"]["value"] == "m-2"
