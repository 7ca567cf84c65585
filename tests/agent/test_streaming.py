"""From deltas to what people see."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.ports import DeltaKind
from hermes.agent.progress import LoopPhase, TurnProgress
from hermes.agent.streaming import OverlapGate, ReplayGate, StreamSink, ThinkFilter, clean_surrogates, overlap
from hermes.events import ReasoningDelta, TextDelta, ToolGenerating


class Watched:
    def __init__(self, **options: Any) -> None:
        self.events: list[Any] = []
        self.progress = TurnProgress()
        self.sink = StreamSink(self.events.append, "t", self.progress, **options)

    def text(self, *deltas: str) -> Watched:
        for delta in deltas:
            self.sink(DeltaKind.TEXT, delta)
        return self

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def thought(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ReasoningDelta))


TAGGED = "Well, <think>let me <b>see</b></think>the answer < 5 is 4."


@pytest.mark.parametrize("size", range(1, len(TAGGED) + 1))
def test_think_tags_are_routed_to_reasoning_however_the_deltas_are_cut(size: int) -> None:
    watched = Watched().text(*[TAGGED[start : start + size] for start in range(0, len(TAGGED), size)])
    watched.sink.finish()
    assert watched.shown == watched.progress.partial_text == "Well, the answer < 5 is 4."
    assert watched.thought == watched.progress.partial_reasoning == "let me <b>see</b>"


def test_a_tag_in_backticks_is_text_about_tags() -> None:
    watched = Watched().text("Use the `", "<think>` tag.")
    watched.sink.finish()
    assert watched.shown == "Use the `<think>` tag."


def test_an_unclosed_tag_makes_the_rest_reasoning_and_a_stray_closing_tag_vanishes() -> None:
    watched = Watched().text("a</think>b<THINKING>c")
    watched.sink.finish()
    assert (watched.shown, watched.thought) == ("ab", "c")


def test_the_first_text_after_tools_begins_with_a_blank_line_once() -> None:
    watched = Watched(separate=True).text("", "So", " it is")
    assert watched.shown == "\n\nSo it is"
    assert watched.progress.partial_text == "So it is"


def test_text_behind_a_begun_call_is_kept_but_not_shown() -> None:
    watched = Watched().text("before ")
    watched.sink(DeltaKind.TOOL_NAME, "terminal")
    watched.text("after")
    watched.sink.finish()
    assert watched.shown == "before " and watched.progress.partial_text == "before after"
    assert watched.sink.kept_back and ToolGenerating("t", "terminal") in watched.events
    assert watched.sink.shown_since(0) == "before "


def test_the_phase_changes_with_the_first_delta() -> None:
    watched = Watched()
    watched.progress.phase = LoopPhase.WAITING_FIRST_DELTA
    watched.sink(DeltaKind.REASONING, "hm")
    assert watched.progress.phase is LoopPhase.STREAMING


def test_surrogate_pairs_are_joined_over_deltas_and_lone_ones_replaced() -> None:
    watched = Watched().text("x", "\ud83d", "\ude00", "y\udc00", "\ud83d")
    watched.sink.finish()
    assert watched.shown == "x😀y\ufffd\ufffd"
    assert clean_surrogates("plain") == "plain"


def test_a_replayed_text_is_swallowed_and_a_different_one_shown_at_the_end() -> None:
    same = Watched(gate=ReplayGate("abc")).text("ab", "cde")
    same.sink.finish()
    assert same.shown == "de" and same.progress.partial_text == "abcde"
    other = Watched(gate=ReplayGate("abc")).text("ax", "yz")
    assert other.shown == ""
    other.sink.finish()
    assert other.shown == "\n\naxyz"


@given(st.text("ab ", min_size=40, max_size=90), st.integers(0, 60), st.integers(1, 9))
def test_an_overlap_is_cut_off_however_the_deltas_are_cut(said: str, size: int, step: int) -> None:
    more = said[len(said) - min(size, len(said)) :] + "THE END"
    watched = Watched(gate=OverlapGate(said)).text(*[more[at : at + step] for at in range(0, len(more), step)])
    watched.sink.finish()
    assert watched.shown == watched.progress.partial_text == more[overlap(said, more) :]


@given(st.text("<>/thinkabc`\n", max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_the_filter_gives_the_same_for_any_cut(text: str, cuts: list[int]) -> None:
    def run(pieces: list[str]) -> tuple[str, str]:
        one = ThinkFilter()
        parts = [*map(one.feed, pieces), one.finish()]
        return "".join(v for v, _ in parts), "".join(t for _, t in parts)

    places = sorted({0, len(text), *[cut for cut in cuts if cut < len(text)]})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert run(pieces) == run([text])
