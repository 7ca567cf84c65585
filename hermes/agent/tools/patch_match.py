"""Finding the text that a model wants to replace, although it did not copy it quite right. Pure.

A ladder of strategies, strictest first; the first with a hit wins. It ends before anything that goes by resemblance: a
line that merely looks like the wanted one is another line.
"""

from __future__ import annotations

import bisect
import difflib
import re
from collections.abc import Callable, Sequence

from hermes.records import dataclass

_COMPARED, _MOST_COMPARED = 200, 5000
_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000", " "),
        "\u2026": "...",
    }
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A place: characters ``start`` to ``end`` of the text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Match:
    """All hits of the first strategy that had any. ``exact`` hits may be many; others must be unique."""

    strategy: str
    hits: tuple[Hit, ...]

    @property
    def exact(self) -> bool:
        return self.strategy == "exact"


def find(text: str, wanted: str) -> Match | None:
    """Where ``wanted`` stands in ``text``, or None."""
    if hits := _exact(text, wanted):
        return Match("exact", hits)
    for strategy, normal in _LINE_STRATEGIES:
        if hits := _by_lines(text, wanted, normal):
            return Match(strategy, hits)
    resolved = (
        wanted.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")
    )
    if resolved != wanted and (hits := _exact(text, resolved)):
        return Match("escapes resolved", hits)
    trimmed = _trim_blank_lines(wanted)
    if trimmed and trimmed != wanted and (hits := _exact(text, trimmed) or _by_lines(text, trimmed, str.rstrip)):
        return Match("outer blank lines trimmed", hits)
    if hits := _by_lines(text, wanted, lambda line: " ".join(line.translate(_LOOK_ALIKES).split())):
        return Match("Unicode look-alikes folded", hits)
    folded = wanted.translate(_LOOK_ALIKES)
    plain = text.translate(_LOOK_ALIKES)
    if len(plain) == len(text) and (hits := _exact(plain, folded)):
        return Match("Unicode look-alikes folded", hits)
    return None


_LINE_STRATEGIES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("trailing whitespace ignored", str.rstrip),
    ("surrounding whitespace ignored", str.strip),
    ("inner whitespace normalised", lambda line: " ".join(line.split())),
)


def _exact(text: str, wanted: str) -> tuple[Hit, ...]:
    hits: list[Hit] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        hits.append(Hit(at, at + len(wanted)))
        at = text.find(wanted, at + len(wanted))
    return tuple(hits)


def _by_lines(text: str, wanted: str, normal: Callable[[str], str]) -> tuple[Hit, ...]:
    """Whole lines that are equal after ``normal``. A wanted text without any visible character matches nothing."""
    want = [normal(line) for line in wanted.split("\n")]
    ends_line = len(want) > 1 and want[-1] == ""
    if ends_line:
        want.pop()
    if not any(want):
        return ()
    lines = text.split("\n")
    have = [normal(line) for line in lines]
    starts = _line_starts(lines)
    # Searched as one text: comparing slices line by line takes minutes on a file of equal lines.
    hay = "\n" + "\n".join(have) + "\n"
    needle = "\n" + "\n".join(want) + "\n"
    begins = _line_starts(have)
    hits: list[Hit] = []
    at = hay.find(needle)
    while at >= 0:
        first = bisect.bisect_left(begins, at)
        last = first + len(want) - 1
        end = starts[last] + len(lines[last])
        hits.append(Hit(starts[first], min(end + 1, len(text)) if ends_line else end))
        at = hay.find(needle, at + len(needle) - 1)
    return tuple(hits)


def _line_starts(lines: Sequence[str]) -> list[int]:
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts


def _trim_blank_lines(text: str) -> str:
    return re.sub(r"\A(?:[ \t]*\n)+|(?:\n[ \t]*)+\Z", "", text)


def line_of(text: str, at: int) -> int:
    """1-based number of the line at a character position."""
    return text.count("\n", 0, at) + 1


def reindent(found: str, wanted: str, replacement: str) -> str:
    """The replacement indented as the file is: what the wanted text lacked, or had too much, on its first line."""
    have, want = _indent(found), _indent(wanted)
    if have == want:
        return replacement
    lines = []
    for line in replacement.split("\n"):
        if not line.strip():
            lines.append(line)
        elif line.startswith(want):
            lines.append(have + line[len(want) :])
        else:
            lines.append(line if have in line[: len(have)] else have + line.lstrip())
    return "\n".join(lines)


def _indent(text: str) -> str:
    line = next((line for line in text.split("\n") if line.strip()), "")
    return line[: len(line) - len(line.lstrip())]


def closest_region(text: str, wanted: str, *, context: int = 2) -> tuple[int, str] | None:
    """(first line, text) of the region that resembles the wanted text most; for an error message only."""
    first = next((line.strip()[:_COMPARED] for line in wanted.split("\n") if line.strip()), "")
    lines = text.split("\n")[:20_000]
    if not first or not lines:
        return None
    # Each different line once, and not the whole of a long one: comparing takes long.
    have = list(dict.fromkeys(line.strip()[:_COMPARED] for line in lines))[:_MOST_COMPARED]
    close = difflib.get_close_matches(first, have, n=1, cutoff=0.4)
    if not close:
        return None
    index = next(number for number, line in enumerate(lines) if line.strip()[:_COMPARED] == close[0])
    start = max(0, index - context)
    end = min(len(lines), index + len(wanted.split("\n")) + context)
    return start + 1, "\n".join(line[:300] for line in lines[start : min(end, start + 30)])
