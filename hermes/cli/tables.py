"""Tables and progress for people; tab-separated lines for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import click

from hermes.cli.terminal_style import is_dumb, printable

T = TypeVar("T")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on a terminal; elsewhere one line a row, its cells separated by tabs, without a heading."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(_cell(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="ellipsis", no_wrap=column != columns[-1])
    for row in rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    Console().print(table)


def _cell(value: object) -> str:
    """In one line, and without what would drive the terminal: titles and texts come from a model."""
    return " ".join(printable(str("" if value is None else value)).split())


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def when(at: float) -> str:
    """A moment in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else ""


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Say on standard error that something takes its time; silent where nobody looks."""
    if not sys.stderr.isatty() or is_dumb():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def tracked(items: Sequence[T], what: str) -> Iterator[T]:
    """The items, with a progress bar on standard error while they are gone through."""
    if len(items) < 2 or not sys.stderr.isatty() or is_dumb():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, console=Console(stderr=True), transient=True)
