"""Compression by hand (agent-core §6.4, gateway §3.12): work that holds the turn slot and can be stopped like a turn.

Nothing changes before the one write at its end; a stop before that leaves everything as it was. Prompts that come
meanwhile wait and start afterwards.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes.agent.compression import (
    Compressed,
    CompressionPlan,
    NotCompressed,
    SummaryRequest,
    plan_compression,
)
from hermes.agent.compression import compress as summarize
from hermes.agent.ports import DeltaKind, ModelFinished, ModelRequest, ResolvedModel
from hermes.agent.tokens import call_usage, request_tokens, rows_tokens
from hermes.errors import InvalidParams, ProviderError, SessionOwnedElsewhere, WorkStopped
from hermes.events import HistoryCompressed, StatusUpdate
from hermes.messages import Prompt, Row
from hermes.nurseries.held_work import start_held
from hermes.nurseries.pinned import forget_prompt
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.turn_settings import loop_settings
from hermes.nurseries.turn_start import resolve_model
from hermes.outcomes import Usage
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.agent.loop_settings import CompressionSettings
    from hermes.nurseries.session import Session

DEFAULT_KEPT = 2


@dataclass(frozen=True, slots=True)
class CompressSummary:
    noop: bool = False
    aborted: bool = False
    refused_would_grow: bool = False
    fallback_used: bool = False
    headline: str = ""
    token_line: str = ""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class CompressResult:
    """``status``: ``compressed``, or ``aborted`` when nothing has changed. ``lock_held``: another process runs a turn
    of this session; ``message`` says so."""

    status: str
    before_messages: int
    after_messages: int
    before_tokens: int
    after_tokens: int
    summary: CompressSummary
    lock_held: bool = False
    message: str | None = None

    @property
    def removed(self) -> int:
        return self.before_messages - self.after_messages


@dataclass(frozen=True, slots=True)
class CompressWish:
    """The text after ``/compress``, read."""

    focus: str | None = None
    keep: int | None = None
    preview: bool = False


def parse_wish(text: str | None) -> CompressWish:
    """``here [N]``, ``--keep N``, ``--preview`` or ``--dry-run``, and free text as the topic. Raises
    ``InvalidParams``."""
    words = re.sub("[\u2010-\u2015\u2212]+", "--", text or "").split()
    keep: int | None = None
    preview = False
    rest: list[str] = []
    while words:
        word = words.pop(0)
        if word in ("--preview", "--dry-run"):
            preview = True
        elif word == "--keep" or word.startswith("--keep="):
            keep = _number(word.removeprefix("--keep=") if "=" in word else (words.pop(0) if words else ""))
        elif word == "here" and not rest:
            keep = int(words.pop(0)) if words and words[0].isdecimal() else DEFAULT_KEPT
        else:
            rest.append(word)
    # The newest exchange always stays: a history that ended with its own summary would look like an open turn.
    return CompressWish(" ".join(rest) or None, None if keep is None else max(1, keep), preview)


def _number(word: str) -> int:
    if not word.isdecimal():
        raise InvalidParams("--keep needs a number")
    return int(word)


async def compress(session: Session, focus_topic: str | None = None) -> CompressResult:
    """Compress the history; returns when it is done or nothing came of it.

    Raises ``SessionBusy``, ``SessionClosing``, ``InvalidParams``, ``ProviderNotConfigured`` and the store's errors.
    """
    wish = parse_wish(focus_topic)
    if wish.preview:
        return await _preview(session, wish)
    held = start_held(session, "compression", lambda node: _compress(session, node, wish))
    try:
        return await held.wait()
    except WorkStopped:
        return _unchanged(session, CompressSummary(aborted=True, headline="Stopped; nothing has changed"))
    except SessionOwnedElsewhere as error:
        unchanged = _unchanged(session, CompressSummary(aborted=True, headline="Busy elsewhere", note=error.message))
        return replace(unchanged, lock_held=True, message=error.message)


async def _preview(session: Session, wish: CompressWish) -> CompressResult:
    session.refuse_when_closing()
    if session.slot.taken:
        raise session.slot.busy()
    plan = _plan(session, await resolve_model(session, None, None), wish)
    if plan is None:
        return _noop(session)
    note = f"{len(plan.middle)} of {len(session.rows)} messages would be summarized"
    line = f"about {rows_tokens(plan.middle)} of {rows_tokens(session.rows)} tokens"
    return _unchanged(session, CompressSummary(noop=True, headline="Preview", token_line=line, note=note))


async def _compress(session: Session, node: ReasonScope, wish: CompressWish) -> CompressResult:
    session.emit(StatusUpdate(None, "compressing", "compressing the conversation"))
    try:
        return await _compress_rows(session, node, wish)
    finally:
        session.emit(StatusUpdate(None, "status", "ready"))
        session.announce_info()


async def _compress_rows(session: Session, node: ReasonScope, wish: CompressWish) -> CompressResult:
    model = await resolve_model(session, None, None)
    plan = _plan(session, model, wish)
    if plan is None:
        return _noop(session)
    summarizer = Summarizer(session, node, model)
    before = len(session.rows)
    outcome = await summarize(
        tuple(session.rows),
        plan,
        summarizer.ask,
        _settings(session),
        session.services.clock(),
        focus=wish.focus,
        redact=session.services.redact,
    )
    if summarizer.spent.calls:
        await session.append_rows((), usage=summarizer.spent)
    if isinstance(outcome, NotCompressed):
        grows = outcome.code == "would_grow"
        headline = "Not compressed: it would grow" if grows else "Not compressed"
        return _unchanged(
            session,
            CompressSummary(aborted=not grows, refused_would_grow=grows, headline=headline, note=outcome.note),
        )
    await session.replace_with_summary(outcome.summarized_ids, outcome.rows)
    session.last_prompt_tokens = 0
    forget_prompt(session)
    session.emit(HistoryCompressed(before, len(session.rows), outcome.before_tokens, outcome.after_tokens))
    session.stored_changed()
    return _compressed(session, before, outcome)


class Summarizer:
    """Asks the auxiliary model, and the session's own if that one fails. ``spent`` is what the calls cost."""

    def __init__(self, session: Session, node: ReasonScope, model: ResolvedModel) -> None:
        self._session = session
        self._node = node
        self._model = model
        self.spent = Usage()

    async def ask(self, system: str, user: SummaryRequest, max_tokens: int) -> ModelFinished:
        auxiliary = self._session.services.models.auxiliary(self._model)
        try:
            return await self._ask(auxiliary, system, user, max_tokens)
        except ProviderError:
            if (auxiliary.model, auxiliary.provider) == (self._model.model, self._model.provider):
                raise
        return await self._ask(self._model, system, user, max_tokens)

    async def _ask(self, model: ResolvedModel, system: str, user: SummaryRequest, max_tokens: int) -> ModelFinished:
        services = self._session.services
        request = ModelRequest(
            request_id=f"{self._session.key}:aux:{services.ids('aux')}",
            model=model.model,
            messages=(Row("user", user(model.context_length)),),
            system=(system,),
            max_output_tokens=max_tokens,
            session_key=self._session.key,
        )
        finished: ModelFinished | None = None
        with ReasonScope("model_call", f"summary by {model.model}", self._node):
            finished = await services.models.provider_for(model).call(request, _ignore)
        if finished is None:
            raise WorkStopped
        self.spent = self.spent.plus(call_usage(finished, request_tokens(request), model))
        return finished


