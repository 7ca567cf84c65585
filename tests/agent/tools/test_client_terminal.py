"""The terminal tool with a client that offers terminals of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.tools.shell import Terminal
from hermes.messages import Answered
from tests.support.tool_context import FakeToolContext, make_services


class FakeTerminals:
    """Runs what it is told, with the environment of an editor that has secrets of its own."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.created: list[Mapping[str, Any]] = []
        self.output = b""
        self.code = 0
        self.hangs = False

    def tools(self) -> dict[str, Any]:
        return {
            "terminal/create": self.create,
            "terminal/wait_for_exit": self.wait,
            "terminal/output": self.told,
            "terminal/kill": self.kill,
            "terminal/release": self.release,
        }

    async def create(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append("create")
        self.created.append(params)
        environ = {"PATH": "/usr/bin:/bin", "EDITOR_SECRET": "sk-of-the-editor"}
        argv = [params["command"], *params["args"]]
        done = await trio.run_process(
            argv, cwd=params["cwd"], env=environ, capture_stdout=True, stderr=subprocess.STDOUT, check=False
        )
        self.output, self.code = done.stdout, done.returncode
        return {"terminalId": "term-1"}

    async def wait(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append("wait")
        if self.hangs:
            await trio.sleep_forever()
        return {"exitCode": self.code, "signal": None}

    async def told(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append("output")
        return {"output": self.output.decode(), "truncated": False}

    async def kill(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append("kill")
        return {}

    async def release(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append("release")
        return {}


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    return FakeToolContext(tmp_path, tmp_path)


def body(output: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(output.content)
    return value


async def test_a_command_runs_there_with_our_environment_and_leaves_its_directory_behind(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    terminals = FakeTerminals()
    ctx.client_tools |= terminals.tools()
    (tmp_path / "sub").mkdir()
    tool = Terminal(make_services(tmp_path))
    first = await tool.run(
        ctx, {"command": "cd sub && export COLOUR='dark blue' && env | grep -c EDITOR_SECRET; false"}
    )
    assert (body(first)["output"].strip(), body(first)["exit_code"]) == ("0", 1)
    second = await tool.run(ctx, {"command": "pwd; echo $COLOUR"})
    assert body(second)["output"].split("\n")[:2] == [str(tmp_path / "sub"), "dark blue"]
    assert terminals.asked == ["create", "wait", "output", "release"] * 2
    assert ctx.requests == []
    assert ctx.memory.client_terminal(ctx.call_id) == "term-1"
    # The wrapper is gone, and no variable was in an argument.
    assert not list((ctx.home / "cache" / "shell").iterdir())
    assert "dark blue" not in str(terminals.created)


@pytest.mark.parametrize("answer", [{}, {"exitCode": True}, {"exitCode": "0"}, {"signal": "SIG_DFL"}, {"signal": 9}])
async def test_an_end_that_the_client_cannot_tell_is_no_success(
    answer: dict[str, Any], ctx: FakeToolContext, tmp_path: Path
) -> None:
    async def wait(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return answer

    ctx.client_tools |= FakeTerminals().tools() | {"terminal/wait_for_exit": wait}
    output = await Terminal(make_services(tmp_path)).run(ctx, {"command": "echo said"})
    told = ["said", "[the client did not tell how the command ended]"]
    assert (body(output)["exit_code"], body(output)["output"].split("\n")[:2]) == (-1, told)


async def test_the_output_of_a_command_that_ended_is_waited_for(
    ctx: FakeToolContext, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    terminals = FakeTerminals()

    async def slow(params: Mapping[str, Any]) -> Mapping[str, Any]:
        await trio.sleep(5)
        return await terminals.told(params)

    ctx.client_tools |= terminals.tools() | {"terminal/output": slow}
    output = await Terminal(make_services(tmp_path)).run(ctx, {"command": "echo said"})
    assert (body(output)["exit_code"], body(output)["output"].strip()) == (0, "said")
    assert terminals.asked == ["create", "wait", "output", "release"]


@pytest.mark.parametrize("answer", [None, {}, {"output": 5}])
async def test_an_output_that_the_client_does_not_tell_is_not_an_empty_one(
    answer: Mapping[str, Any] | None, ctx: FakeToolContext, tmp_path: Path
) -> None:
    async def tell(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return answer

    ctx.client_tools |= FakeTerminals().tools() | {"terminal/output": tell}
    output = await Terminal(make_services(tmp_path)).run(ctx, {"command": "echo said"})
    told = (body(output)["exit_code"], body(output)["output"].strip())
    assert told == (0, "[the client did not tell what the command printed]")


async def test_without_a_terminal_the_command_runs_here_once(ctx: FakeToolContext, tmp_path: Path) -> None:
    async def refuse(params: Mapping[str, Any]) -> None:
        return None

    ctx.client_tools["terminal/create"] = refuse
    output = await Terminal(make_services(tmp_path)).run(ctx, {"command": "echo here"})
    assert body(output)["output"].strip() == "here"
    assert len(ctx.requests) == 1


async def test_a_command_past_its_time_is_killed_and_let_go_of(ctx: FakeToolContext, tmp_path: Path) -> None:
    terminals = FakeTerminals()
    terminals.hangs = True
    ctx.client_tools |= terminals.tools()
    output = await Terminal(make_services(tmp_path)).run(ctx, {"command": "echo begun", "timeout": 1})
    assert body(output)["exit_code"] == 124
    assert "begun" in body(output)["output"]
    assert terminals.asked == ["create", "wait", "kill", "output", "release"]


async def test_a_stop_kills_the_command_and_keeps_what_it_said(ctx: FakeToolContext, tmp_path: Path) -> None:
    terminals = FakeTerminals()
    terminals.hangs = True
    ctx.client_tools |= terminals.tools()
    tool = Terminal(make_services(tmp_path))
    arguments = {"command": "echo begun"}

    async def stop_when_it_waits() -> None:
        while "wait" not in terminals.asked:
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tool.run, ctx, arguments)
            nursery.start_soon(stop_when_it_waits)
    assert terminals.asked == ["create", "wait", "kill", "output", "release"]
    stopped = tool.cancelled(ctx, arguments)
    assert (body(stopped)["exit_code"], body(stopped)["output"].strip()) == (130, "begun")


async def test_a_dangerous_command_is_asked_for_before_the_client_sees_it(ctx: FakeToolContext, tmp_path: Path) -> None:
    terminals = FakeTerminals()
    ctx.client_tools |= terminals.tools()
    ctx.answers.append(Answered({"choice": "deny"}))
    victim = tmp_path / "victim"
    victim.mkdir()
    with pytest.raises(Exception, match="denied"):
        await Terminal(make_services(tmp_path)).run(ctx, {"command": f"rm -rf {victim}"})
    assert terminals.asked == []
    assert victim.is_dir()
