"""clarify: ask the user up to five questions at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hermes.agent.ports import ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redact
from hermes.agent.tools.base import BuiltinTool, failure, flag, parameters, result, text
from hermes.messages import Answered, Question, TimedOut, Withdrawn

RECOMMENDED = " (Recommended)"
_MAX_QUESTIONS = 5
_MAX_CHOICES = 4

_QUESTION = {
    "question": text("The question."),
    "choices": {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": _MAX_CHOICES,
        "description": "Best first.",
    },
    "multi_select": flag("Several choices may be picked."),
}


class Clarify(BuiltinTool):
    spec = ToolSpec(
        "clarify",
        "Ask the user when a decision is theirs and cannot be found out. Up to five questions; the first choice is "
        "your recommendation; the user can always answer freely.",
        parameters(
            {
                "questions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": _MAX_QUESTIONS,
                    "items": {"type": "object", "properties": _QUESTION, "required": ["question"]},
                },
                **{name: schema for name, schema in _QUESTION.items() if name != "multi_select"},
            }
        ),
    )
    flags = ToolFlags(interactive=True, toolset="clarify")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        questions = _questions(arguments)
        timeout = float(ctx.settings.agent.clarify_timeout)
        hide = redact if self.services.redact else str
        params = {"questions": [_shown(index, question, hide) for index, question in enumerate(questions)]}
        answer = await ctx.ask(Question("clarify", params, (), timeout if timeout > 0 else None, ctx.call_id))
        given: Mapping[str, Any] = {}
        match answer:
            case Answered(value=value) if isinstance(value.get("answers"), Mapping):
                outcome, given = "submitted", value["answers"]
            case Answered(value=value):
                outcome, given = "cancelled", _locked(value)
            case TimedOut(partial=partial):
                outcome, given = "timed_out", _locked(partial)
            case Withdrawn(partial=partial):
                outcome, given = "cancelled", _locked(partial)
            case _:
                outcome = "undelivered"
        body: dict[str, Any] = {
            "responses": [_response(question, given, f"q{index}") for index, question in enumerate(questions)],
            "outcome": outcome,
        }
        if outcome != "submitted":
            body["notice"] = "The user did not answer everything; decide by yourself or say what you need."
        return result(body, summary=outcome)

    def cancelled(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        """The turn was stopped while the question was open; what was locked until then counts."""
        questions = _questions(arguments)
        given = _locked(ctx.answer.partial) if isinstance(ctx.answer, Withdrawn) else {}
        responses = [_response(question, given, f"q{index}") for index, question in enumerate(questions)]
        return result({"responses": responses, "outcome": "cancelled"})


def _questions(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    raw = arguments.get("questions")
    items: Sequence[Any] = raw if isinstance(raw, list) and raw else [arguments]
    if len(items) > _MAX_QUESTIONS:
        raise failure(f"at most {_MAX_QUESTIONS} questions at once")
    questions = []
    for item in items:
        if not isinstance(item, Mapping | str):
            raise failure("a question is an object with question, and choices if there are some")
        asked = str(item.get("question") or "").strip() if isinstance(item, Mapping) else item.strip()
        if not asked:
            raise failure("a question is empty")
        choices = item.get("choices") if isinstance(item, Mapping) else None
        plain = [str(one).removesuffix(RECOMMENDED).strip() for one in choices or () if str(one).strip()]
        if len(plain) > _MAX_CHOICES:
            raise failure(f"at most {_MAX_CHOICES} choices per question")
        questions.append(
            {"question": asked, "choices": plain, "multi": isinstance(item, Mapping) and bool(item.get("multi_select"))}
        )
    return questions


def _shown(index: int, question: Mapping[str, Any], hide: Callable[[str], str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"qid": f"q{index}", "question": hide(question["question"])}
    if question["choices"]:
        best, *others = (hide(choice) for choice in question["choices"])
        shown["choices"] = [best + RECOMMENDED, *others]
    if question["multi"]:
        shown["multi_select"] = True
    return shown


def _locked(partial: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Answers that were locked before a batch ended otherwise; ``{"answers": …}`` or the answers themselves."""
    if not isinstance(partial, Mapping):
        return {}
    for name in ("answers", "partial", "locked"):
        if isinstance(partial.get(name), Mapping):
            inner: Mapping[str, Any] = partial[name]
            return inner
    return partial


def _response(question: Mapping[str, Any], answers: Mapping[str, Any], qid: str) -> dict[str, Any]:
    response = {"question": question["question"], "choices_offered": question["choices"]}
    if qid not in answers:
        return {**response, "status": "unanswered", "user_response": None}
    if answers[qid] is None:
        return {**response, "status": "skipped", "user_response": None}
    return {**response, "status": "answered", "user_response": _answer(answers[qid], multi=bool(question["multi"]))}


def _answer(value: Any, *, multi: bool) -> Any:
    if multi and isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        value = parsed if isinstance(parsed, list) else value
    if isinstance(value, list):
        return [str(one).removesuffix(RECOMMENDED) for one in value]
    return str(value).removesuffix(RECOMMENDED)
