"""Guardrails against a model that goes in circles (agent-core §1.11).

Per turn, keyed by tool and canonical arguments. A warning is text for the end of a result; a halt ends the turn after
the batch. Pure: it is told of results in call order and remembers counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hermes.agent.loop_settings import GuardrailSettings
from hermes.agent.ports import PlannedCall
from hermes.messages import ToolResult

WEB_SEARCH = "web_search"
SUBAGENT = "delegate_task"


class Guardrails:
    """Counts of one turn. ``halted`` is set by the first pattern that reaches its limit, if hard stops are on."""

    def __init__(self, settings: GuardrailSettings, *, unattended: bool) -> None:
        self._settings = settings
        self._hard = settings.unattended_hard_stop if unattended else settings.hard_stop
        self._same_failure: Counter[tuple[str, str, str]] = Counter()
        self._tool_failures: Counter[str] = Counter()
        self._no_progress: dict[tuple[str, str], tuple[str, int]] = {}
        self._used: Counter[str] = Counter()
        self.halted: Mapping[str, Any] | None = None

    def observe(self, planned: PlannedCall, result: ToolResult) -> str | None:
        """Count a result; the warning that belongs at its end, or None."""
        name = planned.tool.spec.name if planned.tool else planned.call.name
        arguments = json.dumps(planned.arguments, sort_keys=True, default=str)
        self._count_use(name)
        if result.status in ("cancelled", "skipped"):
            return None
        if result.is_error or result.status in ("error", "blocked"):
            return self._failed(name, arguments, result.content)
        self._tool_failures.pop(name, None)
        read_only = planned.tool is not None and planned.tool.flags.read_only
        if not read_only:
            self._no_progress.clear()
            return None
        return self._repeated(name, arguments, result.content)

    def _count_use(self, name: str) -> None:
        self._used[name] += 1
        settings = self._settings
        for tool, cap in ((WEB_SEARCH, settings.cap_web_searches), (SUBAGENT, settings.cap_subagents)):
            if name == tool and self._used[tool] >= cap:
                self._halt("loop_cap", tool, self._used[tool])

    def _failed(self, name: str, arguments: str, content: str) -> str | None:
        settings = self._settings
        key = (name, arguments, content)
        self._same_failure[key] += 1
        self._tool_failures[name] += 1
        same, any_arguments = self._same_failure[key], self._tool_failures[name]
        if same >= settings.halt_same_failure:
            self._halt("same_failure", name, same)
        elif any_arguments >= settings.halt_tool_failures:
            self._halt("tool_failures", name, any_arguments)
        if not settings.warnings:
            return None
        if same >= settings.warn_same_failure:
            return f"this exact call has now failed {same} times in the same way; do something different"
        if any_arguments >= settings.warn_tool_failures:
            return f"{name} has now failed {any_arguments} times in a row; consider another way to get there"
        return None

    def _repeated(self, name: str, arguments: str, content: str) -> str | None:
        former, count = self._no_progress.get((name, arguments), ("", 0))
        count = count + 1 if former == content else 1
        self._no_progress[(name, arguments)] = (content, count)
        if count >= self._settings.halt_no_progress:
            self._halt("no_progress", name, count)
        if self._settings.warnings and count >= self._settings.warn_no_progress:
            return f"this call has given the same result {count} times; nothing has changed since"
        return None

    def _halt(self, pattern: str, tool: str, count: int) -> None:
        if self._hard and self.halted is None:
            self.halted = {"pattern": pattern, "tool": tool, "count": count}
