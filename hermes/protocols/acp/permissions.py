"""Questions whether something may be done: ``session/request_permission`` and what its answer means. Pure.

Only an option that was offered and that allows is consent. Everything else (cancelled, unknown, malformed) is a denial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hermes.agent.tool_display import one_line
from hermes.events import ClientRequestOpened
from hermes.messages import Question
from hermes.protocols.acp import tool_calls

# (option id, what it answers, name, kind), in the order in which they are shown.
_OPTIONS: Final = (
    ("allow_once", "once", "Allow once", "allow_once"),
    ("allow_session", "session", "Allow for this session", "allow_always"),
    ("allow_always", "always", "Always allow", "allow_always"),
    ("deny", "deny", "Deny", "reject_once"),
    ("deny_always", "deny", "Deny and stop asking", "reject_always"),
)


def options(question: Question) -> list[dict[str, str]]:
    """The options of a question. Where only one use can be granted, only one can be denied."""
    single = set(question.choices) <= {"once", "deny"} or question.params.get("kind") == "edit"
    return [
        {"optionId": option, "name": name, "kind": kind}
        for option, choice, name, kind in _OPTIONS
        if choice in question.choices and not (single and option == "deny_always")
    ]


def permission_params(session_id: str, event: ClientRequestOpened, cwd: str) -> dict[str, Any]:
    """The request's parameters; the call is the one that was announced, shown as pending while it waits."""
    question = event.question
    call_id = question.tool_call_id or f"question-{event.request_id}"
    return {
        "sessionId": session_id,
        "toolCall": {"toolCallId": call_id, "status": "pending", **_shown(question, cwd)},
        "options": options(question),
    }


def _shown(question: Question, cwd: str) -> dict[str, Any]:
    params = question.params
    reason, command = str(params.get("description") or ""), str(params.get("command") or "")
    if params.get("kind") == "edit":
        paths = [tool_calls.absolute(str(path), cwd) for path in params.get("paths", ())]
        diffs = [tool_calls.diff_content(diff, cwd) for diff in tool_calls.stored_diffs(params)]
        missing = len(paths) - len(diffs)
        if missing > 0:
            diffs.append(tool_calls.as_content(f"{missing} of {len(paths)} changes are too large to be shown."))
        return {
            "title": f"{params.get('tool_name', 'edit')}: {one_line(', '.join(paths))}",
            "kind": "edit",
            "content": diffs,
            "locations": [{"path": path} for path in paths],
        }
    return {
        "title": one_line(f"{reason}: {command}" if reason else command, 160) or "a question",
        "kind": "execute",
        "content": [tool_calls.as_content(f"{reason}\n\n$ {command}" if reason else f"$ {command}")],
        "rawInput": {"command": command, "description": reason},
    }


def choice_of(question: Question, result: object) -> dict[str, Any]:
    """The answer in the core's words; ``{}``, which it reads as a denial, for whatever is no offered option."""
    outcome = result.get("outcome") if isinstance(result, Mapping) else None
    if not isinstance(outcome, Mapping) or outcome.get("outcome") != "selected":
        return {}
    selected = outcome.get("optionId")
    offered = {option["optionId"] for option in options(question)}
    for option, choice, _name, _kind in _OPTIONS:
        if option == selected and option in offered:
            return {"choice": choice}
    return {}
