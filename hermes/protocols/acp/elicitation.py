"""Questions whose answer is the user's: ``elicitation/create`` as a form, and what its answer means. Pure.

Asked only of clients that announced forms. A choice is a field with its values; beside it stands a field for an answer
in the user's own words, because the choices never have to fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hermes.events import ClientRequestOpened
from hermes.messages import Question

OWN_WORDS: Final = "_own"
"""Behind the name of a field: the same question, answered freely."""


def elicitation_params(session_id: str, event: ClientRequestOpened) -> dict[str, Any]:
    questions = event.question.params.get("questions", ())
    fields: dict[str, Any] = {}
    for item in questions:
        fields |= _fields(item)
    message = str(questions[0]["question"]) if len(questions) == 1 else "The agent has some questions."
    params: dict[str, Any] = {
        "sessionId": session_id,
        "mode": "form",
        "message": message,
        "requestedSchema": {"type": "object", "properties": fields},
    }
    call_id = event.question.tool_call_id
    return params if call_id is None else {**params, "toolCallId": call_id}


def _fields(item: Mapping[str, Any]) -> dict[str, Any]:
    name, title = str(item["qid"]), str(item["question"])
    choices = [str(choice) for choice in item.get("choices", ())]
    if not choices:
        return {name: {"type": "string", "title": title}}
    field: dict[str, Any] = {"type": "string", "title": title, "enum": choices}
    if item.get("multi_select"):
        field = {"type": "array", "title": title, "items": {"type": "string", "enum": choices}}
    return {name: field, f"{name}{OWN_WORDS}": {"type": "string", "title": "In your own words"}}


def answers_of(question: Question, result: object) -> dict[str, Any]:
    """The answer in the core's words: ``{"answers": …}``, or ``{}``, which it reads as "not answered"."""
    if not isinstance(result, Mapping) or result.get("action") != "accept":
        return {}
    content = result.get("content")
    given: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
    names = [str(item["qid"]) for item in question.params.get("questions", ())]
    return {"answers": {name: _answer(given, name) for name in names}}


def _answer(given: Mapping[str, Any], name: str) -> Any:
    """None: the user passed this question over."""
    own = given.get(f"{name}{OWN_WORDS}")
    if isinstance(own, str) and own.strip():
        return own
    value = given.get(name)
    return None if value in ("", []) else value
