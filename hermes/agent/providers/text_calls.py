"""Tool calls written as text: ``<tool_call>`` blocks of small local models whose server does not parse them.

A block counts only at the start of the text or of a line, so that an answer may speak about the tag. The tag may be
cut anywhere; what could still become one is held back, and nothing else is.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from hermes.patterns import lazy_pattern

_OPENER: Final = "<tool_call>"
_CLOSER: Final = "</tool_call>"
_FUNCTION: Final = lazy_pattern(r"<function=([^>\s]+)>(.*?)</function>", re.DOTALL)
_PARAMETER: Final = lazy_pattern(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


class TextCallSplitter:
    """Text in, visible text out; whole blocks are collected in ``blocks``."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._held = ""
        self._inside = False
        self._line_start = True

    def feed(self, text: str) -> str:
        if not self._held and not self._inside and "<" not in text:
            self._note(text)
            return text
        self._held += text
        visible: list[str] = []
        while self._held and (self._read_block() if self._inside else self._read_text(visible)):
            pass
        return "".join(visible)

    def flush(self) -> str:
        """What was held back: an unfinished block is a block all the same."""
        held, self._held = self._held, ""
        if self._inside:
            self.blocks.append(held)
            return ""
        return held

    def _read_block(self) -> bool:
        body, closer, rest = self._held.partition(_CLOSER)
        if not closer:
            return False
        self.blocks.append(body)
        self._held = rest.lstrip("\n")
        self._inside, self._line_start = False, True
        return True

    def _read_text(self, visible: list[str]) -> bool:
        at = self._held.find("<")
        plain = self._held if at < 0 else self._held[:at]
        self._note(plain)
        visible.append(plain)
        self._held = self._held[len(plain) :]
        if not self._held:
            return False
        if self._line_start and self._held.startswith(_OPENER):
            self._held = self._held[len(_OPENER) :]
            self._inside = True
            return True
        if self._line_start and _OPENER.startswith(self._held):
            return False
        visible.append("<")
        self._line_start = False
        self._held = self._held[1:]
        return True

    def _note(self, text: str) -> None:
        if text:
            line = text.rpartition("\n")[2]
            self._line_start = not line.strip() and ("\n" in text or self._line_start)


def read_text_call(block: str) -> tuple[str, Any] | None:
    """Name and arguments of one block, JSON or XML; None if it is neither."""
    try:
        value = json.loads(block)
    except ValueError:
        match = _FUNCTION.search(block)
        return (match.group(1), dict(_PARAMETER.findall(match.group(2)))) if match else None
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return value["name"], value.get("arguments", value.get("parameters", {}))
    return None
