"""The process of the local model, stopped after many steps of its start and its life, at each level.

The process and the clock are real; a small program stands in for the model."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from hermes.agent.providers.local_model import LocalModel
from hermes.errors import ProviderError
from hermes.nurseries.local_model import LocalModelServer
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.outcomes import CancelReason, Cause
from tests.support.process_probe import no_longer_subreaper, open_descriptors, zombie_children
from tests.support.proof import times

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

RUNS = times(200, 40)
SLOW_RUNS = times(100, 8)
"""Of each program and level, stopped after steps that the seed draws; of the program that takes its time, less."""

LIVES_FOR = 20
"""Steps, after both callers have been answered."""

READY = "import os, sys; sys.stdin.readline(); print(f'http://{os.getpid()}', flush=True); sys.stdin.read()"
DIES = "import sys; sys.stdin.readline(); sys.exit('the file is no model')"
SILENT = "import sys; sys.stdin.read()"
PROGRAMS = {"gets ready": READY, "dies": DIES, "says nothing": SILENT}
LEVELS = ("call", "node", "all")


class StepCanceller(trio.abc.Instrument):
    """Cancels after the step of this number."""

    def __init__(self, step: int, cancel: Callable[[], object]) -> None:
        self.seen = 0
        self._step = step
        self._cancel = cancel

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seen += 1
        if self.seen == self._step:
            self._cancel()


async def one_run(home: Path, program: str, level: str, step: int) -> int:
    """Two calls ask for the model at once. Returns the steps; nothing may be left, and a later call finds a model."""
    supervisor = ProcessSupervisor(owner_tag(str(home)), kill_grace=0.1)
    supervisor.become_subreaper()
    tree = LiveTree()
    root = ReasonScope("server", "server", None, tree=tree)
    child = [sys.executable, "-I", "-S", "-c", PROGRAMS[program]]
    server = LocalModelServer(
        supervisor,
        lambda: dict(os.environ),
        find=lambda: LocalModel("tiny", home / "model"),
        child=tuple(child),
        ready_within=0.2 if program == "says nothing" else 20,
    )
    found: list[str] = []

    async def ask() -> None:
        try:
            found.append((await server.address()).base_url)
        except ProviderError as error:
            found.append(error.message)

    with trio.fail_after(30), root:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run, root)
            with trio.CancelScope() as calls:
                levels: dict[str, Callable[[], object]] = {
                    "call": calls.cancel,
                    "node": lambda: cancel_nodes(root),
                    "all": nursery.cancel_scope.cancel,
                }
                instrument = StepCanceller(step, levels[level])
                trio.lowlevel.add_instrument(instrument)
                try:
                    async with trio.open_nursery() as callers:
                        callers.start_soon(ask)
                        callers.start_soon(ask)
                    # It lives for a while; whoever asks right behind the stop must not get what is on its way out.
                    for _ in range(LIVES_FOR):
                        if instrument.seen < step or not step:
                            await trio.lowlevel.checkpoint()
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            if not step:
                told = {"gets ready": "http://", "dies": "no model", "says nothing": "nothing in time"}
                assert len(found) == 2 and all(told[program] in text for text in found), found
            await next_call_works(server, supervisor, root)
            nursery.cancel_scope.cancel()
    assert supervisor.live() == []
    assert zombie_children() == []
    assert len(tree) == 0
    return instrument.seen


async def next_call_works(server: LocalModelServer, supervisor: ProcessSupervisor, root: ReasonScope) -> None:
    """One process at most, and a call gets its address, or is told why there is none."""
    server._child = (sys.executable, "-I", "-S", "-c", READY)
    while True:
        try:
            address = await server.address()
        except ProviderError:
            # Of the life that was still going on.
            continue
        [process] = supervisor.live()
        [node] = [one for one in root.walk() if one.kind == "local_model"]
        assert address.base_url == f"http://{process.pid}/v1"
        assert not node.cancelled, "the address of a model that is on its way out"
        return


def cancel_nodes(root: ReasonScope) -> None:
    for node in root.walk():
        if node.kind == "local_model":
            node.request_cancel(CancelReason(Cause.NODE_CANCEL))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_a_stop_of_the_local_model_leaves_nothing_and_the_next_call_has_one(
    program: str, level: str, tmp_path: Path
) -> None:
    drawn = random.Random(f"{program} {level}")
    with no_longer_subreaper():
        steps = trio.run(one_run, tmp_path, program, level, 0)
        before = open_descriptors()
        for _ in range(SLOW_RUNS if program == "says nothing" else RUNS):
            step = drawn.randint(1, steps)
            trio.run(one_run, tmp_path, program, level, step)
            assert open_descriptors() == before, f"stopped after step {step} of {steps}"
