"""``/api/sessions``: stored sessions as resources (api-server §5.1 to §5.4, §5.7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from hermes.agent.model_catalog import check_served
from hermes.agent.ports import StoredSession
from hermes.errors import (
    InvalidValue,
    ModelNotServed,
    ProviderNotConfigured,
    SessionExists,
    StoredSessionNotFound,
)
from hermes.messages import ImagePart, Row, TextPart
from hermes.nurseries.model_names import resolve_named
from hermes.nurseries.session_delete import delete_stored
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http.call import Api, Call, Reply, boolish, json_reply, whole_number
from hermes.protocols.http.turns import (
    MODEL_LOCK,
    SOURCE,
    SYSTEM_MESSAGE,
    check_owner,
    check_session_id,
    forget_session_key,
    is_unlisted,
    model_options,
    text_member,
)

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200
MAX_MESSAGES: Final = 5 * 100
MAX_PROMPT: Final = 200_000
SOURCES: Final = frozenset({"api_server", "hermes_browser", "openwebui", "web", "mobile", "desktop"})
FLAGS: Final = ("pinned", "archived", "hidden", "unread")
PATCHABLE: Final = frozenset({"title", "end_reason", *FLAGS})
BRANCH_MARK: Final = "_branched_from"


def session_object(session: StoredSession, *, listed: bool = False) -> dict[str, Any]:
    """What this API says of a session; the system prompt and the model configuration never cross it."""
    usage = session.usage
    members: dict[str, Any] = {
        "id": session.key,
        "source": session.source,
        "user_id": session.user_id,
        "model": session.model,
        "title": session.title,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
        "message_count": session.message_count,
        "tool_call_count": session.tool_call_count,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "estimated_cost_usd": usage.cost_usd if usage.estimated else None,
        "actual_cost_usd": None if usage.estimated else usage.cost_usd,
        "api_call_count": usage.calls,
        "parent_session_id": session.parent_key,
        "pinned": session.pinned,
        "archived": session.archived,
        "hidden": session.hidden,
        "unread": session.unread,
        "has_system_prompt": bool(session.system_prompt or session.model_config.get(SYSTEM_MESSAGE)),
        "has_model_config": bool(session.model_config),
        "is_internal_child": session.parent_key is not None and BRANCH_MARK not in session.model_config,
    }
    if listed:
        members |= {
            "last_active": session.last_activity_at,
            "preview": session.preview,
            "_lineage_root_id": session.parent_key or session.key,
        }
    return members


def _reply(session: StoredSession, status: int = 200) -> Reply:
    return json_reply({"object": "hermes.session", "session": session_object(session)}, status)


async def require_session(api: Api, key: str, principal: str) -> StoredSession:
    """Raises ``StoredSessionNotFound``, also for another principal's."""
    stored = await api.services.store.get_session(key)
    if stored is None:
        raise StoredSessionNotFound("session not found")
    check_owner(stored.principal, principal)
    return stored


# --- list, create, read, change, delete ------------------------------------------------------------------------------


async def list_sessions(call: Call) -> Reply:
    limit = _bounded(call.query.get("limit"), DEFAULT_LIMIT, MAX_LIMIT)
    offset = _bounded(call.query.get("offset"), 0, 1 << 31)
    title = call.query.get("title") or None
    wanted: dict[str, Any] = {
        "include_hidden": title is not None and boolish(call.query.get("include_hidden")),
        "include_children": boolish(call.query.get("include_children")),
        "source": call.query.get("source") or None,
        "title": title,
        # Made with a request of its own, so it is looked for before anything was said in it.
        "empty_of": call.principal,
        "seen_by": call.principal,
    }
    store = call.api.services.store
    # One more than asked for, to know whether there is more; pinned sessions stay in view beyond the window.
    found = await store.list_sessions(limit=limit + 1, offset=offset, **wanted)
    page = list(found[:limit])
    if offset == 0:
        seen = {session.key for session in page}
        rest = await store.list_sessions(limit=1000, offset=0, **wanted)
        page += [s for s in rest if s.pinned and s.key not in seen]
    more = any(not session.pinned for session in found[limit:])
    data = [session_object(session, listed=True) for session in page]
    return json_reply({"object": "list", "data": data, "limit": limit, "offset": offset, "has_more": more})


def _bounded(text: str | None, default: int, most: int) -> int:
    """A number of the query; what is no number or negative counts as not given."""
    number = None if text is None else whole_number(text)
    if number is None:
        return default
    return min(number, most) if number or default == 0 else default


