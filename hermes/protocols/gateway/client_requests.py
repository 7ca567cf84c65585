"""Questions to one client: as requests (gateway §7.1), as events of the older dialect (§7.10), and their withdrawal.

The question itself, its one outcome and who may be asked are the core's (``nurseries/client_requests.py``); here it
only gets its wire form. Both dialects share the one open question; whichever answer comes first wins there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hermes.errors import ClientRequestNotFound
from hermes.events import ClientRequestClosed, ClientRequestOpened
from hermes.messages import Answered, Question, TimedOut
from hermes.nurseries.client_requests import ClientRequest
from hermes.nurseries.session import Session
from hermes.protocols.error_table import NOT_SHOWN_HERE
from hermes.protocols.gateway.events import WireEvent, event_frame
from hermes.protocols.wire.peer import Reply

if TYPE_CHECKING:
    from hermes.protocols.gateway.client import GatewayClient

LEGACY_METHODS: Final = frozenset({"approval", "clarify", "sudo", "secret", "terminal.read"})
EXPIRES: Final = frozenset({"sudo", "secret"})
PREFIX: Final = "srq-"


class QuestionDesk:
    """The questions that one client has before it. Knows which ids it was given, so that late answers are dropped."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client
        self._given: dict[str, str] = {}

    def opened(self, session: Session, event: ClientRequestOpened) -> None:
        """Put the question to the client, in the dialects that it reads."""
        client = self._client
        params = request_params(session, event.question, event.approval_id)
        if client.reads_requests:
            self._given[event.request_id] = session.runtime_id
            client.connection.ask(
                event.request_id, event.question.method, params, lambda reply: self._answered(session, reply)
            )
        request = session.requests.get(event.request_id)
        if client.reads_legacy and request is not None:
            self._send_legacy(session, request)

    def closed(self, session: Session, event: ClientRequestClosed) -> bool:
        """The question is settled. True if the client is to be told (``request.cancel``)."""
        client = self._client
        was_given = self._given.pop(event.request_id, None) is not None
        client.connection.withdraw(event.request_id)
        if client.reads_legacy and event.method in EXPIRES and isinstance(event.answer, TimedOut):
            expired = WireEvent(f"{event.method}.expire", {"request_id": legacy_id(event.request_id)})
            client.send_event(event_frame(expired, session.runtime_id))
        if isinstance(event.answer, Answered) and event.answer.by == client.name:
            return False
        return was_given or client.reads_requests

    def expect_open(self, session: Session) -> None:
        """The client is about to read the open questions in a snapshot: take its answers to them."""
        if not self._client.reads_requests:
            return
        # Also those that a former server left open: whoever answers one clears it away.
        for entry in session.requests.entries():
            self._given[entry["id"]] = session.runtime_id
            self._client.connection.expect(entry["id"], lambda reply: self._answered(session, reply))

    def repeat_legacy(self, session: Session) -> None:
        """Show the open questions to a client of the older dialect, which knows no ``open_requests``."""
        if self._client.reads_legacy:
            for request in session.requests.open_requests():
                self._send_legacy(session, request)

    def forget(self, session: Session) -> None:
        """The client watches this session no more; what it still says about it is dropped."""
        for request_id in [key for key, owner in self._given.items() if owner == session.runtime_id]:
            del self._given[request_id]
            self._client.connection.withdraw(request_id)

    def _answered(self, session: Session, reply: Reply) -> None:
        self._given.pop(reply.id, None)
        requests = session.requests
        if reply.error is None:
            requests.answer_response(reply.id, reply.result, by=self._client.name)
            return
        settled = requests.answer_error(reply.id, reply.error.code, by=self._client.name, declined_code=NOT_SHOWN_HERE)
        if not settled and requests.get(reply.id) is not None:
            # Not shown here, but others may; it can still change its mind.
            self._given[reply.id] = session.runtime_id
            self._client.connection.expect(reply.id, lambda again: self._answered(session, again))

    def _send_legacy(self, session: Session, request: ClientRequest) -> None:
        wire = legacy_event(request)
        if wire is not None:
            self._client.send_event(event_frame(wire, session.runtime_id))

    def next_legacy_question(self, session: Session, request_id: str) -> None:
        """The next question of a batch that the older dialect shows one by one."""
        request = session.requests.get(request_id)
        if request is not None:
            self._send_legacy(session, request)


def request_params(session: Session, question: Question, approval_id: str | None) -> dict[str, Any]:
    """The ``params`` of a server request: always with the session (§7.1)."""
    params: dict[str, Any] = {"session_id": session.runtime_id}
    if approval_id is not None:
        params["request_id"] = approval_id
    params.update(question.params)
    return params


# --- the older dialect -----------------------------------------------------------------------------------------------


def legacy_id(request_id: str, question: int = 0) -> str:
    """The id that the older dialect shows: without our prefix, with the number of a later question of a batch."""
    plain = request_id.removeprefix(PREFIX)
    return plain if question == 0 else f"{plain}.{question}"


def legacy_event(request: ClientRequest) -> WireEvent | None:
    """A question as an event (§7.10); None where the dialect has no word for it."""
    question, params = request.question, request.question.params
    match question.method:
        case "approval":
            return WireEvent("approval.request", _legacy_approval(request, params))
        case "clarify":
            return _legacy_clarify(request)
        case "sudo":
            return WireEvent("sudo.request", {"request_id": legacy_id(request.request_id)})
        case "secret":
            payload = {
                "request_id": legacy_id(request.request_id),
                "env_var": params.get("env_var", ""),
                "prompt": params.get("prompt", ""),
                "metadata": params.get("metadata") or {},
            }
            return WireEvent("secret.request", payload)
        case "terminal.read":
            return WireEvent("terminal.read.request", {"request_id": legacy_id(request.request_id), **params})
        case _:
            return None


def _legacy_approval(request: ClientRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    payload = {
        "request_id": request.approval_id,
        "command": params.get("command", ""),
        "description": params.get("description", ""),
        "pattern_key": params.get("pattern_key", ""),
        "pattern_keys": list(params.get("pattern_keys", ())),
        "allow_permanent": params.get("allow_permanent", "always" in request.question.choices),
        "choices": list(request.question.choices),
    }
    if params.get("smart_denied"):
        payload["smart_denied"] = True
    return payload


def _legacy_clarify(request: ClientRequest) -> WireEvent | None:
    """The first question without an answer; the ones behind it follow one by one."""
    for number, item in enumerate(request.question.params.get("questions", ())):
        if item["qid"] not in request.locks:
            choices = item.get("choices")
            return WireEvent(
                "clarify.request",
                {
                    "request_id": legacy_id(request.request_id, number),
                    "question": item["question"],
                    "choices": list(choices) if choices else None,
                },
            )
    return None


def find_legacy(sessions: Any, given_id: str, method: str) -> tuple[Session, ClientRequest, int]:
    """The open question that an answer of the older dialect names; raises ``ClientRequestNotFound``."""
    plain, _, number = given_id.removeprefix(PREFIX).partition(".")
    for session in sessions:
        for candidate in (PREFIX + plain, plain):
            request = session.requests.get(candidate)
            if request is not None and request.question.method == method:
                return session, request, int(number) if number.isdigit() else 0
    raise ClientRequestNotFound(f"no pending {method} request")
