"""How a turn begins: the lease, the durable prompt, the repaired history, and what the loop needs to run.

Each step waits; the slot was reserved before the first of them, so nobody else changes the session meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from hermes.agent.interruption import repair_rows
from hermes.agent.ports import BackgroundProcessInfo, DeltaKind, ModelRequest, ResolvedModel, StoredSession
from hermes.agent.rewind_target import resolve_cut
from hermes.agent.stored_views import latest_todos
from hermes.agent.tool_results import Spill
from hermes.agent.turn_setup import TurnSetup
from hermes.errors import HermesError, NotFound, ProviderError, TitleTaken
from hermes.events import HistoryRewound
from hermes.messages import Prompt, Row
from hermes.nurseries import pinned, told_before, turn_lease, turn_store
from hermes.nurseries.child_agent import AllowedTools
from hermes.nurseries.mcp_servers import wait_session_ready
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.turn_settings import loop_settings, with_once
from hermes.nurseries.turn_slot import Accepted

if TYPE_CHECKING:
    from hermes.nurseries.session import Session
    from hermes.nurseries.turn import Turn

log = logging.getLogger(__name__)

PROCESS_NOTE_CHARS = 4000
MCP_PATIENCE = 5.0
"""Seconds that the first turn of a session waits for MCP servers which are still connecting."""
CHOICES = ("title", "title_source", "model", "provider", "model_config", "cwd")
"""What others may change of a session while its row is made."""
CHOICES_WITHIN = 5.0
SWITCH_NOTE = "switch_note"
MODEL_WARNING = "model_warning"


async def begin(session: Session, turn: Turn) -> None:
    """Take the lease and make the prompt durable. Raises what refuses the prompt; then nothing durable has changed."""
    store = session.services.store
    if turn.rewind is not None and not session.is_stored:
        # Nothing was said yet that it could name. Refused before the session gets a row.
        resolve_cut((), turn.rewind)
    if turn.prompt.load_api_content is not None:
        content = await turn.prompt.load_api_content()
        turn.prompt = replace(turn.prompt, api_content=content, load_api_content=None)
    turn.notes = session.slot.notes if turn.prompt.content is not None else ()
    stored = await take_up(session, turn)
    if turn.rewind is not None:
        new_rows = prompt_rows(session, turn)
        result = await store.rewind(session.key, turn.rewind, new_rows, expected_version=session.history_version)
        session.history_version = result.history_version
        removed = {row.row_id for row in result.removed}
        kept = [row for row in session.rows if row.row_id not in removed]
        session.rows[:] = [*kept, *result.new_rows]
        session.rows_before_turn = len(kept)
        forget_removed(session)
        stored = result.new_rows
        session.emit(HistoryRewound(tuple(row.row_id for row in result.removed if row.row_id), result.survivors))
        survivors = result.survivors
    else:
        survivors = None
    session.slot.noted(turn.notes)
    turn.user_row = stored[-1] if stored else None
    user_row_id = turn.user_row.row_id if turn.user_row is not None else None
    if user_row_id is not None:
        turn.row_ids.append(user_row_id)
    turn.accept(Accepted(user_row_id, survivors))
    session.requests.settle_lost()
    session.stored_changed()


async def take_up(session: Session, turn: Turn) -> tuple[Row, ...]:
    """One transaction: the session row if it is new, the lease, and what a crash and the prompt add to the history.

    Returns the stored rows of the prompt; a rewind stores its own. Only a history that another process has changed
    costs a second transaction: it is read before anything is added to it.
    """
    settings, created = turn.settings, None if session.is_stored else session.stored
    missing, new_rows = added_rows(session, turn)
    # A turn elsewhere changes what is to be cut: an edit is refused at once, never kept until that turn has ended.
    within = settings.agent.gateway_turn_lease_timeout if turn.rewind is None else 0
    rows = [*missing, *new_rows]
    try:
        begun = await turn_lease.begin(session, rows, settings.limits.lease_ttl, within=within)
    except TitleTaken:
        # Given before there was a row to hold it, and somebody else's since: a number tells the two apart. To refuse
        # the prompt would refuse every other one too.
        session.stored = created = replace(session.stored, title_source=turn_store.DERIVED)
        begun = await turn_lease.begin(session, rows, settings.limits.lease_ttl, within=within)
        await keep_numbered_title(session)
    turn.holds_lease = session.is_stored = True
    stored = begun.rows
    if stored is not None:
        session.rows_before_turn = len(session.rows) + len(missing)
        turn_store.learn(session, stored, None, {})
    if created is not None:
        await store_choices(session, created)
    if stored is None:
        await reload(session)
        missing, new_rows = added_rows(session, turn)
        session.rows_before_turn = len(session.rows) + len(missing)
        stored = await session.append_rows([*missing, *new_rows]) if missing or new_rows else ()
    return stored[len(missing) :]


async def keep_numbered_title(session: Session) -> None:
    """The title that the row got, from now on as a person's choice."""
    try:
        stored = await session.services.store.get_session(session.key)
        if stored is None or stored.title is None:
            return
        await session.services.store.update_session(session.key, title=stored.title, title_source="user")
    except HermesError as error:
        # The prompt is stored; a title is no reason to say that it is not.
        log.warning("the title of %s cannot be read: %s", session.key, error)
        return
    session.stored = replace(session.stored, title=stored.title, title_source="user")
    session.scope.name = stored.title
    session.announce_info()


