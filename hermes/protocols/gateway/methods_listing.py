"""Listings: tools, skills, plug-ins, MCP servers, project facts, checkpoints (gateway §9.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from hermes.agent.project_facts import project_facts as facts_of
from hermes.errors import InvalidParams, InvalidValue, NotFound
from hermes.nurseries import session_skills
from hermes.nurseries.host_config import change
from hermes.nurseries.pinned import forget_prompt, forget_tools
from hermes.nurseries.session import Session
from hermes.nurseries.session_ready import session_tool_set
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway import schemas_config as c
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.methods_config import optional_session
from hermes.protocols.gateway.shapes import live_info
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()

MCP_TEST_WITHIN = 30.0

TOOLSET_TEXTS: Mapping[str, str] = {
    "shell": "Commands and background processes",
    "files": "Reading, searching and editing files",
    "planning": "To-do lists",
    "clarify": "Questions to the user",
    "delegation": "Child agents",
    "memory": "Notes and earlier sessions",
    "skills": "Instructions for special tasks",
    "client": "What the host can show",
}


# --- tools -----------------------------------------------------------------------------------------------------------


def _grouped(client: GatewayClient, session_id: str | None) -> dict[str, list[tuple[str, str]]]:
    """Name and description of each tool by toolset, of a session or of any."""
    session = optional_session(client, session_id) or optional_session(client, client.current)
    live = client.server.registry.live()
    session = session or (live[0] if live else None)
    if session is None:
        return {}
    tools = session_tool_set(session)
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in tools.names():
        tool = tools.find(name)
        if tool is not None:
            groups.setdefault(tool.flags.toolset, []).append((name, tool.spec.description))
    return groups


@methods.method("tools.list", c.OptionalSessionParams, "ToolsetsResult")
def tools_list(client: GatewayClient, params: c.OptionalSessionParams) -> dict[str, Any]:
    rows = _toolset_rows(client, params.session_id)
    return {"toolsets": rows}


@methods.method("toolsets.list", c.OptionalSessionParams, "ToolsetsResult")
def toolsets_list(client: GatewayClient, params: c.OptionalSessionParams) -> dict[str, Any]:
    rows = _toolset_rows(client, params.session_id)
    return {"toolsets": [{key: value for key, value in row.items() if key != "tools"} for row in rows]}


def _toolset_rows(client: GatewayClient, session_id: str | None) -> list[dict[str, Any]]:
    groups = _grouped(client, session_id)
    rows = [
        {
            "name": name,
            "description": TOOLSET_TEXTS.get(name, name),
            "tool_count": len(tools),
            "enabled": True,
            "tools": [tool for tool, _ in tools],
        }
        for name, tools in groups.items()
    ]
    rows += [
        {"name": name, "description": TOOLSET_TEXTS.get(name, name), "tool_count": 0, "enabled": False, "tools": []}
        for name in client.server.settings.agent.disabled_toolsets
        if name not in groups
    ]
    return rows


@methods.method("tools.show", c.OptionalSessionParams, "ToolsShowResult")
def tools_show(client: GatewayClient, params: c.OptionalSessionParams) -> dict[str, Any]:
    groups = _grouped(client, params.session_id)
    sections = [
        {"name": name, "tools": [{"name": tool, "description": text} for tool, text in tools]}
        for name, tools in groups.items()
    ]
    return {"sections": sections, "total": sum(len(tools) for tools in groups.values())}


@methods.method("tools.configure", c.ToolsConfigureParams, "ToolsConfigureResult")
def tools_configure(client: GatewayClient, params: c.ToolsConfigureParams) -> Awaiting[Any]:
    """Switches toolsets on or off for all sessions, from their next turn on."""
    session = client.session(params.session_id) if params.session_id else None
    if session is not None and session.slot.taken:
        raise session.slot.busy()
    disabled = list(client.server.settings.agent.disabled_toolsets)
    known = {*TOOLSET_TEXTS, *_grouped(client, params.session_id), *disabled}
    unknown = [name for name in params.names if name not in known]
    wanted = [name for name in params.names if name in known]
    if params.action == "disable":
        changed = [name for name in wanted if name not in disabled]
        now = [*disabled, *changed]
    else:
        changed = [name for name in wanted if name in disabled]
        now = [name for name in disabled if name not in changed]

    async def run() -> dict[str, Any]:
        if changed:
            await change(client.server.services, "agent.disabled_toolsets", now)
        result: dict[str, Any] = {
            "changed": changed,
            "enabled_toolsets": sorted(_grouped(client, params.session_id)),
            "missing_servers": [],
            "reset": False,
            "unknown": unknown,
        }
        if session is not None:
            forget_prompt(session)
            forget_tools(session)
            session.announce_info()
            client.catch_up(session)
            result["info"] = live_info(session.info())
        return result

    return Awaiting(run)


# --- skills, plug-ins, MCP -------------------------------------------------------------------------------------------


def _cwd(client: GatewayClient, session: Session | None) -> str:
    return session.memory.cwd if session is not None else client.server.default_cwd()


@methods.method("skills.manage", c.SkillsManageParams, "SkillsManageResult")
async def skills_manage(client: GatewayClient, params: c.SkillsManageParams) -> dict[str, Any]:
    """``list``, ``search`` and ``inspect`` over the installed skills."""
    session = optional_session(client, client.current)
    skills = await session_skills.list_skills(client.server.services, _cwd(client, session))
    match params.action:
        case "list":
            return {"skills": session_skills.by_category(skills)}
        case "search":
            wanted = (params.query or "").lower()
            hits = [skill for skill in skills if wanted in f"{skill.name} {skill.description}".lower()]
            return {"results": [{"name": skill.name, "description": skill.description} for skill in hits]}
        case "inspect":
            skill = session_skills.find(skills, params.query or "")
            if skill is None:
                raise NotFound("there is no such skill")
            text = await session_skills.skill_text(skill)
            return {
                "info": {
                    "name": skill.name,
                    "description": skill.description,
                    "source": "local",
                    "identifier": skill.qualified,
                    "tags": list(skill.tags),
                    "skill_md_preview": text[: session_skills.PREVIEW_CHARS],
                }
            }
    raise InvalidValue("action must be list, search or inspect")


@methods.method("skills.reload", c.SkillsReloadParams, "SkillsReloadResult")
async def skills_reload(client: GatewayClient, params: c.SkillsReloadParams) -> dict[str, Any]:
    """Skills are read from disk at every use; this says what is there now, and what was not when it was asked last."""
    session = optional_session(client, params.session_id) or optional_session(client, client.current)
    skills = await session_skills.list_skills(client.server.services, _cwd(client, session))
    now = {skill.slug: skill.description for skill in skills}
    before = client.known_skills if client.known_skills is not None else frozenset(now)
    client.known_skills = frozenset(now)
    added = [{"name": name, "description": now[name]} for name in now if name not in before]
    removed = [{"name": name} for name in sorted(before) if name not in now]
    unchanged = [name for name in now if name in before]
    output = f"{len(now)} skills: {len(added)} new, {len(removed)} gone"
    result = {"added": added, "removed": removed, "unchanged": unchanged, "total": len(now), "commands": len(now)}
    return {"output": output, "result": result}


@methods.method("plugins.list", s.EmptyParams, "PluginsListResult")
def plugins_list(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    """Tools that come from installed packages, one row for each toolset that is none of ours."""
    groups = _grouped(client, None)
    names = [name for name in groups if name not in TOOLSET_TEXTS and not name.startswith("mcp")]
    return {"plugins": [{"name": name, "version": "", "enabled": True} for name in names]}


@methods.method("mcp.servers.list", s.EmptyParams, "McpServersListResult")
def mcp_list(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    servers: Sequence[Mapping[str, Any]] = client.server.tree.mcp.summaries() if client.server.tree.mcp else ()
    return {"servers": [dict(row) for row in servers]}


@methods.method("mcp.servers.status", s.EmptyParams, "McpServersStatusResult")
def mcp_status(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    servers: Sequence[Mapping[str, Any]] = client.server.tree.mcp.runtime_rows() if client.server.tree.mcp else ()
    return {"servers": [dict(row) for row in servers], "checked_at": int(client.server.services.clock())}


@methods.method("mcp.servers.test", c.McpServersTestParams, "McpServersTestResult")
async def mcp_test(client: GatewayClient, params: c.McpServersTestParams) -> dict[str, Any]:
    """Connects to one configured server and lists its tools, or says why that did not work."""
    if client.server.tree.mcp is None:
        raise NotFound(f"there is no MCP server {params.name!r}")
    return await client.server.tree.mcp.try_one(params.name, MCP_TEST_WITHIN)


# --- project, checkpoints --------------------------------------------------------------------------------------------


@methods.method("project.facts", c.ProjectFactsParams, "ProjectFactsResult")
async def project_facts(client: GatewayClient, params: c.ProjectFactsParams) -> dict[str, Any]:
    cwd = params.cwd or _cwd(client, optional_session(client, client.current))
    return {"facts": await trio.to_thread.run_sync(facts_of, cwd)}


@methods.method("rollback.list", s.SessionParams, "RollbackListResult")
def rollback_list(client: GatewayClient, params: s.SessionParams) -> dict[str, Any]:
    """File checkpoints are not kept by this server; version control is the place for them."""
    client.session(params.session_id)
    return {"enabled": False, "checkpoints": []}


@methods.method("rollback.diff", c.RollbackDiffParams, "RollbackDiffResult")
def rollback_diff(client: GatewayClient, params: c.RollbackDiffParams) -> dict[str, Any]:
    _no_checkpoint(client, params)
    return {}


@methods.method("rollback.restore", c.RollbackRestoreParams, "RollbackRestoreResult")
def rollback_restore(client: GatewayClient, params: c.RollbackRestoreParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    if session.slot.taken:
        raise session.slot.busy()
    _no_checkpoint(client, params)
    return {}


def _no_checkpoint(client: GatewayClient, params: c.RollbackDiffParams | c.RollbackRestoreParams) -> None:
    client.session(params.session_id)
    if not params.hash:
        raise InvalidParams("hash is required")
    raise NotFound("this server keeps no file checkpoints; version control is the place for them")
