"""How things end, and the states in between: reasons, phases, statuses and their transition tables.

Every change of a turn's phase is checked against ``TURN_TRANSITIONS``; an illegal change raises. A run's status is a
function of the turn's phase and outcome, never a second copy of it (architecture, "Central types").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from hermes.records import dataclass


class Cause(StrEnum):
    """Why something was cancelled: a closed set."""

    USER_INTERRUPT = "user_interrupt"
    RUN_STOP = "run_stop"
    CLIENT_DISCONNECT = "client_disconnect"
    DEADLINE = "deadline"
    BUDGET = "budget"
    PARENT = "parent"
    NODE_CANCEL = "node_cancel"
    SESSION_CLOSED = "session_closed"
    LEASE_LOST = "lease_lost"
    SHUTDOWN = "shutdown"


MAX_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class CancelReason:
    """Why a scope was cancelled. ``text`` is the caller's own words (at most 200 characters) or None."""

    cause: Cause
    text: str | None = None

    def __post_init__(self) -> None:
        if self.text is not None and len(self.text) > MAX_REASON_CHARS:
            object.__setattr__(self, "text", self.text[:MAX_REASON_CHARS])

    def __str__(self) -> str:
        return self.cause.value if self.text is None else f"{self.cause.value}: {self.text}"


# What the reasons are called in ``turn_exit_reason``: a person's stop is plain, everything else names its issuer.
SYSTEM_ISSUERS: Mapping[Cause, str] = {
    Cause.CLIENT_DISCONNECT: "sse_client_disconnected",
    Cause.DEADLINE: "deadline",
    Cause.BUDGET: "budget",
    Cause.PARENT: "parent",
    Cause.NODE_CANCEL: "node_cancel",
    Cause.SESSION_CLOSED: "session_closed",
    Cause.LEASE_LOST: "session_turn_lease_lost",
    Cause.SHUTDOWN: "gateway_shutdown",
}


class TurnPhase(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING_FOR_CLIENT = "waiting_for_client"
    STOPPING = "stopping"
    ENDED = "ended"


TURN_TRANSITIONS: Mapping[TurnPhase, frozenset[TurnPhase]] = {
    TurnPhase.QUEUED: frozenset({TurnPhase.RUNNING, TurnPhase.STOPPING, TurnPhase.ENDED}),
    TurnPhase.RUNNING: frozenset({TurnPhase.WAITING_FOR_CLIENT, TurnPhase.STOPPING, TurnPhase.ENDED}),
    TurnPhase.WAITING_FOR_CLIENT: frozenset({TurnPhase.RUNNING, TurnPhase.STOPPING, TurnPhase.ENDED}),
    TurnPhase.STOPPING: frozenset({TurnPhase.ENDED}),
    TurnPhase.ENDED: frozenset(),
}


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    STOPPING = "stopping"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_STATUSES


TERMINAL_STATUSES: frozenset[RunStatus] = frozenset(
    {RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.INTERRUPTED, RunStatus.FAILED}
)

PHASE_STATUS: Mapping[TurnPhase, RunStatus] = {
    TurnPhase.QUEUED: RunStatus.QUEUED,
    TurnPhase.RUNNING: RunStatus.RUNNING,
    TurnPhase.WAITING_FOR_CLIENT: RunStatus.WAITING_FOR_APPROVAL,
    TurnPhase.STOPPING: RunStatus.STOPPING,
}


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts and cost. ``estimated`` is true when the provider sent none and the numbers are ours.

    ``input_tokens`` are those read fresh; what came from or went to the provider's cache is counted beside them.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    calls: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    @property
    def prompt_tokens(self) -> int:
        """The whole prompt, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """The sum of both; the cost is unknown only if it is unknown on both sides."""
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            calls=self.calls + other.calls,
            cost_usd=sum(costs) if costs else None,
            estimated=self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Completed:
    """The turn said what it had to say."""

    text: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The turn was stopped from outside; ``text`` is what had been said, or None."""

    reason: CancelReason
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn could not finish.

    ``incomplete`` is the fourth row of the truth table in agent-core §1.17 (budget, truncation, empty answer,
    guardrail): there ``failed`` is false and ``partial`` true, while every surface still reports a failed run.
    """

    error: str
    failure_reason: str
    text: str | None = None
    incomplete: bool = False
    retryable: bool = False
    resets_at: float | None = None


TurnOutcome = Completed | Cancelled | Failed


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """The result record of agent-core §1.17: the same keys on every exit path.

    ``usage`` is what this turn spent, ``session_usage`` the session's totals after it. ``row_ids`` are the durable ids
    of the rows this turn stored, in order. ``exit_reason`` is agent-core's ``turn_exit_reason``.
    """

    turn_id: str
    session_key: str
    outcome: TurnOutcome
    exit_reason: str
    usage: Usage = Usage()
    session_usage: Usage = Usage()
    api_calls: int = 0
    iterations: int = 0
    last_reasoning: str | None = None
    last_prompt_tokens: int = 0
    context_length: int | None = None
    pending_steer: str | None = None
    interrupt_message: str | None = None
    response_previewed: bool = False
    model: str = ""
    requested_model: str = ""
    served_model: str = ""
    provider: str = ""
    base_url: str = ""
    user_row_id: int | None = None
    final_row_id: int | None = None
    row_ids: tuple[int, ...] = ()
    user_intervened: bool = False
    guardrail: Mapping[str, Any] | None = None
    compression_exhausted: bool = False
    billing_block: Mapping[str, Any] | None = None
    cleanup_errors: tuple[str, ...] = ()
    warning: str | None = None
    started_at: float = 0.0
    ended_at: float = 0.0
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        return self.outcome.text

    @property
    def completed(self) -> bool:
        return isinstance(self.outcome, Completed)

    @property
    def interrupted(self) -> bool:
        return isinstance(self.outcome, Cancelled)

    @property
    def failed(self) -> bool:
        return isinstance(self.outcome, Failed) and not self.outcome.incomplete

    @property
    def partial(self) -> bool:
        match self.outcome:
            case Completed():
                return False
            case Cancelled(text=text):
                return bool(text)
            case Failed(text=text, incomplete=incomplete):
                return incomplete or bool(text)

    @property
    def cause(self) -> Cause | None:
        return self.outcome.reason.cause if isinstance(self.outcome, Cancelled) else None

    @property
    def reason_text(self) -> str | None:
        return self.outcome.reason.text if isinstance(self.outcome, Cancelled) else None

    @property
    def error(self) -> str | None:
        return self.outcome.error if isinstance(self.outcome, Failed) else None

    @property
    def run_status(self) -> RunStatus:
        """The terminal status that runs, session streams and completion records share (api-server §4.9)."""
        match self.outcome:
            case Completed():
                return RunStatus.COMPLETED
            case Cancelled(reason=CancelReason(cause=Cause.SHUTDOWN)):
                return RunStatus.INTERRUPTED
            case Cancelled():
                return RunStatus.CANCELLED
            case Failed():
                return RunStatus.FAILED
