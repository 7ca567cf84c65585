"""Work beside the conversation: side agents, processes, subagents (gateway §4.7, §9.4, §9.5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from hermes.errors import EmptyText, InvalidParams, SessionNotFound
from hermes.nurseries.background import start_background, start_btw
from hermes.nurseries.children import Child
from hermes.nurseries.session import Session
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway import schemas_work as w
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()

STATUS_WORDS = {"failed": "failed", "timeout": "timeout", "interrupted": "interrupted"}
PREVIEW_CHARS = 300


# --- side agents -----------------------------------------------------------------------------------------------------


@methods.method("prompt.background", w.PromptBackgroundParams, "PromptBackgroundResult")
def background(client: GatewayClient, params: w.PromptBackgroundParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    client.watch(session)
    return {"task_id": start_background(session, params.text)}


@methods.method("prompt.btw", w.PromptBackgroundParams, "PromptBackgroundResult")
def btw(client: GatewayClient, params: w.PromptBackgroundParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    client.watch(session)
    return {"task_id": start_btw(session, params.text)}


# --- processes -------------------------------------------------------------------------------------------------------


@methods.method("process.list", s.SessionParams, "ProcessListResult")
def process_list(client: GatewayClient, params: s.SessionParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    now = session.services.clock()
    return {"processes": [_process(info, now, session.services.redact) for info in session.processes.list()]}


def _process(info: Any, now: float, redact: Callable[[str], str]) -> dict[str, Any]:
    return {
        "session_id": info.process_id,
        "command": info.command,
        "cwd": info.cwd,
        "pid": info.pid,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.started_at)),
        "uptime_seconds": max(0, int((info.ended_at or now) - info.started_at)),
        "status": info.status,
        "output_preview": redact(info.output_preview)[-PREVIEW_CHARS:],
        "session_scoped": True,
        "notify_on_complete": info.notify,
        "exit_code": info.exit_code,
        "exited_at": info.ended_at,
    }


@methods.method("process.kill", w.ProcessKillParams, "ProcessKillResult")
def process_kill(client: GatewayClient, params: w.ProcessKillParams) -> Any:
    if not params.process_id:
        raise InvalidParams("process_id is required")
    session = client.session(params.session_id)
    before = session.processes.get(params.process_id)

    async def kill() -> dict[str, Any]:
        # Also one that has ended: what it has left behind goes with it.
        info = await session.processes.kill(params.process_id)
        client.catch_up(session)
        if before.status != "running":
            return {"status": "already_exited", "session_id": info.process_id, "exit_code": info.exit_code}
        return {
            "status": "killed",
            "session_id": info.process_id,
            "command": info.command,
            "exit_code": info.exit_code,
            "completion_reason": "killed",
            "termination_source": "user",
        }

    return Awaiting(kill)


@methods.method("process.stop", w.ProcessStopParams, "ProcessStopResult")
def process_stop(client: GatewayClient, params: w.ProcessStopParams) -> Awaiting[Any]:
    """Ends the background processes of one session, or of all of them."""
    sessions = [client.session(params.session_id)] if params.session_id else list(client.server.registry.live())

    async def stop() -> dict[str, Any]:
        killed = 0
        for session in sessions:
            killed += await session.processes.stop_all()
            client.catch_up(session)
        return {"killed": killed}

    return Awaiting(stop)


@methods.method("agents.list", s.EmptyParams, "AgentsListResult")
def agents_list(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    now = client.server.services.clock()
    rows = [
        {
            "session_id": info.process_id,
            "command": info.command,
            "status": info.status,
            "uptime": max(0, int((info.ended_at or now) - info.started_at)),
        }
        for session in client.server.registry.live()
        for info in session.processes.list()
    ]
    return {"processes": rows}


# --- subagents -------------------------------------------------------------------------------------------------------


@methods.method("delegation.status", s.EmptyParams, "DelegationStatusResult")
def delegation_status(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    delegation = client.server.settings.delegation
    active = [
        {**subagent_row(child), "owner_agent_session_id": session.key}
        for session in client.server.registry.live()
        for child in session.children.live()
    ]
    return {
        "active": active,
        "paused": client.server.services.delegation.paused,
        "max_spawn_depth": delegation.max_spawn_depth,
        "max_concurrent_children": delegation.max_concurrent_children,
    }


@methods.method("delegation.pause", w.DelegationPauseParams, "DelegationPauseResult")
def delegation_pause(client: GatewayClient, params: w.DelegationPauseParams) -> dict[str, Any]:
    client.server.services.delegation.paused = params.paused
    return {"paused": params.paused}


def subagent_row(child: Child) -> dict[str, Any]:
    return {
        "subagent_id": child.subagent_id,
        "parent_id": child.parent_id,
        "depth": child.depth,
        "goal": child.goal,
        "delegation_id": child.delegation_id,
        "model": child.model,
        "started_at": child.started_at,
        "status": child.status,
        "tool_count": child.tool_count,
    }


@methods.method("subagent.list", s.SessionParams, "SubagentListResult")
def subagent_list(client: GatewayClient, params: s.SessionParams) -> dict[str, Any]:
    session = _watched(client, params.session_id)
    children = list(session.children.walk())
    return {
        "subagents": [
            {**subagent_row(child), "last_tool": child.last_tool, "accepting_steer": child.accepting_steer}
            for child in children
        ],
        "delegations": [_failed(child) for child in children if child.status in STATUS_WORDS],
    }


def _failed(child: Child) -> dict[str, Any]:
    return {
        "delegation_id": child.delegation_id,
        "task_index": child.index,
        "status": STATUS_WORDS[child.status],
        "goal": child.goal,
        "error": child.error,
        "dispatched_at": child.created_at,
        "completed_at": child.ended_at,
    }


def _watched(client: GatewayClient, session_id: str) -> Session:
    """A live session that this very connection watches (gateway §9.5)."""
    session = client.session(session_id)
    if not client.watching(session):
        raise SessionNotFound("this connection does not watch that session")
    return session


def _search(client: GatewayClient, session_id: str | None) -> Iterator[Session]:
    if session_id is not None:
        yield _watched(client, session_id)
    else:
        yield from client.watched


@methods.method("subagent.interrupt", w.SubagentInterruptParams, "SubagentInterruptResult")
def subagent_interrupt(client: GatewayClient, params: w.SubagentInterruptParams) -> dict[str, Any]:
    _named(params.subagent_id)
    for session in _search(client, params.session_id):
        child = session.children.find(params.subagent_id)
        if child is not None:
            found = child.cancel(s.cancel_reason(params.reason))
            client.catch_up(session)
            return {"found": found, "subagent_id": params.subagent_id}
    return {"found": False, "subagent_id": params.subagent_id}


@methods.method("subagent.steer", w.SubagentSteerParams, "SubagentSteerResult")
def subagent_steer(client: GatewayClient, params: w.SubagentSteerParams) -> dict[str, Any]:
    if not params.text.strip():
        raise EmptyText
    _named(params.subagent_id)
    child = _watched(client, params.session_id).children.find(params.subagent_id)
    taken = child is not None and child.steer(params.text.strip())
    return {"status": "queued" if taken else "rejected", "subagent_id": params.subagent_id, "text": params.text}


@methods.method("subagent.tail", w.SubagentTailParams, "SubagentTailResult")
def subagent_tail(client: GatewayClient, params: w.SubagentTailParams) -> dict[str, Any]:
    _named(params.subagent_id)
    child = _watched(client, params.session_id).children.find(params.subagent_id)
    text, truncated = child.tail() if child is not None else ("", False)
    return {
        "subagent_id": params.subagent_id,
        "available": child is not None,
        "text": text,
        "truncated": truncated,
    }


def _named(subagent_id: str) -> None:
    if not subagent_id:
        raise InvalidParams("subagent_id is required")
