"""A name or a title of millions of characters costs no more than a long one: nobody waits while it is looked at."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from hermes.agent import commands, model_catalog, model_switch, tool_calls
from hermes.agent.commands import resolve_command
from hermes.agent.model_catalog import suggestions
from hermes.agent.model_switch import parse_model_command
from hermes.agent.stored_views import clean_title, derive_title
from hermes.errors import HermesError

LONG = "x" * 3_000_000


class Words(str):
    """A text that nobody may walk from one end to the other."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("each character is looked at")

    def splitlines(self, keepends: bool = False) -> list[str]:
        raise AssertionError("each line is looked at")

    def lstrip(self, chars: str | None = None, /) -> Words:
        return Words(super().lstrip(chars))


def test_the_begin_of_a_text_is_enough_for_a_title() -> None:
    assert clean_title(Words(f"  A title\tof\x00 {LONG}"))[:12] == "A title of x"
    assert derive_title(Words(f"\n\n  The first line \n{LONG}")) == "The first line"
    assert len(clean_title(Words(LONG))) == 100


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the words are that are compared with names."""
    lengths: list[int] = []
    compare = difflib.get_close_matches

    def counted(word: str, names: Sequence[str], **how: Any) -> Iterable[str]:
        lengths.append(len(word))
        return compare(word, names, **how)

    for module in (commands, model_catalog, model_switch):
        monkeypatch.setattr(module, "get_close_matches", counted)
    monkeypatch.setattr(tool_calls.difflib, "get_close_matches", counted)
    return lengths


def test_a_name_of_millions_of_characters_is_not_compared_whole(compared: list[int]) -> None:
    with pytest.raises(HermesError) as refused:
        resolve_command(LONG)
    assert len(refused.value.message) < 300
    assert suggestions(LONG, ("one", "two")) == ("one", "two")
    assert compared == [100, 200]


def test_a_line_that_names_no_model_is_not_read_to_its_end() -> None:
    assert parse_model_command("'" + LONG).error == "bad_flags"
    assert parse_model_command("m --provider p").target == "m"


def test_a_name_that_is_nearly_right_is_still_found(compared: list[int]) -> None:
    with pytest.raises(HermesError, match="/help"):
        resolve_command("hepl")
    assert suggestions("claude-sonet-4", ("claude-sonnet-4", "other")) == ("claude-sonnet-4",)
