"""Children of a turn as a host meets them, through the real process: seen, spoken to, stopped one by one."""

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


def delegated(*goals: str, **more: Any) -> Reply:
    tasks = [{"goal": goal} for goal in goals]
    return Reply.of({"tool_call": {"name": "delegate_task", "arguments": {"tasks": tasks, **more}}})


def child(goal: str, *steps: dict[str, Any], role: str = "user") -> Reply:
    return Reply.of(*steps, when={"last_user_contains": goal, "last_role": role})


def command(text: str) -> dict[str, Any]:
    return {"tool_call": {"name": "terminal", "arguments": {"command": text}}}


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def events(driver: GatewayDriver, kind: str) -> list[dict[str, Any]]:
    return [one["params"]["payload"] for one in driver.frames if one.get("params", {}).get("type") == kind]


async def children_when(driver: GatewayDriver, count: int) -> dict[str, dict[str, Any]]:
    while True:
        listed = (await driver.call("subagent.list", {"session_id": driver.session_id}))["subagents"]
        if sum(one["status"] == "running" for one in listed) == count:
            return {one["goal"]: one for one in listed}
        await trio.sleep(0.02)


@pytest.mark.fault("B-064")
async def test_one_child_is_stopped_with_all_its_processes_and_its_sibling_hears_a_steer(tmp_path: Path) -> None:
    marks = [MARKS.next(), MARKS.next()]
    tree = "sleep {0} & (setsid sleep {0} &); sleep {0}"
    gate = tmp_path / "go"
    script = Script.of(
        child("explore the north", command(tree.format(marks[0]))),
        child("explore the south", command(f"sleep {marks[1]} & while [ ! -e {gate} ]; do sleep 0.02; done")),
        Reply.of({"text": "found gold"}, when={"last_user_contains": "look left"}),
        delegated("explore the north", "explore the south"),
        Reply.of({"text": "both told"}),
        strict=True,
    )
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(script) as provider,
            driving("gateway stdio", tmp_path / "home", environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            listed = await children_when(driver, 2)
            while len(running_with(f"sleep {marks[0]}")) < 4 or not running_with(f"sleep {marks[1]}"):
                await trio.sleep(0.02)
            north, south = (listed[f"explore the {one}"]["subagent_id"] for one in ("north", "south"))
            status = await driver.call("delegation.status", {})
            assert {one["subagent_id"] for one in status["active"]} == {north, south}
            session = {"session_id": driver.session_id}
            steered = await driver.call("subagent.steer", {**session, "subagent_id": south, "text": "look left"})
            assert steered["status"] == "queued"
            stopped = await driver.call("subagent.interrupt", {**session, "subagent_id": north})
            assert stopped == {"found": True, "subagent_id": north}
            while running_with(f"sleep {marks[0]}"):
                await trio.sleep(0.01)
            assert running_with(f"sleep {marks[1]}"), "the sibling was stopped, too"
            late = await driver.call("subagent.steer", {**session, "subagent_id": north, "text": "look right"})
            assert late["status"] == "rejected"
            gate.touch()
            end = await driver.terminal()
            assert (end["status"], end["text"]) == ("complete", "both told")
            last = provider.requests[-1].body["messages"][-1]
            results = json.loads(last["content"])["results"]
            assert [one["status"] for one in results] == ["interrupted", "completed"]
            assert results[1]["summary"] == "found gold"
            tail = await driver.call("subagent.tail", {**session, "subagent_id": south})
            assert tail["available"] is True and "found gold" in tail["text"]
            for agent in (north, south):
                own = [
                    frame["params"]["type"]
                    for frame in driver.frames
                    if frame.get("params", {}).get("payload", {}).get("subagent_id") == agent
                    and frame["params"]["type"].startswith("subagent.")
                ]
                assert own.count("subagent.complete") == 1 and own[-1] == "subagent.complete", own
                assert "subagent.start" in own and own.index("subagent.start") <= 1, own
            assert running_with(f"sleep {marks[1]}") == []


async def test_a_background_delegation_comes_back_as_a_turn_and_a_pause_refuses_new_ones(tmp_path: Path) -> None:
    gate = tmp_path / "go"
    script = Script.of(
        Reply.of({"text": "so there is water"}, when={"last_user_contains": "nine metres"}),
        child("dig a well", command(f"while [ ! -e {gate} ]; do sleep 0.02; done")),
        child("dig a well", {"text": "water at nine metres"}, role="tool"),
        delegated("dig a well", background=True),
        Reply.of({"text": "it is being dug"}),
        delegated("dig another"),
        Reply.of({"text": "not now"}),
        strict=True,
    )
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(script) as provider,
            driving("gateway stdio", tmp_path / "home", environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            assert (await driver.terminal())["text"] == "it is being dug"
            await children_when(driver, 1)
            at = len(driver.frames)
            gate.touch()
            end = await driver.event("message.complete", at)
            assert end["params"]["payload"]["text"] == "so there is water"
            assert await driver.call("delegation.pause", {"paused": True}) == {"paused": True}
            await driver.start("again")
            assert (await driver.terminal())["text"] == "not now"
            refused = provider.requests[-1].body["messages"][-1]
            assert "paused" in refused["content"]
            assert (await driver.call("delegation.status", {}))["active"] == []


async def test_more_tasks_than_may_work_at_once_wait_for_their_turn_and_all_are_done(tmp_path: Path) -> None:
    home, journal = tmp_path / "home", tmp_path / "journal"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(json.dumps({"delegation": {"max_concurrent_children": 2}}))
    goals = [f"dig hole number {number}" for number in range(5)]
    work = f"echo + >> {journal}; sleep 0.3; echo - >> {journal}"
    script = Script.of(
        *(child(goal, command(work)) for goal in goals),
        *(child(goal, {"text": f"did: {goal}"}, role="tool") for goal in goals),
        delegated(*goals),
        Reply.of({"text": "all dug"}),
        strict=True,
    )
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(script) as provider,
            driving("gateway stdio", home, environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            assert (await driver.terminal())["text"] == "all dug"
            results = json.loads(provider.requests[-1].body["messages"][-1]["content"])["results"]
            assert [(one["status"], one["summary"]) for one in results] == [
                ("completed", f"did: {goal}") for goal in goals
            ]
            at_once = [0]
            for line in journal.read_text().split():
                at_once.append(at_once[-1] + (1 if line == "+" else -1))
            assert (max(at_once), at_once[-1]) == (2, 0)


async def test_an_orchestrator_delegates_as_deep_as_it_may_and_a_leaf_does_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(json.dumps({"delegation": {"max_spawn_depth": 2}}))
    deeper = {"name": "delegate_task", "arguments": {"goal": "carry the water", "role": "orchestrator"}}
    lead, watch = {"goal": "lead the dig", "role": "orchestrator"}, {"goal": "watch the sky"}
    script = Script.of(
        child("carry the water", {"text": "carried"}),
        child("lead the dig", {"tool_call": deeper}),
        child("lead the dig", {"text": "dug and carried"}, role="tool"),
        child("watch the sky", {"text": "it is blue"}),
        Reply.of({"tool_call": {"name": "delegate_task", "arguments": {"tasks": [lead, watch]}}}),
        Reply.of({"text": "done"}),
        strict=True,
    )
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(script) as provider,
            driving("gateway stdio", home, environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            assert (await driver.terminal())["text"] == "done"
            results = json.loads(provider.requests[-1].body["messages"][-1]["content"])["results"]
            assert [one["summary"] for one in results] == ["dug and carried", "it is blue"]
            may = {
                str(next(row["content"] for row in request.body["messages"] if row["role"] == "user")): "delegate_task"
                in [tool["function"]["name"] for tool in request.body["tools"]]
                for request in provider.requests
            }
            # The one at the bottom may not, whatever it was called.
            assert may == {"please": True, "lead the dig": True, "watch the sky": False, "carry the water": False}
            depths = {one["goal"]: one["depth"] for one in events(driver, "subagent.start")}
            assert depths == {"lead the dig": 1, "watch the sky": 1, "carry the water": 2}