async def create_session(call: Call) -> Reply:
    api = call.api
    body = call.json_object(empty_is_object=True)
    given = body.get("id", body.get("session_id"))
    key = check_session_id(given) if given is not None else api.services.ids("api_session")
    system_prompt = body.get("system_prompt")
    if system_prompt is not None and (not isinstance(system_prompt, str) or len(system_prompt) > MAX_PROMPT):
        raise HttpRefusal("invalid_system_prompt", "system_prompt must be text", param="system_prompt")
    title = _title(body.get("title"))
    config: dict[str, Any] = dict(model_options(body))
    model = text_member(body, "model") or text_member(body, "model_id")
    provider = text_member(body, "provider") or text_member(body, "provider_id")
    locked = boolish(body.get("require_model_lock"))
    if model is not None or locked:
        model, provider = await lockable(api, model, provider, must_serve=locked)
        config |= lock_record(model, provider) if locked else {}
    if system_prompt:
        config[SYSTEM_MESSAGE] = system_prompt
    now = api.services.clock()
    stored = StoredSession(
        key=key,
        source=_source(body.get("source")),
        title=title,
        title_source="user" if title else None,
        model=model,
        provider=provider,
        model_config=config,
        cwd=api.options.cwd,
        started_at=now,
        last_activity_at=now,
        principal=call.principal,
    )
    if not await api.services.store.create_session(stored):
        raise _session_exists(key)
    return _reply(await require_session(api, key, call.principal), 201)


def _session_exists(key: str) -> HttpRefusal:
    return HttpRefusal("session_exists", f"a session {key} exists already", param="id")


def _source(value: Any) -> str:
    if value == "browser":
        return "hermes_browser"
    return value if isinstance(value, str) and value in SOURCES else SOURCE


def _title(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise HttpRefusal("invalid_title", "title must be text", param="title")
    return value.strip()[:100] or None


async def get_session(call: Call) -> Reply:
    return _reply(await require_session(call.api, call.path["session_id"], call.principal))


async def patch_session(call: Call) -> Reply:
    api, key = call.api, call.path["session_id"]
    await require_session(api, key, call.principal)
    body = call.json_object()
    for name, value in body.items():
        if name not in PATCHABLE:
            raise HttpRefusal("unsupported_session_field", f"{name} cannot be changed", param=name)
        if name in FLAGS and not isinstance(value, bool):
            raise HttpRefusal("invalid_session_field", f"{name} must be true or false", param=name)
    changes: dict[str, Any] = {name: body[name] for name in FLAGS if name in body}
    if changes.get("pinned"):
        changes["hidden"] = False
    if "end_reason" in body:
        reason = body["end_reason"]
        if reason is not None and not isinstance(reason, str):
            raise HttpRefusal("invalid_session_field", "end_reason must be text", param="end_reason")
        changes |= {"end_reason": reason, "ended_at": api.services.clock() if reason else None}
    if "title" in body:
        title = _title(body["title"])
        changes |= {"title": title, "title_source": "user" if title else None}
    if changes:
        await api.services.store.update_session(key, **changes)
    live = api.tree.registry.by_key(key)
    stored = await require_session(api, key, call.principal)
    if live is not None:
        live.stored = replace(live.stored, **changes)
        live.announce_info()
    return _reply(stored)


async def delete_session(call: Call) -> Reply:
    """Refused while a turn writes; a live idle session is closed first."""
    api, key = call.api, call.path["session_id"]
    await require_session(api, key, call.principal)
    live = api.tree.registry.by_key(key)
    if live is not None:
        if live.slot.taken:
            raise live.slot.busy("a turn of this session is running; stop it first")
        api.tree.registry.close_nowait(live, CancelReason(Cause.SESSION_CLOSED, "deleted"))
        await live.wait_closed()
    await delete_stored(api.services, key)
    await forget_session_key(api, key)
    api.runs.forget_session(key)
    return json_reply({"object": "hermes.session.deleted", "id": key, "deleted": True})


# --- messages --------------------------------------------------------------------------------------------------------


async def list_messages(call: Call) -> Reply:
    api, key = call.api, call.path["session_id"]
    await require_session(api, key, call.principal)
    given = call.query.get("limit")
    limit = _strict(given, "limit", MAX_MESSAGES) if given is not None else MAX_MESSAGES
    offset = _strict(call.query.get("offset", "0"), "offset", 1 << 31)
    order = call.query.get("order") or ("oldest" if given is not None else "latest")
    if order not in ("oldest", "latest"):
        raise HttpRefusal("invalid_pagination", "order must be oldest or latest", param="order")
    store = api.services.store
    whole = boolish(call.query.get("include_compacted"), default=True)
    rows = await (store.load_transcript(key) if whole else store.load_rows(key))
    if order == "oldest":
        page = rows[offset : offset + limit]
    else:
        end = len(rows) - offset
        page = rows[max(0, end - limit) : max(0, end)]
    data = [message_object(key, row) for row in page]
    pagination = {"limit": limit, "offset": offset, "order": order, "returned": len(data)}
    return json_reply({"object": "list", "session_id": key, "data": data, "pagination": pagination})


def _strict(text: str, name: str, most: int) -> int:
    number = whole_number(text)
    if number is None:
        raise HttpRefusal("invalid_pagination", f"{name} must be a whole number, 0 or more", param=name)
    return min(number, most)


def message_object(key: str, row: Row) -> dict[str, Any]:
    hidden = row.compacted_summary
    compacted = {"compacted": True} if row.compacted else {}
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in row.tool_calls
    ]
    return {
        "id": row.row_id,
        "session_id": key,
        "role": row.role,
        "content": "" if hidden else _content_value(row),
        "tool_call_id": row.tool_call_id,
        "tool_calls": calls or None,
        "tool_name": row.tool_name,
        "timestamp": row.timestamp,
        "token_count": row.token_count,
        "finish_reason": row.finish_reason,
        "reasoning": row.reasoning,
        "reasoning_content": row.reasoning_content,
        "display_kind": "hidden" if hidden else row.display_kind,
        **compacted,
    }