def _ignore(_kind: DeltaKind, _text: str) -> None:
    """Nobody watches a summary being written."""


def _settings(session: Session) -> CompressionSettings:
    settings = session.services.settings()
    return loop_settings(settings, Prompt(""), depth=session.depth, reasoning_effort=None).compression


def _plan(session: Session, model: ResolvedModel, wish: CompressWish) -> CompressionPlan | None:
    return plan_compression(session.rows, _settings(session), model.context_length, keep_exchanges=wish.keep)


def _noop(session: Session) -> CompressResult:
    return _unchanged(session, CompressSummary(noop=True, headline="There is nothing to compress yet"))


def _unchanged(session: Session, summary: CompressSummary) -> CompressResult:
    count, tokens = len(session.rows), rows_tokens(session.rows)
    return CompressResult("aborted", count, count, tokens, tokens, summary)


def _compressed(session: Session, before: int, outcome: Compressed) -> CompressResult:
    after = len(session.rows)
    return CompressResult(
        "compressed",
        before,
        after,
        outcome.before_tokens,
        outcome.after_tokens,
        CompressSummary(
            fallback_used=outcome.fallback_used,
            headline=f"Compressed {before} messages to {after}",
            token_line=f"{outcome.before_tokens} to {outcome.after_tokens} tokens (estimated)",
            note="no model was available for the summary; it is an extract" if outcome.fallback_used else None,
        ),
    )
