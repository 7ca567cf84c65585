"""One session as one connection shows it: the pump of its updates, the prompts that wait for their end, its questions.

A prompt is answered from the event stream: when the pump meets the end of its turn, everything of the turn has been
queued, the answer is queued next, and only then the pump goes on. So the order on the wire is right by construction.

A client that does not read makes the pump wait; meanwhile the feed merges what happens, so nothing is lost and little
is held. The turn itself never waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from hermes.errors import HermesError
from hermes.events import ClientRequestClosed, ClientRequestOpened, SessionEvent, TurnEnded, TurnRefused, TurnStopping
from hermes.messages import Prompt, Question
from hermes.nurseries.client_requests import Attachment
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.event_log import LogClosed
from hermes.nurseries.session import Session
from hermes.nurseries.settlement import Settlement
from hermes.nurseries.turn_feed import SessionFeed
from hermes.nurseries.turn_slot import Submission
from hermes.outcomes import CancelReason, Cause, TurnRecord
from hermes.protocols.acp.elicitation import answers_of, elicitation_params
from hermes.protocols.acp.offers import ProviderRows
from hermes.protocols.acp.permissions import choice_of, permission_params
from hermes.protocols.acp.prompt_end import CANCELLED, prompt_result
from hermes.protocols.acp.schemas import ClientCapabilities, SessionPromptResult
from hermes.protocols.acp.updates import Translator
from hermes.protocols.rpc.dispatcher import RpcConnection
from hermes.protocols.wire.peer import Reply

logger = logging.getLogger(__name__)

NOT_SHOWN = 4404
"""Code of a client's error that would mean "not shown here"; no editor sends it."""


class PendingPrompt:
    """A ``session/prompt`` that is not answered yet."""

    def __init__(self, submission: Submission, session: Session, forget: Callable[[PendingPrompt], None]) -> None:
        self.submission = submission
        self.at_once = submission.status == "streaming"
        self._session = session
        self._forget = forget
        self._end: Settlement[tuple[TurnRecord, bool] | None] = Settlement()
        self.left: Settlement[None] = Settlement()
        """Filled when the answer is on its way, or nobody waits for it any more."""

    @property
    def turn_id(self) -> str | None:
        turn = self.submission.turn.value
        return None if turn is None else turn.turn_id

    def end(self, record: TurnRecord | None, *, stop_was_accepted: bool = False) -> None:
        self._end.settle(None if record is None else (record, stop_was_accepted))

    def cancel(self) -> None:
        """What ``$/cancel_request`` for the prompt does: stop its turn, or take it out of the queue."""
        turn = self.submission.turn.value
        if turn is not None:
            turn.cancel(CancelReason(Cause.USER_INTERRUPT))
        else:
            self._session.slot.drop(self.submission)

    async def wait(self) -> SessionPromptResult:
        """The answer. Raises the error that refused the prompt, or that its turn ended with.

        ``left`` is filled before this returns; the frame is queued before anybody who waits for it is scheduled.
        """
        try:
            if await self.submission.wait_turn() is None:
                return CANCELLED
            accepted = await self.submission.accepted.wait()
            if isinstance(accepted, HermesError):
                raise accepted
            end = await self._end.wait()
            if end is None:
                return CANCELLED
            record, stop_was_accepted = end
            return prompt_result(record, stop_was_accepted=stop_was_accepted)
        finally:
            self._forget(self)
            self.left.settle(None)


