"""The password for ``sudo``: asked once, kept in memory for the session, given on standard input, never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

import trio

from hermes.agent.command_views import views_of
from hermes.agent.ports import ProcessRequest, ToolContext
from hermes.agent.redaction import redact
from hermes.agent.tools.services import ToolServices
from hermes.errors import HermesError
from hermes.messages import Answered, Question
from hermes.patterns import lazy_pattern

TIMEOUT = 120.0
_LONG_COMMAND = 2000
"""Characters: reading a longer command takes a while."""
CHECK_TIMEOUT = 20.0
"""Longer than sudo waits after a wrong password."""
_REFUSED = "sudo_refused"
_WRONG = lazy_pattern(r"sorry, try again|incorrect password|no password was provided|\d+ incorrect", re.I)


def known_sudo_password(ctx: ToolContext, services: ToolServices) -> str | None:
    """What was typed in this session, or is configured, unless sudo has refused it."""
    configured = services.sudo_password()
    if ctx.memory.sudo_password is None and configured and configured != ctx.memory.extras.get(_REFUSED):
        return configured
    return ctx.memory.sudo_password


async def ask_sudo_password(
    ctx: ToolContext, services: ToolServices, command: str, environment: Mapping[str, str]
) -> bool:
    """True if the command uses sudo and a password is known now, perhaps because somebody just typed it.

    ``environment`` is what the command will run in: the sudo that is asked is the one that it will find."""
    if not await _uses_sudo(command):
        return False
    ctx.memory.sudo_password = known_sudo_password(ctx, services)
    if ctx.memory.sudo_password is not None:
        return True
    if ctx.unattended or not await _needs_password(ctx, environment):
        return False
    answer = await ctx.ask(Question("sudo", {"command": redact(command)}, timeout=TIMEOUT, tool_call_id=ctx.call_id))
    value = answer.value.get("value") if isinstance(answer, Answered) else None
    if not isinstance(value, str) or not value or "\n" in value:
        return False
    ctx.memory.sudo_password = value
    return True


async def _uses_sudo(command: str) -> bool:
    if len(command) > _LONG_COMMAND:
        return await trio.to_thread.run_sync(_names_sudo, command)
    return _names_sudo(command)


def _names_sudo(command: str) -> bool:
    return any(view.name == "sudo" for view in views_of(command))


async def check_sudo_password(ctx: ToolContext, environment: Mapping[str, str]) -> str | None:
    """What sudo says against the known password, which is then forgotten; None if it has nothing against it.

    For a command whose own words about it nobody reads: one that runs beside the conversation."""
    said = bytearray()
    password = f"{ctx.memory.sudo_password}\n".encode()
    request = ProcessRequest(("sudo", "-S", "-p", "", "-v"), "/", environment, timeout=CHECK_TIMEOUT, stdin=password)
    outcome = await ctx.run_process(request, said.extend)
    if outcome.exit_code == 0:
        return None
    _forget(ctx)
    return redact(said.decode("utf-8", "replace")).strip()[:500] or "sudo did not accept the password"


def forget_wrong_password(ctx: ToolContext, output: str) -> None:
    """A refused password is not kept for the next try."""
    if ctx.memory.sudo_password is not None and _WRONG.search(output):
        _forget(ctx)


def _forget(ctx: ToolContext) -> None:
    ctx.memory.extras[_REFUSED] = ctx.memory.sudo_password
    ctx.memory.sudo_password = None


async def _needs_password(ctx: ToolContext, environment: Mapping[str, str]) -> bool:
    """False if sudo is not installed, or runs without a password here."""
    request = ProcessRequest(("sudo", "-n", "true"), "/", environment, timeout=5.0)
    try:
        outcome = await ctx.run_process(request, lambda _chunk: None)
    except (OSError, HermesError):
        return False
    return outcome.exit_code != 0
