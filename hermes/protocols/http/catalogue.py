"""What this server is and offers: health, models, capabilities, the model menu, tools (api-server §1.9 to 1.11, §6)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from os import getpid
from typing import Any, Protocol, runtime_checkable

import trio

from hermes.errors import HermesError
from hermes.nurseries import session_skills
from hermes.nurseries.run import JOURNAL_EVENTS
from hermes.nurseries.session import Session
from hermes.nurseries.session_ready import session_tool_set
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http import browser_control
from hermes.protocols.http.call import Api, Call, Reply, boolish, json_reply
from hermes.protocols.http.metrics import CONTENT_TYPE
from hermes.protocols.http.turns import SOURCE

PLATFORM = "hermes-agent"
OPTIONS_WITHIN = 30.0
ON = (
    *("chat_completions", "chat_completions_streaming", "responses_api", "responses_streaming", "run_submission"),
    *("run_status", "run_events_sse", "run_stop", "run_steer", "run_approval_response", "tool_progress_events"),
    *("approval_events", "session_resources", "model_options", "session_chat", "session_chat_streaming"),
    *("session_fork", "session_model_lock", "reasoning_streaming", "skills_api"),
)
OFF = ("admin_config_rw", "jobs_admin", "memory_write_api", "audio_api", "realtime_voice")
FEATURE_ROUTES = {
    "responses_api": "responses",
    "responses_streaming": "responses",
    "session_resources": "sessions",
    "model_options": "model_options",
    "session_chat": "session_chat",
    "session_chat_streaming": "session_chat_stream",
    "session_fork": "session_fork",
    "session_model_lock": "session_model_lock",
    "skills_api": "skills",
}


@runtime_checkable
class ModelMenu(Protocol):
    """A model gateway that can show what may be chosen (api-server §6.2)."""

    async def options(self, *, refresh: bool, include_unconfigured: bool, explicit_only: bool) -> dict[str, Any]: ...


# --- health ----------------------------------------------------------------------------------------------------------


async def health(call: Call) -> Reply:
    """Cheap, without a key, also while draining."""
    await trio.lowlevel.checkpoint()
    return json_reply({"status": "ok", "platform": PLATFORM, "version": call.api.options.version})


async def health_detailed(call: Call) -> Reply:
    """Always 200; the verdict is inside. No paths, values or credentials."""
    api = call.api
    draining = api.tree.draining.is_set()
    state = "draining" if draining else "running"
    checks = await _checks(api, state)
    verdict = "ok" if all(check["status"] == "ok" for check in checks.values()) else "degraded"
    metrics = _metrics(api)
    now = api.services.clock()
    adapter = {
        "state": state,
        "error_code": None,
        "error_message": None,
        "updated_at": rfc3339(now),
        "writer_pid": getpid(),
        "needs_attention": verdict != "ok",
        "retrying_since": None,
        "listener_base": f"http://{api.options.host}:{api.options.port}",
        "metrics": metrics,
    }
    body = {
        "status": verdict,
        "readiness": {"status": verdict, "checks": checks},
        "platform": PLATFORM,
        "version": api.options.version,
        "gateway_state": state,
        "platforms": {"api_server": adapter},
        "api_server": metrics,
        "metrics_today": metrics["metrics_today"],
        "last_heartbeat": metrics["last_heartbeat"],
        "active_agents": sum(session.running for session in api.tree.registry.live()),
        "gateway_busy": api.runs.active > 0,
        "gateway_drainable": True,
        "exit_reason": None,
        "updated_at": rfc3339(now),
        "pid": getpid(),
        "load": _load(api),
        "tree": api.tree.snapshot(),
    }
    return json_reply(body)


def _load(api: Api) -> dict[str, Any]:
    """How much this process has to carry, and what it could not carry any more."""
    gauges, counts = _gauges(api), api.counts()
    return {
        "loop": {"lag_seconds": round(api.loop.lag, 6), "busy_seconds": round(api.loop.busy_seconds, 3)},
        "queues": {
            "prompts": gauges["hermes_prompts_queued"],
            "questions": gauges["hermes_open_questions"],
            "followers": len(api.runs.live()),
        },
        "drops": {
            "connections_refused": counts.turned_away,
            "readers_cut_off": counts.cut_off,
            "turns_refused": api.metrics.refused,
        },
        "connections": counts.connections,
        "sessions": gauges["hermes_sessions"],
        "processes": gauges["hermes_processes"],
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "threads": _entries("/proc/self/task"),
        "descriptors": _entries("/proc/self/fd"),
    }


def _entries(folder: str) -> int | None:
    """How many of its threads or descriptors the system lists; None where it does not say."""
    try:
        return len(os.listdir(folder))
    except OSError:
        return None


def rfc3339(seconds: float | None) -> str | None:
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _metrics(api: Api) -> dict[str, Any]:
    return {
        "host": api.options.host,
        "port": api.options.port,
        "active_runs": api.runs.active,
        "stored_runs": api.runs.finished,
        "last_request_at": rfc3339(api.metrics.last_request_at),
        "last_heartbeat": rfc3339(api.services.clock()),
        "metrics_today": api.metrics.today(),
    }


async def _checks(api: Api, state: str) -> dict[str, dict[str, Any]]:
    store = "ok"
    try:
        await api.services.store.get_meta("health")
    except HermesError:
        store = "error"
    model = "ok"
    try:
        resolved = await api.services.models.resolve(None, None)
        api.services.models.provider_for(resolved)
    except HermesError:
        model = "unconfigured"
    disk: dict[str, Any] = {"status": "unknown"}
    try:
        used = shutil.disk_usage(api.services.home)
        percent = round(100 * used.used / max(used.total, 1), 1)
        disk = {"status": "ok" if percent < 98 else "full", "used_percent": percent, "free_bytes": used.free}
    except OSError:
        disk = {"status": "unknown"}
    queued = sum(len(session.slot.queued) for session in api.tree.registry.live())
    return {
        "state_db": {"status": store},
        "session_store": {"status": store},
        "config": {"status": "ok"},
        "model": {"status": model},
        "disk": disk,
        "gateway": {"status": "ok", "state": state, "connected_platforms": 1, "platforms": ["api_server"]},
        "background_queues": {
            "status": "ok",
            "active_api_runs": api.runs.active,
            "process_completions": queued,
            "active_delegations": sum(len(session.side_work) for session in api.tree.registry.live()),
        },
    }


async def metrics(call: Call) -> Reply:
    await trio.lowlevel.checkpoint()
    longest = {"hermes_loop_longest_round_seconds": call.api.loop.take_longest()}
    return Reply(200, call.api.metrics.exposition({**_gauges(call.api), **longest}), content_type=CONTENT_TYPE)


def _gauges(api: Api) -> dict[str, float]:
    sessions = api.tree.registry.live()
    return {
        "hermes_active_runs": api.runs.active,
        "hermes_tree_nodes": len(api.services.tree),
        "hermes_sessions": len(sessions),
        "hermes_turns_running": sum(session.running for session in sessions),
        "hermes_prompts_queued": sum(len(session.slot.queued) for session in sessions),
        "hermes_open_questions": sum(len(session.requests) for session in sessions),
        "hermes_processes": len(api.services.supervisor.live()),
        "hermes_connections": api.counts().connections,
        "hermes_loop_busy_seconds": api.loop.busy_seconds,
    }


# --- models ----------------------------------------------------------------------------------------------------------


def _model_objects(api: Api) -> list[dict[str, Any]]:
    created = int(api.tree.started_at)
    own = api.model_id

    def entry(name: str, root: str, parent: str | None) -> dict[str, Any]:
        members = {"id": name, "object": "model", "created": created, "owned_by": "hermes"}
        return {**members, "permission": [], "root": root, "parent": parent}

    routes = [
        entry(alias, str(route["model"]), own)
        for alias, route in api.server.model_routes.items()
        if route.get("model") and alias != own
    ]
    return [entry(own, own, None), *routes]


async def models(call: Call) -> Reply:
    """Never asks a provider: frontends poll this."""
    await trio.lowlevel.checkpoint()
    return json_reply({"object": "list", "data": _model_objects(call.api)})


async def model(call: Call) -> Reply:
    await trio.lowlevel.checkpoint()
    for entry in _model_objects(call.api):
        if entry["id"] == call.path["model_id"]:
            return json_reply(entry)
    raise HttpRefusal("model_not_found", f"the model {call.path['model_id']!r} does not exist", param="model")


async def model_options(call: Call) -> Reply:
    """The same menu as the gateway's ``model.options``. Hosts that send a session token get the short one unless they
    ask (api-server §6.1)."""
    gateway = call.api.services.models
    whole = "x-hermes-session-token" not in call.headers
    unconfigured = boolish(call.query.get("include_unconfigured"), default=whole)
    explicit = boolish(call.query.get("explicit_only"))
    if not isinstance(gateway, ModelMenu):
        return json_reply(await _current_only(call.api))
    try:
        with trio.fail_after(OPTIONS_WITHIN):
            refresh = boolish(call.query.get("refresh"))
            menu = await gateway.options(refresh=refresh, include_unconfigured=unconfigured, explicit_only=explicit)
    except trio.TooSlowError:
        raise HttpRefusal("model_options_failed", "the model list could not be built in time") from None
    return json_reply(menu)


async def _current_only(api: Api) -> dict[str, Any]:
    resolved = await api.services.models.resolve(None, None)
    row = {
        "slug": resolved.provider,
        "name": resolved.provider,
        "is_current": True,
        "is_user_defined": resolved.provider.startswith("custom"),
        "models": [resolved.model],
        "total_models": 1,
        "source": "configured-current",
        "authenticated": True,
        "featured_models": [],
        "capabilities": {resolved.model: {"fast": False, "reasoning": True}},
    }
    return {"model": resolved.model, "provider": resolved.provider, "providers": [row]}


# --- capabilities ----------------------------------------------------------------------------------------------------


async def capabilities(call: Call) -> Reply:
    """A flag is true only where a route stands behind it."""
    await trio.lowlevel.checkpoint()
    api = call.api
    named = {route.name: route for route in api.routes if route.name is not None}
    features: dict[str, Any] = {name: FEATURE_ROUTES.get(name, "health") in named for name in ON}
    features |= dict.fromkeys(OFF, False)
    features |= {
        "session_continuity_header": "X-Hermes-Session-Id",
        "session_key_header": "X-Hermes-Session-Key",
        "runs_idempotency": {"supported": True, "durable": True, "retention_seconds": 86_400},
        "cors": bool(api.server.cors_origins),
        "run_events_replay": {
            "header": "Last-Event-ID",
            "query": ["after", "last_seq"],
            "retained_events": JOURNAL_EVENTS,
            "durable": True,
        },
        "on_disconnect": {"header": "X-Hermes-On-Disconnect", "values": ["cancel", "continue"]},
        "live_tree": "tree" in named,
        "browser_extension_control": browser_control.feature(api),
    }
    body = {
        "object": "hermes.api_server.capabilities",
        "platform": PLATFORM,
        "model": api.model_id,
        "auth": {"type": "bearer", "required": True},
        "runtime": {
            "mode": "server_agent",
            "tool_execution": "server",
            "split_runtime": False,
            "description": "The agent and its tools run on the server; the client sends text and reads events.",
        },
        "features": features,
        "endpoints": {
            **{name: {"method": route.method, "path": route.path} for name, route in named.items()},
            "browser_control_ws": {"method": "GET", "path": browser_control.WS_PATH},
        },
    }
    return json_reply(body)


async def websocket_ticket(call: Call) -> Reply:
    """A single-use ticket for the gateway's WebSocket, for browsers that cannot send a header."""
    await trio.lowlevel.checkpoint()
    if call.api.mint_ticket is None:
        raise HttpRefusal("endpoint_not_supported", "this server has no gateway WebSocket")
    return json_reply({"ticket": call.api.mint_ticket(), "ttl_seconds": 30})


