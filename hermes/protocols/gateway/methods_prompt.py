"""prompt.submit: a new turn, a rewind, or a prompt into a running turn (gateway §4.1, §4.2, §5)."""

from __future__ import annotations

from typing import Any

from hermes.agent.history import parse_rewind, survivor_map
from hermes.errors import ChangeNotStored, StoreUnavailable
from hermes.messages import Prompt, RewindIntent, TurnLimits
from hermes.nurseries.attachments import queued, take_queued
from hermes.nurseries.browser_tools import browser_tools
from hermes.nurseries.session import Session
from hermes.nurseries.told_before import stored_before
from hermes.nurseries.turn_slot import BusyPolicy, Submission
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway.browser_desk import lane_of
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.content import read_content, with_images
from hermes.protocols.gateway.shapes import PROMPT_SOURCE
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()

TARGETS = ("truncate_before_row_id", "truncate_before_user_ordinal", "truncate_before_message_id")


@methods.method("prompt.submit", s.PromptSubmitParams, "PromptSubmitResult")
def submit(client: GatewayClient, params: s.PromptSubmitParams) -> Any:
    """Reserved in the reader, in arrival order; the answer waits until the prompt is durable, never for the model."""
    session = client.session(params.session_id)
    client.server.refuse_when_draining()
    wants_rewind = params.confirm_truncate is True or any(getattr(params, name) is not None for name in TARGETS)
    if session.slot.taken and wants_rewind:
        raise session.slot.busy()
    rewind = parse_rewind({name: getattr(params, name) for name in _REWIND_KEYS})
    client.make_current(session)
    stored = None if rewind is not None else _stored_before(session, params)
    if stored is not None:
        return {"status": "streaming", "user_row_id": stored}
    prompt = _prompt(client, session, params)
    submission = session.submit_nowait(prompt, rewind=rewind, policy=_policy(client, session, params.queued))
    take_queued(session)
    for text in client.early_steers.pop(session.runtime_id, ()):
        session.steer(text)
    if submission.status != "streaming":
        return {"status": submission.status} | _place(client, session, submission)
    return Awaiting(lambda: _accepted(session, submission, rewind, params.rebind_survivor_row_ids))


def _place(client: GatewayClient, session: Session, submission: Submission) -> dict[str, int]:
    """How many prompts run before it, itself included; not told to the older dialect, nor of one that does not wait."""
    waiting = session.slot.queued
    return {} if client.older or submission not in waiting else {"queue_position": waiting.index(submission) + 1}


def _stored_before(session: Session, params: s.PromptSubmitParams) -> int | None:
    if params.client_message_id is None:
        return None
    content = read_content(params.text)
    return stored_before(session, Prompt(content, source=PROMPT_SOURCE, client_message_id=params.client_message_id))


def _policy(client: GatewayClient, session: Session, queued: bool) -> BusyPolicy:
    """What happens to a prompt while a turn runs. The older dialect stops the turn and runs the prompt behind it."""
    policy = BusyPolicy.QUEUE if queued else BusyPolicy(client.server.settings.display.busy_input_mode)
    if policy is BusyPolicy.REDIRECT and client.older and session.slot.turn is not None:
        session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT, "a new prompt"))
        return BusyPolicy.QUEUE
    return policy


_REWIND_KEYS = (*TARGETS, "confirm_truncate", "confirm_empty_truncate")


def _prompt(client: GatewayClient, session: Session, params: s.PromptSubmitParams) -> Prompt:
    images = [image for image, _ in queued(session)]
    return Prompt(
        content=with_images(read_content(params.text), images),
        source=PROMPT_SOURCE,
        display_kind="hidden" if params.display_kind == "hidden" else None,
        client_message_id=params.client_message_id,
        guest_tools=lambda: browser_tools(client.server.tree.browsers, lane_of(session)),
        title_text=params.title_preview,
        limits=TurnLimits(
            deadline_s=params.deadline_s,
            max_iterations=params.max_iterations,
            max_tokens_total=params.max_tokens_total,
            max_cost_usd=params.max_cost_usd,
        ),
    )


async def _accepted(
    session: Session, submission: Submission, rewind: RewindIntent | None, rebind: list[int] | None
) -> dict[str, Any]:
    try:
        accepted = await submission.wait_accepted()
    except StoreUnavailable as error:
        if rewind is None:
            raise
        raise ChangeNotStored(error.message, cause=error.cause) from None
    result: dict[str, Any] = {"status": submission.status}
    if accepted.user_row_id is not None:
        result["user_row_id"] = accepted.user_row_id
    if accepted.survivors is not None:
        if rebind is not None:
            result["survivor_row_id_map"] = survivor_map(session.rows, rebind)
        else:
            result["survivor_user_row_ids"] = list(accepted.survivors)
    return result
