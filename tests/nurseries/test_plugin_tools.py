"""Plugins: what they must be, where they run, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import Tool, ToolContext, ToolFailure, ToolFlags, ToolOutput, ToolSpec
from hermes.messages import Prompt
from hermes.nurseries.mcp_bridge import BURST, PER_SECOND
from hermes.nurseries.plugin_process import PluginHost
from hermes.nurseries.plugin_tools import TIME_LIMIT, adapt, adapt_plugins
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.outcomes import CancelReason, Cause
from tests.support.core import call, make_services, running_tree, say
from tests.support.process_probe import PATH, Marks, no_longer_subreaper, running_with, zombie_children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MARKS = Marks()
OBJECT = {"type": "object", "properties": {}}


class Plugin:
    def __init__(self, name: str = "greet", **parts: Any) -> None:
        self.spec = ToolSpec(name, "a plugin", OBJECT)
        self.__dict__.update(parts)


class Limits:
    kill_grace = 0.2


class PlainSettings:
    limits = Limits()


class PlainMemory:
    def __init__(self, cwd: str) -> None:
        self.cwd = cwd


class PlainContext:
    """As much of a ToolContext as a plugin of these tests uses."""

    session_key = "s"
    turn_id = "t"
    settings = PlainSettings()

    def __init__(self, cwd: Path) -> None:
        self.memory = PlainMemory(str(cwd))
        self.shown: list[str] = []
        self.hanging = trio.Event()

    def progress(self, preview: str) -> None:
        self.shown.append(preview)
        if preview == "hanging":
            self.hanging.set()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PluginHost]:
    with no_longer_subreaper():
        supervisor = ProcessSupervisor(owner_tag(str(tmp_path)), kill_grace=0.1)
        supervisor.become_subreaper()
        yield PluginHost(supervisor, lambda: {"PATH": PATH, "PYTHONPATH": os.getcwd()})
        assert supervisor.live() == []
        assert zombie_children() == []


async def run(tool: Tool, ctx: Any, **arguments: Any) -> ToolOutput | str:
    with trio.fail_after(30):
        return await tool.run(ctx, arguments)


def in_process(function: str, **parts: Any) -> Plugin:
    return Plugin(process=f"tests.support.plugin_functions:{function}", **parts)


async def test_a_plugin_for_trio_runs_in_the_tree(host: PluginHost, tmp_path: Path) -> None:
    async def greet(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.sleep(0)
        return f"hello {arguments['name']}"

    tool = adapt(Plugin(run=greet), host)
    assert await run(tool, PlainContext(tmp_path), name="Ann") == "hello Ann"
    assert (tool.flags, tool.preview({"name": "Ann"}), tool.paths({})) == (ToolFlags(toolset="plugins"), "Ann", ())


async def test_a_plugin_for_asyncio_runs_in_a_loop_of_its_own(host: PluginHost, tmp_path: Path) -> None:
    async def greet(ctx: ToolContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        ctx.progress("half way")
        return {"hello": arguments["name"]}

    ctx = PlainContext(tmp_path)
    assert await run(adapt(Plugin(asyncio_run=greet), host), ctx, name="Ann") == '{"hello": "Ann"}'
    assert ctx.shown == ["half way"]


async def test_a_plugin_in_a_process_gives_progress_and_a_result_whatever_it_prints(
    host: PluginHost, tmp_path: Path
) -> None:
    ctx = PlainContext(tmp_path)
    tool = adapt(in_process("greet"), host)
    assert await run(tool, ctx, name="Ann") == "hello Ann"
    assert ctx.shown == ["half way"]
    assert tool.flags.untrusted_output
    told = await run(adapt(in_process("slow_greet"), host), ctx, name="Ann")
    assert told == f'{{"hello": "Ann", "directory": "{tmp_path}"}}'


async def test_a_plugin_in_a_process_sees_the_filtered_environment_only(host: PluginHost, tmp_path: Path) -> None:
    names = str(await run(adapt(in_process("variables"), host), PlainContext(tmp_path)))
    assert "PYTHONPATH" in names and "HOME" not in names


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("fail", "ended with exit code 1: ValueError: not today"),
        ("die", "ended with exit code 9"),
        ("missing", "ended with exit code 1: AttributeError"),
    ],
)
async def test_a_plugin_that_breaks_its_process_is_a_failed_call(
    host: PluginHost, tmp_path: Path, function: str, told: str
) -> None:
    with pytest.raises(ToolFailure, match=f"the tool greet {told}"):
        await run(adapt(in_process(function), host), PlainContext(tmp_path))


@pytest.mark.parametrize("function", ["flood", "chatter"])
async def test_a_plugin_has_a_time_limit_of_its_own(host: PluginHost, tmp_path: Path, function: str) -> None:
    with pytest.raises(ToolFailure, match=r"gave no answer within 0\.5 s"):
        await run(adapt(in_process(function, timeout=0.5), host), PlainContext(tmp_path))


async def test_a_plugin_that_never_stops_talking_takes_no_more_than_its_share(host: PluginHost, tmp_path: Path) -> None:
    ctx = PlainContext(tmp_path)
    with pytest.raises(ToolFailure, match="gave no answer within 1 s"):
        await run(adapt(in_process("chatter", timeout=1), host), ctx)
    assert 0 < len(ctx.shown) <= BURST + PER_SECOND * 2


async def test_an_answer_of_a_plugin_has_a_bound(host: PluginHost, tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match="broke the conversation off"):
        await run(adapt(in_process("endless_line"), host), PlainContext(tmp_path))


@pytest.mark.parametrize("interactive", [False, True])
async def test_a_plugin_that_names_no_limit_has_one_unless_it_asks_the_user(
    interactive: bool, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def wait(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.sleep(TIME_LIMIT + 1)
        return "at last"

    host = PluginHost(ProcessSupervisor(owner_tag(str(tmp_path))), dict)
    tool = adapt(Plugin(run=wait, flags=ToolFlags(interactive=interactive)), host)
    if interactive:
        assert await tool.run(PlainContext(tmp_path), {}) == "at last"  # type: ignore[arg-type]
    else:
        with pytest.raises(ToolFailure, match="gave no answer within 600 s"):
            await tool.run(PlainContext(tmp_path), {})  # type: ignore[arg-type]


async def test_a_plugin_for_asyncio_that_swallows_its_cancellation_ends_with_its_time(
    host: PluginHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def stubborn(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    with pytest.raises(ToolFailure, match=r"gave no answer within 0\.1 s"):
        await run(adapt(Plugin(asyncio_run=stubborn, timeout=0.1), host), PlainContext(tmp_path))
    assert "it is cut off" in caplog.text


async def test_a_cancel_ends_the_process_of_a_plugin_and_its_children(host: PluginHost, tmp_path: Path) -> None:
    mark = MARKS.next()
    ctx = PlainContext(tmp_path)
    tool = adapt(in_process("hang"), host)
    with trio.fail_after(30):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: run(tool, ctx, mark=mark))
                await ctx.hanging.wait()
                scope.cancel()
    assert scope.cancelled_caught
    assert running_with(mark) == []


async def test_a_cancel_of_a_plugin_in_a_process_ends_it_whenever_it_comes(host: PluginHost, tmp_path: Path) -> None:
    tool = adapt(in_process("hang"), host)
    mark = MARKS.next()
    for number in range(12):
        with trio.fail_after(30), trio.move_on_after(number * 0.03):
            await run(tool, PlainContext(tmp_path), mark=mark)
        assert host.supervisor.live() == []
        assert running_with(mark) == []


async def nothing(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    return ""


@pytest.mark.parametrize(
    "plugin",
    [
        object(),
        Plugin(),
        Plugin(run=nothing, process="a:b"),
        Plugin(process="no function"),
        Plugin("not a name", run=nothing),
        Plugin(run=nothing, flags="fast"),
        Plugin(run=nothing, timeout=0),
        Plugin(run=nothing, spec={"name": "x"}),
        Plugin(run=nothing, spec=ToolSpec("x", "d", {"type": "string"})),
    ],
)
def test_a_plugin_that_is_not_what_it_has_to_be_is_left_out(
    plugin: object, host: PluginHost, caplog: pytest.LogCaptureFixture
) -> None:
    tools = adapt_plugins([plugin, Plugin("good", run=nothing), Plugin("good", run=nothing)], host)
    assert [tool.spec.name for tool in tools] == ["good"]
    assert "cannot be used" in caplog.text and "two plugins offer good" in caplog.text


async def test_a_stop_reaches_a_plugin_through_the_turn(tmp_path: Path) -> None:
    seen: list[str] = []
    began = trio.Event()

    async def wait(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        began.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    supervisor = ProcessSupervisor(owner_tag(str(tmp_path)), kill_grace=0.1)
    tools = adapt_plugins([Plugin("wait", asyncio_run=wait)], PluginHost(supervisor, dict))
    services, _ = make_services(say(calls=[call("wait", "c1")]), home=tmp_path, tools=tools)
    with trio.fail_after(30):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="tui", cwd=str(tmp_path))
            turn = await session.submit_nowait(Prompt("go")).wait_turn()
            assert turn is not None
            await began.wait()
            interrupt = session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
            assert (await interrupt.wait_settled(0.9)).settled
            assert (await turn.wait_ended()).interrupted
    assert seen == ["cancelled"]


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
async def test_what_is_no_exception_ends_only_the_call_of_the_plugin(
    leaving: type[BaseException], host: PluginHost, tmp_path: Path
) -> None:
    async def leave(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.sleep(0)
        raise leaving

    async def leave_in_a_nursery(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave, ctx, arguments)
        return "never"

    def leave_thread() -> None:
        raise leaving

    async def leave_in_a_thread(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.to_thread.run_sync(leave_thread)
        return "never"

    async def leave_asyncio(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await asyncio.sleep(0)
        raise leaving

    parts: list[dict[str, Any]] = [{"run": leave}, {"run": leave_in_a_nursery}, {"run": leave_in_a_thread}]
    for part in (*parts, {"asyncio_run": leave_asyncio}):
        with pytest.raises(ToolFailure, match=r"failed|leave the program"):
            await run(adapt(Plugin(**part), host), PlainContext(tmp_path))


@pytest.mark.parametrize("leaving", [ValueError, SystemExit, KeyboardInterrupt])
async def test_a_plugin_that_cannot_say_what_a_call_touches_is_shown_as_others_are(
    leaving: type[BaseException], host: PluginHost
) -> None:
    def leave(arguments: Mapping[str, Any]) -> Any:
        yield "/tmp"
        raise leaving

    def leave_at_once(arguments: Mapping[str, Any]) -> Any:
        raise leaving

    tool = adapt(Plugin(run=leave, paths=leave, preview=leave_at_once), host)
    assert (tool.preview({"name": "Ann"}), tool.paths({})) == ("Ann", ())


async def test_a_cancel_beside_what_is_no_exception_is_still_a_cancel(host: PluginHost, tmp_path: Path) -> None:
    async def leave_when_stopped(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        async def leave() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise KeyboardInterrupt

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            nursery.start_soon(trio.sleep_forever)
        return "never"

    with trio.move_on_after(0) as scope:
        await run(adapt(Plugin(run=leave_when_stopped), host), PlainContext(tmp_path))
    assert scope.cancelled_caught


def presses_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


async def press_in_trio(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    presses_ctrl_c()
    return "never"


async def press_in_asyncio(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    presses_ctrl_c()
    await asyncio.sleep(600)
    return "never"


@pytest.mark.parametrize("part", [{"run": press_in_trio}, {"asyncio_run": press_in_asyncio}], ids=["trio", "asyncio"])
def test_ctrl_c_ends_the_program_also_while_a_plugin_runs(
    part: dict[str, Any], host: PluginHost, tmp_path: Path
) -> None:
    async def main() -> None:
        with contextlib.suppress(ToolFailure):
            await run(adapt(Plugin(**part), host), PlainContext(tmp_path))
        await trio.sleep(30)

    with pytest.raises(BaseException) as caught:
        trio.run(main)
    error: BaseException | None = caught.value
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    assert isinstance(error, KeyboardInterrupt)


async def test_a_cancel_goes_through_a_plugin_as_a_cancel(host: PluginHost, tmp_path: Path) -> None:
    async def wait(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
        return "never"

    with trio.move_on_after(0) as scope:
        await adapt(Plugin(run=wait), host).run(PlainContext(tmp_path), {})  # type: ignore[arg-type]
    assert scope.cancelled_caught
