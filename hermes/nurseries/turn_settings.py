"""The loop's settings for one turn, out of the server's settings of the moment and the limits of the request."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from hermes.agent.loop_settings import CompressionSettings, GuardrailSettings, LoopSettings, RetrySettings
from hermes.messages import PROMPT_KINDS, Prompt
from hermes.settings import Settings

ONCE = "model_once"
"""Where a choice for the next turn waits, in the session's memory: ``(model, provider, reasoning effort)``."""


def with_once(prompt: Prompt, extras: MutableMapping[str, Any]) -> Prompt:
    """The prompt with the choice for this turn only, used up; a turn that no user asked for leaves it there."""
    asked = prompt.display_kind in PROMPT_KINDS or prompt.display_kind == "hidden"
    if ONCE not in extras or not asked or prompt.model is not None or prompt.provider is not None:
        return prompt
    model, provider, reasoning = extras.pop(ONCE)
    options = {**(prompt.model_options or {})}
    if reasoning is not None:
        options.setdefault("reasoning_effort", reasoning)
    return replace(prompt, model=model, provider=provider, model_options=options or None)


def loop_settings(
    settings: Settings, prompt: Prompt, *, depth: int, reasoning_effort: str | None, model: str = ""
) -> LoopSettings:
    """``depth`` above 0: a delegated agent, with its own bound of iterations. ``reasoning_effort``: the session's own
    choice, before the configured one for ``model`` and the one for all."""
    agent, compression, guardrails = settings.agent, settings.compression, settings.tool_loop_guardrails
    options = dict(prompt.model_options or {})
    effort = options.pop("reasoning_effort", None) or reasoning_effort
    effort = effort or agent.reasoning_overrides.get(model) or _usual_effort(settings, depth)
    return LoopSettings(
        max_iterations=agent.max_turns if depth == 0 else settings.delegation.max_iterations,
        run_budget_seconds=agent.run_budget_seconds,
        budget_warning_ratio=agent.budget_warning_ratio,
        retries=RetrySettings(
            api_max_retries=agent.api_max_retries,
            stream_retries=settings.timeouts.provider.stream_retries,
            recovery_cycles=agent.auto_recovery_cycles,
        ),
        guardrails=GuardrailSettings(
            warnings=guardrails.warnings_enabled,
            hard_stop=guardrails.hard_stop_enabled,
            unattended_hard_stop=guardrails.non_interactive_hard_stop_enabled,
            warn_same_failure=guardrails.warn_after.same_failure,
            warn_tool_failures=guardrails.warn_after.same_tool_failure,
            warn_no_progress=guardrails.warn_after.no_progress,
            halt_same_failure=guardrails.hard_stop_after.same_failure,
            halt_tool_failures=guardrails.hard_stop_after.same_tool_failure,
            halt_no_progress=guardrails.hard_stop_after.no_progress,
            cap_web_searches=guardrails.loop_caps.web_searches,
            cap_subagents=guardrails.loop_caps.subagents,
        ),
        compression=CompressionSettings(
            enabled=compression.enabled,
            threshold=compression.threshold,
            threshold_tokens=compression.threshold_tokens,
            model_thresholds=compression.model_thresholds,
            protect_first=compression.protect_first_n,
            protect_last=compression.protect_last_n,
            max_attempts=compression.max_attempts,
            abort_on_summary_failure=compression.abort_on_summary_failure,
            summary_timeout=compression.context_timeout_seconds,
        ),
        reasoning_effort=effort,
        image_input=agent.image_input_mode,
        temperature=options.pop("temperature", None),
        max_output_tokens=options.pop("max_tokens", None) or settings.model.max_tokens,
        extra_body=options,
    )


def _usual_effort(settings: Settings, depth: int) -> str | None:
    of_children = settings.delegation.reasoning_effort if depth > 0 else ""
    return of_children or settings.agent.reasoning_effort or None
