"""Limits of a turn: iterations, wall-clock seconds, tokens, money, and the notice that comes before each cut.

Two kinds of limit live side by side: the server's own (a turn that hits one ends incomplete, with a summary) and the
caller's, which the tree enforces by cancelling. This module counts and warns; it cancels nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from hermes.agent.loop_settings import LoopSettings
from hermes.messages import TurnLimits
from hermes.outcomes import Usage

WARNING_SHARE = 0.8


class BudgetWatch:
    """The limits of one turn. Every notice is given once."""

    def __init__(self, settings: LoopSettings, limits: TurnLimits) -> None:
        self._settings = settings
        self._limits = limits
        self._given: set[str] = set()

    def iterations_spent(self, iterations: int) -> bool:
        limit = self._settings.max_iterations
        return limit is not None and iterations >= limit

    def seconds_spent(self, elapsed: float) -> bool:
        limit = self._settings.run_budget_seconds
        return limit is not None and elapsed >= limit

    def notices(self, iterations: int, usage: Usage, elapsed: float) -> list[str]:
        """Notices that have become due since the last question."""
        due: list[str] = []
        for name, used, limit, share, unit in self._meters(iterations, usage, elapsed):
            due_at = share * limit
            if name == "caller_iterations":
                # Few steps have no four fifths: the last one is announced all the same.
                due_at = min(due_at, limit - 1)
            if name in self._given or limit <= 0 or used < max(due_at, 0.01):
                continue
            self._given.add(name)
            if name == "caller_iterations" and used >= limit:
                # The cut comes next: nobody would read it.
                continue
            due.append(
                f"[Notice from the server, not from the user: {_number(used)} of {_number(limit)} {unit} are used. "
                "Finish the most important part now and then give your answer.]"
            )
        return due

    def _meters(self, iterations: int, usage: Usage, elapsed: float) -> Iterator[tuple[str, float, float, float, str]]:
        settings, limits = self._settings, self._limits
        ratio = settings.budget_warning_ratio
        if ratio is not None and settings.max_iterations is not None:
            yield "iterations", iterations, settings.max_iterations, ratio, "steps"
        if settings.run_budget_seconds is not None:
            yield "seconds", elapsed, settings.run_budget_seconds, WARNING_SHARE, "seconds"
        if limits.max_iterations is not None:
            yield "caller_iterations", iterations, limits.max_iterations, WARNING_SHARE, "steps"
        if limits.deadline_s is not None:
            yield "caller_deadline", elapsed, limits.deadline_s, WARNING_SHARE, "seconds"
        if limits.max_tokens_total is not None:
            yield "caller_tokens", usage.total_tokens, limits.max_tokens_total, WARNING_SHARE, "tokens"
        if limits.max_cost_usd is not None:
            yield "caller_cost", usage.cost_usd or 0.0, limits.max_cost_usd, WARNING_SHARE, "US dollars"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
