"""How a turn's end is said in version 1 of the protocol: a stop reason, or an error.

The only file that knows the words of the version for the end of a turn; a later version says it with an update instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hermes.errors import (
    HermesError,
    InvalidValue,
    ProviderNotConfigured,
    SessionBusy,
    StoreUnavailable,
    TurnFailed,
    Unauthorized,
)
from hermes.outcomes import Cancelled, Cause, Completed, Failed, TurnRecord, Usage
from hermes.protocols.acp.schemas import PromptUsage, SessionPromptResult

PROTOCOL_VERSION: Final = 1

CANCELLED: Final = SessionPromptResult(stopReason="cancelled")
END_TURN: Final = SessionPromptResult(stopReason="end_turn")

_FAILURES: Final[Mapping[str, str]] = {
    "truncated": "max_tokens",
    "max_iterations": "max_turn_requests",
    "budget_exhausted": "max_turn_requests",
    "run_budget_exhausted": "max_turn_requests",
    "content_policy_blocked": "refusal",
    # The turn says itself why it ends.
    "guardrail_halt": "end_turn",
}
_CALLER_LIMITS: Final = (Cause.DEADLINE, Cause.BUDGET)


def prompt_result(record: TurnRecord, *, stop_was_accepted: bool = False) -> SessionPromptResult:
    """The answer to ``session/prompt``. Raises the domain error that stands for a failed turn.

    ``stop_was_accepted``: a stop was recorded before the end was told; then the answer is ``cancelled`` even if the
    last words had been said.
    """
    match record.outcome:
        case Cancelled(reason=reason):
            word = "max_turn_requests" if reason.cause in _CALLER_LIMITS else "cancelled"
            return _result(record, word, {"cause": reason.cause.value, "reason": reason.text})
        case Completed():
            return _result(record, "cancelled" if stop_was_accepted else "end_turn", {})
        case Failed(failure_reason=reason) as failed:
            if not stop_was_accepted and reason not in _FAILURES:
                raise turn_error(failed, record)
            word = "cancelled" if stop_was_accepted else _FAILURES[reason]
            return _result(record, word, {"failureReason": reason})


def turn_error(failed: Failed, record: TurnRecord) -> HermesError:
    """A failed turn as the error its prompt is answered with."""
    if failed.failure_reason == "provider_not_configured":
        return ProviderNotConfigured(failed.error)
    if failed.failure_reason in ("auth", "auth_permanent"):
        return Unauthorized(failed.error, data={"failureReason": failed.failure_reason})
    if failed.failure_reason == "model_not_served":
        return InvalidValue(failed.error)
    if failed.failure_reason == "session_busy":
        return SessionBusy(failed.error)
    if failed.failure_reason.startswith("session_persistence_failed"):
        return StoreUnavailable(failed.error, cause=failed.failure_reason.partition(":")[2] or "io")
    data: dict[str, Any] = {"failureReason": failed.failure_reason, "retryable": failed.retryable}
    data |= {key: value for key, value in (("provider", record.provider), ("model", record.model)) if value}
    return TurnFailed(failed.error, data=data)


def _result(record: TurnRecord, word: str, facts: Mapping[str, Any]) -> SessionPromptResult:
    facts = {key: value for key, value in facts.items() if value is not None}
    if record.pending_steer:
        facts["pendingSteer"] = record.pending_steer
    result = SessionPromptResult(stopReason=word)
    usage = prompt_usage(record.usage)
    if usage is not None:
        result["usage"] = usage
    if facts:
        result["_meta"] = {"hermes": facts}
    return result


def prompt_usage(usage: Usage) -> PromptUsage | None:
    """None where nothing is known: zeros would be a claim."""
    if not usage.total_tokens:
        return None
    told = PromptUsage(totalTokens=usage.total_tokens, inputTokens=usage.input_tokens, outputTokens=usage.output_tokens)
    if usage.reasoning_tokens:
        told["thoughtTokens"] = usage.reasoning_tokens
    if usage.cache_read_tokens:
        told["cachedReadTokens"] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        told["cachedWriteTokens"] = usage.cache_write_tokens
    return told
