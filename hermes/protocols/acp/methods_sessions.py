"""Sessions: new, load, resume, fork, list, close, delete."""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, Final

import trio

from hermes.agent.ports import StoredSession
from hermes.errors import HermesError, InvalidParams, NotFound, NothingToBranch, SessionNotFound
from hermes.events import TurnStarted
from hermes.nurseries import session_delete, session_history, session_options, turn_start
from hermes.nurseries.model_choice import picker
from hermes.nurseries.session import Session
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.acp import offers
from hermes.protocols.acp.context import SOURCE, AcpContext
from hermes.protocols.acp.replay import replay_frames
from hermes.protocols.acp.schemas import (
    SessionForkParams,
    SessionIdParams,
    SessionListEntry,
    SessionListParams,
    SessionListResult,
    SessionLoadParams,
    SessionNewParams,
    SessionResumeParams,
    mcp_servers,
)
from hermes.protocols.rpc.method_table import Answer, Awaiting, MethodTable

logger = logging.getLogger(__name__)

TABLE: Final[MethodTable[AcpContext]] = MethodTable()

PAGE: Final = 50
MAX_DIGITS: Final = 15
"""Of a place in the list; what is longer was not written here, and is no number to the database."""
RESOLVE_WITHIN: Final = 2.0
"""Seconds that finding the session's model may hold up an answer; an endpoint that must be asked may take longer."""
CLOSED: Final = CancelReason(Cause.SESSION_CLOSED, "acp_close")


@TABLE.method("session/new", SessionNewParams)
async def new(ctx: AcpContext, params: SessionNewParams) -> Answer[dict[str, Any]]:
    ctx.refuse_when_draining()
    ctx.require_credentials()
    session = ctx.registry.create(source=SOURCE, cwd=params.cwd)
    async with _kept_if_answered(ctx, session):
        await session.ensure_stored()
        return await _introduce(ctx, session, params.mcp_servers, with_id=True)


@TABLE.method("session/load", SessionLoadParams)
async def load(ctx: AcpContext, params: SessionLoadParams) -> Answer[dict[str, Any]]:
    session = await _open(ctx, params)
    answer = await _introduce(ctx, session, params.mcp_servers, with_id=False)
    await _replay(ctx, session)
    return answer


@TABLE.method("session/resume", SessionResumeParams)
async def resume(ctx: AcpContext, params: SessionResumeParams) -> Answer[dict[str, Any]]:
    session = await _open(ctx, params)
    return await _introduce(ctx, session, params.mcp_servers, with_id=False)


@TABLE.method("session/fork", SessionForkParams)
async def fork(ctx: AcpContext, params: SessionForkParams) -> Answer[dict[str, Any]]:
    ctx.refuse_when_draining()
    ctx.require_credentials()
    services = ctx.tree.services
    parent = await services.store.get_session(params.session_id)
    if parent is None:
        raise SessionNotFound(f"there is no session {params.session_id}")
    now = services.clock()
    child = StoredSession(services.ids("session"), source=SOURCE, cwd=params.cwd, started_at=now, last_activity_at=now)
    try:
        stored, rows = await services.store.branch(parent.key, child, row_ids=await _settled_ids(ctx, parent.key))
        session = ctx.registry.adopt(stored, rows)
    except NothingToBranch:
        config = dict(parent.model_config)
        session = ctx.registry.create(
            source=SOURCE, cwd=params.cwd, model=parent.model, provider=parent.provider, model_config=config
        )
    async with _kept_if_answered(ctx, session):
        await session.ensure_stored()
        return await _introduce(ctx, session, params.mcp_servers, with_id=True)


async def _settled_ids(ctx: AcpContext, key: str) -> list[int] | None:
    """While a turn runs, the rows before it: what it has done so far has no end yet. None for all."""
    live = ctx.registry.by_key(key)
    if live is None or live.slot.turn is None:
        return None
    rows = await session_history.settled_transcript(live)
    return [row.row_id for row in rows if row.row_id is not None]


@asynccontextmanager
async def _kept_if_answered(ctx: AcpContext, session: Session) -> AsyncIterator[None]:
    """A session whose client was gone before it knew the id is closed again."""
    kept = False
    try:
        yield
        kept = True
    finally:
        if not kept:
            ctx.forget_view(session.key)
            ctx.registry.close_nowait(session, CLOSED)


async def _open(ctx: AcpContext, params: SessionLoadParams) -> Session:
    """The stored session, live, in the directory the client says. Raises ``SessionNotFound``."""
    ctx.require_credentials()
    session = await ctx.load(params.session_id)
    await session_options.move(session, params.cwd)
    return session


async def _introduce(ctx: AcpContext, session: Session, servers: Any, *, with_id: bool) -> Answer[dict[str, Any]]:
    """Make the session ready for this client, and the answer that tells of it; updates begin behind the answer."""
    session_options.restore_mode(session)
    if not await trio.to_thread.run_sync(os.path.isdir, session.memory.cwd):
        logger.warning("session %s: the directory %s does not exist", session.key, session.memory.cwd)
    requested = mcp_servers(servers)
    session.memory.extras["mcp_servers_requested"] = requested
    if ctx.start_mcp is not None:
        ctx.start_mcp(session, requested)
    view = ctx.open_view(session)
    with trio.move_on_after(RESOLVE_WITHIN):
        try:
            await turn_start.resolve_model(session, None, None)
            options = await picker(
                session.services, session, refresh=False, include_unconfigured=False, explicit_only=False
            )
            view.provider_rows = options["providers"]
        except HermesError as error:
            # The first prompt says so to the user; a session can be looked at without a model.
            logger.warning("session %s: no model yet: %s", session.key, error)

    def after() -> None:
        view.start()
        ctx.announce(session)

    origin = offers.provenance(session.stored, await ctx.ancestors(session.stored))
    answer = ctx.answer(session, with_id=with_id)
    return Answer({**answer, "_meta": {"hermes": {"sessionProvenance": origin}}}, after)


