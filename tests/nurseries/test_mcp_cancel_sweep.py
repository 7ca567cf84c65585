"""Cancel after each of many steps of a server's life, at each level; the process is real, and so is the clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from hermes.agent.ports import ToolFailure
from hermes.outcomes import CancelReason, Cause
from tests.support.mcp_rig import McpRig, hostile, mcp_rig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

RUNS = 40
"""Of each level; the steps are spread over the whole scenario."""


class StepCanceller(trio.abc.Instrument):
    """Calls `cancel` after the step of this number."""

    def __init__(self, step: int, cancel: Callable[[], object]) -> None:
        self.seen = 0
        self._step = step
        self._cancel = cancel

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seen += 1
        if self.seen == self._step:
            self._cancel()


async def two_calls(rig: McpRig) -> None:
    """Start the server, call it, make it fall silent for one call, and close it."""
    await rig.call("echo", {"a": 1})
    with trio.move_on_after(0.02):
        await rig.call("mute")
    await rig.call("echo", {"a": 2})
    rig.servers.configure([])


def cancel_node(rig: McpRig) -> None:
    for node in rig.root.walk():
        if node.kind == "mcp":
            node.request_cancel(CancelReason(Cause.NODE_CANCEL))


async def run_once(home: Path, level: str, step: int) -> int:
    """One run, cancelled after this step at this level; the rig checks that nothing is left. Returns the steps."""
    async with mcp_rig(home, hostile(home, "plain")) as rig:
        with trio.fail_after(30), trio.CancelScope() as scope:
            levels: dict[str, Callable[[], object]] = {"call": scope.cancel, "node": lambda: cancel_node(rig)}
            instrument = StepCanceller(step, levels[level])
            trio.lowlevel.add_instrument(instrument)
            try:
                await two_calls(rig)
            except ToolFailure:
                assert level == "node"
            finally:
                trio.lowlevel.remove_instrument(instrument)
        if level == "call" and rig.servers.status():
            # The connection is as good as before, or another one is.
            with trio.fail_after(30):
                assert (await rig.call("echo", {"a": 3})).content == '{"a": 3}'
                assert len(rig.children()) == 1
        return instrument.seen


@pytest.mark.fault("B-050")
@pytest.mark.parametrize("level", ["call", "node"])
async def test_a_cancel_after_any_step_leaves_nothing_and_the_next_call_works(tmp_path: Path, level: str) -> None:
    steps = await run_once(tmp_path, level, 0)
    assert steps > RUNS
    for number in range(RUNS):
        await run_once(tmp_path, level, 1 + number * steps // RUNS)
