"""Inline tags in streamed text: thinking is routed away from the answer, text-encoded tool calls are taken out.

A tag counts only at the start of the text or of a line, so that an answer may speak about tags. Tags may be cut
anywhere; what could still become one is held back, and nothing else is.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

Channel = Literal["text", "reasoning", "tool"]

_THINK_TAGS: Final = ("think", "thinking", "thought", "reasoning", "reasoning_scratchpad")
_TOOL_TAGS: Final = ("tool_call",)


BLOCK_END: Final = "\0"
"""Follows each block of the channel ``tool``, which itself may come in pieces."""


class TagSplitter:
    """Text in, ``(channel, text)`` out. With ``tools``, ``<tool_call>`` blocks go to the channel ``tool``."""

    def __init__(self, *, tools: bool = False) -> None:
        self._channels: dict[str, Channel] = {f"<{tag}>": "reasoning" for tag in _THINK_TAGS}
        if tools:
            self._channels |= {f"<{tag}>": "tool" for tag in _TOOL_TAGS}
        self._openers = tuple(self._channels)
        self._channel: Channel = "text"
        self._closer = ""
        self._held = ""
        self._line_start = True

    def feed(self, text: str) -> list[tuple[Channel, str]]:
        if self._channel == "text" and not self._held and "<" not in text:
            self._note(text)
            return [("text", text)]
        self._held += text
        out: list[tuple[Channel, str]] = []
        while self._held and (self._inside(out) if self._closer else self._outside(out)):
            pass
        return out

    def flush(self) -> list[tuple[Channel, str]]:
        held, self._held = self._held, ""
        return [(self._channel, held)] if held else []

    def _inside(self, out: list[tuple[Channel, str]]) -> bool:
        """Up to the closing tag. True if there is more to look at."""
        lowered = self._held.lower()
        at = lowered.find(self._closer)
        if at < 0:
            keep = _overlap(lowered, self._closer)
            self._give(out, self._held[: len(self._held) - keep])
            self._held = self._held[len(self._held) - keep :]
            return False
        self._give(out, self._held[:at])
        if self._channel == "tool":
            self._give(out, BLOCK_END)
        self._held = self._held[at + len(self._closer) :].lstrip("\n")
        self._channel, self._closer, self._line_start = "text", "", True
        return True

    def _outside(self, out: list[tuple[Channel, str]]) -> bool:
        at = self._held.find("<")
        if at < 0:
            self._give(out, self._held)
            self._held = ""
            return False
        if at:
            self._give(out, self._held[:at])
            self._held = self._held[at:]
        lowered = self._held[:32].lower()
        if self._line_start:
            for opener in self._openers:
                if lowered.startswith(opener):
                    self._channel = self._channels[opener]
                    self._closer = f"</{opener[1:]}"
                    self._held = self._held[len(opener) :]
                    return True
            if any(opener.startswith(lowered) for opener in self._openers):
                return False
        # A closing tag without its opening one: the template had opened it. Only the tag can be taken back.
        for tag in _THINK_TAGS:
            closer = f"</{tag}>"
            if lowered.startswith(closer):
                self._held = self._held[len(closer) :].lstrip("\n")
                return True
            if closer.startswith(lowered):
                return False
        self._give(out, "<")
        self._held = self._held[1:]
        return True

    def _give(self, out: list[tuple[Channel, str]], text: str) -> None:
        if text:
            out.append((self._channel, text))
            if self._channel == "text":
                self._note(text)

    def _note(self, text: str) -> None:
        line = text.rpartition("\n")[2]
        self._line_start = not line.strip() and ("\n" in text or self._line_start)


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` that begins ``tag``."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)


_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)</function>", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


def text_encoded_call(block: str) -> tuple[str, Any] | None:
    """Name and arguments of one ``<tool_call>`` body, JSON or XML; None if it is neither."""
    try:
        value = json.loads(block)
    except ValueError:
        match = _FUNCTION.search(block)
        return (match.group(1), dict(_PARAMETER.findall(match.group(2)))) if match else None
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return value["name"], value.get("arguments", value.get("parameters", {}))
    return None
