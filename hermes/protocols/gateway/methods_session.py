"""Sessions: create, list, resume, history, title, usage, status (gateway §3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hermes.agent.ports import StoredSession
from hermes.agent.stored_views import clean_title
from hermes.errors import EmptyText, HermesError, InvalidValue, MissingSessionId, StoredSessionNotFound, TitleTaken
from hermes.events import HistoryLoading
from hermes.messages import Row
from hermes.nurseries.command_views import status_text
from hermes.nurseries.session import Session
from hermes.nurseries.session_history import has_compacted, settled_rows, settled_transcript
from hermes.nurseries.session_history import usage as numbers_of
from hermes.nurseries.session_ready import start_getting_ready
from hermes.nurseries.turn_lease import held_elsewhere
from hermes.outcomes import CancelReason, Cause
from hermes.patterns import lazy_pattern
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.shapes import live_info, messages_wire, snapshot, usage_wire
from hermes.protocols.rpc.method_table import Answer, Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()

MINTED_KEY: Final = lazy_pattern(r"\d{8}_\d{6}_[0-9a-f]{6}")


# --- create ----------------------------------------------------------------------------------------------------------


@methods.method("session.create", s.SessionCreateParams, "SessionCreateResult")
def create(client: GatewayClient, params: s.SessionCreateParams) -> Any:
    server = client.server
    model, provider = (params.model or "").strip() or None, (params.provider or "").strip() or None
    server.check_model(model, provider)
    client.take_size(params.cols)
    session = server.registry.create(
        source=params.source,
        cwd=params.cwd or server.default_cwd(),
        title=clean_title(params.title) or None if params.title else None,
        model=model,
        provider=provider if model else None,
        model_config=_model_config(params),
        parent_key=params.parent_session_id or None,
        hidden=params.hidden,
    )
    session.close_on_disconnect = params.close_on_disconnect
    client.make_current(session)
    if params.messages or params.parent_session_id:
        return Awaiting(lambda: _made_with_seeds(client, session, params.messages or []))
    return Answer(create_result(session), after=lambda: start_getting_ready(session))


def _model_config(params: s.SessionCreateParams) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if params.reasoning_effort:
        config["reasoning_effort"] = params.reasoning_effort
    if params.service_tier:
        config["service_tier"] = params.service_tier
    elif params.fast is not None:
        config["service_tier"] = "fast" if params.fast else "normal"
    return config


async def _made_with_seeds(
    client: GatewayClient, session: Session, seeds: list[s.SeedMessage]
) -> Answer[dict[str, Any]]:
    """What cannot be made as it was asked for leaves no live session behind."""
    try:
        return await _store_seeds(session, seeds)
    except HermesError as error:
        client.server.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED, error.message))
        raise


async def _store_seeds(session: Session, seeds: list[s.SeedMessage]) -> Answer[dict[str, Any]]:
    """Seeded history is stored at once, unlike that of an empty session."""
    await session.ensure_stored()
    now = session.services.clock()
    rows = [
        Row(
            role=seed.role,
            content=seed.content if seed.content is not None else (seed.text or ""),
            timestamp=now,
            display_kind="hidden" if seed.display_kind == "hidden" else None,
        )
        for seed in seeds
    ]
    if rows:
        await session.append_rows(rows)
    return Answer(create_result(session), after=lambda: start_getting_ready(session))


def create_result(session: Session) -> dict[str, Any]:
    messages = messages_wire(settled_rows(session))
    return {
        "session_id": session.runtime_id,
        "stored_session_id": session.key,
        "message_count": len(session.rows),
        "messages": messages,
        "info": live_info(session.info()),
    }


# --- stored sessions -------------------------------------------------------------------------------------------------


@methods.method("session.list", s.SessionListParams, "SessionListResult")
async def list_sessions(client: GatewayClient, params: s.SessionListParams) -> dict[str, Any]:
    store = client.server.services.store
    if params.title is not None:
        found = await store.find_by_title(params.title)
        rows = [] if found is None else [found]
    else:
        rows = list(await store.list_sessions(limit=params.limit, include_hidden=params.include_hidden))
    return {"sessions": [_list_row(row, by_title=params.title is not None) for row in rows]}


def _list_row(stored: StoredSession, *, by_title: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": stored.key,
        "title": stored.title,
        "preview": stored.preview,
        "started_at": stored.started_at,
        "message_count": stored.message_count,
        "source": stored.source,
        "_lineage_root_id": None,
    }
    if by_title:
        row["resolved_id"] = stored.key
        row["live_message_count"] = stored.message_count
    return row


@methods.method("session.most_recent", s.EmptyParams, "SessionMostRecentResult")
async def most_recent(client: GatewayClient, params: s.EmptyParams) -> dict[str, Any]:
    newest = await client.server.services.store.list_sessions(limit=1)
    if not newest:
        return {"session_id": None, "title": None, "started_at": None, "source": None}
    stored = newest[0]
    return {
        "session_id": stored.key,
        "title": stored.title,
        "started_at": stored.started_at,
        "source": stored.source,
    }


# --- resume ----------------------------------------------------------------------------------------------------------


@methods.method("session.resume", s.SessionResumeParams, "SessionSnapshot")
def resume(client: GatewayClient, params: s.SessionResumeParams) -> Awaiting[Any]:
    """By stored key or exact title; a session that is live already is shared, nobody is evicted."""
    if not params.session_id:
        raise MissingSessionId
    client.take_size(params.cols)
    live = client.server.registry.by_key(params.session_id) or _live_by_title(client, params.session_id)
    if live is not None:
        # An answer may be in the same write: it is read before this request has its turn.
        client.questions.expect_open(live)

    async def run() -> Answer[dict[str, Any]]:
        rows: tuple[Row, ...] | None = None
        while True:
            session, is_new = await _find(client, params)
            owner = await held_elsewhere(session)
            if not (params.omit_messages or params.defer_history):
                rows = await settled_transcript(session)
            if not session.closing:
                break
        client.make_current(session)
        result = snapshot(session, rows, inline_images=params.inline_images)
        result["resumed"] = session.key
        if owner is not None:
            # What it does is not seen from here: nobody is to take the silence for the end of its turn.
            result["owner"] = str(owner)
        after: list[Callable[[], None]] = [lambda: client.questions.repeat_legacy(session)]
        if params.defer_history:
            result.update(hydrating=True, status="resuming")
            after.append(lambda: _tell_progress(session))
        if is_new and not params.lazy:
            after.append(lambda: start_getting_ready(session))
        return Answer(result, after=lambda: _all(after))

    return Awaiting(run)


def _all(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()


async def _find(client: GatewayClient, params: s.SessionResumeParams) -> tuple[Session, bool]:
    """The session (gateway §3.7), and whether it has just come to life."""
    registry = client.server.registry
    wanted = params.session_id
    live = registry.by_key(wanted) or _live_by_title(client, wanted)
    if live is not None:
        return live, False
    client.server.refuse_when_draining()
    try:
        stored = await registry.find_stored(wanted)
    except StoredSessionNotFound:
        if not MINTED_KEY.fullmatch(wanted):
            raise
        again = registry.by_key(wanted)
        if again is not None:
            return again, False
        made = registry.create(source=params.source or "tui", cwd=client.server.default_cwd(), key=wanted)
        made.close_on_disconnect = params.close_on_disconnect
        return made, True
    was_live = registry.by_key(stored.key) is not None
    session = await registry.resume(stored.key)
    if not was_live:
        session.close_on_disconnect = params.close_on_disconnect
    return session, session.resolved is None and not was_live


def _live_by_title(client: GatewayClient, title: str) -> Session | None:
    """A live session that is not stored yet may have its title already."""
    return next(
        (item for item in client.server.registry.live() if not item.is_stored and title and item.stored.title == title),
        None,
    )


def _tell_progress(session: Session) -> None:
    session.emit(HistoryLoading("loading"))
    session.emit(HistoryLoading("complete", len(session.rows)))


# --- what a session is -----------------------------------------------------------------------------------------------


@methods.method("session.history", s.SessionParams, "SessionHistoryResult")
def history(client: GatewayClient, params: s.SessionParams) -> Any:
    """The whole conversation; what a compression has taken out of the context is marked ``compacted``."""
    session = client.session(params.session_id)

    async def whole() -> dict[str, Any]:
        return _history(await settled_transcript(session))

    return Awaiting(whole) if has_compacted(session) else _history(settled_rows(session))


def _history(rows: tuple[Row, ...]) -> dict[str, Any]:
    messages = messages_wire(rows)
    return {"count": len(messages), "messages": messages}


@methods.method("session.usage", s.SessionParams, "SessionUsageResult")
def usage(client: GatewayClient, params: s.SessionParams) -> dict[str, Any]:
    return session_usage(client.session(params.session_id))


def session_usage(session: Session) -> dict[str, Any]:
    numbers = numbers_of(session)
    shape = usage_wire(
        numbers.usage, model=numbers.model, context_used=numbers.context_used, context_max=numbers.context_max
    )
    shape["compressions"] = numbers.compressions
    if numbers.active_subagents:
        shape["active_subagents"] = numbers.active_subagents
    return shape


@methods.method("session.status", s.SessionParams, "SessionStatusResult")
def status(client: GatewayClient, params: s.SessionParams) -> dict[str, Any]:
    return {"output": status_text(client.session(params.session_id))}


@methods.method("session.title", s.SessionTitleParams, "SessionTitleResult")
def title(client: GatewayClient, params: s.SessionTitleParams) -> Any:
    session = client.session(params.session_id)
    if params.title is None:
        return {"title": session.stored.title, "session_key": session.key}
    if not params.title.strip():
        raise EmptyText("title is required")
    cleaned = clean_title(params.title)
    if not cleaned:
        raise InvalidValue("this title has no visible characters")

    async def rename() -> dict[str, Any]:
        taken = await session.services.store.find_by_title(cleaned)
        if taken is not None and taken.key != session.key:
            raise TitleTaken
        await session.set_title(cleaned)
        client.catch_up(session)
        return {"pending": not session.is_stored, "title": cleaned, "session_key": session.key}

    return Awaiting(rename)
