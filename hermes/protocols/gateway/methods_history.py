"""What is done to a session between turns: branch, undo, compress, save, hide, delete, move (gateway §3.8 to §3.12)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hermes.agent.history import survivor_ids
from hermes.errors import InvalidParams, MissingSessionId, SessionIsLive, StoredSessionNotFound
from hermes.messages import Row
from hermes.nurseries import session_history
from hermes.nurseries.session import Session
from hermes.nurseries.session_delete import delete_stored
from hermes.nurseries.session_options import change
from hermes.nurseries.session_ready import current_branch, start_getting_ready
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway import schemas_work as w
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.methods_session import session_usage
from hermes.protocols.gateway.shapes import live_info, messages_wire
from hermes.protocols.rpc.method_table import Answer, Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()


# --- branches --------------------------------------------------------------------------------------------------------


@methods.method("session.branch", w.SessionBranchParams, "SessionBranchResult")
def branch(client: GatewayClient, params: w.SessionBranchParams) -> Any:
    session = client.session(params.session_id)

    async def run() -> Answer[dict[str, Any]]:
        made = await session_history.branch(
            client.server.registry, session, name=params.name or None, count=params.count
        )
        return await _opened(client, made)

    return Awaiting(run)


@methods.method("session.branch_whole", w.SessionBranchWholeParams, "SessionBranchResult")
def branch_whole(client: GatewayClient, params: w.SessionBranchWholeParams) -> Any:
    session = client.session(params.session_id)

    async def run() -> Answer[dict[str, Any]]:
        made = await session_history.branch(client.server.registry, session, name=params.name or None, whole=True)
        return await _opened(client, made, whole=True)

    return Awaiting(run)


@methods.method("session.branch_stored", w.SessionBranchStoredParams, "SessionBranchResult")
def branch_stored(client: GatewayClient, params: w.SessionBranchStoredParams) -> Any:
    async def run() -> Answer[dict[str, Any]]:
        made = await session_history.branch_stored(client.server.registry, params.parent_session_id, whole=True)
        return await _opened(client, made, whole=True)

    return Awaiting(run)


async def _opened(client: GatewayClient, made: Session, *, whole: bool = False) -> Answer[dict[str, Any]]:
    rows = None if whole else await session_history.settled_transcript(made)
    client.make_current(made)
    return Answer(_branch_result(made, rows), after=lambda: start_getting_ready(made))


def _branch_result(made: Session, rows: tuple[Row, ...] | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "session_id": made.runtime_id,
        "stored_session_id": made.key,
        "title": made.stored.title or "",
        "parent": made.stored.parent_key or "",
        "message_count": len(made.rows),
        "info": live_info(made.info()),
    }
    if rows is None:
        result["messages_omitted"] = True
    else:
        result["messages"] = messages_wire(rows)
    return result


# --- undo, compress, save --------------------------------------------------------------------------------------------


@methods.method("session.undo", w.SessionUndoParams, "SessionUndoResult")
def undo(client: GatewayClient, params: w.SessionUndoParams) -> Awaiting[Any]:
    """Takes the last user turns back; ``text`` is what to put in the editor again."""
    session = client.session(params.session_id)

    async def run() -> dict[str, Any]:
        result = await session_history.undo(session, params.count)
        client.catch_up(session)
        return {
            "removed": result.removed,
            "text": result.text,
            "survivor_user_row_ids": list(result.survivors),
        }

    return Awaiting(run)


@methods.method("session.undo_rewind", s.KeyedSessionParams, "SessionUndoRewindResult")
def undo_rewind(client: GatewayClient, params: s.KeyedSessionParams) -> Awaiting[Any]:
    """Brings the last cut back, while no new turn has been stored after it."""
    session = client.session(params.session_id)

    async def run() -> dict[str, Any]:
        rows = await session_history.undo_rewind(session)
        client.catch_up(session)
        return {
            "message_count": len(session.rows),
            "messages": messages_wire(rows),
            "survivor_user_row_ids": list(survivor_ids(rows)),
        }

    return Awaiting(run)


@methods.method("session.compress", w.SessionCompressParams, "SessionCompressResult")
def compress(client: GatewayClient, params: w.SessionCompressParams) -> Awaiting[Any]:
    session = client.session(params.session_id)

    async def run() -> dict[str, Any]:
        return await compress_result(client, session, params.focus_topic)

    return Awaiting(run)


async def compress_result(client: GatewayClient, session: Session, focus: str | None) -> dict[str, Any]:
    result = await session_history.compress(session, focus)
    rows = await session_history.settled_transcript(session)
    client.catch_up(session)
    if result.lock_held:
        return {"compressed": False, "lock_held": True, "message": result.message or ""}
    summary = {name: value for name, value in asdict(result.summary).items() if value is not None}
    shape: dict[str, Any] = {
        "status": result.status,
        "removed": result.removed,
        "before_messages": result.before_messages,
        "after_messages": result.after_messages,
        "before_tokens": result.before_tokens,
        "after_tokens": result.after_tokens,
        "summary": summary,
        "usage": session_usage(session),
        "info": live_info(session.info()),
        "messages": messages_wire(rows),
    }
    if result.message:
        shape["message"] = result.message
    return shape


@methods.method("session.save", s.KeyedSessionParams, "SessionSaveResult")
async def save(client: GatewayClient, params: s.KeyedSessionParams) -> dict[str, Any]:
    return {"file": str(await session_history.save(client.session(params.session_id)))}


# --- the stored session ----------------------------------------------------------------------------------------------


@methods.method("session.delete", s.KeyedSessionParams, "SessionDeleteResult")
async def delete(client: GatewayClient, params: s.KeyedSessionParams) -> dict[str, Any]:
    key = params.session_id
    if not key:
        raise MissingSessionId
    registry = client.server.registry
    if registry.by_key(key) is not None or any(item.runtime_id == key for item in registry.live()):
        raise SessionIsLive
    stored = await client.server.services.store.get_session(key)
    if stored is None:
        raise StoredSessionNotFound
    await delete_stored(client.server.services, key)
    return {"deleted": key}


@methods.method("session.archive", w.SessionArchiveParams, "SessionArchiveResult")
async def archive(client: GatewayClient, params: w.SessionArchiveParams) -> dict[str, Any]:
    session = _named(client, params)
    if session is not None:
        await change(session, archived=params.archived)
        session.stored_changed()
        return {"archived": params.archived, "session_key": session.key}
    key = params.session_key or ""
    stored = await client.server.registry.find_stored(key)
    await client.server.services.store.update_session(stored.key, archived=params.archived)
    return {"archived": params.archived, "session_key": stored.key}


def _named(client: GatewayClient, params: w.SessionArchiveParams) -> Session | None:
    if params.session_id is not None:
        return client.session(params.session_id)
    if params.session_key is None:
        raise MissingSessionId("session_id or session_key required")
    return client.server.registry.by_key(params.session_key)


@methods.method("session.set_hidden", w.SessionSetHiddenParams, "SessionSetHiddenResult")
async def set_hidden(client: GatewayClient, params: w.SessionSetHiddenParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    await change(session, hidden=params.hidden)
    session.stored_changed()
    return {"hidden": params.hidden, "session_key": session.key}


@methods.method("session.cwd.set", w.SessionCwdSetParams, "LiveInfoResult")
def cwd_set(client: GatewayClient, params: w.SessionCwdSetParams) -> Awaiting[Any]:
    session = client.session(params.session_id)
    if not params.cwd.strip():
        raise InvalidParams("cwd is required")

    async def run() -> dict[str, Any]:
        await session_history.set_cwd(session, params.cwd)
        session.memory.extras["branch"] = current_branch(session.memory.cwd)
        client.catch_up(session)
        return live_info(session.info())

    return Awaiting(run)


@methods.method("session.context_breakdown", s.SessionParams, "SessionContextBreakdownResult")
def context_breakdown(client: GatewayClient, params: s.SessionParams) -> dict[str, Any]:
    parts = session_history.context_breakdown(client.session(params.session_id))
    return {
        "categories": [asdict(part) for part in parts.categories],
        "context_max": parts.context_max or 0,
        "context_percent": parts.context_percent,
        "context_used": parts.context_used,
        "estimated_total": parts.estimated_total,
        "context_estimated": parts.estimated,
        "context_source": "estimate" if parts.estimated else "provider",
        "model": parts.model,
    }
