"""Answers as Markdown for a terminal: taken piece by piece, given back block by block.

A block (a paragraph, a list, a table, a fenced piece of code) is drawn when it is whole; until then its raw text is
what ``open`` says. Text must be free of control sequences (``printable``). Links show their address: a terminal link
would hide where it leads.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from typing import Final

from hermes.cli.terminal_style import Style
from hermes.patterns import lazy_pattern

_FENCE: Final = lazy_pattern(r" {0,3}(`{3,}|~{3,})")
_TRAILING: Final = lazy_pattern(r"[ \t]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
NARROWEST: Final = 20
WIDEST: Final = 120
"""Columns: lines of text that are longer are hard to read."""


def terminal_width() -> int:
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))


class MarkdownText:
    """One answer. ``feed`` and ``finish`` give what can be shown for good."""

    def __init__(self, width: Callable[[], int] = terminal_width) -> None:
        self._width = width
        self._block: list[str] = []
        self._line = ""
        self._fence = ""

    @property
    def open(self) -> str:
        """What has come and is not drawn yet."""
        return "\n".join([*self._block, self._line]).lstrip("\n")

    def feed(self, text: str) -> str:
        """The blocks that this text completes, drawn; empty if there are none."""
        *whole, self._line = (self._line + text).split("\n")
        return "\n\n".join(drawn for line in whole if (drawn := self._take(line)))

    def finish(self) -> str:
        """What is left, drawn. The next text begins anew."""
        self._block.append(self._line)
        self._line = self._fence = ""
        return self._draw()

    def _take(self, line: str) -> str:
        self._block.append(line)
        fence = _FENCE.match(line)
        if self._fence:
            closes = fence is not None and fence[1].startswith(self._fence) and not line.strip().strip(fence[1][0])
            if not closes:
                return ""
            self._fence = ""
            return self._draw()
        if fence is not None:
            self._fence = fence[1]
            return ""
        return "" if line.strip() else self._draw()

    def _draw(self) -> str:
        text = "\n".join(self._block).strip("\n")
        self._block.clear()
        return draw(text, self._width()) if text.strip() else ""


def draw(text: str, width: int) -> str:
    """Markdown in the colours of a terminal, without the end of its last line."""
    from markdown_it import MarkdownIt
    from rich.console import Console
    from rich.markdown import Markdown

    markdown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    # Rich reads tags as HTML and then draws none of them: "<name>" in an answer would be lost.
    markdown.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    drawn = io.StringIO()
    console = Console(file=drawn, width=width, force_terminal=True, color_system="standard", highlight=False)
    console.print(markdown)
    return _TRAILING.sub(r"\1", drawn.getvalue()).strip("\n")


def markdown_for(style: Style) -> MarkdownText | None:
    """None where the output is no terminal for people: a pipe, a dumb one, one without colours or Unicode."""
    return MarkdownText() if style.colour and style.unicode else None
