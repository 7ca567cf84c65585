"""From the calls that a model wrote to calls that can be planned: names, ids, arguments (agent-core §1.8).

Every call stays a call: one that cannot run becomes an error result that the model reads, and its good siblings run
(TL-16). What is left out altogether are exact duplicates of a delegation, and delegations beyond the cap.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes.agent.ports import PlannedCall, Tool, ToolSet
from hermes.agent.tool_arguments import BadArguments, CutArguments, GoodArguments, fit, read_arguments
from hermes.messages import ToolCall, ToolResult
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

DELEGATE = "delegate_task"
_NAME = lazy_pattern(r"[a-zA-Z0-9_-]{1,64}")
_CLOSE_ENOUGH = 0.85
_LONGEST_NAME = 200
"""Characters of a name that are compared with those of tools: everybody waits for each of them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The calls of one response, in order. ``notes`` belong at the end of the result of a call."""

    planned: tuple[PlannedCall, ...]
    notes: Mapping[str, str]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(planned.call for planned in self.planned)

    @property
    def all_invalid(self) -> bool:
        return all(planned.error is not None for planned in self.planned)


class CallIds:
    """Ids of calls: taken as they come, made where they are missing, made unique within the session.

    ``taken`` gives the ids that are in use; those that are assigned are added to it.
    """

    def __init__(self, turn_id: str, taken: Callable[[], set[str]]) -> None:
        self._turn = hashlib.sha256(turn_id.encode()).hexdigest()[:8]
        self._ask_taken = taken

    def assign(self, call_id: object, iteration: int, index: int) -> str:
        wanted = str(call_id).strip() if call_id is not None else ""
        wanted = wanted or f"call_{self._turn}_{iteration}_{index}"
        unique = wanted
        number = 2
        taken = self._ask_taken()
        while unique in taken:
            unique = f"{wanted}_{number}"
            number += 1
        taken.add(unique)
        return unique


def prepare_batch(
    calls: Sequence[ToolCall], tools: ToolSet, ids: CallIds, *, iteration: int, max_delegations: int
) -> Batch:
    """Calls that are ready to be stored and planned."""
    planned: list[PlannedCall] = []
    notes: dict[str, str] = {}
    delegations: set[str] = set()
    for index, raw in enumerate(calls):
        tool = find_tool(raw.name, tools)
        if tool is not None and tool.spec.name == DELEGATE:
            if raw.arguments in delegations or len(delegations) >= max_delegations:
                continue
            delegations.add(raw.arguments)
        call = replace(raw, id=ids.assign(raw.id, iteration, index), name=_stored_name(raw.name, tool))
        one, note = _plan(call, raw.name, tool, tools)
        planned.append(one)
        if note:
            notes[call.id] = note
    return Batch(tuple(planned), notes)


def find_tool(name: str, tools: ToolSet) -> Tool | None:
    """The tool that was meant: by name or alias, else the only one that is spelled nearly so."""
    name = str(name).strip()
    if not name:
        return None
    found = tools.find(name)
    if found is not None:
        return found
    close = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), list(tools.names()), n=2, cutoff=_CLOSE_ENOUGH)
    return tools.find(close[0]) if len(close) == 1 else None


def _stored_name(name: str, tool: Tool | None) -> str:
    if tool is not None:
        return tool.spec.name
    cleaned = re.sub(r"[^a-zA-Z0-9_-]", "_", str(name).strip())[:64]
    return cleaned if _NAME.fullmatch(cleaned) else "unnamed"


def _plan(call: ToolCall, raw_name: str, tool: Tool | None, tools: ToolSet) -> tuple[PlannedCall, str]:
    read = read_arguments(call.arguments)
    arguments: Mapping[str, Any] = read.value if isinstance(read, GoodArguments) else {}
    if isinstance(read, GoodArguments):
        call = replace(call, arguments=read.text)
    if not str(raw_name).strip():
        return _refused(call, "the tool name is empty", arguments), ""
    if tool is None:
        known = ", ".join(tools.names())
        return _refused(call, f"unknown tool: {call.name}. Available tools: {known}", arguments), ""
    if isinstance(read, CutArguments):
        return _refused(call, "the arguments are cut off", arguments), ""
    if isinstance(read, BadArguments):
        return _refused(call, f"the arguments are not valid JSON: {read.problem}", arguments), ""
    fitted = fit(arguments, tool.spec.accepts or tool.spec.parameters)
    if fitted.problem is not None:
        return _refused(call, fitted.problem, fitted.value), ""
    note = f"ignored unknown arguments: {', '.join(fitted.dropped)}" if fitted.dropped else ""
    return PlannedCall(call, tool, fitted.value), note


def _refused(call: ToolCall, problem: str, arguments: Mapping[str, Any]) -> PlannedCall:
    return PlannedCall(call, None, arguments, error=error_result(call, problem))


def error_result(call: ToolCall, problem: str) -> ToolResult:
    content = json.dumps({"error": problem}, ensure_ascii=False)
    return ToolResult(call.id, call.name, content, is_error=True, status="error")


def only_these(calls: Iterable[ToolCall], names: Collection[str]) -> bool:
    """True if there are calls and every one of them is of a tool named here."""
    listed = list(calls)
    return bool(listed) and all(call.name in names for call in listed)
