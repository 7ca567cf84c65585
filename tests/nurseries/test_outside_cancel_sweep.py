"""Calls that work outside the loop, in processes and threads, stopped after many of their steps, at each level.

The processes, the threads and the clock are real. What must hold afterwards is the same as in the sweeps on virtual
time, and more: no process, no descriptor and no thread's place is left."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import Tool, ToolContext, ToolFailure, ToolSpec
from hermes.agent.tools.search import SearchFiles
from hermes.messages import Prompt, ToolCall
from hermes.nurseries.key_commands import KeyCommands
from hermes.nurseries.mcp_servers import McpServers
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.plugin_process import CHILD, PluginHost
from hermes.nurseries.plugin_tools import adapt
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.services import Services
from hermes.nurseries.session import Session
from hermes.nurseries.spare_threads import lend_threads
from hermes.outcomes import CancelReason, Cause
from hermes.settings import LimitSettings, Settings
from hermes.testing.cancel_sweep import _seeded_scheduling
from tests.support import tool_context
from tests.support.core import PlainTool, ScriptedModel, events_of, make_services, running_tree, say
from tests.support.invariants import (
    assert_events_are_well_formed,
    assert_history_is_whole,
)
from tests.support.mcp_rig import hostile
from tests.support.process_probe import (
    PATH,
    Marks,
    no_longer_subreaper,
    open_descriptors,
    running_with,
    zombie_children,
)
from tests.support.proof import times

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MARKS = Marks()
LEVELS = ("tool_call", "turn", "session", "server")
SETTINGS = Settings(limits=LimitSettings(kill_grace=0.1))
RUNS = times(40, 1)
"""Of each level and seed; their steps are drawn by the seed."""
SEEDS = (0, 1)
WITHIN = 30.0


@dataclass
class Stage:
    """Where one run plays."""

    home: Path
    services: Services
    mark: str
    tree: ServerTree | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": PATH, "PYTHONPATH": ":".join(sys.path), "LC_ALL": "C.UTF-8"}


Play = Callable[[Stage], Any]
"""An async context manager that gives the one tool of the turn, called ``outside``, and its arguments."""


class Plugin:
    """A plugin in a process."""

    def __init__(self, function: str, timeout: float) -> None:
        self.spec = ToolSpec("outside", "a plugin", {"type": "object", "properties": {}})
        self.process = f"tests.support.plugin_functions:{function}"
        self.timeout = timeout


def plugin(function: str, timeout: float) -> Play:
    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        host = PluginHost(stage.services.supervisor, lambda: stage.environment)
        yield adapt(Plugin(function, timeout), host), {"mark": stage.mark, "name": "Ann"}

    return play


class Search(SearchFiles):
    spec = ToolSpec("outside", "a search", SearchFiles.spec.parameters)


def search(pattern: str) -> Play:
    """Without ripgrep, so that a pattern of Python's own runs in a child."""

    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        (stage.home / "text").write_text("a" * 40 + "!\nfirst line\n")
        made = tool_context.make_services(stage.home, ripgrep=None, child=(*CHILD, stage.mark))
        yield Search(made), {"pattern": pattern, "path": str(stage.home)}

    return play


def nested(depth: int) -> None:
    """Hold a thread, call back into the loop, and wait there for another one."""
    if depth:
        trio.from_thread.run(trio.to_thread.run_sync, nested, depth - 1)
    time.sleep(0.002)


@asynccontextmanager
async def threads(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
    async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(trio.to_thread.run_sync, nested, 2)
        return "through"

    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lend_threads, 0.005)
        yield PlainTool("outside", run), {}
        while limiter.total_tokens != 2:
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()


def mcp(behaviour: str, tool: str, **limits: float) -> Play:
    """A server that is started by the first call."""

    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        assert stage.tree is not None
        servers = McpServers(TransportHost(stage.services.supervisor, lambda: stage.environment, str(stage.home)))
        root = ReasonScope("server", "servers", None, tree=LiveTree())

        async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> Any:
            return await servers._servers["x"].call(tool, arguments, ctx.progress)

        with root:
            async with trio.open_nursery() as nursery:
                await nursery.start(servers.run, root)
                servers.configure([hostile(stage.home, behaviour, **limits)])
                yield PlainTool("outside", run), {"a": 1}
                nursery.cancel_scope.cancel()

    return play


def key_command(script: str) -> Play:
    @asynccontextmanager
    async def play(stage: Stage) -> AsyncIterator[tuple[Tool, dict[str, Any]]]:
        keys = KeyCommands(stage.services.supervisor, lambda: stage.environment, str(stage.home), within=0.1)

        async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
            try:
                return await keys(("sh", "-c", script.format(stage.mark)))
            except Exception as error:
                raise ToolFailure(str(error)) from error

        yield PlainTool("outside", run), {}

    return play


PLAYS: dict[str, Play] = {
    "a plugin that answers": plugin("greet", 20),
    "a plugin that reaches its limit": plugin("hang", 0.3),
    "a search in a child": search("fi.st"),
    "a search that would take for ever": search("(a+)+$"),
    "threads that wait for threads": threads,
    "an MCP server that starts and answers": mcp("plain", "echo"),
    "an MCP tool that never answers": mcp("plain", "mute", timeout=0.3),
    "a key command that never ends": key_command("sleep {0} & sleep {0}"),
    "a key command": key_command("echo key"),
}
EXPECTED = {
    "a plugin that answers": "hello Ann",
    "a plugin that reaches its limit": "gave no answer within 0.3 s",
    "a search in a child": "first line",
    "a search that would take for ever": "the call was cancelled",
    "threads that wait for threads": "through",
    "an MCP server that starts and answers": '{"a": 1}',
    "an MCP tool that never answers": "gave no answer within 0.3 s",
    "a key command that never ends": "did not end within 0.1 s",
    "a key command": "key",
}
"""What the model reads in the run that nobody stops."""
ENDLESS = frozenset({"a search that would take for ever"})
"""It has a limit of many seconds: a run that is not stopped by then, is stopped after a second."""


