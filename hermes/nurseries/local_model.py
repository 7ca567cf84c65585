"""The process of the packaged local model: started when it is first needed, ended with the server or with its node.

One life at a time. A life is a node ``local_model`` of the live tree with the process in it; cancelling the node ends
it, and the next call begins another. A call that is stopped while the model loads leaves only its own wait.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, Mapping
from typing import Final

import trio

from hermes.agent.providers.local_model import (
    HOW_TO_INSTALL,
    LOCAL,
    LocalAddress,
    LocalModel,
    find_local_model,
)
from hermes.errors import ProviderError
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.mcp_bridge import CHUNK, Lines
from hermes.nurseries.piped_process import PipedProcess, open_piped
from hermes.nurseries.plugin_process import SAFE_PATH
from hermes.nurseries.process_spec import ProcessSpec, SpawnFailed
from hermes.nurseries.processes import ProcessSupervisor
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.settlement import Settlement
from hermes.outcomes import CancelReason

log = logging.getLogger(__name__)

CHILD: Final = (sys.executable, *SAFE_PATH, "-m", "hermes.nurseries.local_model_child")
READY_WITHIN: Final = 60.0
LAST_WORDS: Final = 200
LAST_WORDS_WITHIN: Final = 0.5


class _Life:
    """One process from the wish to have it. ``ready`` holds the address, or why there is none."""

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        self.ready: Settlement[LocalAddress | str] = Settlement()


class LocalModelServer:
    """``LocalModelHost``. ``run`` holds the process; nothing starts before ``address`` is asked for."""

    def __init__(
        self,
        supervisor: ProcessSupervisor,
        environment: Callable[[], Mapping[str, str]],
        *,
        find: Callable[[], LocalModel | None] = find_local_model,
        child: tuple[str, ...] = CHILD,
        ready_within: float = READY_WITHIN,
    ) -> None:
        self._supervisor = supervisor
        self._environment = environment
        self._find = find
        self._child = child
        self._ready_within = ready_within
        self._life: _Life | None = None
        self._wanted = trio.Event()

    def model(self) -> LocalModel | None:
        return None if getattr(sys, "frozen", False) else self._find()

    async def address(self) -> LocalAddress:
        """Raises ``ProviderError``."""
        model = self.model()
        if model is None:
            raise _failure(f"it is not installed: {HOW_TO_INSTALL}")
        if self._life is None:
            self._life = _Life(model)
            self._wanted.set()
        ready = await self._life.ready.wait()
        if isinstance(ready, str):
            raise _failure(ready)
        return ready

    async def run(self, parent: ReasonScope) -> None:
        """Below ``parent``, until cancelled; nothing of the process is left afterwards."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            life = self._life
            if life is None:
                continue
            why = "it was stopped"
            try:
                outcome = await contained("local model", self._live, life, parent)
                why = str(outcome.error) if isinstance(outcome, Crash) else outcome
                log.info("the local model has ended: %s", why)
            finally:
                self._give_up(life)
                life.ready.settle(why)

    async def _live(self, life: _Life, parent: ReasonScope) -> str:
        """Why it has ended."""
        model = life.model
        scope = ReasonScope("local_model", model.name, parent)
        scope.pids = lambda: self._supervisor.pids_of_node(scope.node_id)

        def stop(reason: CancelReason) -> bool:
            # In the same breath: who asks from now on gets another one.
            self._give_up(life)
            return scope.cancel(reason)

        scope.on_cancel = stop
        spec = ProcessSpec(
            (*self._child, str(model.path)), self._environment(), node_id=scope.node_id, name="local model"
        )
        with scope:
            try:
                async with open_piped(self._supervisor, spec) as process:
                    try:
                        address = await self._ready(process)
                        if address is None:
                            return f"it did not start: {await _last_words(process)}"
                        life.ready.settle(address)
                        return f"its process ended with exit code {await process.wait()}"
                    finally:
                        # Before the process is cleared away: who asks from now on gets another one.
                        self._give_up(life)
            except SpawnFailed as error:
                return error.reason
        return "it was stopped"

    def _give_up(self, life: _Life) -> None:
        if self._life is life:
            self._life = None

    async def _ready(self, process: PipedProcess) -> LocalAddress | None:
        key = secrets.token_urlsafe(24)
        lines = Lines()
        with trio.move_on_after(self._ready_within):
            try:
                await process.stdin.send_all(key.encode() + b"\n")
                while chunk := await process.stdout.receive_some(CHUNK):
                    for line in lines.feed(chunk):
                        return LocalAddress(f"{line.decode().strip()}/v1", key)
            except trio.BrokenResourceError:
                return None
        return None


async def _last_words(process: PipedProcess) -> str:
    """What it said last on stderr; one that is ending gets the moment to say it."""
    with trio.move_on_after(LAST_WORDS_WITHIN):
        await process.wait()
        while not process.stderr_tail:  # noqa: ASYNC110 (what collects it tells nobody)
            await trio.sleep(0.01)
    last = process.stderr_tail.strip().rpartition("\n")[2]
    return last[-LAST_WORDS:] or "it said nothing in time"


def _failure(why: str) -> ProviderError:
    return ProviderError(
        f"the local model cannot be used: {why}",
        error_class="model_not_found",
        provider=LOCAL,
        reached_provider=False,
    )
