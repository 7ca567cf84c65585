"""Stopping, steering, and answers to questions by ordinary methods (gateway §4.5, §4.6, §7.6, §7.10)."""

from __future__ import annotations

from typing import Any

from hermes.errors import ClientRequestNotFound, EmptyText, SessionNotFound, SessionOwnedElsewhere
from hermes.nurseries.client_answers import approval_choice
from hermes.nurseries.client_requests import ClientRequest
from hermes.nurseries.question_log import asked_elsewhere
from hermes.nurseries.session import Session
from hermes.protocols.gateway import schemas as s
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.client_requests import find_legacy
from hermes.protocols.rpc.method_table import Awaiting, MethodTable

methods: MethodTable[GatewayClient] = MethodTable()

BY_METHOD = "method"
"""Who answered, when it was a method: then every client is told that the question is settled, the caller too."""


# --- stop and steer --------------------------------------------------------------------------------------------------


@methods.method("session.interrupt", s.SessionInterruptParams, "SessionInterruptResult")
def interrupt(client: GatewayClient, params: s.SessionInterruptParams) -> Any:
    """Everything is asked to stop before the next frame is read; the answer comes when it has, with the prompts that
    waited (``dropped_prompts``) and what no model has seen of the steers (``pending_steer``). ``clear_queue`` false:
    the prompts go on waiting, and the first of them runs then."""
    session = client.session(params.session_id)
    if params.expected_hosted_task_id is not None:
        return {"status": "not_interrupted", "interrupted": False}
    stop = session.interrupt_nowait(s.cancel_reason(params.reason), clear_queue=params.clear_queue)

    async def settled() -> dict[str, Any]:
        result = await stop.wait_settled(client.server.settings.limits.interrupt_ack)
        client.catch_up(session)
        if result.status == "idle":
            return {"status": "idle", "settled": True}
        return {
            "status": result.status,
            "settled": result.settled,
            "stopped": list(result.stopped),
            "dropped_prompts": list(result.dropped_prompts),
            "pending_steer": result.pending_steer,
        }

    return Awaiting(settled)


@methods.method("session.steer", s.SessionTextParams, "SessionSteerResult")
def steer(client: GatewayClient, params: s.SessionTextParams) -> dict[str, Any]:
    text = _text(params)
    session = client.session(params.session_id)
    taken = session.steer(text)
    if not taken and client.older:
        # That dialect has no "rejected": the words wait for the client's next turn.
        client.early_steers.setdefault(session.runtime_id, []).append(text)
        taken = True
    return {"status": "queued" if taken else "rejected", "text": text}


@methods.method("session.redirect", s.SessionTextParams, "SessionSteerResult")
def redirect(client: GatewayClient, params: s.SessionTextParams) -> dict[str, Any]:
    text = _text(params)
    return {"status": client.session(params.session_id).redirect(text), "text": text}


def _text(params: s.SessionTextParams) -> str:
    """Empty text is told before an unknown session (§4.5)."""
    if not params.text.strip():
        raise EmptyText
    return params.text


# --- approvals -------------------------------------------------------------------------------------------------------


@methods.method("approval.respond", s.ApprovalRespondParams, "ApprovalRespondResult")
def approval_respond(client: GatewayClient, params: s.ApprovalRespondParams) -> Any:
    """Settles the named, the oldest, or all approvals. A choice that was not offered is refused; the question stays."""
    session = _approval_owner(client, params)
    try:
        settled = session.requests.respond_approval(
            params.choice, approval_id=params.request_id, every=params.all, by=BY_METHOD
        )
    except ClientRequestNotFound:
        return _not_open(client, {"resolved": 0}, key=session.key, request_id=params.request_id)
    client.catch_up(session)
    return {"resolved": len(settled)}


def _not_open(client: GatewayClient, result: dict[str, Any], **named: str | None) -> Awaiting[dict[str, Any]]:
    """Nothing such is open here. Whoever answers at the wrong process is told which one asks."""

    async def look() -> dict[str, Any]:
        owner = await asked_elsewhere(client.server.tree.services, **named)
        if owner is not None:
            raise SessionOwnedElsewhere(str(owner))
        return result

    return Awaiting(look)


def _approval_owner(client: GatewayClient, params: s.ApprovalRespondParams) -> Session:
    """The session, or whoever owns the named approval when the id is stale (§7.6)."""
    try:
        return client.session(params.session_id or "")
    except SessionNotFound:
        for session in client.server.registry.live():
            if params.request_id is not None and _approval(session, params.request_id) is not None:
                return session
        raise


