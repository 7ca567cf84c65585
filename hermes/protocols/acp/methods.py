"""Handshake, sign-in, prompts and their cancellation."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from hermes import __version__
from hermes.errors import InvalidValue, ProviderNotConfigured
from hermes.messages import Prompt
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.acp import offers
from hermes.protocols.acp.content import ReadPrompt, read_prompt
from hermes.protocols.acp.context import SOURCE, AcpContext
from hermes.protocols.acp.late_prompts import LatePrompt
from hermes.protocols.acp.prompt_end import CANCELLED, END_TURN, PROTOCOL_VERSION
from hermes.protocols.acp.schemas import (
    AuthenticateParams,
    ClientCapabilities,
    InitializeParams,
    SessionPromptParams,
    SessionPromptResult,
)
from hermes.protocols.acp.session_view import SessionView
from hermes.protocols.acp.slash_commands import run_command, slash_command
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

logger = logging.getLogger(__name__)

TABLE: Final[MethodTable[AcpContext]] = MethodTable()


@TABLE.method("initialize", InitializeParams)
def initialize(ctx: AcpContext, params: InitializeParams) -> dict[str, Any]:
    """One version is served: whatever the client speaks, it is offered, and the client decides. A second call
    replaces what is known of the client."""
    ctx.meet(ClientCapabilities.read(params.client_capabilities))
    ctx.version = PROTOCOL_VERSION
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": "hermes-agent", "title": "Hermes", "version": __version__},
        "agentCapabilities": offers.agent_capabilities(mcp=ctx.start_mcp is not None),
        "authMethods": offers.auth_methods(ctx.usable_provider(), ctx.client),
    }


@TABLE.method("authenticate", AuthenticateParams)
def authenticate(ctx: AcpContext, params: AuthenticateParams) -> dict[str, Any]:
    """An empty success only when prompts will work."""
    provider = ctx.usable_provider()
    wanted = params.method_id.lower()
    if wanted != offers.SETUP_METHOD and (provider is None or wanted != provider.lower()):
        if provider is None and ctx.tree.services.models.has_credentials(wanted):
            return {}
        raise InvalidValue(f"unknown authentication method {params.method_id}")
    if provider is None or (wanted == offers.SETUP_METHOD and provider == "demo"):
        raise ProviderNotConfigured(f"no model provider is configured. {offers.SETUP_HINT}")
    return {}


@TABLE.method("session/prompt", SessionPromptParams)
def prompt(ctx: AcpContext, params: SessionPromptParams) -> SessionPromptResult | Awaiting[SessionPromptResult]:
    ctx.refuse_when_draining()
    read = read_prompt(params.prompt)
    view = ctx.view(params.session_id)
    if view is None or ctx.late_prompts.last(params.session_id) is not None:
        late = ctx.late_prompts.open(params.session_id)
        return Awaiting(lambda: _late_prompt(ctx, params.session_id, read, late), on_cancel=late.cancel)
    return _begin(ctx, view, read)


def _begin(ctx: AcpContext, view: SessionView, read: ReadPrompt) -> SessionPromptResult | Awaiting[SessionPromptResult]:
    """Synchronous: what it reserves, the cancel in the next frame finds."""
    if read.is_empty:
        return END_TURN
    command = slash_command(read.command_text)
    if command is not None:
        answer = run_command(ctx, view.session, command)
        if not isinstance(answer, str):
            return answer
        # What is left is a prompt: the text behind /queue, or a /steer that no turn could take.
        read = read_prompt([{"type": "text", "text": answer}])
    ctx.require_credentials()
    pending = view.submit(_prompt(ctx, read))
    return Awaiting(pending.wait, on_cancel=pending.cancel)


async def _late_prompt(ctx: AcpContext, session_id: str, read: ReadPrompt, late: LatePrompt) -> SessionPromptResult:
    """A prompt whose session must be loaded first."""
    try:
        await late.wait_turn()
        view = await ctx.wait_view(session_id)
        outcome = CANCELLED if late.cancelled else _begin(ctx, view, read)
    finally:
        ctx.late_prompts.close(late)
    if not isinstance(outcome, Awaiting):
        return outcome
    late.on_cancel = outcome.on_cancel
    return await outcome.run()


def _prompt(ctx: AcpContext, read: ReadPrompt) -> Prompt:
    return Prompt(
        read.shown,
        source=SOURCE,
        allow_clarify=ctx.client.forms,
        load_api_content=partial(read.load, ctx.tree.services.home) if read.differs else None,
    )


@TABLE.method("session/cancel", None)
def cancel(ctx: AcpContext, params: dict[str, Any]) -> None:
    """A notification: nothing it says is an error, and only the named session is touched."""
    session_id = params.get("sessionId")
    if not isinstance(session_id, str):
        return
    ctx.late_prompts.cancel(session_id)
    session = ctx.registry.by_key(session_id)
    if session is None:
        logger.debug("cancel of %r: no such session", session_id)
        return
    session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, _reason(params)))


def _reason(params: dict[str, Any]) -> str | None:
    meta = params.get("_meta")
    ours = meta.get("hermes") if isinstance(meta, dict) else None
    reason = ours.get("reason") if isinstance(ours, dict) else None
    return reason if isinstance(reason, str) and reason else None
