"""Slash commands, the command line, completion (gateway §8)."""

from __future__ import annotations

from typing import Any

from hermes.agent.commands import catalog, complete, find_command, read_line, resolve_command
from hermes.errors import CommandNotFound, EmptyText, Unavailable
from hermes.nurseries import attachments, session_skills
from hermes.nurseries.command_runner import CommandResult, run_command
from hermes.nurseries.host_processes import blocked_hint, run_cli, run_shell
from hermes.nurseries.path_completion import complete_path
from hermes.nurseries.session import Session
from hermes.protocols.gateway import schemas_config as c
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.methods_config import optional_session, rules_told
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()


async def _skill_pairs(client: GatewayClient, session: Session | None) -> list[tuple[str, str]]:
    cwd = session.memory.cwd if session is not None else client.server.default_cwd()
    return session_skills.as_pairs(await session_skills.list_skills(client.server.services, cwd))


@methods.method("commands.catalog", c.OptionalSessionParams, "CommandsCatalogResult")
async def commands_catalog(client: GatewayClient, params: c.OptionalSessionParams) -> dict[str, Any]:
    skills = await _skill_pairs(client, optional_session(client, params.session_id))
    return catalog(skills, client.server.settings.quick_commands)


@methods.method("command.resolve", c.CommandResolveParams, "CommandResolveResult")
def command_resolve(client: GatewayClient, params: c.CommandResolveParams) -> dict[str, Any]:
    command = resolve_command(params.name)
    return {"canonical": command.name, "description": command.description, "category": command.category}


@methods.method("command.dispatch", c.CommandDispatchParams, "CommandDispatchResult")
def command_dispatch(client: GatewayClient, params: c.CommandDispatchParams) -> Awaiting[Any]:
    """Both shapes: ``{command: "/name rest"}`` and ``{name, arg}``; the second wins where both are given (§8.4)."""
    line = read_line(params.command or "")
    name = (params.name or line.name).strip().removeprefix("/")
    arg = params.arg if params.arg is not None else ("" if params.name else line.arg)
    if not name:
        raise EmptyText("a command is required")
    session = client.guess_session(params.session_id)

    async def run() -> dict[str, Any]:
        return await dispatched(client, session, name, arg)

    return Awaiting(run)


@methods.method("slash.exec", c.SlashExecParams, "SlashExecResult")
def slash_exec(client: GatewayClient, params: c.SlashExecParams) -> Awaiting[Any]:
    """A command's text; those that give a prompt give it here too. An unknown one is said in the output (§8.5)."""
    session = client.session(params.session_id)
    line = read_line(params.command)
    if not line.name:
        raise EmptyText("a command is required")

    async def run() -> dict[str, Any]:
        try:
            result = await dispatched(client, session, line.name, line.arg)
        except CommandNotFound as error:
            if find_command(line.name) is not None:
                raise
            return {"output": error.message}
        if result["type"] == "skill":
            raise CommandNotFound("a skill is started with command.dispatch")
        if result["type"] == "exec":
            del result["type"]
        return result

    return Awaiting(run)


async def dispatched(client: GatewayClient, session: Session, name: str, arg: str) -> dict[str, Any]:
    command = find_command(name)
    if command is not None and command.name == "image":
        image, remainder = await attachments.attach_image(session, arg)
        return {"type": "exec", "output": f"attached {image.path} {remainder}".strip()}
    with rules_told(client, session):
        result = await run_command(client.server.tree, session, name, arg)
    client.catch_up_all()
    return _wire(result)


def _wire(result: CommandResult) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": result.type}
    for key in ("output", "message", "target", "name", "notice", "display", "warning"):
        value = getattr(result, key)
        if value is not None:
            wire[key] = value
    if result.changed:
        wire["state_changed"] = list(result.changed)
    return wire


# --- processes -------------------------------------------------------------------------------------------------------


@methods.method("cli.exec", c.CliExecParams, "CliExecResult")
async def cli_exec(client: GatewayClient, params: c.CliExecParams) -> dict[str, Any]:
    hint = blocked_hint(params.argv)
    if hint is not None:
        return {"blocked": True, "hint": hint, "code": -1, "output": ""}
    ended = await run_cli(client.server.services, params.argv, params.timeout)
    if ended.timed_out:
        raise Unavailable("the command took too long and was ended")
    return {"blocked": False, "code": ended.code, "output": ended.output}


@methods.method("shell.exec", c.ShellExecParams, "ShellExecResult")
async def shell_exec(client: GatewayClient, params: c.ShellExecParams) -> dict[str, Any]:
    session = optional_session(client, client.current)
    cwd = session.memory.cwd if session is not None else client.server.default_cwd()
    ended = await run_shell(client.server.services, params.command, cwd)
    if ended.timed_out:
        raise Unavailable("the command took too long and was ended")
    return {"stdout": ended.output, "stderr": ended.errors, "code": ended.code}


# --- completion ------------------------------------------------------------------------------------------------------


@methods.method("complete.slash", c.CompleteSlashParams, "CompleteResult")
async def complete_slash(client: GatewayClient, params: c.CompleteSlashParams) -> dict[str, Any]:
    if not params.text.startswith("/"):
        return {"items": [], "replace_from": 0}
    items, start = complete(params.text, await _skill_pairs(client, optional_session(client, params.session_id)))
    return {"items": items, "replace_from": start}


@methods.method("complete.path", c.CompletePathParams, "CompleteResult")
async def complete_path_method(client: GatewayClient, params: c.CompletePathParams) -> dict[str, Any]:
    session = optional_session(client, params.session_id) or optional_session(client, client.current)
    cwd = params.cwd or (session.memory.cwd if session is not None else client.server.default_cwd())
    return {"items": await complete_path(params.word, cwd)}
