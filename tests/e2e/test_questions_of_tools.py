"""Every kind of question reaches a person from a tool, through the real process; what a background command prints is
shown without its secrets."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving

pytestmark = pytest.mark.e2e

Frame = dict[str, Any]
LIMIT = 60

# A sudo that wants the password `open sesame`, and remembers for its directory that it was given.
FAKE_SUDO = """#!/bin/sh
case "$1" in
  -n) shift; [ -e "$0.ticket" ] || { echo "sudo: a password is required" >&2; exit 1; }; "$@" ;;
  -S) read -r given; [ "$given" = "open sesame" ] && touch "$0.ticket" && exit; echo "Sorry, try again." >&2; exit 1 ;;
  *) echo "sudo: a terminal is required to read the password" >&2; exit 1 ;;
esac
"""


def calls(*steps: tuple[str, dict[str, Any]]) -> Reply:
    return Reply.of(*({"tool_call": {"name": name, "arguments": given}} for name, given in steps))


@asynccontextmanager
async def playing(
    home: Path, *replies: Reply, surface: str = "gateway stdio", config: dict[str, Any] | None = None, path: str = ""
) -> AsyncIterator[tuple[GatewayDriver, FakeProvider]]:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps(config or {}))
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
                "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"],
            }
            async with driving(surface, home, environ) as driver:
                assert isinstance(driver, GatewayDriver)
                yield driver, provider


async def question(driver: GatewayDriver, method: str, after: int = 0) -> Frame:
    return await driver.find(lambda frame: frame.get("method") == method, after)


async def answer(driver: GatewayDriver, asked: Frame, result: dict[str, Any]) -> None:
    await driver.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def results(provider: FakeProvider) -> list[dict[str, Any]]:
    """The results of tools that the newest request of the model holds."""
    return [json.loads(row["content"]) for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]


def fake_sudo(tmp_path: Path) -> str:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sudo").write_text(FAKE_SUDO)
    (programs / "sudo").chmod(0o755)
    return str(programs)


# --- sudo -------------------------------------------------------------------------------------------------------------


async def test_a_background_command_asks_for_the_password_of_sudo_before_it_starts(tmp_path: Path) -> None:
    command = "read -r word; sudo echo got $word; env | grep -c sesame"
    start = calls(("terminal", {"command": command, "background": True}))
    wait = calls(
        ("process_manage", {"action": "submit", "session_id": "proc_", "data": "this"}),
        ("process_manage", {"action": "wait", "session_id": "proc_", "timeout": 20}),
    )
    path = fake_sudo(tmp_path)
    async with playing(tmp_path / "home", start, start, wait, Reply.of({"text": "end"}), path=path) as (driver, model):
        await driver.start("please")
        asked = await question(driver, "sudo")
        assert asked["params"]["command"] == command
        assert (await driver.call("process.list", {"session_id": driver.session_id}))["processes"] == []
        await answer(driver, asked, {"value": "guess"})
        again = await question(driver, "sudo", driver.frames.index(asked) + 1)
        await answer(driver, again, {"value": "open sesame"})
        assert (await driver.terminal())["status"] == "complete"
        wrong, started, _submitted, waited = results(model)
        assert (wrong["error"], wrong["exit_code"]) == ("Sorry, try again.", 1)
        assert started["session_id"].startswith("proc_")
        assert (waited["output"], waited["status"]) == ("got this\n0\n", "exited")
        seen = json.dumps([driver.frames, [one.body["messages"][2:] for one in model.requests]])
        assert "sesame" not in seen.replace("grep -c sesame", "")


# --- what background commands print -----------------------------------------------------------------------------------


@pytest.mark.parametrize("redacts", [True, False])
async def test_output_of_a_background_command_is_streamed_without_secrets(redacts: bool, tmp_path: Path) -> None:
    secret = "sk-ant-api03-abcdefghijklmnopqrst1234"
    script = f"""printf 'key {secret[:12]}'; sleep 0.4; printf -- '{secret[12:]}\\nPASS'; sleep 0.2
printf 'WORD=Hunter2xyz\\n'
"""
    start = calls(("terminal", {"command": "sh ./script", "background": True, "notify": True}))
    told = Reply.of({"text": "so it ended"}, when={"last_user_contains": "finished, exit 0"})
    config = {"security": {"redact_secrets": redacts}}
    home = tmp_path / "home"
    async with playing(home, told, start, Reply.of({"text": "started"}), config=config) as (driver, model):
        (home / "script").write_text(script)
        await driver.start("please")
        while sum(one.get("params", {}).get("type") == "message.complete" for one in driver.frames) < 2:
            await trio.sleep(0.02)
        (process,) = (await driver.call("process.list", {"session_id": driver.session_id}))["processes"]
        shown = "".join(
            one["params"]["payload"]["chunk"]
            for one in driver.frames
            if one.get("params", {}).get("type") == "agent.terminal.output"
        )
        plain = f"key {secret}\nPASSWORD=Hunter2xyz\n"
        assert shown == ("key sk-ant...1234\nPASSWORD=***\n" if redacts else plain)
        seen = json.dumps([driver.frames, process, model.requests[-1].body])
        assert (secret[12:30] in seen, "Hunter2xyz" in seen) == (not redacts, not redacts)


# --- the automatic reviewer -------------------------------------------------------------------------------------------


async def test_a_cancelled_call_takes_its_automatic_review_along(tmp_path: Path) -> None:
    reviewed = Reply.of({"delay": 600}, when={"last_user_contains": "recursive delete"})
    ask = calls(("terminal", {"command": "rm -rf build"}))
    config = {"approvals": {"mode": "smart"}}
    went_on = Reply.of({"text": "went on"}, when={"last_role": "tool"})
    async with playing(tmp_path / "home", reviewed, went_on, ask, config=config) as (driver, model):
        await driver.start("please")
        found: list[dict[str, Any]] = []
        while not found:
            found = [node for node in await nodes_of(driver, "tool_call") if below(node, "model_call")]
        call = found[0]
        stopped = await driver.call("scope.cancel", {"node_id": call["node_id"], "reason": "no need"})
        assert stopped["cancelled"] is True
        assert (await driver.terminal())["text"] == "went on"
        (result,) = results(model)
        assert "no need" in json.dumps(model.requests[-1].body) or result["exit_code"] == -1
        assert await nodes_of(driver, "model_call") == []
        assert not any(frame.get("method") == "approval" for frame in driver.frames)


def below(node: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    own = [node] if node["kind"] == kind else []
    return own + [found for child in node["children"] for found in below(child, kind)]


async def nodes_of(driver: GatewayDriver, kind: str) -> list[dict[str, Any]]:
    return below((await driver.call("tree.get", {}))["tree"], kind)
