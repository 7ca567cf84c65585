"""``hermes sessions browse``: look through the stored sessions in a terminal, and take one up again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from hermes.agent.ports import StoredSession
from hermes.cli.gateway_link import own_command
from hermes.cli.tables import print_table, when
from hermes.cli.terminal_style import printable
from hermes.config import environment_with

PAGE: Final = 20
PREVIEW: Final = 60

Read = Callable[[int], Sequence[StoredSession]]
"""The newest sessions, so many of them."""


def browse(home: Path, read: Read) -> int:
    """The exit code of the chat that was begun, 0 if none was. Raises ``click.ClickException``."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.ClickException("browsing needs a terminal; `hermes sessions list` needs none")
    shown = 0
    while True:
        found = read(shown + PAGE + 1)
        page = found[shown : shown + PAGE]
        if not page:
            click.echo("There are no more sessions." if shown else "There are no stored sessions yet.")
            return 0
        _show(page, shown)
        more = len(found) > shown + PAGE
        chosen = _ask(shown, len(page), more=more)
        if chosen is None:
            return 0
        if chosen < 0:
            shown += PAGE
            continue
        chat = [*own_command(), "chat", "--home", str(home), "--resume", found[chosen].key]
        return subprocess.run(chat, env=environment_with({}), check=False).returncode


def _show(page: Sequence[StoredSession], first: int) -> None:
    rows = [
        (
            str(first + number),
            when(session.last_activity_at),
            session.message_count,
            printable(session.title or session.preview[:PREVIEW]),
        )
        for number, session in enumerate(page, 1)
    ]
    print_table(("", "last used", "messages", "title"), rows)


def _ask(first: int, count: int, *, more: bool) -> int | None:
    """The place of the chosen session; -1 for the next page; None to leave."""
    words = "Number to take up" + (", Enter for more" if more else "") + ", q to leave"
    while True:
        try:
            text = str(click.prompt(words, default="" if more else "q", show_default=False)).strip().lower()
        except click.Abort:
            click.echo()
            return None
        if text in ("q", "quit"):
            return None
        if not text and more:
            return -1
        if text.isascii() and text.isdigit() and first < int(text) <= first + count:
            return int(text) - 1
        click.echo(f"There is no session {text!r} here; a number from {first + 1} to {first + count}, or q.")
