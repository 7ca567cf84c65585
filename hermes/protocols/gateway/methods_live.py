"""Liveness, declarations, and the live sessions: list, activate, close, replay (gateway §3.5, §3.6, §3.13, §7.3)."""

from __future__ import annotations

from typing import Any

from hermes.errors import SessionNotFound, SessionOwnedElsewhere
from hermes.messages import Row
from hermes.nurseries import session_history
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.events import event_params, translate, turn_of
from hermes.protocols.gateway.server import BRIDGED_REQUESTS, SERVER_REQUESTS
from hermes.protocols.gateway.shapes import open_requests, preview, snapshot
from hermes.protocols.rpc.method_table import Answer, Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()
websocket_methods: MethodTable[GatewayClient] = MethodTable()

CLOSE_WITHIN = 3.0
"""Seconds that ``session.close`` waits for the end; what is left then ends within the kill grace."""


@methods.method("ping", s.EmptyParams, "PingResult")
def ping(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    return {"pong": True}


@websocket_methods.method("gateway.ping", s.EmptyParams, "GatewayPingResult")
def gateway_ping(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    """The liveness probe of WebSocket clients: synchronous, so it is answered whatever else is going on."""
    return {"ok": True}


@methods.method("gateway.capabilities", s.EmptyParams, "GatewayCapabilitiesResult")
def gateway_capabilities(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    return {"per_session_exclusive_submit": True}


@methods.method("client.capabilities", s.ClientCapabilitiesParams, "ClientCapabilitiesResult")
def client_capabilities(client: GatewayClient, params: s.ClientCapabilitiesParams) -> dict[str, Any]:
    """The state belongs to the connection; without ``server_requests: true`` it is withdrawn."""
    client.declared = params.server_requests is True
    client.legacy_declared = params.legacy_requests is True
    client.progress_declared = params.tool_progress is True
    client.steers_declared = params.steers is True
    client.turns_declared = params.turn_ids is True
    return {"server_requests": sorted((*SERVER_REQUESTS, *BRIDGED_REQUESTS)), "declines_not_shown": True}


@methods.method("session.active_list", s.SessionActiveListParams, "SessionActiveListResult")
def active_list(client: GatewayClient, params: s.SessionActiveListParams) -> dict[str, Any]:
    sessions = [session for session in client.server.registry.live() if session.depth == 0]
    return {"sessions": [_active_item(session, params.current_session_id) for session in sessions]}


def _active_item(session: Session, current: str | None) -> dict[str, Any]:
    info = session.info()
    return {
        "id": session.runtime_id,
        "session_key": session.key,
        "current": session.runtime_id == current,
        "status": session.status,
        "model": info.model,
        "title": info.title or "",
        "preview": preview(session),
        "message_count": len(session.rows),
        "started_at": session.created_at,
        "last_active": session.last_active,
    }


@methods.method("session.activate", s.SessionActivateParams, "SessionSnapshot")
def activate(client: GatewayClient, params: s.SessionActivateParams) -> Any:
    session = client.session(params.session_id)
    client.take_size(params.cols)

    def answer(rows: tuple[Row, ...] | None) -> Answer[dict[str, Any]]:
        client.make_current(session)
        return Answer(snapshot(session, rows), after=lambda: client.questions.repeat_legacy(session))

    async def whole() -> Answer[dict[str, Any]]:
        rows = await session_history.settled_transcript(session)
        session.refuse_when_closing()
        return answer(rows)

    if params.omit_messages:
        return answer(None)
    if session_history.has_compacted(session):
        return Awaiting(whole)
    return answer(session_history.settled_rows(session))


@methods.method("session.close", s.SessionCloseParams, "SessionCloseResult")
def close(client: GatewayClient, params: s.SessionCloseParams) -> Any:
    """Interrupts what runs; the answer follows the last event. Unknown or closed already is no error."""
    try:
        session = client.session(params.session_id)
    except SessionNotFound:
        return {"closed": False, "messages": []}
    client.server.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED, params.reason))

    async def wait() -> dict[str, Any]:
        await session.ended.wait_at_most(CLOSE_WITHIN)
        client.catch_up(session)
        return {"closed": True, "messages": []}

    return Awaiting(wait)


@methods.method("session.events.since", s.SessionEventsSinceParams, "SessionEventsSinceResult")
def events_since(client: GatewayClient, params: s.SessionEventsSinceParams) -> Any:
    """Missed events by number; ``truncated`` when some are gone. A stored key is told more than unknown."""
    try:
        session = client.session(params.session_id)
    except SessionNotFound:
        return Awaiting(lambda: _not_live_here(client, params.session_id))
    return _events_since(client, session, params.last_seen)


async def _not_live_here(client: GatewayClient, named: str) -> dict[str, Any]:
    services = client.server.tree.services
    if await services.store.get_session(named) is None:
        raise SessionNotFound
    owner = await services.store.lease_holder(named)
    if owner is not None and owner != services.owner:
        raise SessionOwnedElsewhere(str(owner))
    raise SessionNotFound("the session is stored and not live; resume it", data={"reason": "not_live"})


def _events_since(client: GatewayClient, session: Session, last_seen: int) -> dict[str, Any]:
    client.catch_up(session)
    shown = client.server.shown()
    entries, truncated = session.log.since(max(last_seen, 0))
    events = []
    for entry in entries:
        wire = translate(entry.event, shown) if client.wants(session, entry.event) else None
        if wire is not None:
            turn_id = turn_of(entry.event) if client.turns_declared else None
            events.append(event_params(wire, session.runtime_id, entry.seq, turn_id))
    return {
        "events": events,
        "latest_seq": session.log.latest_seq,
        "truncated": truncated,
        "count": len(events),
        "epoch": client.server.epoch,
        "open_requests": open_requests(session),
    }


@methods.method("session.events.stats", s.EmptyParams, "SessionEventsStatsResult")
def events_stats(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    limits = client.server.settings.limits
    logs = [session.log for session in client.server.registry.live()]
    return {
        "sessions": len(logs),
        "events": sum(len(log) for log in logs),
        "bytes": sum(log.cost for log in logs),
        "max_per_session": limits.replay_events,
        "max_bytes_per_session": limits.replay_bytes,
        "max_bytes_process": limits.replay_total_bytes,
    }


@methods.method("terminal.resize", s.TerminalResizeParams, "TerminalResizeResult")
def terminal_resize(client: GatewayClient, params: s.TerminalResizeParams) -> dict[str, Any]:
    """Terminals of the session's processes follow, and their programs are told (SIGWINCH)."""
    session = client.session(params.session_id)
    client.take_size(params.cols, params.rows)
    session.processes.resize(client.columns, client.lines)
    return {"cols": client.columns}
