"""The promise, through the real process: every kind of stop, of every kind of work, over every surface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import SURFACES, driving
from tests.support.server_process import assert_no_children, children_of

pytestmark = pytest.mark.e2e
TREE = "sleep 7001 & (setsid sleep 7002 &); sleep 7003"
STUBBORN = "trap '' TERM; sleep 7004 & wait; sleep 7005"
LIMIT = 60


def terminal_call(command: str) -> Reply:
    return Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": command}}})


SCENARIOS: dict[str, Reply] = {
    "a stream": Reply.of({"text": ["Hello ", "there "]}, {"wait_for": "never"}),
    "a hung model": Reply.of({"text": "never"}, faults={"hang": True}),
    "a process tree": terminal_call(TREE),
    "a stubborn process": terminal_call(STUBBORN),
    "an open question": terminal_call("rm -rf build"),
}


def model_environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


async def wait_until_it_runs(driver: Any, scenario: str, provider: FakeProvider) -> None:
    if scenario == "a stream":
        await provider.wait_chunks(1, 2)
    elif scenario == "a hung model":
        await provider.wait_for_request(1)
    elif scenario == "an open question":
        await driver.wait_for_question()
    else:
        await driver.wait_for_tool()
        expected = 3 if scenario == "a process tree" else 1
        while sum("sleep 700" in line for line in children_of(driver.server).values()) < expected:
            await trio.sleep(0.01)


@pytest.mark.fault("B-005")
@pytest.mark.fault("B-060")
@pytest.mark.parametrize("scenario", list(SCENARIOS))
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_stop_ends_everything_and_the_next_prompt_is_accepted_at_once(
    surface: str, scenario: str, tmp_path: Path
) -> None:
    script = Script.of(SCENARIOS[scenario], Reply.of({"text": "next answer"}), strict=True)
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            async with driving(surface, tmp_path / "home", model_environment(provider)) as driver:
                await driver.start("please")
                await wait_until_it_runs(driver, scenario, provider)
                await driver.stop()
                end = await driver.terminal()
                assert end["status"] == "interrupted"
                expected = {"http run": "run_stop", "http chat": "client_disconnect"}.get(surface, "user_interrupt")
                assert end["cause"] == expected
                if scenario in ("a stream", "a hung model"):
                    assert (await provider.wait_closed(1)).closed_by == "client"
                assert provider.open_requests == 0
                assert children_of(driver.server) == {}, "a process outlived the end of its turn"
                await driver.start("again")
                assert (await driver.terminal())["status"] == "complete"
                assert driver.server.stray == [] or surface.startswith("http") or "websocket" in surface
                await assert_no_children(driver.server)


@pytest.mark.fault("B-068")
@pytest.mark.parametrize("scenario", list(SCENARIOS))
@pytest.mark.parametrize("surface", ("gateway stdio", "acp", "http run"))
async def test_a_termination_signal_with_everything_open_leaves_nothing(
    surface: str, scenario: str, tmp_path: Path
) -> None:
    script = Script.of(SCENARIOS[scenario])
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            async with driving(surface, tmp_path / "home", model_environment(provider)) as driver:
                await driver.start("please")
                await wait_until_it_runs(driver, scenario, provider)
                assert await driver.server.stop() == 0
                assert children_of(driver.server) == {}
        assert provider.open_requests == 0


@pytest.mark.fault("B-072")
@pytest.mark.parametrize("surface", ("gateway stdio", "acp"))
async def test_the_end_of_input_ends_the_process_and_all_it_started(surface: str, tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(SCENARIOS["a process tree"])) as provider:
            async with driving(surface, tmp_path / "home", model_environment(provider)) as driver:
                await driver.start("please")
                await wait_until_it_runs(driver, "a process tree", provider)
                await driver.server.close_input()
                assert await driver.server.exit_code() == 0
                assert children_of(driver.server) == {}