def added_rows(session: Session, turn: Turn) -> tuple[list[Row], list[Row]]:
    """What repairs the history as it is known, and the prompt; nothing for a rewind, which cuts first."""
    if turn.rewind is not None:
        return [], []
    return repair_rows(session.rows, turn.now()), prompt_rows(session, turn)


def prompt_rows(session: Session, turn: Turn) -> list[Row]:
    if turn.prompt.content is None:
        return []
    notes = [notice_row(notice, turn.now()) for notice in turn.notes]
    return [*switch_note(session, turn.now()), *notes, prompt_row(turn)]


def where_turn_begins(rows: Sequence[Row], turn: Turn | None) -> int:
    """The index of the running turn's first row after a compression; ``len(rows)`` if there is no turn.

    When its prompt itself was summarized, everything behind the summary is of the turn.
    """
    if turn is None:
        return len(rows)
    prompt_id = turn.user_row.row_id if turn.user_row is not None else None
    for index, row in enumerate(rows):
        if prompt_id is not None and row.row_id == prompt_id:
            return index
    summaries = [index for index, row in enumerate(rows) if row.compacted_summary]
    return summaries[-1] + 1 if summaries else 0


def switch_note(session: Session, now: float) -> list[Row]:
    """The note that the model has changed since the last turn (PR-5): stored with the prompt that meets the new one."""
    note = session.stored.model_config.get(SWITCH_NOTE)
    if not note or session.memory.extras.get(SWITCH_NOTE) == note:
        return []
    session.memory.extras[SWITCH_NOTE] = note
    former = next((row for row in reversed(session.rows) if row.display_kind == "model_switch"), None)
    text = f"[{note}]"
    if not session.rows or (former is not None and former.text == text):
        return []
    return [Row("user", text, now, display_kind="model_switch", display_metadata={"display_text": note})]


def prompt_row(turn: Turn) -> Row:
    return notice_row(turn.prompt, turn.now())


def notice_row(prompt: Prompt, now: float) -> Row:
    """The row of a prompt, or of a notice that has no turn of its own."""
    metadata = dict(prompt.display_metadata or {})
    return Row(
        role="user",
        content=prompt.content,
        api_content=prompt.api_content,
        timestamp=now,
        display_kind=prompt.display_kind,
        display_metadata=metadata or None,
        platform_message_id=prompt.client_message_id,
    )


async def ensure_stored(session: Session) -> None:
    """The session row exists from the first accepted prompt on (gateway §3.2)."""
    if session.is_stored:
        return
    created = session.stored
    await session.services.store.create_session(created)
    session.is_stored = True
    await store_choices(session, created)