async def _replay(ctx: AcpContext, session: Session) -> None:
    """Send the conversation so far. What a running turn has said comes from the log, if it is all there."""
    view = ctx.open_view(session)
    rows = await session_history.transcript(session)
    running = session.running
    if running:
        started = next(
            (entry.seq for entry in session.log.since(0)[0] if _begins(entry.event, session)),
            None,
        )
        if started is not None and view.rewind(started):
            rows = session_history.settled(session, rows)
            rows += tuple(session.rows[session.rows_before_turn : session.rows_before_turn + 1])
    else:
        view.rewind(session.log.latest_seq)
    frames = replay_frames(session.key, rows, tuple(session.memory.todos), cwd=session.memory.cwd, running=running)
    with view.paused() as unfinished:
        for frame in chain(frames, unfinished):
            if not await ctx.connection.wait_room() or not ctx.connection.send_frame(frame):
                return


def _begins(event: object, session: Session) -> bool:
    turn = session.slot.turn
    return isinstance(event, TurnStarted) and turn is not None and event.turn_id == turn.turn_id


# --- list ------------------------------------------------------------------------------------------------------------


@TABLE.method("session/list", SessionListParams, SessionListResult)
async def list_sessions(ctx: AcpContext, params: SessionListParams) -> SessionListResult:
    offset = read_cursor(params.cursor)
    wanted = None if params.cwd is None else await trio.to_thread.run_sync(os.path.realpath, params.cwd)
    found: list[SessionListEntry] = []
    while True:
        page = await ctx.tree.services.store.list_sessions(limit=4 * PAGE, offset=offset, source=SOURCE)
        paths = await trio.to_thread.run_sync(_real_paths, [stored.cwd for stored in page])
        for stored, real in zip(page, paths, strict=True):
            if len(found) == PAGE:
                return SessionListResult(sessions=found, next_cursor=write_cursor(offset))
            offset += 1
            if wanted is None or real == wanted:
                found.append(_entry(stored, ctx))
        if len(page) < 4 * PAGE:
            return SessionListResult(sessions=found)


def _real_paths(paths: list[str | None]) -> list[str | None]:
    return [None if path is None else os.path.realpath(path) for path in paths]


def _entry(stored: StoredSession, ctx: AcpContext) -> SessionListEntry:
    cwd = stored.cwd or ""
    if not os.path.isabs(cwd):
        cwd = os.path.normpath(os.path.join(str(ctx.tree.services.home), cwd))
    active = datetime.fromtimestamp(stored.last_activity_at or stored.started_at, UTC)
    return SessionListEntry(
        session_id=stored.key,
        cwd=cwd,
        title=offers.list_title(stored.title, stored.preview, cwd),
        updated_at=active.isoformat(),
    )


def write_cursor(offset: int) -> str:
    return base64.urlsafe_b64encode(f"after:{offset}".encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> int:
    """Where the next page begins. Raises ``InvalidParams`` for a cursor that is none of ours."""
    if cursor is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    word, _, number = text.partition(":")
    if word != "after" or not number.isascii() or not number.isdigit() or len(number) > MAX_DIGITS:
        raise InvalidParams("unknown cursor; begin again without one")
    return int(number)


# --- end -------------------------------------------------------------------------------------------------------------


@TABLE.method("session/close", SessionIdParams)
def close(ctx: AcpContext, params: SessionIdParams) -> Awaiting[dict[str, Any]]:
    """The running turn's prompt is answered first; the session can be loaded again.

    It ends before the next frame is read: what comes behind is for the session as it is loaded anew."""
    session = ctx.registry.by_key(params.session_id)
    if session is None:
        return Awaiting(partial(_is_stored, ctx, params.session_id))
    return Awaiting(_end(ctx, session))


async def _is_stored(ctx: AcpContext, session_id: str) -> dict[str, Any]:
    if await ctx.tree.services.store.get_session(session_id) is None:
        raise SessionNotFound(f"there is no session {session_id}")
    return {}


@TABLE.method("session/delete", SessionIdParams)
async def delete(ctx: AcpContext, params: SessionIdParams) -> dict[str, Any]:
    """Deleting what is not there is no error."""
    session = ctx.registry.by_key(params.session_id)
    if session is not None:
        await _end(ctx, session)()
    try:
        await session_delete.delete_stored(ctx.tree.services, params.session_id)
    except NotFound:
        logger.debug("session %s was not there", params.session_id)
    return {}


def _end(ctx: AcpContext, session: Session) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Close it; what is given waits until all of it has been told."""
    view = ctx.views.get(session.key)
    ctx.registry.close_nowait(session, CLOSED)

    async def wait_told() -> dict[str, Any]:
        await session.wait_closed()
        if view is not None and view.started:
            await view.ended.wait()
        if ctx.views.get(session.key) is view:
            ctx.forget_view(session.key)
        return {}

    return wait_told
