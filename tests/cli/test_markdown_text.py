"""Markdown of an answer in a terminal: block by block, whatever pieces it comes in, and nothing lost."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.markdown_text import MarkdownText, markdown_for
from hermes.cli.terminal_style import Style

ANSWER = """# Report

Some **bold** and *slanted* words with `code`.

- first
- second

| a | b |
|---|---|
| 1 | 2 |

```python
x = 1

y = 2
```
Last line"""


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def whole(pieces: list[str]) -> list[str]:
    markdown = MarkdownText(lambda: 60)
    return [drawn for drawn in (*map(markdown.feed, pieces), markdown.finish()) if drawn]


def test_marks_are_drawn_and_not_shown() -> None:
    text = plain("\n".join(whole([ANSWER])))
    assert all(mark not in text for mark in ("**", "```", "# ", "|---", "- first"))
    assert all(word in text for word in ("Report", "bold", "• first", "x = 1", "y = 2", "Last line"))


@given(st.lists(st.integers(0, len(ANSWER)), max_size=12))
def test_the_pieces_do_not_matter(cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(ANSWER)})
    pieces = [ANSWER[start:end] for start, end in pairwise(places)]
    assert "\n".join(whole(pieces)).split() == "\n".join(whole([ANSWER])).split()


def test_a_block_is_drawn_when_it_is_whole_and_told_as_open_until_then() -> None:
    markdown = MarkdownText(lambda: 60)
    assert markdown.feed("one **bo") == ""
    assert markdown.open == "one **bo"
    assert plain(markdown.feed("ld** word\n\nnext ```")) == "one bold word"
    assert markdown.open == "next ```"
    assert plain(markdown.finish()) == "next ```"
    assert markdown.open == ""


def test_code_with_empty_lines_is_one_block() -> None:
    markdown = MarkdownText(lambda: 60)
    assert markdown.feed("~~~\na = 1\n\n```\nb = 2\n") == ""
    drawn = plain(markdown.feed("~~~\n"))
    assert [line.strip() for line in drawn.splitlines()] == ["a = 1", "", "```", "b = 2"]


def test_what_looks_like_html_is_text() -> None:
    answer = 'Write "run: <command>" or Vec<T>.\n\n<div>\ninside\n</div>\n\n- a <b>list</b> &amp; ~~more~~\n'
    text = plain("\n".join(whole([answer])))
    for words in ("run: <command>", "Vec<T>", "<div>", "inside", "</div>", "a <b>list</b> & more"):
        assert words in text


def test_a_link_shows_where_it_leads() -> None:
    (drawn,) = whole(["[harmless](https://evil.example/)"])
    assert "https://evil.example/" in plain(drawn)
    assert "\x1b]8" not in drawn


@pytest.mark.parametrize("style", [Style(), Style(colour=True), Style(unicode=True)])
def test_without_colours_or_unicode_text_stays_as_it_is(style: Style) -> None:
    assert markdown_for(style) is None
    assert markdown_for(Style(colour=True, unicode=True)) is not None
