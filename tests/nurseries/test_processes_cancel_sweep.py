"""A cancel at every scheduling step of a run leaves no process, no zombie, no descriptor and no place taken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio

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


def run_and_cancel_at(step: int, home: str, spec: ProcessSpec) -> bool:
    """One run in a fresh loop. True if the cancel was still within it."""
    canceller = StepCanceller(step)
    supervisor = ProcessSupervisor(owner_tag(home), kill_grace=0.1)
    assert supervisor.become_subreaper()

    async def main() -> None:
        with trio.fail_after(30), trio.CancelScope() as scope:
            canceller.scope = scope
            try:
                await supervisor.run(spec, lambda chunk: None)
            finally:
                canceller.scope = None
        assert supervisor.live() == []

    trio.run(main, instruments=[canceller])
    return canceller.fired


@pytest.mark.parametrize("terminal", [None, TerminalSize()], ids=["pipe", "terminal"])
def test_cancel_at_every_step_leaves_nothing(tmp_path: Path, terminal: TerminalSize | None) -> None:
    with no_longer_subreaper():
        baseline: int | None = None
        for step in range(1, MOST_STEPS):
            mark = MARKS.next()
            script = f"setsid sleep {mark} & (sleep {mark} &); echo hi; cat >/dev/null; sleep 0.02"
            stdin = b"x" * 100 if terminal is None else b"\x04"
            spec = ProcessSpec(("sh", "-c", script), {"PATH": PATH}, stdin=stdin, terminal=terminal)
            fired = run_and_cancel_at(step, str(tmp_path), spec)
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
