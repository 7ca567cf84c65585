"""How far a turn has come: the one mutable record that the loop writes and the tree reads.

When a turn is cancelled the loop simply unwinds; whoever cancelled it finds here what had been said, what it had cost
and in which moment it was stopped. Every method is synchronous, so a reader never meets a half-made change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from hermes.agent.tokens import text_tokens
from hermes.outcomes import Usage
from hermes.records import dataclass


class LoopPhase(StrEnum):
    """The moments that the table of interrupts tells apart (agent-core §1.16)."""

    BEFORE_CALL = "before_call"
    WAITING_FIRST_DELTA = "waiting_first_delta"
    STREAMING = "streaming"
    BETWEEN = "between"
    TOOLS = "tools"
    BACKOFF = "backoff"
    COMPRESSING = "compressing"


@dataclass(slots=True)
class TurnProgress:
    """Counters, spending and the unfinished answer of one turn.

    ``text_parts`` and ``reasoning_parts`` hold the answer that is being streamed and is not stored yet; they are empty
    after its row has been stored. ``usage`` is what the whole turn has spent so far, ``unstored_usage`` the part that
    no stored row has carried yet: a finalizer hands it to the store with the closing rows.
    """

    phase: LoopPhase = LoopPhase.BEFORE_CALL
    started_at: float = 0.0
    iterations: int = 0
    api_calls: int = 0
    usage: Usage = Usage()
    unstored_usage: Usage = Usage()
    text_parts: list[str] = field(default_factory=list)
    reasoning_parts: list[str] = field(default_factory=list)
    last_reasoning: str | None = None
    last_prompt_tokens: int = 0
    model: str = ""
    requested_model: str = ""
    served_model: str = ""
    provider: str = ""
    base_url: str = ""
    fallback_models: list[str] = field(default_factory=list)
    response_previewed: bool = False
    user_intervened: bool = False
    guardrail: Mapping[str, Any] | None = None
    compression_exhausted: bool = False
    billing_block: Mapping[str, Any] | None = None
    warning: str | None = None
    tools_ran: bool = False
    open_call_prompt_tokens: int = 0
    open_call_text_from: int = 0

    @property
    def partial_text(self) -> str:
        return "".join(self.text_parts)

    @property
    def partial_reasoning(self) -> str:
        return "".join(self.reasoning_parts)

    def begin_call(self, prompt_tokens: int) -> None:
        """A model request of about this size is being sent."""
        self.phase = LoopPhase.WAITING_FIRST_DELTA
        self.api_calls += 1
        self.open_call_prompt_tokens = max(prompt_tokens, 1)
        self.open_call_text_from = len(self.partial_text)

    def end_call(self, usage: Usage) -> None:
        """The request is over and this is what it cost."""
        self.phase = LoopPhase.BETWEEN
        self.open_call_prompt_tokens = 0
        self.spend(usage)

    def call_not_sent(self) -> None:
        """The request never reached the provider: it counts for nothing."""
        self.phase = LoopPhase.BETWEEN
        self.api_calls -= 1
        self.open_call_prompt_tokens = 0

    def end_unanswered_call(self) -> None:
        """Account for a request whose answer broke off, with estimated tokens. Does nothing if no request is open.

        The prompt was read by the provider whatever became of the answer, so it is counted as soon as there is text.
        """
        if not self.open_call_prompt_tokens:
            return
        said = self.partial_text[self.open_call_text_from :] + self.partial_reasoning
        usage = Usage(calls=1)
        if said:
            output = text_tokens(said)
            usage = Usage(input_tokens=self.open_call_prompt_tokens, output_tokens=output, calls=1, estimated=True)
        self.open_call_prompt_tokens = 0
        self.spend(usage)

    def spend(self, usage: Usage) -> None:
        self.usage = self.usage.plus(usage)
        self.unstored_usage = self.unstored_usage.plus(usage)

    def take_unstored_usage(self) -> Usage:
        """The spending that is to be stored with the next rows; ``give_back_usage`` if they were not stored."""
        taken, self.unstored_usage = self.unstored_usage, Usage()
        return taken

    def give_back_usage(self, usage: Usage) -> None:
        self.unstored_usage = usage.plus(self.unstored_usage)

    def clear_partial(self) -> None:
        """The answer is stored (or worthless): nothing of it is unfinished any more."""
        self.text_parts.clear()
        self.reasoning_parts.clear()
        self.open_call_text_from = 0