class SessionView:
    """Parameters: ``options`` and ``commands``, the present lists for the client; ``on_end``, called when the session
    has ended and everything of it has been passed on."""

    def __init__(
        self,
        session: Session,
        connection: RpcConnection[Any],
        *,
        capabilities: Callable[[], ClientCapabilities],
        options: Callable[[Session], list[dict[str, Any]]],
        commands: Callable[[], list[dict[str, Any]]],
        on_end: Callable[[SessionView], None],
    ) -> None:
        self.session = session
        self.provider_rows: ProviderRows = ()
        """What the model picker offered when the session was opened."""
        self.ended = trio.Event()
        self._connection = connection
        self._capabilities = capabilities
        self._options = options
        self._commands = commands
        self._on_end = on_end
        self._batch: deque[SessionEvent] = deque()
        self._pending: list[PendingPrompt] = []
        self._asked: set[str] = set()
        self._stopping: set[str] = set()
        self._pauses = 0
        self._resumed = trio.Event()
        self.started = False
        self._told = 0
        self._told_more = trio.Event()
        self._feed = SessionFeed(session.log)
        self._translator = self._new_translator()
        session.attach(Attachment(connection.name, self._shows, "acp"))

    def _new_translator(self) -> Translator:
        session = self.session
        return Translator(
            session.key,
            info=session.info(),
            capabilities=self._capabilities,
            options=lambda: self._options(session),
            commands=self._commands,
            own_turn=self._is_own_turn,
            terminal_of=session.memory.client_terminal,
        )

    def start(self) -> None:
        """Begin to send updates, from the moment the view was made. Questions that are open are asked here too."""
        if self.started:
            return
        self.started = True
        self._translator.client_knows(self.session.info())
        for request in self.session.requests.open_requests():
            self._ask(ClientRequestOpened(request.turn_id, request.request_id, request.question, request.approval_id))
        self._connection.start_companion(self._pump, name=f"updates of {self.session.key}")

    def rewind(self, seq: int) -> bool:
        """Before a replay: the updates shall begin behind this event. False when they have begun already; then the
        client asked again for what it sees."""
        if self.started:
            return False
        self._feed.close()
        self._feed = SessionFeed(self.session.log, after=seq)
        self._translator = self._new_translator()
        return True

    @contextmanager
    def paused(self) -> Iterator[list[bytes]]:
        """No update is sent meanwhile. Gives what was sent so far of the message that is being written: the part of
        the conversation that is in no row yet."""
        self._pauses += 1
        try:
            yield list(self._translator.open_message()) if self.started else []
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._resumed.set()
                self._resumed = trio.Event()

    def submit(self, prompt: Prompt) -> PendingPrompt:
        """Hand a prompt to the session; synchronous, so prompts and cancels take effect in the order of their frames.

        Raises what refuses it."""
        submission = self.session.submit_nowait(prompt)
        pending = PendingPrompt(submission, self.session, self._pending.remove)
        self._pending.append(pending)
        return pending

    async def wait_told(self) -> None:
        """Wait until what has happened so far is on its way to the client, or no more is told."""
        so_far = self.session.log.latest_seq
        while self._told < so_far and self.started and not self.ended.is_set():
            await self._told_more.wait()

    @property
    def waiting(self) -> int:
        """Prompts that are not answered yet."""
        return len(self._pending)

    def detach(self) -> None:
        self._feed.close()
        self.session.detach(self._connection.name)

    def _is_own_turn(self, turn_id: str) -> bool:
        return any(pending.at_once and pending.turn_id == turn_id for pending in self._pending)

    # --- the pump ----------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        try:
            while True:
                await self._feed.wait()
                # Room first, then what has piled up meanwhile: a slow client gets fewer and larger frames.
                await self._connection.wait_room()
                latest = self.session.log.latest_seq
                events, lost = self._feed.take_nowait()
                if lost:
                    logger.warning("session %s: the client does not read, updates are lost", self.session.key)
                    await self._answer_ended()
                self._batch.extend(events)
                while self._batch:
                    # A bug that one event meets costs that event, not what follows, and never a prompt its answer.
                    outcome = await contained(f"updates of {self.session.key}", self._pass_on)
                    if isinstance(outcome, Crash):
                        await self._answer_ended()
                self._tell_told(latest)
        except LogClosed:
            return
        finally:
            self._feed.close()
            for pending in list(self._pending):
                pending.end(None)
            self.ended.set()
            self._tell_told(self._told)
            self._on_end(self)

    def _tell_told(self, seq: int) -> None:
        self._told = seq
        self._told_more.set()
        self._told_more = trio.Event()

    async def _pass_on(self) -> None:
        while self._batch:
            await self._wait_resumed()
            event = self._batch.popleft()
            for frame in self._translator.frames(event):
                await self._send(frame)
            match event:
                case ClientRequestOpened():
                    self._ask(event)
                case ClientRequestClosed(request_id=request_id):
                    self._withdraw(request_id)
                case TurnStopping(turn_id=turn_id):
                    self._stopping.add(turn_id)
                case TurnEnded(turn_id=turn_id, record=record) | TurnRefused(turn_id=turn_id, record=record):
                    await self._answer(turn_id, record)
                case _:
                    pass
        for frame in self._translator.flush():
            await self._send(frame)

    async def _send(self, frame: bytes) -> None:
        if not self._connection.has_room:
            await self._connection.wait_room()
        await self._wait_resumed()
        self._connection.send_frame(frame)

    async def _wait_resumed(self) -> None:
        while self._pauses:
            await self._resumed.wait()

    async def _answer(self, turn_id: str, record: TurnRecord) -> None:
        stopped = turn_id in self._stopping
        self._stopping.discard(turn_id)
        for pending in [pending for pending in self._pending if pending.turn_id == turn_id]:
            pending.end(record, stop_was_accepted=stopped)
            await pending.left.wait()

    async def _answer_ended(self) -> None:
        """After a gap: the ends that fell into it."""
        for pending in list(self._pending):
            turn = pending.submission.turn.value
            record = None if turn is None else turn.ended.value
            if record is not None:
                await self._answer(record.turn_id, record)

    # --- questions ---------------------------------------------------------------------------------------------------

    def _shows(self, method: str) -> bool:
        return method == "approval" or (method == "clarify" and self._capabilities().forms)

    def _ask(self, event: ClientRequestOpened) -> None:
        question, request_id = event.question, event.request_id
        if not self._shows(question.method):
            return
        if self.session.requests.get(request_id) is None or request_id in self._asked:
            return
        by, requests = self._connection.name, self.session.requests

        def answered(reply: Reply) -> None:
            self._asked.discard(request_id)
            if reply.error is not None:
                requests.answer_error(request_id, reply.error.code, by=by, declined_code=NOT_SHOWN)
            else:
                requests.answer_response(request_id, read(question, reply.result), by=by)

        self._asked.add(request_id)
        read: Callable[[Question, object], dict[str, Any]]
        if question.method == "approval":
            read, method = choice_of, "session/request_permission"
            params = permission_params(self.session.key, event, self._translator.cwd)
        else:
            read, method = answers_of, "elicitation/create"
            params = elicitation_params(self.session.key, event)
        self._connection.ask(request_id, method, params, answered)

    def _withdraw(self, request_id: str) -> None:
        """Closed by something else than the client's answer: it need not be shown any more."""
        if request_id in self._asked:
            self._asked.discard(request_id)
            self._connection.withdraw(request_id)
            self._connection.notify("$/cancel_request", {"requestId": request_id})
