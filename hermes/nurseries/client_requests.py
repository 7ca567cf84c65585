"""ClientRequest and OpenRequests: questions to a human, each with exactly one outcome.

A question is in ``open_requests`` exactly while it is open. It survives a lost connection; the first of answer,
timeout and withdrawal wins, everything later is dropped. Who can be asked is decided here (gateway §7.4): surfaces
attach and say what they answer, and nobody waits for a client that cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trio

from hermes.errors import ClientRequestNotFound
from hermes.events import ClientRequestClosed, ClientRequestOpened, SessionEvent
from hermes.messages import (
    Answered,
    ClientAnswer,
    Declined,
    NoClient,
    Question,
    TimedOut,
    Unsupported,
    Withdrawn,
)
from hermes.nurseries.client_answers import answer_from_response, approval_choice, clarify_answer, question_ids
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.settlement import Settlement
from hermes.outcomes import Cause
from hermes.records import dataclass

log = logging.getLogger(__name__)

MAX_OPEN = 64
"""Questions open at once in one session; the next one is answered ``NoClient`` (nothing is unbounded)."""

SHOWN_ANSWERS = frozenset({"approval", "clarify"})
"""Questions whose answers are no secret."""

OUTCOME_WORDS: Mapping[object, str] = {
    Answered: "answered",
    Declined: "declined",
    Unsupported: "unsupported",
    TimedOut: "timed_out",
    Withdrawn: "withdrawn",
    NoClient: "no_client",
}

WITHDRAWAL_WORDS: Mapping[Cause, str] = {Cause.SESSION_CLOSED: "session_closed", Cause.SHUTDOWN: "shutdown"}


@dataclass(frozen=True, slots=True)
class Attachment:
    """One client that watches a session.

    ``answers(method)`` says whether it can show such a question right now. A client that is attached and answers
    nothing (a WebSocket client that has not declared, gateway §7.4) means that nobody will be asked.
    """

    name: str
    answers: Callable[[str], bool]
    surface: str = "gateway"


class ClientRequest:
    """One open question."""

    def __init__(
        self, request_id: str, approval_id: str | None, turn_id: str | None, question: Question, owner: OpenRequests
    ) -> None:
        self.request_id = request_id
        self.approval_id = approval_id
        self.turn_id = turn_id
        self.question = question
        self.locks: dict[str, Any] = {}
        self.declined_by: set[str] = set()
        self.settlement: Settlement[ClientAnswer] = Settlement()
        self._owner = owner

    def settle(self, answer: ClientAnswer) -> bool:
        """First caller wins; closes the question and tells everybody in the same breath."""
        if not self.settlement.settle(answer):
            log.debug("late answer to %s dropped", self.request_id)
            return False
        self._owner._closed(self, answer)
        return True

    def params(self) -> dict[str, Any]:
        """The payload for clients that (re)attach: with the answers locked so far, without secrets."""
        params = dict(self.question.params)
        if self.approval_id is not None:
            params.setdefault("request_id", self.approval_id)
        if self.locks:
            params["answers"] = dict(self.locks)
        return params


@dataclass(frozen=True, slots=True)
class LostQuestion:
    """A question whose server has died: nobody waits for its answer, but a person must not lose sight of it."""

    request_id: str
    question: Question
    turn_id: str | None = None
    approval_id: str | None = None


Note = Callable[[ClientRequest | LostQuestion, ClientAnswer | None], None]
"""Told of each question that was opened (answer None) or closed. Synchronous; must not raise."""


class OpenRequests:
    """The questions of one session. All methods but ``ask`` are synchronous."""

    def __init__(
        self, *, append: Callable[[SessionEvent], int], ids: Callable[[str], str], note: Note = lambda *_: None
    ) -> None:
        self._append = append
        self._ids = ids
        self._note = note
        self._lost: dict[str, LostQuestion] = {}
        self._open: dict[str, ClientRequest] = {}
        self._attached: dict[str, Attachment] = {}
        self.phase_changed: Callable[[], None] = lambda: None
        """Called after a question was opened or closed, so that the turn can move between running and waiting."""

    # --- who is there ---

    def attach(self, attachment: Attachment) -> None:
        self._attached[attachment.name] = attachment

    def detach(self, name: str) -> None:
        """The client is gone. Its open questions wait for somebody else (AP-13)."""
        self._attached.pop(name, None)

    @property
    def attached(self) -> tuple[Attachment, ...]:
        return tuple(self._attached.values())

    def reachable(self, method: str, *, asks_here: bool = False) -> bool:
        """Whether a question may be opened: somebody answers it, or nobody is there and it can wait for a re-attach."""
        if asks_here or not self._attached:
            return True
        return any(attachment.answers(method) for attachment in self._attached.values())

    def worth_offering(self, method: str, *, asks_here: bool = False) -> bool:
        """Whether the model gets a tool that asks so. A gateway client may declare itself in mid-turn; until
        then its answer is that nobody could be asked (gateway §7.4)."""
        may_declare = any(attachment.surface == "gateway" for attachment in self._attached.values())
        return may_declare or self.reachable(method, asks_here=asks_here)

    # --- the questions ---

    def __len__(self) -> int:
        return len(self._open)

    def entries(self) -> list[dict[str, Any]]:
        """``[{id, method, params}]`` in issue order, for snapshots and replays (gateway §7.5).

        ``interrupted: true`` marks those that a former server left open: their turn is over, they close with the next.
        """
        lost: list[dict[str, Any]] = [
            {"id": one.request_id, "method": one.question.method, "params": dict(one.question.params)}
            for one in self._lost.values()
        ]
        return [{**entry, "interrupted": True} for entry in lost] + [
            {"id": request.request_id, "method": request.question.method, "params": request.params()}
            for request in self._open.values()
        ]

    def found_lost(self, questions: Iterable[LostQuestion]) -> None:
        """Show these beside what is open."""
        self._lost.update((question.request_id, question) for question in questions)

    def settle_lost(self, request_id: str | None = None) -> bool:
        """Close the questions of a dead server (or one of them) as withdrawn. False: there were none."""
        lost = [one for one in self._lost.values() if request_id in (None, one.request_id)]
        for one in lost:
            del self._lost[one.request_id]
            answer = Withdrawn("interrupted")
            self._append(ClientRequestClosed(one.turn_id, one.request_id, one.question.method, answer, one.approval_id))
            self._note(one, answer)
        return bool(lost)

    def open_requests(self, *, method: str | None = None, turn_id: str | None = None) -> list[ClientRequest]:
        return [
            request
            for request in self._open.values()
            if (method is None or request.question.method == method) and (turn_id is None or request.turn_id == turn_id)
        ]

    def get(self, request_id: str) -> ClientRequest | None:
        return self._open.get(request_id)

    def find_approval(self, approval_id: str | None, *, turn_id: str | None = None) -> ClientRequest:
        """The named approval (by queue id or request id), or the oldest one; raises ``ClientRequestNotFound``."""
        for request in self.open_requests(method="approval", turn_id=turn_id):
            if approval_id is None or approval_id in (request.approval_id, request.request_id):
                return request
        raise ClientRequestNotFound

    async def ask(
        self,
        question: Question,
        *,
        scope: ReasonScope,
        turn_id: str | None,
        asks_here: bool = False,
        on_end: Callable[[ClientAnswer], None] | None = None,
    ) -> ClientAnswer:
        """Open the question and wait for its one outcome.

        ``scope`` is the node that asks: its cancellation withdraws the question with the right word. Returns
        ``NoClient`` at once where nobody can answer. ``on_end`` hears the outcome of a wait that was cancelled too.
        """
        if not self.reachable(question.method, asks_here=asks_here) or len(self._open) >= MAX_OPEN:
            await trio.lowlevel.checkpoint()
            return NoClient()
        approval_id = self._ids("approval") if question.method == "approval" else None
        request = ClientRequest(self._ids("srq"), approval_id, turn_id, question, self)
        node = ReasonScope("question", question.method, scope, details={"request_id": request.request_id})
        self._open[request.request_id] = request
        self._append(ClientRequestOpened(turn_id, request.request_id, question, approval_id))
        self._note(request, None)
        self.phase_changed()
        timeout = float("inf") if question.timeout is None or question.timeout <= 0 else question.timeout
        node.limit = trio.current_time() + timeout
        try:
            with node:
                with trio.move_on_after(timeout):
                    await request.settlement.wait()
                request.settle(TimedOut(partial=dict(request.locks) or None))
                node.outcome = OUTCOME_WORDS[type(request.settlement.value)]
        finally:
            # Reached with the question still open only when the wait was cancelled.
            request.settle(Withdrawn(withdrawal_word(node), partial=dict(request.locks) or None))
            answer = request.settlement.value
            if on_end is not None and answer is not None:
                on_end(answer)
        assert answer is not None
        return answer

    def withdraw(self, word: str, *, turn_id: str | None = None) -> list[ClientRequest]:
        """Close every open question (of one turn) before its waiters are even scheduled."""
        requests = self.open_requests(turn_id=turn_id)
        for request in requests:
            request.settle(Withdrawn(word, partial=dict(request.locks) or None))
        return requests

    # --- answers ---

    def answer_response(self, request_id: str, result: object, *, by: str) -> bool:
        """A JSON-RPC result for the question: always settles it, a malformed one as the safe answer."""
        request = self._open.get(request_id)
        if request is None:
            self.settle_lost(request_id)
            return False
        settled = request.settle(answer_from_response(request.question, result, request.locks, by))
        if request.question.method == "approval" and isinstance(result, Mapping) and result.get("all") is True:
            self._answer_all_approvals(result.get("choice"), by)
        return settled

    def answer_error(self, request_id: str, code: int | None, *, by: str, declined_code: int) -> bool:
        """A JSON-RPC error for the question. ``declined_code``: "not shown here", which settles only when every client
        that answers such questions has said so; any other code means nobody answers (gateway §7.6)."""
        request = self._open.get(request_id)
        if request is None:
            self.settle_lost(request_id)
            return False
        if code != declined_code:
            return request.settle(Unsupported())
        request.declined_by.add(by)
        able = {a.name for a in self._attached.values() if a.answers(request.question.method)}
        if able - request.declined_by:
            return False
        return request.settle(Declined())

    def respond_approval(
        self, choice: object, *, approval_id: str | None, every: bool, by: str, turn_id: str | None = None
    ) -> list[ClientRequest]:
        """An approval answered through a method or route. Raises ``ClientRequestNotFound``, ``InvalidValue``,
        ``ChoiceNotOffered``; then nothing has changed. Returns the settled requests."""
        first = self.find_approval(approval_id, turn_id=turn_id)
        chosen = [first]
        if every:
            chosen = self.open_requests(method="approval", turn_id=turn_id)
        decided = [(request, approval_choice(request.question, choice)) for request in chosen]
        return [request for request, word in decided if request.settle(Answered({"choice": word}, by))]

    def lock_clarify(self, request_id: str, question_id: str, answer: object, *, by: str) -> list[str] | None:
        """Fix one answer ahead (``clarify.lock``): the ids still missing, or None if the question is not open.
        Raises ``ClientRequestNotFound`` for an unknown question id."""
        request = self._open.get(request_id)
        if request is None or request.question.method != "clarify":
            return None
        known = question_ids(request.question)
        if question_id not in known:
            raise ClientRequestNotFound(f"no question {question_id} in this request")
        request.locks[question_id] = clarify_answer(answer)
        remaining = [qid for qid in known if qid not in request.locks]
        if not remaining:
            request.settle(Answered({"answers": dict(request.locks)}, by))
        return remaining

    def _answer_all_approvals(self, choice: object, by: str) -> None:
        for request in self.open_requests(method="approval"):
            request.settle(answer_from_response(request.question, {"choice": choice}, {}, by))

    def _closed(self, request: ClientRequest, answer: ClientAnswer) -> None:
        self._open.pop(request.request_id, None)
        method = request.question.method
        if isinstance(answer, Answered) and method not in SHOWN_ANSWERS:
            # Passwords and codes go to the tool that asked, never into an event.
            answer = Answered({}, answer.by)
        self._append(ClientRequestClosed(request.turn_id, request.request_id, method, answer, request.approval_id))
        self._note(request, answer)
        self.phase_changed()


def withdrawal_word(node: ReasonScope) -> str:
    """The word of ``request.cancel`` for the reason that cancelled the node."""
    reason = node.reason
    return "interrupted" if reason is None else WITHDRAWAL_WORDS.get(reason.cause, "interrupted")
