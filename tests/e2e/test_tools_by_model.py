"""What the model reads of a tool depends on its family, through the real process; a plan outlives its server."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(("model", "told"), [("gpt-5", True), ("openai/gpt-5", True), ("fake-model", False)])
async def test_the_v4a_format_is_described_to_models_of_one_family(model: str, told: bool, tmp_path: Path) -> None:
    with trio.fail_after(90):
        async with FakeProvider(Script.of(Reply.of({"text": "hello"}), strict=True)) as provider:
            environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789"}
            async with driving("gateway stdio", tmp_path / "home", {**environ, "HERMES_MODEL": model}) as driver:
                await driver.start("hi")
                await driver.terminal()
            request = provider.requests[0].body
            assert request["model"] == model
            [patch] = [one["function"] for one in request["tools"] if one["function"]["name"] == "patch"]
            assert ("patch" in patch["parameters"]["properties"]) is told


async def test_a_plan_is_there_again_after_the_server_was(tmp_path: Path) -> None:
    todos = [{"id": "a", "content": "dig", "status": "in_progress"}]
    plan = Reply.of({"tool_call": {"name": "todo_list", "arguments": {"todos": todos}}})
    with trio.fail_after(90):
        async with FakeProvider(Script.of(plan, Reply.of({"text": "planned"}), strict=True)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving("gateway stdio", tmp_path / "home", environ) as driver:
                assert isinstance(driver, GatewayDriver)
                await driver.start("plan")
                await driver.terminal()
                [told] = [
                    frame["params"]["payload"]
                    for frame in driver.frames
                    if frame.get("params", {}).get("type") == "tool.complete"
                ]
                assert (told["todos"], told["revision"]) == (todos, 1)
                [stored] = (await driver.call("session.list", {}))["sessions"]
            async with driving("gateway stdio", tmp_path / "home", environ) as driver:
                assert isinstance(driver, GatewayDriver)
                resumed = await driver.call("session.resume", {"session_id": stored["id"]})
                assert resumed["todo_state"]["todos"] == todos