class StepCanceller(trio.abc.Instrument):
    """Stops the turn at a level after a step of this number, counted while there is something to stop."""

    def __init__(self, session: Session, tree: ServerTree, level: str, step: int) -> None:
        self.seen = 0
        self.fired = False
        self._session, self._tree, self._level, self._step = session, tree, level, step

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        cancel = self._cancel()
        if cancel is None or self.fired:
            return
        self.seen += 1
        if self.seen == self._step:
            self.fired = True
            cancel()

    def _cancel(self) -> Callable[[], object] | None:
        session, registry = self._session, self._tree.registry
        turn = session.slot.turn
        if turn is None:
            return None
        match self._level:
            case "tool_call":
                node = next((one for one in turn.scope.walk() if one.kind == "tool_call" and one.entered), None)
                return None if node is None else lambda: node.request_cancel(CancelReason(Cause.NODE_CANCEL))
            case "turn":
                return lambda: session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "sweep"))
            case "session":
                return lambda: registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
            case _:
                return lambda: registry.scope.cancel(CancelReason(Cause.SHUTDOWN))


async def one_run(home: Path, name: str, level: str, step: int) -> tuple[int, bool]:
    """Play once, stop after this step, and look at everything that is left. Returns the steps, and whether it was."""
    home.mkdir()
    model = ScriptedModel(say(""), say("done"))
    services, _ = make_services(model=model, home=home, settings=SETTINGS)
    stage = Stage(home, services, MARKS.next())
    with trio.fail_after(WITHIN):
        async with running_tree(services) as tree:
            stage.tree = tree
            async with PLAYS[name](stage) as (tool, arguments):
                session = tree.registry.create(source="test", cwd=str(home))
                session.extra_tools[:] = [tool]
                model.replies[0] = say("", calls=[ToolCall("c1", "outside", json.dumps(arguments))])
                canceller = StepCanceller(session, tree, level, step)
                trio.lowlevel.add_instrument(canceller)
                try:
                    await _turn(session, name in ENDLESS)
                finally:
                    trio.lowlevel.remove_instrument(canceller)
                if not step:
                    assert session.rows[2].role == "tool" and EXPECTED[name] in session.rows[2].text
                if session.closing:
                    await session.wait_closed()
                else:
                    model.replies[:] = [say("second")]
                    again = session.submit_nowait(Prompt("second"))
                    assert again.status == "streaming"
                    second = await again.wait_turn()
                    assert second is not None
                    record = await second.wait_ended()
                    assert record.text == "second", record
                # The turn has ended, so all its work has: nothing needs the end of the server.
                assert running_with(stage.mark) == []
                limiter = trio.to_thread.current_default_thread_limiter()
                assert limiter.statistics().tasks_waiting == 0
                assert_events_are_well_formed(events_of(session))
                assert_history_is_whole(session.rows)
                assert tuple(session.rows) == tuple(await services.store.load_rows(session.key))
                assert model.open == 0
                kinds = [node.kind for node in tree.scope.walk()]
                closed = {"session": ["server", "sessions"], "server": ["server"]}
                fired = canceller.fired
                assert kinds == (closed.get(level if fired else "") or ["server", "sessions", "session"])
    assert services.supervisor.live() == []
    assert zombie_children() == []
    return canceller.seen, canceller.fired


async def _turn(session: Session, stop: bool) -> None:
    turn = await session.submit_nowait(Prompt("first")).wait_turn()
    assert turn is not None
    if stop:
        await turn.ended.wait_at_most(1)
        session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
    await turn.wait_ended()


def sweep(home: Path, name: str, level: str) -> None:
    with no_longer_subreaper():
        hits = 0
        for seed in SEEDS:
            drawn = random.Random(f"{seed} {name} {level}")
            with _seeded_scheduling(seed):
                steps = _steps(home, name, level, seed)
                assert steps > 3
                before = open_descriptors()
                for number in range(RUNS):
                    # Real work has not the same number of steps each time: the last ones may not come.
                    step = drawn.randint(1, max(1, steps * 9 // 10))
                    _, fired = _started(home / f"{seed}-{number}", name, level, step)
                    hits += fired
                    assert open_descriptors() == before, f"stopped after step {step} of {steps}, seed {seed}"
    assert hits * 2 >= RUNS * len(SEEDS), f"{hits} stops came in time"


_COUNTED: dict[tuple[str, bool, int], int] = {}
"""Steps of the run that nobody stops, by what is played, whether the call alone is stopped, and the seed."""


def _steps(home: Path, name: str, level: str, seed: int) -> int:
    key = (name, level == "tool_call", seed)
    if key not in _COUNTED:
        _COUNTED[key], _ = _started(home / f"{seed}", name, level, 0)
    return _COUNTED[key]


def _started(home: Path, name: str, level: str, step: int) -> tuple[int, bool]:
    async def main() -> tuple[int, bool]:
        return await one_run(home, name, level, step)

    return trio.run(main)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", list(PLAYS))
def test_a_stop_of_work_outside_the_loop_leaves_nothing(name: str, level: str, tmp_path: Path) -> None:
    sweep(tmp_path, name, level)
