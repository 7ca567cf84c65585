"""TurnSlot: one turn at a time, and what happens to a prompt that comes while it is taken.

*free → reserved → running → free*. Reserving is synchronous, so two submits, or a submit and a rewind, can never both
be let in. The busy policy is decided here; a truncating submit is always refused while the slot is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol

from hermes.errors import HermesError, Overloaded, SessionBusy
from hermes.messages import Prompt, TurnLimits, has_images
from hermes.nurseries.settlement import Settlement
from hermes.records import dataclass

if TYPE_CHECKING:
    from hermes.nurseries.scopes import ReasonScope
    from hermes.nurseries.turn import Turn

NOTICE_KINDS = frozenset({"process_complete", "async_delegation_complete"})

RETRY_HINT = "when the session is idle; session.interrupt makes it so"
RETRY_WHEN_FEWER = "when a prompt that waits has begun its turn"

SubmitStatus = Literal["streaming", "queued", "steered", "redirected"]


class BusyPolicy(Enum):
    """``display.busy_input_mode`` (gateway §4.2). ``REDIRECT`` is the mode called "interrupt"."""

    REDIRECT = "interrupt"
    STEER = "steer"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The prompt is durable (or its turn was stopped before it could be: then ``user_row_id`` is None)."""

    user_row_id: int | None
    survivors: tuple[int | None, ...] | None = None


class Submission:
    """What became of one submitted prompt.

    ``status`` is known at once. ``turn`` is filled with the turn that runs the prompt, or with None when the prompt was
    dropped from the queue or given to the running turn. ``accepted`` is filled when the prompt is durable, or with the
    error that refused it.
    """

    __slots__ = ("accepted", "prompt", "status", "turn")

    def __init__(self, prompt: Prompt, status: SubmitStatus) -> None:
        self.prompt = prompt
        self.status = status
        self.turn: Settlement[Turn | None] = Settlement()
        self.accepted: Settlement[Accepted | HermesError] = Settlement()

    async def wait_accepted(self) -> Accepted:
        """The acceptance; raises the domain error that refused the prompt (nothing durable has changed then)."""
        outcome = await self.accepted.wait()
        if isinstance(outcome, HermesError):
            raise outcome
        return outcome

    async def wait_turn(self) -> Turn | None:
        """The turn that runs this prompt, as soon as there is one; None if it was dropped or given to another."""
        return await self.turn.wait()


class Stoppable(Protocol):
    """Work that can be stopped and waited for: what ``session.interrupt`` reaches besides the turn."""

    node: ReasonScope
    ended: Settlement[None]


