"""request_secret: ask the user to store a secret under the name of a variable. The model never learns the value.

Commands of the session get the variables that were stored this way, and those that its skills name, as long as the
name means nothing to the server itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes.agent.ports import SessionMemory, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redact
from hermes.agent.tools.base import BuiltinTool, failure, parameters, result, text
from hermes.agent.tools.services import ToolServices
from hermes.errors import HermesError
from hermes.messages import Answered, Declined, Question, TimedOut
from hermes.patterns import lazy_pattern

TIMEOUT = 300.0
_GRANTED = "granted_variables"
_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_MOST = 32_768


class RequestSecret(BuiltinTool):
    spec = ToolSpec(
        "request_secret",
        "Ask the user to store a secret under a variable name, such as one that skill_view reports as missing. You "
        "learn only whether it was stored; commands find it in their environment.",
        parameters({"env_var": text("Variable name."), "prompt": text("What to tell the user.")}, "env_var", "prompt"),
    )
    flags = ToolFlags(interactive=True, toolset="client")
    answered_by = "secret"

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        name = str(arguments["env_var"])
        variables = self.services.variables
        if variables is None:
            raise failure("nothing can be stored here")
        if not _NAME.match(name):
            raise failure(f"{name!r} is no name of a variable")
        if variables.reserved(name):
            raise failure(f"{name} belongs to the server itself; the user sets it in its configuration")
        prompt = str(arguments["prompt"])[:2000]
        params: dict[str, Any] = {"env_var": name, "prompt": redact(prompt) if self.services.redact else prompt}
        if name in variables.known():
            params["metadata"] = {"is_set": True}
        answer = await ctx.ask(Question("secret", params, (), TIMEOUT, ctx.call_id))
        match answer:
            case Answered(value={"value": str(value)}) if value:
                await store_secrets(self.services, ctx.memory, {name: value})
                return result({"status": "stored", "env_var": name})
            case Answered():
                return result({"status": "skipped", "env_var": name})
            case TimedOut():
                raise failure("the secret was not provided: nobody answered in time")
            case Declined(message=message):
                raise failure(message)
            case _:
                raise failure("the secret was not provided: nobody can be asked here")


async def store_secrets(services: ToolServices, memory: SessionMemory, values: Mapping[str, str]) -> None:
    """Keep the values and let the session's commands have them. Raises ``ToolFailure``."""
    if any(len(value) > _MOST or not value.isprintable() for value in values.values()):
        raise failure("the value is too long or holds characters that cannot be stored")
    assert services.variables is not None
    try:
        await services.variables.store(values)
    except HermesError as error:
        raise failure(f"the secret could not be stored: {error.message}") from None
    grant(services, memory, values)


def grant(services: ToolServices, memory: SessionMemory, names: Iterable[str]) -> None:
    """Let the session's commands have these stored variables."""
    if services.variables is not None:
        granted: set[str] = memory.extras.setdefault(_GRANTED, set())
        granted.update(name for name in names if not services.variables.reserved(name))


def stored_for(services: ToolServices, memory: SessionMemory, passthrough: Iterable[str]) -> dict[str, str]:
    """The stored variables that the session's commands get."""
    if services.variables is None:
        return {}
    wanted = {*passthrough, *memory.extras.get(_GRANTED, ())}
    known = services.variables.known() if wanted else {}
    return {name: known[name] for name in wanted if name in known}