async def store_choices(session: Session, created: StoredSession) -> None:
    """What was chosen while the row was made that is stored now as it was ``created``."""
    # Chosen while this waited, by somebody who found a session that is in memory only.
    missed = {name: getattr(session.stored, name) for name in CHOICES}
    missed = {name: value for name, value in missed.items() if value != getattr(created, name)}
    if not missed:
        return
    with trio.CancelScope(deadline=trio.current_time() + CHOICES_WITHIN, shield=True):
        try:
            await session.services.store.update_session(session.key, **missed)
        except HermesError as error:
            session.stored = replace(session.stored, **{name: getattr(created, name) for name in missed})
            session.notice(f"{', '.join(missed)} could not be stored: {error.message}", level="warning")


async def reload(session: Session) -> None:
    """Another process has changed the history: read it again before anything is decided on it."""
    stored = await session.services.store.get_session(session.key)
    rows = await session.services.store.load_rows(session.key)
    noted = await told_before.compacted_prompts(session.services.store, session.key, rows)
    if stored is None:
        raise NotFound("the stored session is gone")
    told_before.note_anew(session, noted)
    if stored.system_prompt != session.stored.system_prompt:
        session.pinned_prompt = None
    session.memory.extras.pop(SWITCH_NOTE, None)
    session.stored = stored
    session.rows[:] = rows
    session.history_version = stored.history_version
    session.usage = stored.usage


def forget_removed(session: Session) -> None:
    """What tools remembered about rows that are gone (agent-core §5.5)."""
    session.memory.file_reads.clear()
    session.memory.extras.pop(SWITCH_NOTE, None)
    session.memory.todos[:] = latest_todos(session.rows)
    session.memory.todo_revision += 1


async def keep_lease(session: Session, turn: Turn, since: float) -> None:
    """Refresh the lease, taken at ``since``, while the turn runs; a lost lease stops the turn (TL-3)."""

    def lost() -> None:
        if turn.letting_go or not turn.holds_lease:
            return
        turn.lose_lease()

    await turn_lease.keep(session, turn.settings.limits.lease_ttl, lost, since=since)


async def resolve_model(session: Session, model: str | None, provider: str | None) -> ResolvedModel:
    """The model of a turn: the prompt's own, else the session's, else the configured one."""
    if model is not None or provider is not None:
        return await session.services.models.resolve(model, provider)
    if session.resolved is None:
        session.resolved = await session.services.models.resolve(session.stored.model, session.stored.provider)
    return session.resolved


async def prepare(session: Session, turn: Turn) -> TurnSetup:
    """Everything the loop needs. Raises ``ProviderNotConfigured`` or ``ModelNotServed``."""
    services = session.services
    prompt = turn.prompt = with_once(turn.prompt, session.memory.extras)
    await pick_up_credentials(session)
    resolved = await resolve_model(session, prompt.model, prompt.provider)
    services.models.provider_for(resolved)
    warn_once(session, resolved)
    await wait_session_ready(session, services.mcp, MCP_PATIENCE)
    may_ask = prompt.allow_clarify and not prompt.unattended
    may_ask = may_ask and session.requests.worth_offering("clarify", asks_here=prompt.asks_here)
    tools = pinned.tool_set(session, allow_clarify=may_ask)
    if session.allowed_tools is not None:
        tools = AllowedTools(tools, session.allowed_tools)

    async def refresh() -> tuple[str, ...]:
        built = await pinned.build_prompt(session, tools, resolved)
        pinned.keep(session)
        return built

    session.tools = tools
    own = prompt.model is None and prompt.provider is None
    system = await pinned.system_prompt(session, tools, resolved, own=own)
    pinned.keep(session)
    return TurnSetup(
        models=services.models,
        resolved=resolved,
        tools=tools,
        system=system,
        prompt=prompt,
        settings=loop_settings(
            turn.settings,
            prompt,
            depth=session.depth,
            reasoning_effort=session.stored.model_config.get("reasoning_effort"),
            model=resolved.model,
        ),
        progress=turn.progress,
        requested_model=prompt.model or resolved.model,
        may_fall_back=not (prompt.exact_model or (own and session.stored.model_config.get("model_lock"))),
        started_at=turn.accepted_monotonic,
        resolve_path=lambda path: real_path(session.memory.cwd, path),
        spill=spill_in_thread(services.spill),
        hints=pinned.directory_hints(session),
        redact=services.redact,
        refresh_system=refresh,
        refresh_credentials=lambda: pick_up_credentials(session),
        cooldowns=services.cooldowns,
        row_memory=session.row_memory,
    )


