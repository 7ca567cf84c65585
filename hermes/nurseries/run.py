"""Run: a turn under an HTTP name. Its status is a function of the turn's phase and outcome, never a second copy.

A run has no scope of its own: it *is* a turn, or a prompt that still waits for one. It sees every event of its turn in
the same breath as the session's log, numbers the ones that its surface translates from 0 in a journal of its own, and
hands all of them to the feeds of the requests that stream this turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import trio

from hermes.errors import ApprovalNotActive, ApprovalNotPending, ClientRequestNotFound, EmptyText, RunNotAcceptingSteer
from hermes.events import ClientRequestOpened, SessionEvent, ToolEnded
from hermes.messages import Prompt
from hermes.nurseries.client_requests import ClientRequest
from hermes.nurseries.event_log import EventLog
from hermes.nurseries.session import Session
from hermes.nurseries.settlement import Settlement
from hermes.nurseries.turn import Turn
from hermes.nurseries.turn_feed import TurnFeed
from hermes.nurseries.turn_slot import Submission
from hermes.outcomes import (
    PHASE_STATUS,
    Cancelled,
    CancelReason,
    Cause,
    RunStatus,
    TurnPhase,
    TurnRecord,
)
from hermes.records import dataclass

RunKind = Literal["run", "chat", "response", "session_chat"]

JOURNAL_EVENTS = 10_000
JOURNAL_BYTES = 8 * 1024 * 1024
TEXT_EVENT = "message.delta"
TOOLS_KEPT = 50
MERGED_CHARS = 4096


class RunFrame:
    """One translated event. It becomes JSON when somebody first reads or stores it; until then, more text of the same
    kind is added to it instead of making another event: so a burst that nobody could see piece by piece is one."""

    __slots__ = ("_body", "_data", "_encode", "name")

    def __init__(self, name: str, body: dict[str, Any], encode: Callable[[Any], bytes]) -> None:
        self.name = name
        self._body = body
        self._encode = encode
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        if self._data is None:
            self._data = self._encode(self._body)
        return self._data

    @property
    def cost(self) -> int:
        """A cheap estimate of its bytes."""
        return 300 + sum(len(value) for value in self._body.values() if isinstance(value, str))

    def add_text(self, name: str, text: str) -> bool:
        """Take more answer text. False once it has been read, for other kinds of event, and when it is long enough."""
        if self._data is not None or not self.name == name == TEXT_EVENT or len(self._body["delta"]) > MERGED_CHARS:
            return False
        self._body["delta"] += text
        return True


@dataclass(frozen=True, slots=True)
class RunWire:
    """How the surface puts runs into words. None of these waits.

    ``event``: name and members of the wire event for a domain event, or None if it is not shown. ``terminal``: of the
    last event. ``tool``: a call that has ended, for the status. ``status``: the public status object. ``encode``: JSON
    to bytes.
    """

    event: Callable[[SessionEvent], tuple[str, dict[str, Any]] | None]
    terminal: Callable[[Run, TurnRecord], tuple[str, dict[str, Any]]]
    tool: Callable[[ToolEnded], dict[str, Any]]
    status: Callable[[Run], dict[str, Any]]
    encode: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a run is started with. ``journaled``: its events are numbered, kept and replayed. ``facts`` are members of
    the status that the surface knows and the turn does not (requested model, route)."""

    run_id: str
    kind: RunKind
    principal: str
    prompt: Prompt
    journaled: bool = False
    keyed: bool = False
    facts: Mapping[str, Any] | None = None
    told_at_end: bool = False
    """Nobody learns its id before its answer, so it needs no durable status until then."""
    finisher: Callable[[Run, TurnRecord], Awaitable[None]] | None = None
    """Run once at the end, in the server's time and not the client's: stores what the surface keeps of the turn."""
    feeds: tuple[TurnFeed, ...] = ()
    """Readers that are there from the start, so that they miss nothing."""