class TurnSlot:
    """The slot and the queue behind it. Everything is synchronous."""

    def __init__(self, *, max_queued: int) -> None:
        self.turn: Turn | None = None
        self._queue: deque[Submission] = deque()
        self._later: list[Submission] = []
        self.notes: tuple[Prompt, ...] = ()
        """What the model is told with the next prompt, without a turn for it."""
        self._max_queued = max_queued
        self.held: str | None = None
        """Why the slot is taken without a turn (a compression, an undo): its word for people."""
        self.holder: Stoppable | None = None
        """What holds it, when that can be stopped."""

    @property
    def taken(self) -> bool:
        return self.turn is not None or self.held is not None

    def busy(self, message: str | None = None) -> SessionBusy:
        """The refusal, with what holds the slot, its state, and when to try again."""
        turn = self.turn
        active, state = (self.held, "running") if turn is None else (turn.turn_id, turn.phase.value)
        data = {"reason": "session_busy", "active": active, "state": state, "retry": RETRY_HINT}
        return SessionBusy(message, data=data)

    def reserve(self, turn: Turn) -> None:
        assert not self.taken
        self.turn = turn
        # Notices that an interrupt set aside come behind the next turn that somebody wants.
        self._queue.extend(self._later)
        self._later.clear()

    def release(self, turn: Turn) -> None:
        """Only the turn that holds the slot frees it."""
        if self.turn is turn:
            self.turn = None

    # --- the queue ---

    @property
    def queued(self) -> Sequence[Submission]:
        return tuple(self._queue)

    def enqueue(self, submission: Submission) -> None:
        """Append; raises ``Overloaded`` when the queue is full (nothing is accepted then)."""
        if len(self._queue) >= self._max_queued:
            message = f"{self._max_queued} prompts are waiting already, which is the limit; this one was not taken"
            data = {"reason": "queue_full", "limit": self._max_queued, "retry": RETRY_WHEN_FEWER}
            raise Overloaded(message, data=data)
        self._queue.append(submission)

    def enqueue_first(self, submission: Submission) -> None:
        """Put a prompt that was accepted before in front: it is never refused."""
        self._queue.appendleft(submission)

    def set_aside(self, submission: Submission) -> None:
        """Keep a notice until somebody wants a turn; it comes behind that one."""
        self._later.append(submission)
        del self._later[: -self._max_queued]

    def note(self, notice: Prompt) -> None:
        """Keep a notice for the next prompt, with which it is stored; the oldest go when there are too many."""
        self.notes = (*self.notes, notice)[-self._max_queued :]

    def noted(self, notices: tuple[Prompt, ...]) -> None:
        """These are stored."""
        self.notes = tuple(one for one in self.notes if one not in notices)

    def drop(self, submission: Submission) -> bool:
        """Take one waiting prompt back. False if it is not waiting any more."""
        try:
            self._queue.remove(submission)
        except ValueError:
            return False
        settle_dropped(submission)
        return True

    def drop_notice(self, name: str, value: str) -> None:
        """Take back the notices that tell of this (an entry of their display metadata), waiting or set aside."""
        for waiting in (self._queue, self._later):
            for submission in [one for one in waiting if is_notice(one.prompt)]:
                if (submission.prompt.display_metadata or {}).get(name) == value:
                    waiting.remove(submission)
                    settle_dropped(submission)

    def move(self, submission: Submission, position: int) -> None:
        """Put one waiting prompt at another place of the queue."""
        self._queue.remove(submission)
        self._queue.insert(position, submission)

    def drop_all(self, *, keep_notices: bool = False) -> list[Submission]:
        """Empty the queue; the prompts leave no stored row.

        ``keep_notices``: what the server itself has to tell is set aside until the next turn, not lost.
        """
        if keep_notices:
            for submission in self._queue:
                if is_notice(submission.prompt):
                    self.set_aside(submission)
        dropped = [one for one in (*self._queue, *self._later) if one not in self._later or not keep_notices]
        self._queue.clear()
        if not keep_notices:
            self._later.clear()
        for submission in dropped:
            settle_dropped(submission)
        return dropped

    def take_next(self) -> tuple[Prompt, list[Submission]] | None:
        """The next envelope: one prompt, or several adjacent text prompts joined by a blank line (gateway §4.3)."""
        if not self._queue:
            return None
        # A person's words go before what the server has to tell.
        first = next((one for one in self._queue if not is_notice(one.prompt)), self._queue[0])
        self._queue.remove(first)
        merged = [first]
        if mergeable(first.prompt):
            while self._queue and mergeable(self._queue[0].prompt) and alike(first.prompt, self._queue[0].prompt):
                merged.append(self._queue.popleft())
        prompt = first.prompt
        if len(merged) > 1:
            prompt = replace(prompt, content="\n\n".join(part.prompt.text for part in merged))
        return prompt, merged


def is_notice(prompt: Prompt) -> bool:
    """A turn that the server starts by itself to tell of an end (agent-core §7.5)."""
    return prompt.display_kind in NOTICE_KINDS


def settle_dropped(submission: Submission) -> None:
    submission.accepted.settle(Accepted(None))
    submission.turn.settle(None)


def mergeable(prompt: Prompt) -> bool:
    """Plain text of a host that does not wait for a turn of its own."""
    return (
        prompt.source == "gateway"
        and isinstance(prompt.content, str)
        and not has_images(prompt.content)
        and prompt.api_content is None
        and prompt.display_kind is None
        and prompt.limits == TurnLimits()
    )


def alike(first: Prompt, second: Prompt) -> bool:
    return (first.model, first.provider, first.system_extra) == (second.model, second.provider, second.system_extra)
