"""Questions at a terminal: what is offered, and what an input means on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.cli.chat_questions import OpenQuestion, open_question
from hermes.cli.gateway_peer import Question
from hermes.cli.terminal_style import Style, printable

PLAIN = Style()


def question(method: str, **params: Any) -> OpenQuestion:
    opened = open_question(Question("srq-1", method, "s", params))
    assert opened is not None
    return opened


def clarify(*questions: dict[str, Any], **more: Any) -> OpenQuestion:
    numbered = [{"qid": f"q{index}", **item} for index, item in enumerate(questions)]
    return question("clarify", questions=numbered, **more)


@pytest.mark.parametrize(
    ("given", "choice"),
    [("o", "once"), ("s", "session"), ("a", "always"), ("d", "deny"), ("y", "once"), ("n", "deny"), ("deny", "deny")],
)
def test_a_key_or_a_word_answers_an_approval(given: str, choice: str) -> None:
    asked = question("approval", command="rm -rf build", choices=["once", "session", "always", "deny"])
    assert asked.take(given) == {"choice": choice}


@pytest.mark.parametrize("given", ["", " ", "x", "ok", "oo", "always please", "5"])
def test_anything_else_leaves_an_approval_open(given: str) -> None:
    assert question("approval", command="x", choices=["once", "always", "deny"]).take(given) is None


def test_a_choice_that_is_not_offered_cannot_be_taken() -> None:
    asked = question("approval", command="x", choices=["once", "deny"])
    assert asked.take("a") is None
    assert asked.ask().prompt == "[o] once  [d] deny "


def test_an_approval_shows_what_would_run_without_its_control_sequences() -> None:
    shown = question("approval", command="echo \x1b[2Jhidden", description="why").shown(PLAIN)
    assert shown == "May this run? why\n    echo hidden"


def test_clarify_takes_one_line_for_each_question_and_answers_with_all() -> None:
    asked = clarify({"question": "Which?", "choices": ["red", "blue"]}, {"question": "Name?"})
    assert asked.take("2") is None
    assert "Name? (2 of 2)" in asked.shown(PLAIN)
    assert asked.take("Ada") == {"answers": {"q0": "blue", "q1": "Ada"}}


@pytest.mark.parametrize(
    ("given", "answer"),
    [("1", "red"), ("3", "3"), ("", None), ("something else", "something else"), ("1 2", "1 2"), ("²", "²")],
)
def test_a_number_stands_for_its_choice_and_own_words_for_themselves(given: str, answer: str | None) -> None:
    assert clarify({"question": "?", "choices": ["red", "blue"]}).take(given) == {"answers": {"q0": answer}}


@pytest.mark.parametrize(
    ("given", "answer"),
    [("1,3", '["red", "green"]'), ("2 2", '["blue"]'), ("mauve", '["mauve"]'), ("1,9", '["1,9"]'), ("", None)],
)
def test_several_choices_are_a_json_array(given: str, answer: str | None) -> None:
    asked = clarify({"question": "?", "choices": ["red", "blue", "green"], "multi_select": True})
    assert asked.take(given) == {"answers": {"q0": answer}}


def test_questions_that_another_client_has_locked_are_not_asked_again() -> None:
    asked = clarify({"question": "First?"}, {"question": "Second?"}, answers={"q0": "done"})
    assert "Second?" in asked.shown(PLAIN)
    assert asked.take("yes") == {"answers": {"q0": "done", "q1": "yes"}}


@pytest.mark.parametrize("method", ["sudo", "secret"])
def test_passwords_and_secrets_are_typed_hidden_and_sent_as_they_are(method: str) -> None:
    asked = question(method, env_var="TOKEN", prompt="Your token")
    assert asked.ask().hidden
    assert asked.take(" with spaces ") == {"value": " with spaces "}


@pytest.mark.parametrize("method", ["terminal.read", "tour", "preview.act"])
def test_what_a_terminal_cannot_show_is_no_question_for_it(method: str) -> None:
    assert open_question(Question("srq-1", method, "s", {})) is None


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("back\x08space\r", "backspace"),
        ("\x9b2Jc1", "2Jc1"),
        ("\x1bP1;2|payload\x1b\\rest", "rest"),
    ],
)
def test_text_of_models_and_tools_cannot_drive_the_terminal(given: str, left: str) -> None:
    assert printable(given) == left
