"""Processes and child agents belong to their session: another one of the same connection neither sees nor touches
them, whatever ids it names; and a size that no terminal has harms none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving
from tests.support.process_probe import Marks, running_with

pytestmark = pytest.mark.e2e

LIMIT = 90
MARKS = Marks()


def calling(*steps: tuple[str, dict[str, Any]]) -> Reply:
    return Reply.of(*({"tool_call": {"name": name, "arguments": arguments}} for name, arguments in steps))


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


async def test_no_session_reaches_the_processes_of_another(tmp_path: Path) -> None:
    mark = MARKS.next()
    start = ("terminal", {"command": f"echo mine; read word; sleep {mark}", "background": True})
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(Script.of(calling(start), Reply.of({"text": "started"}), strict=True)) as provider,
            driving("gateway stdio", tmp_path / "home", environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            await driver.terminal()
            owner = driver.session_id
            [process] = (await driver.call("process.list", {"session_id": owner}))["processes"]
            theirs = process["session_id"]
            named = [{"session_id": theirs}, {"session_id": theirs[:9]}, {"session_id": str(process.get("pid", 1))}]
            actions = ("poll", "log", "wait", "kill", "submit", "close")
            steps = [("process_manage", {"action": action, "data": "go", **one}) for action in actions for one in named]
            provider.replace_script(
                Script.of(
                    calling(("process_manage", {"action": "list"}), *steps),
                    Reply.of({"text": "tried"}),
                    strict=True,
                )
            )
            driver.session_id = ""
            await driver.start("please")
            assert (await driver.terminal())["text"] == "tried"
            rows = [row["content"] for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]
            assert json.loads(rows[0]) == {"processes": []}
            assert len(rows) == len(steps) + 1
            assert all('"not_found"' in row for row in rows[1:]), rows
            other = {"session_id": driver.session_id}
            assert (await driver.call("process.list", other))["processes"] == []
            refused = await driver.request("process.kill", {**other, "process_id": theirs})
            assert refused["error"]["code"] == 4044
            assert await driver.call("process.stop", other) == {"killed": 0}
            [still] = (await driver.call("process.list", {"session_id": owner}))["processes"]
            assert still["status"] == "running"
            assert await driver.call("process.stop", {"session_id": owner}) == {"killed": 1}
            assert running_with(f"sleep {mark}") == []


async def test_no_session_reaches_the_child_agents_of_another(tmp_path: Path) -> None:
    mark = MARKS.next()
    script = Script.of(
        Reply.of(
            {"tool_call": {"name": "terminal", "arguments": {"command": f"sleep {mark}"}}},
            when={"last_user_contains": "dig a well"},
        ),
        calling(("delegate_task", {"tasks": [{"goal": "dig a well"}], "background": True})),
        Reply.of({"text": "dispatched"}),
        Reply.of({"text": "hello"}),
        strict=True,
    )
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(script) as provider,
            driving("gateway stdio", tmp_path / "home", environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            await driver.terminal()
            while not running_with(f"sleep {mark}"):
                await trio.sleep(0.02)
            owner = {"session_id": driver.session_id}
            [child] = (await driver.call("subagent.list", owner))["subagents"]
            driver.session_id = ""
            await driver.start("please")
            await driver.terminal()
            other = {"session_id": driver.session_id, "subagent_id": child["subagent_id"]}
            assert (await driver.call("subagent.list", {"session_id": driver.session_id}))["subagents"] == []
            assert (await driver.call("subagent.interrupt", other))["found"] is False
            assert (await driver.call("subagent.tail", other))["available"] is False
            steered = await driver.request("subagent.steer", {**other, "text": "stop digging"})
            assert steered.get("result", {}).get("status") != "queued", steered
            assert running_with(f"sleep {mark}"), "another session has stopped it"
            assert (await driver.call("subagent.interrupt", {**owner, "subagent_id": child["subagent_id"]}))["found"]
            while running_with(f"sleep {mark}"):
                await trio.sleep(0.02)


async def test_a_size_that_no_terminal_has_is_refused_or_fitted_and_harms_no_command(tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = f"while [ ! -e {go} ]; do sleep 0.02; done; stty size"
    script = Script.of(calling(("terminal", {"command": command, "pty": True})), Reply.of({"text": "end"}), strict=True)
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(script) as provider,
            driving("gateway stdio", tmp_path / "home", environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            await driver.wait_for_tool()
            session = {"session_id": driver.session_id}
            for cols in (0, -1, 65536, 10**9, 10**30, "wide", None, 1.5, [80]):
                answer = await driver.request("terminal.resize", {**session, "cols": cols})
                assert "result" in answer or "cols" in answer["error"]["message"], (cols, answer)
            await driver.call("terminal.resize", {**session, "cols": 132})
            go.touch()
            assert (await driver.terminal())["status"] == "complete"
            [row] = [one["content"] for one in provider.requests[-1].body["messages"] if one["role"] == "tool"]
            assert json.loads(row)["output"].split()[-1] == "132"