def _approval(session: Session, request_id: str | None) -> ClientRequest | None:
    try:
        return session.requests.find_approval(request_id)
    except ClientRequestNotFound:
        return None


@methods.method("approval.received", s.ApprovalReceivedParams, "ApprovalReceivedResult")
def approval_received(client: GatewayClient, params: s.ApprovalReceivedParams) -> dict[str, Any]:
    return {"acknowledged": _approval(client.session(params.session_id), params.request_id) is not None}


@methods.method("approval.pending", s.SessionParams, "ApprovalPendingResult")
def approval_pending(client: GatewayClient, params: s.SessionParams) -> dict[str, Any]:
    session = client.session(params.session_id)
    return {
        "approvals": [
            {"request_id": request.approval_id, "choices": list(request.question.choices), **request.params()}
            for request in session.requests.open_requests(method="approval")
        ]
    }


# --- other questions -------------------------------------------------------------------------------------------------


def _owner_of(client: GatewayClient, request_id: str) -> Session | None:
    return next((item for item in client.server.registry.live() if item.requests.get(request_id) is not None), None)


@methods.method("clarify.lock", s.ClarifyLockParams, "ClarifyLockResult")
def clarify_lock(client: GatewayClient, params: s.ClarifyLockParams) -> Any:
    session = _owner_of(client, params.request_id)
    if session is None:
        return _not_open(client, {"status": "expired"}, request_id=params.request_id)
    remaining = session.requests.lock_clarify(params.request_id, params.question_id, params.answer, by=BY_METHOD)
    client.catch_up(session)
    return {"status": "expired"} if remaining is None else {"status": "ok", "remaining": remaining}


@methods.method("request.answer", s.RequestAnswerParams, "StatusResult")
def request_answer(client: GatewayClient, params: s.RequestAnswerParams) -> Any:
    """The answer to a question, for hosts that cannot write bare responses."""
    session = _owner_of(client, params.id)
    request = session.requests.get(params.id) if session is not None else None
    if session is None or request is None:
        return _not_open(client, {"status": "expired"}, request_id=params.id)
    if request.question.method == "approval":
        approval_choice(request.question, params.result.get("choice"))
    settled = session.requests.answer_response(params.id, params.result, by=BY_METHOD)
    client.catch_up(session)
    return {"status": "ok" if settled else "expired"}


# --- the older dialect -----------------------------------------------------------------------------------------------


@methods.method("clarify.respond", s.ClarifyRespondParams, "StatusResult")
def clarify_respond(client: GatewayClient, params: s.ClarifyRespondParams) -> dict[str, Any]:
    """One question of a batch; the next one is shown when this one is answered. An empty answer skips."""
    session, request, number = find_legacy(client.server.registry.live(), params.request_id, "clarify")
    questions = list(request.question.params.get("questions", ()))
    if number >= len(questions):
        raise ClientRequestNotFound("no pending clarify request")
    session.requests.lock_clarify(request.request_id, questions[number]["qid"], params.answer or None, by=BY_METHOD)
    client.questions.next_legacy_question(session, request.request_id)
    return {"status": "ok"}


@methods.method("sudo.respond", s.SudoRespondParams, "StatusResult")
def sudo_respond(client: GatewayClient, params: s.SudoRespondParams) -> dict[str, Any]:
    return _respond_value(client, params.request_id, "sudo", params.password)


@methods.method("secret.respond", s.SecretRespondParams, "StatusResult")
def secret_respond(client: GatewayClient, params: s.SecretRespondParams) -> dict[str, Any]:
    return _respond_value(client, params.request_id, "secret", params.value)


def _respond_value(client: GatewayClient, given_id: str, method: str, value: str) -> dict[str, Any]:
    if not given_id:
        raise ClientRequestNotFound(f"no pending {method} request")
    try:
        session, request, _ = find_legacy(client.server.registry.live(), given_id, method)
    except ClientRequestNotFound:
        return {"status": "expired"}
    session.requests.answer_response(request.request_id, {"value": value}, by=BY_METHOD)
    return {"status": "ok"}


@methods.method("terminal.read.respond", s.TerminalReadRespondParams, "StatusResult")
def terminal_read_respond(client: GatewayClient, params: s.TerminalReadRespondParams) -> dict[str, Any]:
    session, request, _ = find_legacy(client.server.registry.live(), params.request_id, "terminal.read")
    session.requests.answer_response(request.request_id, {"value": params.text}, by=BY_METHOD)
    return {"status": "ok"}
