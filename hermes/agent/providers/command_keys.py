"""Keys that a command prints (``key_cmd``): asked for when a request needs one, kept until an endpoint refuses it.

Owns the cache and the rule that one command runs once, however many calls wait for its key. How a command is run is
the business of whoever hands ``RunKeyCommand`` in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from hermes.errors import ProviderError

RunKeyCommand = Callable[[tuple[str, ...]], Awaitable[str]]
"""Runs the command and returns what it printed. Raises ``KeyCommandFailed``; leaves nothing behind when cancelled."""
NOT_CONFIGURED: Final = "provider_not_configured"


class KeyCommandFailed(Exception):
    """The command gave no key; the text says why, without anything that it printed."""


class CommandKeys:
    """The keys of all commands. ``learned`` is told each key before anybody uses it."""

    def __init__(self, run: RunKeyCommand | None = None, learned: Callable[[str], None] = lambda key: None) -> None:
        self._run = run
        self._learned = learned
        self._asked: dict[tuple[str, ...], _Asked] = {}

    async def key(self, command: tuple[str, ...], provider: str) -> str:
        """Raises ``ProviderError``; nothing was sent then."""
        asked = self._asked.setdefault(command, _Asked())
        tries = asked.tries
        async with asked.lock:
            if asked.key is None:
                if asked.tries == tries:
                    await self._ask(command, asked)
                # Else somebody has asked while we waited, and for us it would fail no less.
                if asked.key is None:
                    raise ProviderError(
                        f"no key for {provider}: its key_cmd {asked.failure}",
                        error_class=NOT_CONFIGURED,
                        provider=provider,
                        reached_provider=False,
                    )
            return asked.key

    def refused(self, command: tuple[str, ...], key: str | None) -> None:
        """An endpoint has refused this key: the next call asks again, unless somebody has done so since."""
        asked = self._asked.get(command)
        if asked is not None and asked.key == key:
            asked.key = None

    async def _ask(self, command: tuple[str, ...], asked: _Asked) -> None:
        if self._run is None:
            asked.failure = "cannot be run here"
            return
        try:
            key = (await self._run(command)).strip()
        except KeyCommandFailed as failure:
            asked.failure = str(failure)
        else:
            asked.failure = _why_no_key(key)
            if not asked.failure:
                self._learned(key)
                asked.key = key
        asked.tries += 1


class _Asked:
    """One command: its key, or why there is none."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.key: str | None = None
        self.failure = ""
        self.tries = 0


def _why_no_key(key: str) -> str:
    if not key:
        return "printed nothing"
    if not key.isascii() or not key.isprintable() or " " in key:
        return "printed more than one word"
    return ""
