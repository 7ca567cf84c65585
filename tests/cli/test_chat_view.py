"""What a chat shows of a session's events."""

from __future__ import annotations

from typing import Any

from hermes.cli.chat_view import ChatView, short, usage_words
from hermes.cli.gateway_peer import Event
from hermes.cli.terminal_style import Style


class Paper:
    """An output that keeps what a plain terminal would show."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += ("\n" if self.text and not self.text.endswith("\n") else "") + text + "\n"

    def stream(self, text: str) -> None:
        self.text += text


def shown(*events: tuple[str, dict[str, Any]], style: Style | None = None) -> tuple[str, ChatView]:
    paper = Paper()
    view = ChatView(paper, style or Style())
    for kind, payload in events:
        view.show(Event(kind, "s", payload))
    return paper.text, view


def test_a_turn_reads_from_top_to_bottom() -> None:
    text, view = shown(
        ("message.start", {}),
        ("message.delta", {"text": "\n\nLet me "}),
        ("message.delta", {"text": "see."}),
        ("tool.start", {"tool_id": "1", "name": "terminal", "context": "ls  -la"}),
        ("tool.complete", {"tool_id": "1", "name": "terminal", "duration_s": 0.25, "result": {"output": "a\nb"}}),
        ("message.delta", {"text": "\n\nDone."}),
        (
            "message.complete",
            {"status": "complete", "text": "Done.", "usage": {"calls": 2, "input": 1500, "output": 9}},
        ),
    )
    assert text == "Let me see.\n> terminal ls -la\n  ok 0.2s a b\nDone.\n1.5k in · 9 out\n"
    assert not view.status.running


def test_a_failed_call_is_told_with_its_error_and_a_diff_in_its_own_colours() -> None:
    diff = "\x1b[32m+new\x1b[0m\n"
    events = (
        ("tool.complete", {"name": "patch", "error": "no such file", "result": {}}),
        ("tool.complete", {"name": "patch", "summary": "changed x", "inline_diff": diff}),
    )
    assert shown(*events)[0] == "  x no such file\n  ok changed x\n    +new\n"
    assert "\x1b[32m+new" in shown(*events, style=Style(colour=True))[0]


def test_what_is_one_line_stays_one_line_of_a_narrow_terminal() -> None:
    paper = Paper()
    view = ChatView(paper, Style(), width=lambda: 40)
    long = "some words " * 30
    view.show(Event("tool.start", "s", {"name": "terminal", "context": long}))
    view.show(Event("tool.complete", "s", {"name": "terminal", "duration_s": 1.0, "error": long}))
    view.show(Event("tool.complete", "s", {"name": "terminal", "duration_s": 12.5, "summary": long}))
    assert [len(line) <= 40 and line.endswith("…") for line in paper.text.splitlines()] == [True, True, True]


def test_an_interrupted_turn_says_by_whom_and_what_was_not_delivered() -> None:
    payload = {"status": "interrupted", "cause": "user_interrupt", "reason": "enough", "pending_steer": "left"}
    text, _ = shown(("message.start", {}), ("message.complete", payload))
    assert text == "* interrupted (user_interrupt enough)\nNot delivered: left\n"


def test_a_failed_turn_says_why_once() -> None:
    text, view = shown(
        ("message.start", {}), ("message.complete", {"status": "error", "error": "refused", "text": "x"})
    )
    assert text == "refused\n"
    assert not view.status.running


def test_an_answer_that_was_not_streamed_is_shown_whole() -> None:
    assert shown(("message.start", {}), ("message.complete", {"status": "complete", "text": "All."}))[0] == "All.\n"


def test_events_nobody_has_heard_of_are_no_matter() -> None:
    assert shown(("something.new", {"text": "x"}), ("sessions.changed", {}))[0] == ""


def test_the_status_line_says_model_state_and_use() -> None:
    _, view = shown(
        ("session.info", {"model": "m-1", "title": "Tidying"}),
        ("message.start", {}),
        ("tool.start", {"name": "terminal"}),
        ("session.usage", {"usage": {"calls": 1, "input": 10, "output": 2, "context_percent": 3}}),
    )
    assert view.status.line() == "m-1  ·  Tidying  ·  running terminal  ·  10 in · 2 out · context 3%"


def test_costs_and_large_numbers_are_short() -> None:
    assert usage_words({"calls": 1, "input": 12_345, "output": 2, "cost_usd": 0.01, "cost_status": "estimated"}) == (
        "12.3k in · 2 out · ~$0.0100"
    )
    assert usage_words({"calls": 0}) == ""
    assert [short(999), short(1000), short(2_500_000)] == ["999", "1.0k", "2.5M"]
