"""From a provider's deltas to what people see: think tags out, lone surrogates out, nothing shown twice.

This is the hot path of the server. A plain delta costs two tests, one append and one event; everything else is decided
on the slow path. The sink knows no provider and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.agent.ports import DeltaKind
from hermes.agent.progress import LoopPhase, TurnProgress
from hermes.events import ReasoningDelta, SessionEvent, TextDelta, ThinkingStatus, ToolGenerating
from hermes.patterns import lazy_pattern

THINK_NAMES = ("think", "thinking", "thought", "reasoning", "reasoning_scratchpad")
OPENING = tuple(f"<{name}>" for name in THINK_NAMES)
CLOSING = tuple(f"</{name}>" for name in THINK_NAMES)
_ANY_TAG = lazy_pattern("|".join((*OPENING, *CLOSING)), re.IGNORECASE)
_CLOSING_TAG = lazy_pattern("|".join(CLOSING), re.IGNORECASE)
_LONGEST = max(map(len, CLOSING))
_SURROGATE = lazy_pattern("[\ud800-\udfff]")
MIN_OVERLAP = 32
OVERLAP_WINDOW = 2_000


def clean_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, so that the text can be encoded."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class ThinkFilter:
    """Splits a stream of text into visible text and inline reasoning; tags may be cut anywhere (TL-13).

    A tag right behind a backtick is somebody writing *about* tags and stays.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self.last = ""
        """The character before the next text. Whoever lets plain text pass by the filter sets it."""

    @property
    def plain(self) -> bool:
        """True if a text without ``<`` may pass by this filter."""
        return not self._inside and not self._held

    def feed(self, text: str) -> tuple[str, str]:
        """``(visible, reasoning)`` that this text makes certain."""
        text = self._held + text
        self._held = ""
        visible: list[str] = []
        thought: list[str] = []
        position = 0
        while position < len(text):
            tag = (_CLOSING_TAG if self._inside else _ANY_TAG).search(text, position)
            end = len(text) - self._undecided(text, position) if tag is None else tag.start()
            (thought if self._inside else visible).append(text[position:end])
            if tag is None:
                self._held = text[end:]
                break
            before = text[end - 1] if end else self.last
            if before == "`" and not self._inside:
                visible.append(tag.group())
            else:
                self._inside = not tag.group().startswith("</")
            position = tag.end()
        if text and not self._held:
            self.last = text[-1]
        return "".join(visible), "".join(thought)

    def finish(self) -> tuple[str, str]:
        """What was held back: it turned out to be no tag."""
        held, self._held = self._held, ""
        return ("", held) if self._inside else (held, "")

    def _undecided(self, text: str, position: int) -> int:
        """How many characters at the end may still become a tag."""
        start = text.rfind("<", max(position, len(text) - _LONGEST + 1))
        if start < 0:
            return 0
        rest = text[start:].lower()
        candidates = CLOSING if self._inside else (*OPENING, *CLOSING)
        return len(rest) if any(tag.startswith(rest) for tag in candidates) else 0


