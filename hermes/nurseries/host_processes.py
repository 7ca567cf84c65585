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
from hermes.nurseries.process_spec import ProcessSpec
from hermes.nurseries.session_processes import HeadAndTail

if TYPE_CHECKING:
    from hermes.nurseries.services import Services

CLI_CHARS: Final = 48_000
CLI_SECONDS: Final = 240
CLI_MAX_SECONDS: Final = 600
SHELL_SECONDS: Final = 30.0
SHELL_BYTES: Final = 100_000

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
    code: int
    output: str
    timed_out: bool = False


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
    """Run a shell command that a person typed, unless it is dangerous. Raises ``EmptyText``, ``CommandBlocked``."""
    if not command.strip():
        raise EmptyText("command is required")
    settings = services.settings()
    scene = Scene(cwd, str(Path.home()), str(services.home), frozenset({os.getpid(), os.getpgrp()}))
    policy = ApprovalPolicy(deny=tuple(settings.approvals.deny), scene=scene)
    decision = decide(command, policy)
    if not isinstance(decision, Allow):
        raise CommandBlocked("this command is dangerous; run it in a terminal, or let the agent ask for approval")
    environment = child_environment(settings)
    return await _run(services, ("/bin/sh", "-c", command), environment, cwd, SHELL_SECONDS, SHELL_BYTES)


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
