"""``hermes sessions``: the stored sessions of a home, whether its server runs or not."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from hermes.agent.ports import StoredSession
from hermes.agent.store.sqlite import SqliteStore
from hermes.cli.options import home_option
from hermes.cli.session_export import FORMATS, document, markdown
from hermes.cli.tables import print_table, tracked, when
from hermes.cli.terminal_style import printable
from hermes.errors import HermesError, StoredSessionNotFound
from hermes.start import DATABASE

T = TypeVar("T")
LAST: Final = "last"
PREVIEW: Final = 60


@click.group("sessions")
@home_option
def command() -> None:
    """List, show, search, export and delete stored sessions. ID is a session's id, its exact title, or `last`."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@click.option("--all", "everything", is_flag=True, help="Hidden and archived ones and those of child agents as well.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@home_option
@click.pass_obj
def list_(home: Path, limit: int, everything: bool, as_json: bool) -> None:
    """List stored sessions, newest first."""

    async def read(store: SqliteStore) -> Sequence[StoredSession]:
        return await store.list_sessions(
            limit=limit, include_hidden=everything, include_archived=everything, include_children=everything
        )

    found = _with_store(home, read) if (home / DATABASE).exists() else ()
    if as_json:
        click.echo(json.dumps([_facts(session) for session in found], indent=2, ensure_ascii=False))
        return
    rows = [
        (session.key, when(session.last_activity_at), session.message_count, session.title or session.preview[:PREVIEW])
        for session in found
    ]
    print_table(("id", "last used", "messages", "title"), rows)


@command.command("browse")
@click.pass_context
def browse(ctx: click.Context) -> None:
    """Look through the stored sessions in a terminal, and take one up again."""
    from hermes.cli import sessions_browse

    home: Path = ctx.obj

    def read(limit: int) -> Sequence[StoredSession]:
        return _with_store(home, lambda store: store.list_sessions(limit=limit)) if (home / DATABASE).exists() else ()

    ctx.exit(sessions_browse.browse(home, read))


@command.command("show")
@click.argument("session_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@home_option
@click.pass_obj
def show(home: Path, session_id: str, as_json: bool) -> None:
    """Print a session: what it is, and its conversation."""
    stored, rows = _loaded(home, session_id)
    click.echo(json.dumps(document(stored, rows), indent=2, ensure_ascii=False) if as_json else markdown(stored, rows))


@command.command("search")
@click.argument("query")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many hits.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@home_option
@click.pass_obj
def search(home: Path, query: str, limit: int, as_json: bool) -> None:
    """Search the text of all sessions. Exits 1 when nothing is found."""

    async def look(store: SqliteStore) -> Sequence[Mapping[str, Any]]:
        return await store.search(query, limit=limit)

    hits = _with_store(home, look) if (home / DATABASE).exists() else ()
    if as_json:
        click.echo(json.dumps([dict(hit) for hit in hits], indent=2, ensure_ascii=False))
    else:
        rows = [(hit["session_key"], when(hit["timestamp"] or 0), hit["role"], hit["snippet"]) for hit in hits]
        print_table(("session", "when", "who", "text"), rows)
    if not hits:
        click.echo("Nothing was found.", err=True)
        raise click.exceptions.Exit(1)


@command.command("delete")
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@home_option
@click.pass_obj
def delete(home: Path, session_ids: tuple[str, ...], yes: bool) -> None:
    """Delete sessions for good. One whose turn is running is left alone."""

    async def find(store: SqliteStore) -> list[StoredSession]:
        return [await _find(store, name) for name in session_ids]

    # Asked while the database is closed: a person may take all day.
    for stored in _with_store(home, find):
        if not yes:
            title = printable(stored.title or stored.preview[:PREVIEW])
            click.confirm(f"Delete {stored.key} ({title})?", abort=True)
        _with_store(home, partial(_delete, home, stored.key))
        click.echo(f"deleted {stored.key}")


async def _delete(home: Path, key: str, store: SqliteStore) -> None:
    from hermes.nurseries.session_delete import delete_with_files

    await delete_with_files(store, home, key)


@command.command("export")
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every session.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="markdown", show_default=True)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="A file, or with several sessions a directory. Default: -"
)
@home_option
@click.pass_obj
def export(home: Path, session_ids: tuple[str, ...], everything: bool, form: str, output: Path | None) -> None:
    """Write sessions as markdown or JSON."""
    if everything == bool(session_ids):
        raise click.UsageError("give ids, or --all")

    async def write(store: SqliteStore) -> None:
        if everything:
            found = list(await store.list_sessions(limit=1_000_000, include_hidden=True, include_archived=True))
        else:
            found = [await _find(store, name) for name in session_ids]
        to_directory = output is not None and (everything or len(found) > 1 or output.is_dir())
        for stored in tracked(found, "Exporting"):
            rows = await store.load_transcript(stored.key)
            text = markdown(stored, rows) if form == "markdown" else json.dumps(document(stored, rows), indent=2)
            _put(text, output / _file_name(stored.key, form) if output is not None and to_directory else output)
        if output is not None:
            click.echo(f"{len(found)} written to {output}", err=True)

    _with_store(home, write)


def _put(text: str, path: Path | None) -> None:
    if path is None:
        click.echo(printable(text) if sys.stdout.isatty() else text)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error


def _file_name(key: str, form: str) -> str:
    return re.sub(r"[^\w.-]", "_", key) + (".md" if form == "markdown" else ".json")


def _facts(stored: StoredSession) -> dict[str, Any]:
    facts = asdict(stored)
    return {name: facts[name] for name in facts if name not in ("system_prompt", "tool_names")}


def _loaded(home: Path, session_id: str) -> tuple[StoredSession, Any]:
    async def read(store: SqliteStore) -> tuple[StoredSession, Any]:
        stored = await _find(store, session_id)
        return stored, await store.load_transcript(stored.key)

    return _with_store(home, read)


async def _find(store: SqliteStore, name: str) -> StoredSession:
    if name == LAST:
        newest = await store.list_sessions(limit=1)
        found = newest[0] if newest else None
    else:
        found = await store.get_session(name) or await store.find_by_title(name)
    if found is None:
        raise StoredSessionNotFound(f"there is no session {name}; `hermes sessions list` shows what there is")
    return found


def _with_store(home: Path, work: Callable[[SqliteStore], Awaitable[T]]) -> T:
    """Run ``work`` on the home's database; a home without one is not given one. Raises ``click.ClickException``."""
    import trio

    path = home / DATABASE
    if not path.exists():
        raise click.ClickException(f"there are no sessions in {home}")

    async def run() -> T:
        async with await SqliteStore.open(path) as store:
            return await work(store)

    try:
        return trio.run(run)
    except HermesError as error:
        raise click.ClickException(error.message) from error
