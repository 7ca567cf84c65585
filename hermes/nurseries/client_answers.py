"""What a client's answer to a question means: one place for every surface (gateway §7.2, §7.6).

Pure. A malformed answer never becomes "run": an unknown approval choice in a response is a denial; through a method or
route it is refused by ``approval_choice`` and the question stays open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hermes.errors import ChoiceNotOffered, InvalidValue
from hermes.messages import Answered, ClientAnswer, Question, Withdrawn

APPROVAL_CHOICES = ("once", "session", "always", "deny")
RECOMMENDED_SUFFIX = " (Recommended)"


def approval_choice(question: Question, choice: object) -> str:
    """A choice given through a method or route; raises ``InvalidValue`` or ``ChoiceNotOffered``, never guesses."""
    if not isinstance(choice, str) or choice not in APPROVAL_CHOICES:
        raise InvalidValue("choice must be one of once, session, always, deny")
    if choice not in question.choices:
        raise ChoiceNotOffered(f"this approval offers {', '.join(question.choices)}")
    return choice


def answer_from_response(question: Question, result: object, locks: Mapping[str, Any], by: str) -> ClientAnswer:
    """Settle value for a JSON-RPC result; a result that is not an object counts as ``{}``."""
    value: Mapping[str, Any] = result if isinstance(result, Mapping) else {}
    match question.method:
        case "approval":
            choice = value.get("choice")
            if not isinstance(choice, str) or choice not in question.choices:
                choice = "deny"
            answer: dict[str, Any] = {"choice": choice}
            if isinstance(value.get("reason"), str):
                answer["reason"] = value["reason"][:200]
            return Answered(answer, by)
        case "clarify":
            answers = value.get("answers")
            if not isinstance(answers, Mapping):
                return Withdrawn("cancelled", partial=dict(locks) or None)
            known = question_ids(question)
            merged = dict(locks)
            merged.update({qid: clarify_answer(text) for qid, text in answers.items() if qid in known})
            return Answered({"answers": merged}, by)
        case "connection":
            return Answered(dict(value), by)
        case _:
            text = value.get("value")
            return Answered({"value": text if isinstance(text, str) else ""}, by)


def clarify_answer(answer: object) -> str | None:
    """One clarify answer as text: the recommended mark is presentation only, a real array becomes its JSON text."""
    if answer is None:
        return None
    if isinstance(answer, str):
        return answer.removesuffix(RECOMMENDED_SUFFIX)
    if isinstance(answer, list) and all(isinstance(item, str) for item in answer):
        return json.dumps([item.removesuffix(RECOMMENDED_SUFFIX) for item in answer], ensure_ascii=False)
    return json.dumps(answer, ensure_ascii=False)


def question_ids(question: Question) -> tuple[str, ...]:
    """The ids of a clarify batch, in order."""
    questions = question.params.get("questions", ())
    return tuple(str(item["qid"]) for item in questions)
