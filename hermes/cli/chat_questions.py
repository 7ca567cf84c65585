"""Questions of the agent to a person at a terminal: what is shown, and what an input means. Pure.

An open question is a row of steps; each takes one input. A single key answers an approval; everything else is a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hermes.cli.gateway_peer import Question
from hermes.cli.terminal_style import Style, printable

APPROVAL_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "once": ("o", "once"),
    "session": ("s", "this session"),
    "always": ("a", "always"),
    "deny": ("d", "deny"),
}
OTHER_KEYS: Final[Mapping[str, str]] = {"y": "once", "n": "deny"}


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One input that is wanted now. ``keys``: single keys that answer at once; empty: a line. ``hidden``: not shown
    while it is typed and kept nowhere. Compared by identity: an input belongs to the very ask it was typed for."""

    prompt: str
    keys: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(slots=True)
class OpenQuestion:
    """One request of the gateway while a person answers it."""

    question: Question
    steps: Sequence[Mapping[str, Any]] = ()
    answers: dict[str, str | None] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.question.id

    def shown(self, style: Style) -> str:
        """The text above the input, for the step that is due."""
        params = self.question.params
        match self.question.method:
            case "approval":
                return _approval_text(params, style)
            case "clarify":
                return _clarify_text(self._due(), style, left=len(self._left()), of=len(self.steps))
            case "sudo":
                command = printable(str(params.get("command") or ""))
                return style.yellow("A command wants the password for sudo") + (f": {command}" if command else "")
            case _:
                prompt = printable(str(params.get("prompt") or "A secret is wanted"))
                return style.yellow(f"{prompt} ({printable(str(params.get('env_var') or 'secret'))})")

    def ask(self) -> Ask:
        match self.question.method:
            case "approval":
                words = [APPROVAL_WORDS[name] for name in self._choices()]
                shown = "  ".join(f"[{key}] {label}" for key, label in words)
                return Ask(f"{shown} ", (*(key for key, _ in words), *OTHER_KEYS))
            case "clarify":
                return Ask("Several, such as 1,3, or your own words: " if _is_multi(self._due()) else "Answer: ")
            case _:
                return Ask("Not shown (empty: skip): ", hidden=True)

    def take(self, given: str) -> dict[str, Any] | None:
        """The result to send once the question is answered; None while a step is left or the input means nothing."""
        match self.question.method:
            case "approval":
                return self._approved(given.strip().lower())
            case "clarify":
                due = self._due()
                self.answers[str(due.get("qid"))] = _clarified(due, given.strip())
                return None if self._left() else {"answers": dict(self.answers)}
            case _:
                return {"value": given}

    def _approved(self, given: str) -> dict[str, Any] | None:
        for name in self._choices():
            if given in (name, APPROVAL_WORDS[name][0]):
                return {"choice": name}
        other = OTHER_KEYS.get(given[:1])
        return {"choice": other} if other in self._choices() else None

    def _choices(self) -> list[str]:
        offered = self.question.params.get("choices") or ["once", "deny"]
        return [name for name in offered if name in APPROVAL_WORDS]

    def _left(self) -> list[Mapping[str, Any]]:
        return [step for step in self.steps if step.get("qid") not in self.answers]

    def _due(self) -> Mapping[str, Any]:
        left = self._left()
        return left[0] if left else {}


SHOWN_METHODS: Final = frozenset({"approval", "clarify", "sudo", "secret"})


def open_question(question: Question) -> OpenQuestion | None:
    """None for a question that a terminal cannot show."""
    if question.method not in SHOWN_METHODS:
        return None
    locked = {str(key): value for key, value in (question.params.get("answers") or {}).items()}
    opened = OpenQuestion(question, tuple(question.params.get("questions") or ()), locked)
    return None if question.method == "clarify" and not opened.steps else opened


def _approval_text(params: Mapping[str, Any], style: Style) -> str:
    what = printable(str(params.get("command") or params.get("tool_name") or ""))
    why = printable(str(params.get("description") or ""))
    lines = [style.yellow(style.bold("May this run?")) + (f" {style.dim(why)}" if why else "")]
    lines += [f"    {line}" for line in what.splitlines()]
    if params.get("smart_denied"):
        lines.append(style.red("    An automatic review has refused it."))
    return "\n".join(lines)


def _clarify_text(step: Mapping[str, Any], style: Style, *, left: int, of: int) -> str:
    number = f" ({of - left + 1} of {of})" if of > 1 else ""
    lines = [style.yellow(style.bold(printable(str(step.get("question", "")))) + number)]
    lines += [f"  {index}. {printable(str(choice))}" for index, choice in enumerate(step.get("choices") or (), 1)]
    hint = "Empty: skip."
    if step.get("choices"):
        hint = "Numbers, or your own words. " + hint
    return "\n".join([*lines, style.dim(f"  {hint}")])


def _is_multi(step: Mapping[str, Any]) -> bool:
    return bool(step.get("multi_select") and step.get("choices"))


def _clarified(step: Mapping[str, Any], given: str) -> str | None:
    """The answer on the wire: a choice for its number, a JSON array for several, None for nothing (skipped)."""
    if not given:
        return None
    choices = list(step.get("choices") or ())
    numbers = given.replace(",", " ").split()
    picked = [choices[int(part) - 1] for part in numbers if part.isdecimal() and 0 < int(part) <= len(choices)]
    all_numbers = len(picked) == len(numbers)
    if _is_multi(step):
        return json.dumps(list(dict.fromkeys(picked)) if all_numbers else [given], ensure_ascii=False)
    return str(picked[0]) if all_numbers and len(picked) == 1 else given
