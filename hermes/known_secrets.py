"""Secrets that this process has learned while it runs: hidden by their exact value, whatever they look like."""

from __future__ import annotations

from hermes.logs import hide_in_logs

MASK = "***"
SHORTEST = 8
"""A shorter value would be found in the middle of ordinary words."""
_MOST = 256


class KnownSecrets:
    """The values; the oldest is forgotten when there are too many."""

    def __init__(self) -> None:
        self._values: list[str] = []
        hide_in_logs(self.hide)

    def add(self, value: str) -> None:
        """From now on ``hide`` masks it."""
        if len(value) >= SHORTEST and value not in self._values:
            # The longest first, so that a value that holds another one leaves no rest.
            self._values = sorted([*self._values[-_MOST + 1 :], value], key=len, reverse=True)

    def hide(self, text: str) -> str:
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        return text
