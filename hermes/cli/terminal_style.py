"""Colours and signs for a terminal, or none: plain text for pipes, dumb terminals and ``NO_COLOR``."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

from hermes.config import terminal_variables

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL: Final = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b.|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    # Those that show text in another order than it is in: a command must not look like another one.
    r"|[\u202a-\u202e\u2066-\u2069]"
)


@dataclass(frozen=True, slots=True)
class Style:
    """``colour`` for escape sequences, ``unicode`` for signs beyond ASCII."""

    colour: bool = False
    unicode: bool = False

    def dim(self, text: str) -> str:
        return self._in("2", text)

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def red(self, text: str) -> str:
        return self._in("31", text)

    def yellow(self, text: str) -> str:
        return self._in("33", text)

    def cyan(self, text: str) -> str:
        return self._in("36", text)

    def sign(self, fine: str, plain: str) -> str:
        return fine if self.unicode else plain

    def coloured(self, text: str) -> str:
        """Text that brings its own colours (diffs), as far as they are wanted; no other control sequence passes."""
        if not self.colour:
            return printable(text)
        colours = [*_ESCAPE.findall(text), ""]
        return "".join(printable(part) + colour for part, colour in zip(_ESCAPE.split(text), colours, strict=True))

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def printable(text: str) -> str:
    """Without control sequences: what a model or a tool says must not drive the user's terminal."""
    return _CONTROL.sub("", text)


def is_dumb() -> bool:
    """True when the terminal cannot move its cursor, or there is none."""
    return terminal_variables().term in ("", "dumb") or not (sys.stdin.isatty() and sys.stdout.isatty())


def style_of_output() -> Style:
    """What standard output can show."""
    variables = terminal_variables()
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    colour = sys.stdout.isatty() and not variables.no_color and variables.term not in ("", "dumb")
    return Style(colour=colour, unicode=encoding == "utf8")
