"""What was done, by whom and to which session; and the one way to say that an invariant is broken."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import trio

KEPT = 20_000
SHOWN = 40


class Violation(AssertionError):
    """An invariant does not hold. ``session`` narrows the trace that is printed."""

    def __init__(self, invariant: str, text: str, session: str = "", needle: str = "") -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.session = session
        self.needle = needle


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    who: str
    session: str
    what: str

    def __str__(self) -> str:
        return f"{self.at:9.3f}  {self.who:<14} {self.session:<24} {self.what}"


class Trace:
    """The newest entries, and how often each kind of thing was done."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._began = trio.current_time()

    def note(self, who: str, kind: str, session: str = "", detail: str = "") -> None:
        self.counts[kind] += 1
        self.tell(who, f"{kind} {detail}".rstrip(), session)

    def tell(self, who: str, what: str, session: str = "") -> None:
        """An answer or an observation: shown, not counted."""
        self._entries.append(Entry(trio.current_time() - self._began, who, session, what[:300]))

    def last_of(self, session: str, needle: str = "") -> str:
        """The end of the story of one session, and what was done to the servers meanwhile; of all if none is named.

        ``needle``: what happened around the thing that is named so, instead of the end.
        """
        entries = [one for one in self._entries if not session or one.session in ("", session)]
        found = next((number for number, one in enumerate(entries) if needle and needle in one.what), None)
        shown = entries[-SHOWN:] if found is None else entries[max(0, found - SHOWN // 3) : found + SHOWN]
        return "\n".join(map(str, shown))