class Run:
    """One run. Everything is synchronous but ``wait_ended``."""

    def __init__(self, request: RunRequest, session: Session, wire: RunWire, clock: Callable[[], float]) -> None:
        self.run_id = request.run_id
        self.kind = request.kind
        self.principal = request.principal
        self.prompt = request.prompt
        self.journaled = request.journaled
        self.keyed = request.keyed
        self.facts = dict(request.facts or {})
        self.told_at_end = request.told_at_end
        self.finisher = request.finisher
        self.session = session
        self.created_at = self.updated_at = clock()
        self.last_event: str | None = None
        self.shutdown_requested_at: float | None = None
        self.ended: Settlement[TurnRecord] = Settlement()
        self.stored: Settlement[None] = Settlement()
        """Filled when the terminal status is durable (or cannot be) and the terminal event has been published."""
        self.journal: EventLog[RunFrame] = EventLog(
            cost=lambda frame: frame.cost, clock=clock, max_events=JOURNAL_EVENTS, max_cost=JOURNAL_BYTES
        )
        self.tools: deque[Mapping[str, Any]] = deque(maxlen=TOOLS_KEPT)
        """The newest calls of a journaled run that have ended."""
        self.feeds: list[TurnFeed] = list(request.feeds)
        self._newest: RunFrame | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._wire = wire
        self._clock = clock
        session.log.observers.append(self._observe)
        session.on_turn_end.append(self._turn_ended)
        try:
            self.submission: Submission = session.submit_nowait(request.prompt)
        except BaseException:
            self._leave()
            raise

    # --- what it is ---

    @property
    def turn(self) -> Turn | None:
        return self.submission.turn.value

    @property
    def turn_id(self) -> str | None:
        return self.turn.turn_id if self.turn is not None else None

    @property
    def record(self) -> TurnRecord | None:
        return self.ended.value

    @property
    def status(self) -> RunStatus:
        record, turn = self.record, self.turn
        if record is not None:
            return record.run_status
        if turn is None:
            return RunStatus.QUEUED
        # Between the last phase and the settlement of the same breath nobody can look.
        return PHASE_STATUS.get(turn.phase, RunStatus.STOPPING)

    async def wait_ended(self) -> TurnRecord:
        return await self.ended.wait()

    async def wait_news(self) -> None:
        """Wait until something has been published or the run has ended; the caller has looked just before."""
        await self._news.park()

    def open_questions(self, method: str) -> list[ClientRequest]:
        if self.turn_id is None or self.record is not None:
            return []
        return self.session.requests.open_requests(method=method, turn_id=self.turn_id)

    # --- what others may do to it ---

    def cancel(self, reason: CancelReason) -> bool:
        """Ask it to stop: the turn, or the prompt that waits for one. True if this call was the first."""
        if self.record is not None:
            return False
        turn = self.turn
        if turn is not None:
            stopped = turn.cancel(reason)
        else:
            stopped = self.session.slot.drop(self.submission)
            self.dropped(reason)
        if stopped:
            self.touch("run.stopping")
        return stopped

    def dropped(self, reason: CancelReason) -> None:
        """The prompt left the queue without a turn."""
        now = self._clock()
        self._settle(
            TurnRecord(
                turn_id="",
                session_key=self.session.key,
                outcome=Cancelled(reason),
                exit_reason="cancelled_before_start",
                started_at=self.created_at,
                ended_at=now,
            )
        )

    def steer(self, text: str) -> bool:
        """Raises ``RunNotAcceptingSteer`` in any state but running, then ``EmptyText``; false if the turn takes none
        any more."""
        turn = self.turn
        if self.status is not RunStatus.RUNNING or turn is None or turn.phase is not TurnPhase.RUNNING:
            raise RunNotAcceptingSteer(f"the run is {self.status.value}; only a running one takes steer input")
        if not text.strip():
            raise EmptyText("steer text is required")
        return turn.steer(text.strip())

    def respond_approval(self, choice: str, *, request_id: str | None, every: bool) -> int:
        """Answer a pending approval of this run; how many were settled. Raises ``ApprovalNotActive``,
        ``ApprovalNotPending``, ``ChoiceNotOffered``."""
        if self.record is not None:
            raise ApprovalNotActive
        try:
            settled = self.session.requests.respond_approval(
                choice, approval_id=request_id, every=every, by=f"http:{self.run_id}", turn_id=self.turn_id or ""
            )
        except ClientRequestNotFound:
            raise ApprovalNotPending from None
        return len(settled)

    def answer_clarify(self, answers: Mapping[str, Any], *, request_id: str | None) -> bool:
        """Answer a pending clarification of this run. Raises ``ApprovalNotActive`` and ``ApprovalNotPending``."""
        if self.record is not None:
            raise ApprovalNotActive
        for question in self.open_questions("clarify"):
            if request_id in (None, question.request_id):
                result = {"answers": dict(answers)}
                return self.session.requests.answer_response(question.request_id, result, by=f"http:{self.run_id}")
        raise ApprovalNotPending("no such clarification is pending")

    # --- what it sees ---

    def touch(self, name: str) -> None:
        """Something happened to the run that is no event of its turn, or an event of this name was published."""
        self.last_event = name
        self.updated_at = self._clock()

    def publish(self, name: str, members: Mapping[str, Any]) -> RunFrame:
        """Number an event and put it into the journal."""
        newest = self._newest
        if newest is not None and name == TEXT_EVENT and newest.add_text(name, members["delta"]):
            return newest
        frame = self._newest = self.next_frame(name, members)
        self.journal.append(frame)
        self._news.unpark_all()
        return frame

    def next_frame(self, name: str, members: Mapping[str, Any]) -> RunFrame:
        """The frame that the next published event will be."""
        body = {"event": name, "run_id": self.run_id, "timestamp": self._clock(), **members}
        body["seq"] = self.journal.latest_seq
        return RunFrame(name, body, self._wire.encode)

    def _observe(self, event: SessionEvent) -> None:
        turn_id = getattr(event, "turn_id", None)
        if turn_id is None or turn_id != self.turn_id or self.record is not None:
            return
        for feed in self.feeds:
            feed.push(event)
        if isinstance(event, ClientRequestOpened) and event.question.method == "approval":
            self.touch("approval.request")
        if not self.journaled:
            return
        translated = self._wire.event(event)
        if translated is not None:
            self.publish(*translated)
            self.touch(translated[0])
            if isinstance(event, ToolEnded):
                self.tools.append(self._wire.tool(event))

    def _turn_ended(self, turn: Turn, record: TurnRecord) -> None:
        if turn is self.turn:
            self._settle(record)

    def _settle(self, record: TurnRecord) -> None:
        if self.ended.settle(record):
            self._leave()
            self._news.unpark_all()
            self.touch(f"run.{record.run_status.value}")
            for feed in self.feeds:
                feed.finish(record)

    def _leave(self) -> None:
        self.session.log.observers.remove(self._observe)
        self.session.on_turn_end.remove(self._turn_ended)


def dropped_reason(session: Session) -> CancelReason:
    """Why a prompt left the queue: the session is closing, or somebody interrupted the session."""
    return session.scope.reason or CancelReason(Cause.SHUTDOWN if session.closing else Cause.USER_INTERRUPT)