def spill_in_thread(spill: Callable[[str, str], str | None] | None) -> Spill | None:
    """Writing is not abandoned: a stop waits for it."""
    if spill is None:
        return None

    async def spilled(call_id: str, text: str) -> str | None:
        return await trio.to_thread.run_sync(spill, call_id, text)

    return spilled


async def pick_up_credentials(session: Session) -> None:
    """A key that the user has just written into the home's ``.env`` holds from this turn on (agent-core §1.2)."""
    config = session.services.config
    if config is None:
        return
    try:
        await config.pick_up_credentials()
    except HermesError as error:
        log.warning("the keys on disk cannot be read; those of before are used: %s", error.message)


def warn_once(session: Session, resolved: ResolvedModel) -> None:
    """Tell what the user should know about the model; again only when it is about another one."""
    if resolved.warning and session.memory.extras.get(MODEL_WARNING) != resolved.warning:
        session.memory.extras[MODEL_WARNING] = resolved.warning
        session.notice(resolved.warning, level="warning")


def real_path(cwd: str, path: str) -> str:
    """The file a tool would touch: links followed, so that two names of one file are one (TL-21)."""
    wanted = os.path.join(cwd, os.path.expanduser(path))
    try:
        return os.path.realpath(wanted)
    except ValueError:
        # No name of a file (a NUL, half a character): the tool says so itself, in its result.
        return os.path.normpath(wanted)


async def ask_auxiliary(
    session: Session, system: str, user: str, *, max_tokens: int, timeout: float, scope: ReasonScope
) -> str:
    """One question to the auxiliary model, no tools, bounded by ``timeout`` seconds. Raises ``ProviderError``."""
    models = session.services.models
    current = session.resolved or await models.resolve(None, None)
    resolved = models.auxiliary(current)
    request = ModelRequest(
        request_id=f"{session.key}:aux:{session.services.ids('aux')}",
        model=resolved.model,
        messages=(Row(role="user", content=user),),
        system=(system,),
        max_output_tokens=max_tokens,
        session_key=session.key,
    )
    node = ReasonScope("model_call", f"auxiliary {resolved.model}", scope, deadline=trio.current_time() + timeout)
    finished = None
    with node:
        finished = await models.provider_for(resolved).call(request, _ignore)
    if finished is None:
        raise ProviderError(f"the auxiliary model gave no answer within {timeout:g} s", error_class="timeout")
    return finished.text


def _ignore(_kind: DeltaKind, _text: str) -> None:
    """The auxiliary answer is read whole."""


def submit_process_end(session: Session, info: BackgroundProcessInfo, output: str) -> None:
    """The end of a background process as a turn of its own kind (agent-core §7.5)."""
    if session.closing:
        return
    tail = session.services.redact(output[-PROCESS_NOTE_CHARS:])
    text = f"[process {info.process_id} finished, exit {info.exit_code}]"
    prompt = Prompt(
        content=text,
        api_content=f"{text}\ncommand: {session.services.redact(info.command)}\noutput (end):\n{tail}",
        source="process",
        display_kind="process_complete",
        display_metadata={
            "display_text": f"{info.command[:80]} finished (exit {info.exit_code})",
            "process_id": info.process_id,
            "exit_code": info.exit_code,
        },
    )
    try:
        session.submit_nowait(prompt)
    except HermesError as error:
        # Called by the process's own supervisor, which must not fail because there is no room to tell the model.
        log.warning("the end of process %s is told as a notice only: %s", info.process_id, error)
        session.notice(text)


def tell_model(session: Session) -> None:
    """The model of a turn that begins, unless it is known. That a turn runs has an event of its own."""
    if session.memory.extras.get("told_model") != model_now(session):
        session.announce_info()


def model_now(session: Session) -> tuple[str, str]:
    """Model and provider: of the newest turn, else those that the next would begin with, as far as is known."""
    if session.resolved is not None:
        return session.resolved.model, session.resolved.provider
    chosen = session.services.settings().model
    model = session.stored.model or chosen.default
    return model, session.stored.provider or (chosen.provider if model == chosen.default else "")
