"""QuestionLog: the open questions of a session as durable records, so that a dead server's questions are not lost.

Opening and closing stay synchronous; a task of the session writes behind them. A question that a shutdown withdrew
keeps its record: the next server shows it as one of an interrupted turn, and closes it with the next prompt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes.agent.ports import LeaseOwner
from hermes.errors import HermesError, SessionClosing
from hermes.messages import ClientAnswer, Question, Withdrawn
from hermes.nurseries.client_requests import ClientRequest, LostQuestion

if TYPE_CHECKING:
    from hermes.nurseries.services import Services
    from hermes.nurseries.session import Session

log = logging.getLogger(__name__)

KIND = "question"
_NOTHING: Mapping[str, Any] = {}


class QuestionLog:
    """The records of one session. Bounded by the bound of open questions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pending: dict[str, Mapping[str, Any] | None] = {}
        """What is to be written: the document of a question, or None to delete its record."""
        self._begun: set[str] = set()
        self._writing = False

    def note(self, request: ClientRequest | LostQuestion, answer: ClientAnswer | None) -> None:
        """A question was opened (``answer`` None) or closed."""
        request_id = request.request_id
        if answer is None:
            self._pending[request_id] = _document(request, self._session.services.owner)
        elif isinstance(answer, Withdrawn) and answer.reason == "shutdown":
            return
        elif isinstance(request, LostQuestion) or request_id in self._begun:
            self._pending[request_id] = None
            if isinstance(answer, Withdrawn) and self._turn_will_write(request.turn_id):
                return
        else:
            self._pending.pop(request_id, None)
        self.start_writing()

    def _turn_will_write(self, turn_id: str | None) -> bool:
        """The turn that asked is being stopped: its last rows take the end of its questions along, in one commit."""
        turn = self._session.slot.turn
        return turn is not None and turn.turn_id == turn_id and turn.holds_lease and turn.scope.reason is not None

    def closed(self) -> tuple[str, ...]:
        """The questions whose records are to be deleted; none while a task writes, which may be making one of them."""
        if self._writing:
            return ()
        return tuple(request_id for request_id, document in self._pending.items() if document is None)

    def deleted(self, request_ids: Iterable[str]) -> None:
        """A transaction of the turn has deleted these records."""
        for request_id in request_ids:
            self._begun.discard(request_id)
            if self._pending.get(request_id, _NOTHING) is None:
                del self._pending[request_id]

    def start_writing(self) -> None:
        """Write what is pending, in a task of the session."""
        if self._writing or not self._pending:
            return
        try:
            self._session.start_soon(self._write, name="question log")
        except SessionClosing:
            return  # the session's end writes what is left
        self._writing = True

    async def _write(self) -> None:
        try:
            await self.flush()
        finally:
            self._writing = False

    async def flush(self) -> None:
        """Write what is pending. A cancelled write stays pending."""
        while self._pending:
            request_id, document = next(iter(self._pending.items()))
            await self._write_one(request_id, document)
            if request_id in self._pending and self._pending[request_id] is document:
                del self._pending[request_id]

    async def _write_one(self, request_id: str, document: Mapping[str, Any] | None) -> None:
        store = self._session.services.store
        try:
            if document is None:
                await store.delete_record(KIND, request_id)
                self._begun.discard(request_id)
            else:
                self._begun.add(request_id)
                await store.put_record(KIND, request_id, document, owner=self._session.key)
        except HermesError as error:
            log.warning("the question %s could not be recorded: %s", request_id, error)


def _document(request: ClientRequest | LostQuestion, owner: LeaseOwner) -> dict[str, Any]:
    question = request.question
    return {
        "method": question.method,
        "params": dict(question.params),
        "choices": list(question.choices),
        "tool_call_id": question.tool_call_id,
        "turn_id": request.turn_id,
        "approval_id": request.approval_id,
        "process": asdict(owner),
    }


async def asked_elsewhere(
    services: Services, *, key: str | None = None, request_id: str | None = None
) -> LeaseOwner | None:
    """The living process that asks this question, named by either of its ids, or any question of the session ``key``;
    None where no other process does, or the store cannot tell."""
    try:
        named = None if request_id is None else await services.store.get_record(KIND, request_id)
        found = [] if key is None else [document for _, document in await services.store.list_records(KIND, owner=key)]
    except HermesError as error:
        log.warning("whether another process asks cannot be read: %s", error)
        return None
    if named is not None:
        found = [named]
    elif request_id is not None:
        found = [document for document in found if document["approval_id"] == request_id]
    owners = [LeaseOwner(**document["process"]) for document in found]
    return next((one for one in owners if one != services.owner and services.owner_lives(one)), None)


async def lost_questions(services: Services, key: str) -> list[LostQuestion]:
    """The questions of this session whose server is dead. An unreadable store shows none."""
    try:
        records = await services.store.list_records(KIND, owner=key)
    except HermesError as error:
        log.warning("the questions of %s could not be read: %s", key, error)
        return []
    found = []
    for request_id, document in records:
        owner = LeaseOwner(**document["process"])
        if owner == services.owner or services.owner_lives(owner):
            continue
        question = Question(
            document["method"],
            document["params"],
            choices=tuple(document["choices"]),
            tool_call_id=document["tool_call_id"],
        )
        found.append(LostQuestion(request_id, question, document["turn_id"], document["approval_id"]))
    return found
