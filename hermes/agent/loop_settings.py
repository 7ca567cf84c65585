"""The settings of the turn loop: one frozen value per turn, with the defaults of the documentation.

Nothing here reads a file or the environment; the tree fills these from ``hermes.config.Settings`` when a turn starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How hard one model call is tried (seconds where it matters)."""

    api_max_retries: int = 3
    stream_retries: int = 2
    recovery_cycles: int = 5
    first_delay: float = 2.0
    delay_cap: float = 60.0
    retry_after_cap: float = 600.0


@dataclass(frozen=True, slots=True)
class GuardrailSettings:
    """Thresholds of the loop guardrails. ``hard_stop`` is for attended turns, ``unattended_hard_stop`` for the rest."""

    warnings: bool = True
    hard_stop: bool = False
    unattended_hard_stop: bool = True
    warn_same_failure: int = 2
    warn_tool_failures: int = 3
    warn_no_progress: int = 2
    halt_same_failure: int = 5
    halt_tool_failures: int = 8
    halt_no_progress: int = 5
    cap_web_searches: int = 50
    cap_subagents: int = 50


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    enabled: bool = True
    threshold: float = 0.5
    threshold_tokens: int | None = None
    model_thresholds: Mapping[str, float] = field(default_factory=dict)
    protect_first: int = 3
    protect_last: int = 20
    max_attempts: int = 3
    abort_on_summary_failure: bool = False
    summary_timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Everything the loop can be told. ``max_iterations`` None means no limit; the 0.8 of the wrap-up notice is fixed.

    ``result_chars`` and ``batch_chars`` bound what tools put into the conversation; small context windows lower both.
    """

    max_iterations: int | None = 500
    run_budget_seconds: float | None = None
    budget_warning_ratio: float | None = None
    retries: RetrySettings = RetrySettings()
    guardrails: GuardrailSettings = GuardrailSettings()
    compression: CompressionSettings = CompressionSettings()
    max_parallel_tools: int = 8
    max_delegate_calls: int = 10
    result_chars: int = 100_000
    batch_chars: int = 200_000
    spill_preview_chars: int = 1_500
    max_continuations: int = 3
    max_truncated_calls: int = 3
    max_invalid_responses: int = 3
    max_empty_retries: int = 3
    max_restarts: int = 3
    reasoning_effort: str | None = None
    image_input: str = "auto"
    """``native``: every model gets images, ``text``: none does, ``auto``: those that are known to see."""
    temperature: float | None = None
    max_output_tokens: int | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)
