"""Domain events: frozen, in the past tense, and never cheaper in the books than they are."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from hermes import events
from hermes.events import ServerEvent, SessionEvent, event_cost
from hermes.messages import FileDiff, Row, ToolResult
from hermes.outcomes import Completed, TurnRecord

KINDS = [*typing.get_args(SessionEvent), *typing.get_args(ServerEvent)]
RECORD = TurnRecord("t", "s", Completed("x" * 100_000), "unknown", last_reasoning="y" * 50_000)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_cannot_be_changed(kind: type) -> None:
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_every_event_of_the_module_belongs_to_a_union() -> None:
    defined = {
        kind for kind in vars(events).values() if isinstance(kind, type) and kind.__module__ == events.__name__
    } - {events.SessionInfo}
    assert defined == set(KINDS)


@pytest.mark.parametrize(
    ("event", "size"),
    [
        (events.TextDelta("t", "x" * 9000), 9000),
        (events.ReasoningDelta("t", "x" * 9000), 9000),
        (events.TurnStarted("t", "x" * 9000, 1, "api", prompt_row=Row("user", "x" * 9000)), 18_000),
        (events.InterimText("t", "x" * 9000, True), 9000),
        (events.ReasoningAvailable("t", "x" * 9000), 9000),
        (events.ToolProgress("t", "c", "n", "x" * 9000), 9000),
        (events.ProcessOutput("p", "x" * 9000), 9000),
        (events.TurnEnded("t", RECORD), 150_000),
        (events.TurnRefused("t", "no", None, RECORD), 150_000),
        (
            events.ToolEnded(
                "t", "c", "n", {}, ToolResult("c", "n", "x" * 5000, diffs=(FileDiff("f", "a" * 700, None),)), 1.0
            ),
            5700,
        ),
        (events.ToolStarted("t", "c", "n", {"content": "x" * 9000}, ""), 9000),
        (events.SessionsChanged(), 1),
    ],
    ids=lambda value: type(value).__name__ if dataclasses.is_dataclass(value) else "",
)
def test_the_cost_of_an_event_covers_the_text_in_it(event: SessionEvent | ServerEvent, size: int) -> None:
    assert event_cost(event) >= size
