"""A server of its own for one kind of fault: a scripted model that refuses malformed histories, and a driver."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving
from tests.support.server_process import COMMAND

LIMIT = 60.0
Frame = dict[str, Any]


def say(*pieces: str, **more: Any) -> Reply:
    return Reply.of({"text": list(pieces)}, **more)


def stream(*pieces: str, gate: str = "never", **more: Any) -> Reply:
    """A reply that stays open behind its pieces until the gate is opened."""
    return Reply.of({"text": list(pieces)}, {"wait_for": gate}, **more)


def calls(*steps: tuple[str, dict[str, Any]], when: str | None = None) -> Reply:
    """A reply with tool calls; ``when``: only for a user's text that contains this."""
    rule = None if when is None else {"last_user_contains": when, "last_role": "user"}
    return Reply.of(*({"tool_call": {"name": name, "arguments": given}} for name, given in steps), when=rule)


def terminal(*commands: str, when: str | None = None, **more: Any) -> Reply:
    return calls(*(("terminal", {"command": command, **more}) for command in commands), when=when)


def delegate(*goals: str, **more: Any) -> Reply:
    return calls(("delegate_task", {"tasks": [{"goal": goal} for goal in goals], **more}))


def model_environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def write_config(home: Path, config: Mapping[str, Any] | None) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    if config is not None:
        (home / "config.yaml").write_text(json.dumps(config))


@asynccontextmanager
async def playing(
    home: Path,
    *replies: Reply,
    surface: str = "gateway stdio",
    config: Mapping[str, Any] | None = None,
    limit: float = LIMIT,
    environ: Mapping[str, str] | None = None,
    command: Path = COMMAND,
) -> AsyncIterator[tuple[Any, FakeProvider]]:
    """A driver of a server of this home, and its model."""
    write_config(home, config)
    with trio.fail_after(limit):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            known = model_environment(provider) | dict(environ or {})
            async with driving(surface, home, known, command=command) as driver:
                yield driver, provider


def frame(number: Any, method: str, params: Mapping[str, Any]) -> Frame:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}


async def answer(driver: GatewayDriver, number: Any) -> Frame:
    """The response with this id, whether it came already or not."""
    return await driver.find(lambda one: one.get("id") == number and "method" not in one)


def events(driver: GatewayDriver, kind: str) -> list[dict[str, Any]]:
    """The payloads of all events of a type so far."""
    found = [one["params"] for one in driver.frames if one.get("params", {}).get("type") == kind]
    return [params.get("payload", {}) for params in found]


def user_texts(request: Any) -> list[str]:
    """What a model was told by the user in one request."""
    return [text_of(row["content"]) for row in request.body["messages"] if row["role"] == "user"]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
