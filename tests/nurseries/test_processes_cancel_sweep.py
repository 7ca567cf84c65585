"""A cancel at every scheduling step of a run leaves no process, no zombie, no descriptor and no place taken."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from hermes.nurseries.background_process import BackgroundProcess
from hermes.nurseries.piped_process import open_piped
from hermes.nurseries.process_spec import ProcessSpec, TerminalSize
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from tests.support.process_probe import (
    PATH,
    Marks,
    no_longer_subreaper,
    open_descriptors,
    running_with,
    zombie_children,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MOST_STEPS = 200
MARKS = Marks()


class StepCanceller(trio.abc.Instrument):
    """Cancels a scope right after the given number of task steps inside it."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._count = 0
        self.scope: trio.CancelScope | None = None
        self.fired = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.scope is not None and not self.fired:
            self._count += 1
            if self._count == self._step:
                self.fired = True
                self.scope.cancel()


async def in_foreground(supervisor: ProcessSupervisor, spec: ProcessSpec) -> None:
    await supervisor.run(spec, lambda chunk: None)


async def in_background(supervisor: ProcessSupervisor, spec: ProcessSpec) -> None:
    async with trio.open_nursery() as nursery:
        process = BackgroundProcess(supervisor, spec)
        await nursery.start(process.supervise)
        await process.wait()
        await process.kill()


async def as_a_peer(supervisor: ProcessSupervisor, spec: ProcessSpec) -> None:
    async with open_piped(supervisor, spec) as peer:
        await peer.stdin.send_all(b"x" * 100)
        await peer.stdout.receive_some(10)


Runner = Callable[[ProcessSupervisor, ProcessSpec], Awaitable[None]]


def run_and_cancel_at(step: int, home: str, spec: ProcessSpec, runner: Runner) -> bool:
    """One run in a fresh loop. True if the cancel was still within it."""
    canceller = StepCanceller(step)
    supervisor = ProcessSupervisor(owner_tag(home), kill_grace=0.1)
    assert supervisor.become_subreaper()

    async def main() -> None:
        with trio.fail_after(30), trio.CancelScope() as scope:
            canceller.scope = scope
            try:
                await runner(supervisor, spec)
            finally:
                canceller.scope = None
        assert supervisor.live() == []

    trio.run(main, instruments=[canceller])
    return canceller.fired


@pytest.mark.parametrize("terminal", [None, TerminalSize()], ids=["pipe", "terminal"])
@pytest.mark.parametrize("runner", [in_foreground, in_background, as_a_peer])
def test_cancel_at_every_step_leaves_nothing(tmp_path: Path, terminal: TerminalSize | None, runner: Runner) -> None:
    with no_longer_subreaper():
        baseline: int | None = None
        for step in range(1, MOST_STEPS):
            mark = MARKS.next()
            script = f"setsid sleep {mark} & (sleep {mark} &); echo hi; cat >/dev/null; sleep 0.02"
            stdin = b"x" * 100 if terminal is None else b"\x04"
            spec = ProcessSpec(("sh", "-c", script), {"PATH": PATH}, stdin=stdin, terminal=terminal)
            fired = run_and_cancel_at(step, str(tmp_path), spec, runner)
            assert running_with(mark) == [], f"cancelled at step {step}"
            assert zombie_children() == [], f"cancelled at step {step}"
            if baseline is None:
                baseline = open_descriptors()
            assert open_descriptors() == baseline, f"cancelled at step {step}"
            if not fired:
                assert step > 10
                return
        pytest.fail(f"the run took more than {MOST_STEPS} steps")


def test_cancel_before_the_start_starts_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "witness"

    async def main() -> None:
        supervisor = ProcessSupervisor(owner_tag(str(tmp_path)))
        with trio.CancelScope() as scope:
            scope.cancel()
            await supervisor.run(ProcessSpec(("touch", str(witness)), {"PATH": PATH}), lambda chunk: None)
        assert scope.cancelled_caught
        assert supervisor.live() == []

    trio.run(main)
    assert not os.path.exists(witness)