def _content_value(row: Row) -> Any:
    if not isinstance(row.content, tuple):
        return row.content
    parts: list[dict[str, Any]] = []
    for part in row.content:
        if isinstance(part, TextPart):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart):
            parts.append({"type": "image_url", "image_url": {"url": part.url or f"data:{part.mime_type};base64,…"}})
    return parts


# --- fork, model lock ------------------------------------------------------------------------------------------------


async def fork_session(call: Call) -> Reply:
    """A child with the same messages; the source ends as branched. All or nothing: the child comes first."""
    api, key = call.api, call.path["session_id"]
    source = await require_session(api, key, call.principal)
    body = call.json_object()
    given = body.get("id")
    new_key = check_session_id(given) if given is not None else api.services.ids("api_session")
    if await api.services.store.get_session(new_key) is not None:
        raise _session_exists(new_key)
    title = _title(body.get("title"))
    now = api.services.clock()
    child = replace(
        source,
        key=new_key,
        title=title or source.title,
        title_source="user" if title else "derived",
        parent_key=key,
        model_config={**source.model_config, BRANCH_MARK: key},
        started_at=now,
        last_activity_at=now,
        ended_at=None,
        end_reason=None,
        principal=call.principal,
        interrupted_turn=None,
        unread=False,
    )
    try:
        stored, _ = await api.services.store.branch(key, child)
    except SessionExists:
        # Another fork under the same id was faster.
        raise _session_exists(new_key) from None
    await api.services.store.update_session(key, ended_at=now, end_reason="branched")
    return _reply(await require_session(api, stored.key, call.principal), 201)


async def lock_model(call: Call) -> Reply:
    api, key = call.api, call.path["session_id"]
    stored = await require_session(api, key, call.principal)
    body = call.json_object()
    model, provider = await lockable(
        api, body.get("model", body.get("model_id")), body.get("provider", body.get("provider_id")), must_serve=True
    )
    config = {**stored.model_config, **model_options(body), **lock_record(model, provider)}
    await api.services.store.update_session(key, model=model, provider=provider, model_config=config)
    live = api.tree.registry.by_key(key)
    if live is not None:
        live.stored = replace(live.stored, model=model, provider=provider, model_config=config)
        live.resolved = None
    runtime = {"provider": provider, "model": model, "route_source": "session_model_lock", "model_lock": "accepted"}
    return json_reply({"object": "hermes.session.model_lock", "session_id": key, "runtime": runtime})


def lock_record(model: str, provider: str) -> dict[str, Any]:
    return {MODEL_LOCK: {"model": model, "provider": provider}}


async def lockable(api: Api, model: Any, provider: Any, *, must_serve: bool) -> tuple[str, str]:
    """The pair, if it can be used; with ``must_serve`` also only if the endpoint, asked for its list, has it.
    Raises ``HttpRefusal``."""
    if not isinstance(model, str) or not model.strip() or model == api.model_id:
        raise HttpRefusal("missing_model", "model is required", param="model")
    if provider is not None and not isinstance(provider, str):
        raise HttpRefusal("missing_model", "provider must be a name", param="provider")
    try:
        if provider:
            check_served(model.strip(), provider)
        resolved = await resolve_named(api.services, model, provider)
    except (InvalidValue, ModelNotServed, ProviderNotConfigured) as error:
        raise HttpRefusal("model_lock_unavailable", error.message, param="model") from None
    if must_serve and await is_unlisted(api, resolved):
        message = f"{resolved.provider} does not list a model {resolved.model}"
        raise HttpRefusal("model_lock_unavailable", message, param="model")
    return resolved.model, resolved.provider