# --- tools -----------------------------------------------------------------------------------------------------------


async def toolsets(call: Call) -> Reply:
    """The tools that a session made over HTTP would have, by toolset."""
    await trio.lowlevel.checkpoint()
    grouped: dict[str, list[str]] = {}
    for name, toolset in _tool_names(call.api):
        grouped.setdefault(toolset, []).append(name)
    data = [
        {"name": name, "label": name, "description": "", "enabled": True, "configured": True, "tools": sorted(tools)}
        for name, tools in sorted(grouped.items())
    ]
    return json_reply({"object": "list", "platform": "api_server", "data": data})


async def skills(call: Call) -> Reply:
    """What is on disk now, by category and name."""
    found = await session_skills.list_skills(call.api.services, call.api.options.cwd)
    data = [
        {
            "name": skill.name,
            "description": skill.description,
            "category": skill.category or "general",
            "identifier": skill.qualified,
            "tags": list(skill.tags),
        }
        for skill in sorted(found, key=lambda skill: (skill.category, skill.name, skill.qualified))
    ]
    return json_reply({"object": "list", "data": data})


def _tool_names(api: Api) -> Sequence[tuple[str, str]]:
    """Name and toolset of each tool of a session over HTTP: of a live one, else of one that lives just for this."""
    registry = api.tree.registry
    live = next((session for session in registry.live() if session.stored.source == SOURCE), None)
    if live is not None:
        return _tools_of(live)
    passing = registry.create(source=SOURCE, cwd=api.options.cwd, hidden=True, principal=api.principal)
    try:
        return _tools_of(passing)
    finally:
        registry.close_nowait(passing, CancelReason(Cause.SESSION_CLOSED))


def _tools_of(session: Session) -> list[tuple[str, str]]:
    tools = session_tool_set(session)
    found = [(name, tools.find(name)) for name in tools.names()]
    return [(name, tool.flags.toolset) for name, tool in found if tool is not None]
