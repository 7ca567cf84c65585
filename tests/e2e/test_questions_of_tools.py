"""Every kind of question reaches a person from a tool, through the real process; what a background command prints is
shown without its secrets."""

from __future__ import annotations

import json
import os
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


# --- secrets and connections ------------------------------------------------------------------------------------------

TOOL_SERVER = Path(__file__).parent.parent / "support" / "mcp_server_program.py"


async def test_a_secret_for_a_skill_goes_into_the_home_and_to_commands_and_never_to_the_model(tmp_path: Path) -> None:
    home = tmp_path / "home"
    skill = home / "skills" / "maps"
    skill.mkdir(parents=True)
    home.chmod(0o700)
    (skill / "SKILL.md").write_text("---\nname: maps\ndescription: d\nrequired_variables: [MAPS_TOKEN]\n---\nUse it.\n")
    steps = [
        calls(("skill_view", {"name": "maps"})),
        calls(("request_secret", {"env_var": "MAPS_TOKEN", "prompt": "The token of the maps"})),
        calls(("skill_view", {"name": "maps"}), ("terminal", {"command": 'echo "${#MAPS_TOKEN}"'})),
        calls(("request_secret", {"env_var": "HERMES_YOLO_MODE", "prompt": "?"})),
        Reply.of({"text": "end"}),
    ]
    async with playing(home, *steps) as (driver, model):
        await driver.start("please")
        asked = await question(driver, "secret")
        assert asked["params"]["env_var"] == "MAPS_TOKEN"
        await answer(driver, asked, {"value": "it is 'quoted' # so"})
        assert (await driver.terminal())["status"] == "complete"
        before, stored, after, length, refused = results(model)
        assert (before["setup"], before["missing_variables"]) == ("needs_setup", ["MAPS_TOKEN"])
        assert stored == {"status": "stored", "env_var": "MAPS_TOKEN"}
        assert (after["setup"], length["output"]) == ("ready", "19\n")
        assert "belongs to the server" in refused["error"]
        assert (home / ".env").stat().st_mode & 0o777 == 0o600
        history = await driver.call("session.history", {"session_id": driver.session_id})
        seen = json.dumps([driver.frames, history, [one.body for one in model.requests]])
        assert "quoted" not in seen


@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
async def test_a_connection_is_approved_with_what_it_needs_and_then_works(surface: str, tmp_path: Path) -> None:
    server = {
        "command": sys.executable,
        "args": [str(TOOL_SERVER), "stdio"],
        "env": {"SPECIMEN_NOTES": "${NOTES_FILE}"},
        "enabled": True,
    }
    config = {"mcp_servers": {"specimen": server}}
    ask = calls(("manage_connections", {"targets": ["specimen"], "reason": "to take notes"}))
    replies = [ask, Reply.of({"text": "end"}), Reply.of({"text": "again"})]
    async with playing(tmp_path / "home", *replies, config=config, surface=surface) as (driver, model):
        await driver.call("client.capabilities", {"server_requests": True})
        made = await driver.call("session.create", {"cwd": str(tmp_path), "source": "desktop"})
        driver.session_id = made["session_id"]
        await driver.start("please")
        found: Any = await driver.find(
            lambda frame: (
                frame.get("method") == "connection" or frame.get("params", {}).get("type") == "message.complete"
            )
        )
        assert found.get("method") == "connection", results(model)
        (target,) = found["params"]["targets"]
        assert (target["name"], target["required_env"]) == ("specimen", ["NOTES_FILE"])
        env = {"NOTES_FILE": str(tmp_path / "kept-from-the-model"), "PATH": "/nowhere"}
        approved = {"name": "specimen", "status": "approved", "env": env}
        await answer(driver, found, {"settled_by": "all_resolved", "targets": [approved]})
        assert (await driver.terminal())["status"] == "complete"
        (result,) = results(model)
        assert result["targets"] == [{"name": "specimen", "state": "connected"}]
        assert "kept-from-the-model" not in json.dumps([driver.frames, [one.body for one in model.requests]])


@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
async def test_tools_for_a_clients_own_windows_are_there_only_while_it_has_declared_them(
    surface: str, tmp_path: Path
) -> None:
    bridged = {"manage_connections", "preview_read", "terminal_read", "tour", "vault_code", "vault_save_login"}
    replies = [Reply.of({"text": "one"}), Reply.of({"text": "two"}), Reply.of({"text": "three"})]
    async with playing(tmp_path / "home", *replies, surface=surface) as (driver, model):
        made = await driver.call("session.create", {"cwd": str(tmp_path), "source": "desktop"})
        driver.session_id = made["session_id"]
        for declares in (False, True, False):
            await driver.call("client.capabilities", {"server_requests": declares})
            await driver.start("please")
            await driver.terminal()
            offered = {tool["function"]["name"] for tool in model.requests[-1].body["tools"]}
            assert offered & bridged == (bridged if declares else set())


# --- a client that has not said that it can be asked ------------------------------------------------------------------


async def test_a_websocket_client_that_declares_nothing_leaves_a_batch_undelivered_at_once(tmp_path: Path) -> None:
    ask = calls(("clarify", {"questions": [{"question": "Which?", "choices": ["red", "blue"]}]}))
    replies = (ask, Reply.of({"text": "end"}), ask, Reply.of({"text": "end"}))
    async with playing(tmp_path / "home", *replies, surface="gateway websocket") as (driver, model):
        driver.session_id = (await driver.call("session.create", {}))["session_id"]
        await driver.call("prompt.submit", {"session_id": driver.session_id, "text": "go"})
        assert (await driver.terminal())["status"] == "complete"
        (given,) = results(model)
        assert given["outcome"] == "undelivered"
        assert [(row["question"], row["status"]) for row in given["responses"]] == [("Which?", "unanswered")]
        assert not any(frame.get("method") == "clarify" for frame in driver.frames)
        # It says so now: the same tool asks.
        await driver.call("client.capabilities", {"server_requests": True})
        await driver.call("prompt.submit", {"session_id": driver.session_id, "text": "again"})
        await answer(driver, await question(driver, "clarify"), {"answers": {"q0": "blue"}})
        await driver.find(lambda frame: len(model.requests) == 4 and frame.get("method") == "event")
        assert results(model)[-1]["outcome"] == "submitted"
