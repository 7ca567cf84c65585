"""What runs beside the turns of a session, stopped by its node: told as what it is, through the real process."""

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


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"name": name, "arguments": arguments}}


def dispatched_in(provider: FakeProvider) -> dict[str, Any]:
    """What the model was told at once of its delegation."""
    rows = [row for request in provider.requests for row in request.body["messages"] if row["role"] == "tool"]
    told: dict[str, Any] = json.loads(next(row["content"] for row in rows if '"dispatched"' in row["content"]))
    return told


async def node_of(driver: GatewayDriver, kind: str) -> dict[str, Any]:
    def find(node: dict[str, Any]) -> dict[str, Any] | None:
        if node["kind"] == kind:
            return node
        return next((found for child in node["children"] if (found := find(child)) is not None), None)

    while True:
        found = find((await driver.call("tree.get", {}))["tree"])
        if found is not None:
            return found
        await trio.sleep(0.02)


async def test_a_background_process_that_is_stopped_by_its_node_was_killed(tmp_path: Path) -> None:
    mark = MARKS.next()
    script = Script.of(
        Reply.of(calling("terminal", command=f"exec sleep {mark}", background=True, notify=True)),
        Reply.of({"text": "started"}),
        Reply.of(calling("process_manage", action="list")),
        Reply.of({"text": "read"}),
        strict=True,
    )
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(script) as provider,
            driving("gateway stdio", tmp_path / "home", environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            assert (await driver.terminal())["text"] == "started"
            node = await node_of(driver, "process")
            stopped = await driver.call("scope.cancel", {"node_id": node["node_id"], "reason": "seen enough"})
            assert stopped["cancelled"] is True
            while running_with(f"sleep {mark}"):
                await trio.sleep(0.02)
            session = {"session_id": driver.session_id}
            while True:
                [shown] = (await driver.call("process.list", session))["processes"]
                if shown["status"] != "running":
                    break
                await trio.sleep(0.02)
            assert shown["status"] == "killed"
            again = await driver.call("process.kill", {**session, "process_id": shown["session_id"]})
            assert again["status"] == "already_exited"
            # Who stopped it knows: no turn has started by itself.
            await driver.start("and?")
            assert (await driver.terminal())["text"] == "read"
            [listed] = json.loads(provider.requests[-1].body["messages"][-1]["content"])["processes"]
            assert (listed["status"], listed["exit_code"]) == ("killed", 143)


async def test_a_background_delegation_that_is_stopped_by_its_node_is_told_in_a_turn_and_can_be_read(
    tmp_path: Path,
) -> None:
    mark = MARKS.next()
    script = Script.of(
        Reply.of({"text": "a pity"}, when={"last_user_contains": "was stopped (node_cancel: no time)"}),
        Reply.of(calling("terminal", command=f"sleep {mark}"), when={"last_user_contains": "dig a well"}),
        Reply.of(calling("delegate_task", tasks=[{"goal": "dig a well"}], background=True)),
        Reply.of({"text": "it is being dug"}),
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
            dispatched = dispatched_in(provider)
            [transcript] = dispatched["live_transcripts"]
            assert transcript["subagent_id"] == dispatched["subagent_ids"][0]
            while not running_with(f"sleep {mark}"):
                await trio.sleep(0.02)
            at = len(driver.frames)
            node = await node_of(driver, "delegation")
            await driver.call("scope.cancel", {"node_id": node["node_id"], "reason": "no time"})
            end = await driver.event("message.complete", at)
            assert end["params"]["payload"]["text"] == "a pity"
            assert running_with(f"sleep {mark}") == []


async def test_a_child_is_read_by_the_agent_that_has_it_and_by_no_other(tmp_path: Path) -> None:
    def reading(key: str) -> Script:
        read = calling("session_search", session_id=key)
        return Script.of(Reply.of(read), Reply.of({"text": "read"}), strict=True)

    delegating = Script.of(
        Reply.of({"text": "so there is water"}, when={"last_user_contains": "1 of 1 completed"}),
        Reply.of({"text": "water at nine metres"}, when={"last_user_contains": "dig a well"}),
        Reply.of(calling("delegate_task", tasks=[{"goal": "dig a well"}], background=True)),
        Reply.of({"text": "it is being dug"}),
        strict=True,
    )
    with trio.fail_after(LIMIT):
        async with (
            FakeProvider(delegating) as provider,
            driving("gateway stdio", tmp_path / "home", environment(provider)) as driver,
        ):
            assert isinstance(driver, GatewayDriver)
            await driver.start("please")
            await driver.find(
                lambda frame: frame.get("params", {}).get("payload", {}).get("text") == "so there is water"
            )
            key = dispatched_in(provider)["live_transcripts"][0]["session_id"]
            mine = driver.session_id
            for session_id, allowed in ((mine, True), ("", False)):
                provider.replace_script(reading(key))
                driver.session_id = session_id
                await driver.start("look")
                assert (await driver.terminal())["text"] == "read"
                answer = json.loads(provider.requests[-1].body["messages"][-1]["content"])
                assert ("nine metres" in json.dumps(answer), "error" in answer) == (allowed, not allowed)
