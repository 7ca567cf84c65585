"""The command of a ``key_cmd``, run by the process supervisor: in the call that needs the key, and ended with it.

Nothing that it prints is written anywhere; what it says on stderr is read and dropped, for it may name secrets too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from hermes.agent.providers.command_keys import KeyCommandFailed
from hermes.errors import Overloaded
from hermes.nurseries.piped_process import PipedProcess, open_piped
from hermes.nurseries.process_output import single_error
from hermes.nurseries.process_spec import ProcessSpec, SpawnFailed
from hermes.nurseries.processes import ProcessSupervisor

KEY_WITHIN: Final = 10.0
LAST_BYTES_WITHIN: Final = 0.2
MOST_BYTES: Final = 64 * 1024


class KeyCommands:
    """``RunKeyCommand``. ``environment()`` is the one of tools: keys of other providers are not in it."""

    def __init__(
        self,
        supervisor: ProcessSupervisor,
        environment: Callable[[], Mapping[str, str]],
        cwd: str,
        *,
        within: float = KEY_WITHIN,
    ) -> None:
        self._supervisor = supervisor
        self._environment = environment
        self._cwd = cwd
        self._within = within

    async def __call__(self, command: tuple[str, ...]) -> str:
        spec = ProcessSpec(command, self._environment(), cwd=self._cwd, name="key command")
        try:
            with trio.move_on_after(self._within):
                async with open_piped(self._supervisor, spec, on_stderr_line=_drop) as child:
                    await child.stdin.aclose()
                    return await _printed(child)
        except SpawnFailed as error:
            raise KeyCommandFailed(f"cannot be run: {error.reason}") from error
        except Overloaded as error:
            raise KeyCommandFailed(f"cannot be run: {error.message}") from error
        raise KeyCommandFailed(f"did not end within {self._within:g} s")


async def _printed(child: PipedProcess) -> str:
    """What it wrote until its end. An agent that it left behind may hold the pipe open; that one is not waited for."""
    found = bytearray()
    with single_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read, child, found)
            code = await child.wait()
            nursery.cancel_scope.deadline = trio.current_time() + LAST_BYTES_WITHIN
    if code:
        raise KeyCommandFailed(f"failed with exit code {code}")
    if len(found) > MOST_BYTES:
        raise KeyCommandFailed("printed too much")
    return found.decode("utf-8", errors="replace")


async def _read(child: PipedProcess, found: bytearray) -> None:
    while chunk := await child.stdout.receive_some(MOST_BYTES):
        if len(found) <= MOST_BYTES:
            found += chunk


def _drop(_line: str) -> None:
    """Nobody reads it."""
