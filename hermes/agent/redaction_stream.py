"""Redacts a text that comes in pieces, wherever the pieces are cut: what it gives out is never half a secret.

A secret is one word with what stands before it on its line, so words are the unit: a word is given out when it has
ended, together with the line until there as context. The last word of a piece waits for its end, unless it is plainly
no part of a secret; a prompt that waits for input so comes through. A private key is the one secret of many lines: it
is swallowed until its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.agent.redaction import MASK
from hermes.patterns import lazy_pattern

_PROBE = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
_CONTEXT = 1000
_MOST_HELD = 16_384
_MOST_SWALLOWED = 65_536
_AT_ONCE = 8192

_LAST_SPACE = lazy_pattern(r"\s(?=\S*\Z)")
_NO_SECRET = lazy_pattern(r"(?:[A-Za-z]?[a-z]{0,20}[.,!?>)\]:]{0,3}|[\[(][A-Za-z/]{1,6}[\])]?[?:>]?)\Z")
_SECRET_AHEAD = lazy_pattern(
    r"(?:(?:key|secret|passw(?:or)?d|passphrase|token|credentials?)[\"']?\s*[:=]\s*[\"']?"
    r"|(?:authorization|x-api-key|session-token)\b.*)\Z",
    re.IGNORECASE,
)
_LAST_BREAK = lazy_pattern(r"[^A-Za-z0-9_-](?=[A-Za-z0-9_-]{0,2000}\Z)")
_KEY_BEGINS = lazy_pattern(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?!.*-----END )", re.DOTALL)
_KEY_ENDS = lazy_pattern(r"-----END (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----")
_ANSI = lazy_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


class RedactedStream:
    """One stream. ``redact`` masks whole texts; where it masks nothing, everything passes at once."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._active = redact(_PROBE) != _PROBE
        self._shown = ""
        self._held = ""
        self._swallowed: str | None = None
        self._in_long_secret = False

    def feed(self, text: str) -> str:
        """What can be given out now that ``text`` has come."""
        if not self._active:
            return text
        return "".join(self._feed(text[at : at + _AT_ONCE]) for at in range(0, len(text), _AT_ONCE))

    def end(self) -> str:
        """What was held back; nothing comes any more."""
        held, self._held = self._held, ""
        return self._give(held) if held else ""

    def _feed(self, text: str) -> str:
        text, self._held = self._held + text, ""
        if self._swallowed is not None:
            text = self._swallow(text)
        elif self._in_long_secret:
            text = self._skip_word(text)
        if not text:
            return ""
        space = _LAST_SPACE.search(text)
        at = space.end() if space is not None else 0
        given = self._give(text[:at])
        if self._swallowed is not None:
            return given + self._feed(text[at:])
        word = text[at:]
        if len(word) > _MOST_HELD:
            return given + self._give_long(word)
        if self._is_no_secret(word):
            return given + self._give(word)
        self._held = word
        return given

    def _is_no_secret(self, word: str) -> bool:
        begun = _LAST_SPACE.search(self._shown)
        before = self._shown if begun is None else self._shown[begun.end() :]
        return bool(_NO_SECRET.match(before + word)) and not _SECRET_AHEAD.search(self._shown)

    def _give(self, text: str) -> str:
        """Whole words, redacted with what stands before them on their line."""
        if not text or not self._hides_in_colours(text):
            return self._give_plain(text) if text else ""
        return "".join(self._give_coloured(line) for line in text.splitlines(keepends=True))

    def _hides_in_colours(self, text: str) -> bool:
        """Whether there is a secret that only shows without the sequences for a terminal."""
        whole = self._shown + text
        if "\x1b" not in whole:
            return False
        plain = _ANSI.sub("", whole)
        return self._redact(plain) != plain

    def _give_plain(self, text: str) -> str:
        whole = self._redact(self._shown + text)
        given = whole[len(self._shown) :] if whole.startswith(self._shown) else self._rest_of_secret(text)
        self._remember(text, given)
        return given

    def _give_coloured(self, line: str) -> str:
        """Sequences for a terminal inside a secret, or glued to it, hide it: then the line is given without them."""
        if self._swallowed is not None:
            line = self._swallow(line)
        whole = self._redact(self._shown + line)
        given = whole[len(self._shown) :] if whole.startswith(self._shown) else self._rest_of_secret(line)
        before, plain = _ANSI.sub("", self._shown), _ANSI.sub("", given)
        redacted = self._redact(before + plain)
        if redacted != before + plain:
            given = redacted[len(before) :] if redacted.startswith(before) else self._rest_of_secret(line)
        self._remember(line, given)
        return given

    def _rest_of_secret(self, text: str) -> str:
        """For when something that is already out was the beginning of a secret: the rest of its line stays in."""
        line, newline, rest = text.partition("\n")
        return MASK + line[len(line.rstrip()) :] + newline + self._redact(rest)

    def _remember(self, text: str, given: str) -> None:
        if begun := _KEY_BEGINS.search(self._shown + text):
            self._swallowed = (self._shown + text)[begun.end() :]
        line = (self._shown + given).rpartition("\n")[2][-_CONTEXT:]
        if not line and (ahead := _SECRET_AHEAD.search((self._shown + given)[-_CONTEXT:])):
            line = ahead[0]
        self._shown = line

    def _give_long(self, word: str) -> str:
        """A word that is longer than any secret: if it is one all the same, its rest is left out."""
        cut = _LAST_BREAK.search(word)
        word, self._held = (word[: cut.end()], word[cut.end() :]) if cut is not None else (word, "")
        redacted = self._redact(self._shown + word)
        self._in_long_secret = not self._held and redacted != self._shown + word
        given = redacted[len(self._shown) :] if redacted.startswith(self._shown) else MASK
        self._shown = given[-_CONTEXT:]
        return given

    def _skip_word(self, text: str) -> str:
        for at, char in enumerate(text):
            if char.isspace():
                self._in_long_secret = False
                return text[at:]
        return ""

    def _swallow(self, text: str) -> str:
        """What comes with and behind the end of the private key; nothing until it ends."""
        swallowed = (self._swallowed or "") + text
        end = _KEY_ENDS.search(swallowed)
        self._swallowed = swallowed if end is None and len(swallowed) < _MOST_SWALLOWED else None
        if end is None:
            return ""
        self._shown = ""
        return "\n" + swallowed[end.start() :]
