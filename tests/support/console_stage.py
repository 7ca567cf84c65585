"""The stage of the console's browser tests: the server, a model that follows a script, and a browser before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tests.support.console_page import Page, browser, key_of, serving
from tests.support.server_process import ServerProcess, free_port, scripted_model

SCRIPT = Path("tests/console/console_script.yaml")
WITHIN = 180.0


class Stage:
    """A server, its model and a browser. ``restart`` starts the server again on the same port."""

    def __init__(self, home: Path, provider: ServerProcess, page: Page, port: int) -> None:
        self.home = home
        self.provider = provider
        self.page = page
        self.port = port

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serving(self) -> object:
        return serving(self.home, self.provider, self.port)

    async def act(self, scene: Callable[[Page], None]) -> None:
        await trio.to_thread.run_sync(scene, self.page)

    async def logged_in(self) -> None:
        key = key_of(self.home)
        await self.act(lambda page: page.open(self.origin, key))


@asynccontextmanager
async def stage(tmp_path: Path, *, script: str | None = None) -> AsyncIterator[Stage]:
    script = await trio.Path(SCRIPT).read_text(encoding="utf-8") if script is None else script
    with trio.fail_after(WITHIN):
        async with scripted_model(tmp_path / "model", script) as provider:
            manager = browser(tmp_path)
            page = await trio.to_thread.run_sync(manager.__enter__)
            try:
                yield Stage(tmp_path / "home", provider, page, free_port())
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(partial(manager.__exit__, None, None, None))


@asynccontextmanager
async def another_page(tmp_path: Path) -> AsyncIterator[Page]:
    """A second browser, that knows nothing of the first."""
    manager = browser(tmp_path / "other")
    page = await trio.to_thread.run_sync(manager.__enter__)
    try:
        yield page
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(partial(manager.__exit__, None, None, None))


@asynccontextmanager
async def console(tmp_path: Path, *, script: str | None = None) -> AsyncIterator[Stage]:
    """Logged in, and without a complaint of the browser at the end."""
    async with stage(tmp_path, script=script) as ready, serving(ready.home, ready.provider, ready.port):
        await ready.logged_in()
        yield ready
        assert ready.page.complaints() == []