class ReplayGate:
    """For a request that is asked again after its text was shown: the same text is swallowed, the rest shown.

    If the new answer differs, it is held back and shown whole behind a blank line when it is complete.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._seen = ""

    def feed(self, text: str) -> str:
        before = len(self._seen)
        self._seen += text
        if self._seen.startswith(self._shown):
            return self._seen[max(before, len(self._shown)) :]
        return ""

    def finish(self) -> str:
        if self._seen.startswith(self._shown) or self._shown.startswith(self._seen):
            return ""
        return "\n\n" + self._seen


class OverlapGate:
    """For a continuation: what repeats the end of the text so far is cut off before anybody sees it (TL-25)."""

    def __init__(self, said: str) -> None:
        self._tail = said[-OVERLAP_WINDOW:]
        self._held = ""
        self.open = len(self._tail) < MIN_OVERLAP

    def feed(self, text: str) -> str:
        if self.open:
            return text
        self._held += text
        if self._held in self._tail:
            return ""
        return self.finish()

    def finish(self) -> str:
        self.open = True
        held, self._held = self._held, ""
        return held[overlap(self._tail, held) :]


def overlap(said: str, more: str) -> int:
    """How many characters at the beginning of ``more`` repeat the end of ``said``; fewer than 32 are chance."""
    for size in range(min(len(said), len(more)), MIN_OVERLAP - 1, -1):
        if said.endswith(more[:size]):
            return size
    return 0


LOOK_EVERY = 128
LOOK_BACK = 4 * LOOK_EVERY
"""Parts of an answer: every so many of them the newest are looked at."""


THINKING = "thinking"
"""What is shown while a model that was asked has said nothing yet."""


def _unwatched(_tail: str) -> None:
    """Nobody looks."""


class StreamSink:
    """The ``on_delta`` of one model call.

    Text goes to ``progress.text_parts`` in any case; it becomes a ``TextDelta`` unless a tool call has begun in this
    response (TL-12). ``separate`` puts a blank line before the first text, so that segments do not fuse. ``watch`` is
    shown the newest text now and then.
    """

    def __init__(
        self,
        emit: Callable[[SessionEvent], None],
        turn_id: str,
        progress: TurnProgress,
        *,
        separate: bool = False,
        gate: ReplayGate | OverlapGate | None = None,
        watch: Callable[[str], None] = _unwatched,
    ) -> None:
        self._emit = emit
        self._watch = watch
        self._turn_id = turn_id
        self._progress = progress
        self._parts = progress.text_parts
        self._filter = ThinkFilter()
        self._gate = gate
        self._separator = "\n\n" if separate else ""
        self._fast = False
        self._surrogate = ""
        self._begun = False
        self._shown_until: int | None = None
        self.calls_begun = False
        self.showed = False
        self.kept_back = False
        self.received = False
        self.received_reasoning = False
        self._waits = False

    def wait_begins(self) -> None:
        """Tell that the model is asked; over when it says something, or with ``wait_ends``."""
        self._waits = True
        self._emit(ThinkingStatus(self._turn_id, THINKING))

    def wait_ends(self) -> None:
        if self._waits:
            self._waits = False
            self._emit(ThinkingStatus(self._turn_id, ""))

    def __call__(self, kind: DeltaKind, text: str) -> None:
        if kind is DeltaKind.TEXT:
            if self._fast and "<" not in text and (text.isascii() or not _SURROGATE.search(text)):
                self._parts.append(text)
                self._emit(TextDelta(self._turn_id, text))
                if not len(self._parts) % LOOK_EVERY:
                    self._watch("".join(self._parts[-LOOK_BACK:]))
            else:
                self.take_text(text)
        elif kind is DeltaKind.REASONING:
            self.received_reasoning = True
            self.take_reasoning(clean_surrogates(text))
        else:
            self._start()
            if not self.calls_begun:
                self._flush()
                self.calls_begun = True
                self._shown_until = len(self._parts)
            self._fast = False
            self._emit(ToolGenerating(self._turn_id, text))

    def finish(self) -> None:
        """The answer is complete: let go what was held back."""
        self.wait_ends()
        self._flush()
        if self._gate is not None:
            gate, self._gate = self._gate, None
            late = gate.finish()
            if isinstance(gate, ReplayGate):
                self._show(late)
            else:
                self._put(late)

    def shown_since(self, start: int) -> str:
        """The text of this call that was shown; ``start`` is where its parts begin."""
        return "".join(self._parts[start : self._shown_until])

    def _flush(self) -> None:
        """What could still have become a tag or a surrogate pair is plain text after all."""
        held, self._surrogate = self._surrogate, ""
        visible, thought = self._filter.feed(clean_surrogates(held)) if held else ("", "")
        more_visible, more_thought = self._filter.finish()
        self.take_reasoning(thought + more_thought)
        self._put(visible + more_visible)

    def take_text(self, text: str) -> None:
        self._start()
        self.received = self.received or bool(text)
        text = self._surrogate + text
        self._surrogate = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._surrogate = text[-1]
            text = text[:-1]
        if self._fast and self._parts:
            self._filter.last = self._parts[-1][-1:]
        visible, thought = self._filter.feed(clean_surrogates(text))
        self.take_reasoning(thought)
        self._put(visible)
        self._fast = (
            self.showed
            and self._filter.plain
            and not self._surrogate
            and not self._separator
            and self._gate is None
            and not self.calls_begun
        )

    def take_reasoning(self, text: str) -> None:
        if text:
            self._start()
            self._progress.reasoning_parts.append(text)
            self._emit(ReasoningDelta(self._turn_id, text))

    def _start(self) -> None:
        if not self._begun:
            self._begun = True
            self.wait_ends()
            self._progress.phase = LoopPhase.STREAMING

    def _put(self, visible: str) -> None:
        if not visible:
            return
        gate = self._gate
        if isinstance(gate, OverlapGate):
            visible = gate.feed(visible)
            self._keep(visible)
            self._show(visible)
            self._gate = None if gate.open else gate
        else:
            self._keep(visible)
            self._show(visible if gate is None else gate.feed(visible))

    def _keep(self, text: str) -> None:
        if text:
            self._parts.append(text)
            if not len(self._parts) % LOOK_EVERY:
                self._watch("".join(self._parts[-LOOK_BACK:]))

    def _show(self, text: str) -> None:
        if not text:
            return
        if self.calls_begun:
            self.kept_back = True
            return
        self.showed = True
        separator, self._separator = self._separator, ""
        self._emit(TextDelta(self._turn_id, separator + text))
