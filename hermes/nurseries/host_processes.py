"""Commands that a host runs through the server, outside of any session: the product's own command line, and ``!cmd``.

Supervised like every child process; they live in the request that asked for them and end with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from hermes.agent.approvals import Allow, ApprovalPolicy, decide
from hermes.agent.command_targets import Scene
from hermes.config import child_environment
from hermes.errors import CommandBlocked, CommandFailed, EmptyText
from hermes.nurseries.piped_process import PipedProcess, open_piped
from hermes.nurseries.process_output import single_error
from hermes.nurseries.process_spec import ProcessSpec
from hermes.nurseries.session_processes import HeadAndTail

if TYPE_CHECKING:
    from hermes.nurseries.services import Services

CLI_CHARS: Final = 48_000
CLI_SECONDS: Final = 240
CLI_MAX_SECONDS: Final = 600
SHELL_SECONDS: Final = 30.0
SHELL_BYTES: Final = 100_000
SHELL_OUT_CHARS: Final = 4000
SHELL_ERR_CHARS: Final = 2000
LAST_BYTES_WITHIN: Final = 0.2
"""Seconds that a pipe is read behind the end of its command: what the command left behind may hold it open."""

# What would need a terminal, or would start another server.
BLOCKED: Final[Mapping[tuple[str, ...], str]] = {
    (): "name a command, for example `config show`",
    ("setup",): "run `hermes setup` in a terminal",
    ("chat",): "run `hermes chat` in a terminal",
    ("gateway",): "a gateway is running already",
    ("serve",): "this would start another server; run it in a terminal",
    ("acp",): "this would start another server; run it from an editor",
    ("sessions", "browse"): "run `hermes sessions browse` in a terminal",
    ("config", "edit"): "run `hermes config edit` in a terminal, or set single keys",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """``output`` is both streams in order; where they are kept apart, ``errors`` is what came on stderr."""

    code: int
    output: str
    timed_out: bool = False
    errors: str = ""


def blocked_hint(argv: Sequence[str]) -> str | None:
    """Why this command line is not run here, or None."""
    words = [word for word in argv if not word.startswith("-")]
    for blocked, hint in BLOCKED.items():
        if (not blocked and not words) or (blocked and tuple(words[: len(blocked)]) == blocked):
            return hint
    return None


async def run_cli(services: Services, argv: Sequence[str], timeout: int | None) -> Ended:
    """Run the product's command line without a terminal. Raises ``CommandFailed``."""
    seconds = float(min(max(timeout or CLI_SECONDS, 1), CLI_MAX_SECONDS))
    program = (sys.executable,) if getattr(sys, "frozen", False) else (sys.executable, "-m", "hermes")
    environment = {**child_environment(services.settings()), "HERMES_HOME": str(services.home)}
    ended = await _run(services, (*program, *argv), environment, os.getcwd(), seconds, CLI_CHARS)
    return Ended(ended.code, ended.output[-CLI_CHARS:], ended.timed_out)


async def run_shell(services: Services, command: str, cwd: str) -> Ended:
    """Run a shell command that a person typed, unless it is dangerous; the last of its output, and apart from it of
    its errors. Raises ``EmptyText``, ``CommandBlocked``, ``CommandFailed``."""
    if not command.strip():
        raise EmptyText("command is required")
    settings = services.settings()
    scene = Scene(cwd, str(Path.home()), str(services.home), frozenset({os.getpid(), os.getpgrp()}))
    policy = ApprovalPolicy(deny=tuple(settings.approvals.deny), scene=scene)
    # Beside the loop: reading a long script takes a while.
    decision = await trio.to_thread.run_sync(decide, command, policy)
    if not isinstance(decision, Allow):
        raise CommandBlocked("this command is dangerous; run it in a terminal, or let the agent ask for approval")
    spec = ProcessSpec(("/bin/sh", "-c", command), child_environment(settings), cwd=cwd, name="/bin/sh")
    return await _run_apart(services, spec, SHELL_SECONDS)


async def run_own(services: Services, command: str, cwd: str) -> Ended:
    """Run a shell command that the user's own configuration holds. Raises ``CommandFailed``."""
    environment = child_environment(services.settings())
    return await _run(services, ("/bin/sh", "-c", command), environment, cwd, SHELL_SECONDS, SHELL_BYTES)


async def _run(
    services: Services, argv: tuple[str, ...], env: Mapping[str, str], cwd: str, seconds: float, limit: int
) -> Ended:
    kept = HeadAndTail(limit)
    spec = ProcessSpec(argv=argv, env=env, cwd=cwd, timeout=seconds, name=argv[0])
    try:
        end = await services.supervisor.run(spec, kept.add)
    except OSError as error:
        raise CommandFailed(f"the command could not be started: {error.strerror or error}") from None
    await trio.lowlevel.checkpoint_if_cancelled()
    output, _ = kept.take()
    code = end.exit_code if end.exit_code is not None else 128 + (end.signal or 0)
    return Ended(code, output.decode("utf-8", "replace"), end.timed_out)


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._kept = b""

    def add(self, chunk: bytes) -> None:
        # A character has four bytes at most.
        self._kept = (self._kept + chunk)[-4 * self._chars :]

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")[-self._chars :]


async def _run_apart(services: Services, spec: ProcessSpec, seconds: float) -> Ended:
    output, errors = _Tail(SHELL_OUT_CHARS), _Tail(SHELL_ERR_CHARS)
    code: int | None = None
    try:
        with trio.move_on_after(seconds):
            async with open_piped(services.supervisor, spec, on_stderr=errors.add) as child:
                await child.stdin.aclose()
                code = await _read_to_the_end(child, output)
    except OSError as error:
        raise CommandFailed(f"the command could not be started: {error.strerror or error}") from None
    await trio.lowlevel.checkpoint_if_cancelled()
    return Ended(-1 if code is None else code, output.text, code is None, errors.text)


async def _read_to_the_end(child: PipedProcess, output: _Tail) -> int:
    async def read() -> None:
        while chunk := await child.stdout.receive_some(1 << 16):
            output.add(chunk)

    with single_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            code = await child.wait()
            nursery.cancel_scope.deadline = trio.current_time() + LAST_BYTES_WITHIN
    return code
