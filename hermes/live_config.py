"""LiveConfig: the settings of the moment, and how they change while the server runs.

One object per server, handed down as a port. A change is validated as a whole, written to the file with its comments
kept (unless it is for this process only), and announced. Nobody keeps settings across a turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from hermes.config import LoadedSettings, load_settings, save_setting, with_setting
from hermes.config_file import read_dotenv
from hermes.settings import Settings

Listener = Callable[[LoadedSettings, Sequence[str]], None]


class LiveConfig:
    """``current()`` is what ``Services.settings`` calls. Listeners hear of every change, synchronously."""

    def __init__(self, loaded: LoadedSettings, overrides: Mapping[str, Any] | None = None) -> None:
        self.loaded = loaded
        self._overrides = dict(overrides or {})
        self._listeners: list[Listener] = []
        self._saving = trio.Lock()
        self._seen = self._stamp()
        self._variables = read_dotenv(loaded.home / ".env")

    def current(self) -> Settings:
        return self.loaded.settings

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def change(self, key: str, value: Any, *, save: bool = True) -> Settings:
        """Set one value. Raises ``InvalidValue`` or ``OSError``; then nothing has changed."""
        async with self._saving:
            changed = with_setting(self.loaded.settings, key, value)
            if save:
                await trio.to_thread.run_sync(save_setting, self.loaded.home, key, value)
            self._take(replace(self.loaded, settings=changed), (key,))
        return changed

    async def reload(self) -> tuple[str, ...]:
        """Read the file and the environment again; returns the keys that are different now, by area."""
        async with self._saving:
            fresh = await trio.to_thread.run_sync(load_settings, self._overrides, None, self.loaded.home)
            before, after = self.loaded.settings, fresh.settings
            changed = tuple(name for name in type(after).model_fields if getattr(before, name) != getattr(after, name))
            if changed or fresh.credentials != self.loaded.credentials:
                self._take(fresh, changed)
        return changed

    async def reload_variables(self) -> int:
        """Read the home's ``.env`` again; returns how many of its variables are different now."""
        before = self._variables
        await self.reload()
        self._variables = await trio.to_thread.run_sync(read_dotenv, self.loaded.home / ".env")
        names = before.keys() | self._variables.keys()
        return sum(before.get(name) != self._variables.get(name) for name in names)

    async def pick_up_credentials(self) -> bool:
        """Take the keys of the home's ``.env`` again if somebody has edited it; everything else stays as it is.

        Looks at the file's time only, unless that is new. Raises ``InvalidValue`` if it cannot be read.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        async with self._saving:
            self._seen = stamp
            fresh = await trio.to_thread.run_sync(load_settings, self._overrides, None, self.loaded.home)
            if fresh.credentials == self.loaded.credentials:
                return False
            self._take(replace(self.loaded, credentials=fresh.credentials), ())
        return True

    def _stamp(self) -> tuple[int, int]:
        try:
            status = os.stat(self.loaded.home / ".env")
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_size

    def _take(self, loaded: LoadedSettings, keys: Sequence[str]) -> None:
        self.loaded = loaded
        for listener in self._listeners:
            listener(loaded, keys)
