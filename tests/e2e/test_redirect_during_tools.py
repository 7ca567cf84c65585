"""A correction while a command runs: the command makes room, and the words are read at once (through the process)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving
from tests.support.server_process import assert_no_children, children_of

pytestmark = pytest.mark.e2e


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def command(text: str, **more: Any) -> Reply:
    return Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": text, **more}}})


async def sleeping(driver: GatewayDriver, number: int) -> None:
    while not any(f"sleep {number}" in line for line in children_of(driver.server).values()):
        await trio.sleep(0.01)


@pytest.mark.parametrize("way", ["session.redirect", "prompt.submit"])
async def test_a_correction_moves_the_running_command_and_is_read_before_it_ends(way: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = Script.of(
        command(f"echo begun; sleep 7101 & until [ -e {go} ]; do sleep 0.02; done; kill $!; echo over"),
        Reply.of({"text": "as you say"}),
        Reply.of({"text": "it is over"}),
    )
    with trio.fail_after(60):
        async with FakeProvider(script) as provider:
            async with driving("gateway stdio", tmp_path / "home", environment(provider)) as driver:
                assert isinstance(driver, GatewayDriver)
                await driver.start("please")
                await driver.wait_for_tool()
                await sleeping(driver, 7101)
                answer = await driver.call(way, {"session_id": driver.session_id, "text": "rather quickly"})
                assert answer["status"] == {"session.redirect": "queued", "prompt.submit": "steered"}[way]
                assert (await driver.terminal())["status"] == "complete"

                request = provider.requests[1].body["messages"]
                result = json.loads(next(row["content"] for row in request if row["role"] == "tool"))
                assert result["status"] == "moved_to_background" and result["output"].strip() == "begun"
                assert result["session_id"].startswith("proc_") and result["notify_on_complete"] is True
                assert "rather quickly" in request[-1]["content"]
                listed = (await driver.call("process.list", {"session_id": driver.session_id}))["processes"]
                assert [(one["session_id"], one["status"]) for one in listed] == [(result["session_id"], "running")]
                assert any("sleep 7101" in line for line in children_of(driver.server).values())

                go.touch()
                await provider.wait_for_request(3)
                told = provider.requests[2].body["messages"][-1]["content"]
                assert result["session_id"] in told and "exit 0" in told and "over" in told
                await assert_no_children(driver.server)


async def test_a_command_that_was_moved_survives_an_interrupt_and_ends_with_the_session(tmp_path: Path) -> None:
    script = Script.of(command("sleep 7102"), Reply.of({"text": "on and "}, {"wait_for": "never"}))
    with trio.fail_after(60):
        async with FakeProvider(script) as provider:
            async with driving("gateway stdio", tmp_path / "home", environment(provider)) as driver:
                assert isinstance(driver, GatewayDriver)
                await driver.start("please")
                await driver.wait_for_tool()
                await sleeping(driver, 7102)
                await driver.call("session.redirect", {"session_id": driver.session_id, "text": "go on"})
                await provider.wait_for_request(2)
                await driver.stop()
                assert (await driver.terminal())["status"] == "interrupted"
                assert any("sleep 7102" in line for line in children_of(driver.server).values())
                await driver.call("session.close", {"session_id": driver.session_id})
                await assert_no_children(driver.server)
