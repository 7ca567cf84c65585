"""Puts a chat together: gateway, screen, session and signals, and ends them with the first of them."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import click
import trio

from hermes import __version__
from hermes.cli.chat_screen import Input, Interrupted, PlainScreen, Screen
from hermes.cli.chat_session import ChatSession, Start
from hermes.cli.chat_view import ChatView, Status
from hermes.cli.gateway_link import LinkLost, Where, open_link
from hermes.cli.gateway_peer import GatewayPeer
from hermes.cli.markdown_text import markdown_for
from hermes.cli.terminal_style import is_dumb, style_of_output
from hermes.config import LoadedSettings
from hermes.early_end import Echoes
from hermes.errors import HermesError
from hermes.nurseries.containment import TaskPool, open_task_pool, run_until_one_ends

HISTORY: Final = "chat_history"
TASKS: Final = 16
RECONNECT_WITHIN: Final = 120.0
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 2.0
SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


async def run_chat(where: Where, loaded: LoadedSettings, chosen: Mapping[str, Any]) -> int:
    """The exit code. Raises ``click.ClickException``."""
    start = Start(columns=shutil.get_terminal_size().columns, **chosen)
    async with open_link(where) as link, open_task_pool("chat", TASKS) as pool:
        chat = _Chat(GatewayPeer(link), loaded, pool)

        chat.session.outlives_link = not where.is_own and not is_dumb()

        async def read() -> None:
            await chat.session.peer.run()
            while chat.session.outlives_link and chat.is_open.is_set():
                await _connect_again(where, chat.session)
            raise LinkLost(link.why_lost())

        async def talk() -> None:
            await chat.session.open(start)
            chat.greet()
            chat.is_open.set()
            chat.code = await chat.session.run()

        crash = await run_until_one_ends(
            ("gateway", read), ("session", talk), ("screen", chat.read_inputs), ("signals", chat.watch_signals)
        )
    if sys.stdout.isatty() and chat.session.stored_id and chat.session.has_said:
        click.echo(chat.style.dim(f"hermes --resume {chat.session.stored_id} takes this session up again."), err=True)
    if crash is not None and isinstance(crash.error, HermesError):
        raise click.ClickException(crash.error.message)
    if crash is not None:
        raise crash.error
    return chat.code


async def _connect_again(where: Where, session: ChatSession) -> None:
    """Returns when the new connection is lost as well. Raises ``LinkLost`` when there is none to be had."""
    why = session.peer.why_lost()
    session.lost(why)
    give_up_at, pause = trio.current_time() + RECONNECT_WITHIN, FIRST_PAUSE
    while trio.current_time() < give_up_at:
        await trio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        try:
            async with open_link(where) as link:
                session.peer.take_over(link)
                session.back()
                await session.peer.run()
        except click.ClickException:
            continue
        # A server that takes connections and serves none is no better than one that is gone.
        if not session.is_offline:
            return
    raise LinkLost(f"{why}; no connection within {RECONNECT_WITHIN:g} s")


def _columns() -> int:
    return shutil.get_terminal_size().columns


class _Chat:
    def __init__(self, peer: GatewayPeer, loaded: LoadedSettings, pool: TaskPool) -> None:
        self.code = 0
        self.is_open = trio.Event()
        self.style = style_of_output()
        self._status = Status()
        self._screen: Screen = self._make_screen(loaded)
        dumb = is_dumb()
        markdown, width = (None, None) if dumb else (markdown_for(self.style), _columns)
        view = ChatView(self._screen, self.style, markdown, width)
        view.status = self._status
        self.session = ChatSession(peer, self._screen, view, self.style, pool)

    def _make_screen(self, loaded: LoadedSettings) -> Screen:
        if is_dumb():
            return PlainScreen(self._status, wants=lambda: self.session.wants_input())
        from hermes.cli.chat_editor import EditorScreen

        return EditorScreen(
            self._status, history=loaded.home / HISTORY, lookup=lambda text: self.session.complete(text)
        )

    def greet(self) -> None:
        hint = self.style.dim("/help shows the commands, Ctrl-C stops, Ctrl-D leaves")
        self._screen.write(f"{self.style.bold('Hermes')} {__version__}  {hint}")

    async def read_inputs(self) -> None:
        await self.is_open.wait()
        await self._screen.run()
        # The end of input is one input more: the session leaves when it has dealt with it.
        await trio.sleep_forever()

    async def watch_signals(self) -> None:
        echoes = Echoes()
        with trio.open_signal_receiver(*SIGNALS) as signals:
            async for number in signals:
                if echoes.is_echo(number, trio.current_time()):
                    continue
                if number != signal.SIGINT:
                    self.code = 128 + number
                    return
                if not self.is_open.is_set():
                    self.code = 128 + number
                    return
                pressed: Input = Interrupted()
                self._screen.on_input(pressed)
