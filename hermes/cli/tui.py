"""``hermes --tui``: the Ink client of release 0.19 in this terminal, with this installation behind it.

The client starts its gateway as ``$HERMES_PYTHON -m tui_gateway.entry`` and speaks the older dialect of questions. Our
own command answers to exactly these arguments (``root.INK_GATEWAY``), so it stands in for the interpreter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import trio

from hermes.cli.gateway_link import LinkLost, Where, open_link
from hermes.cli.gateway_peer import GatewayPeer
from hermes.cli.running_server import server_of
from hermes.config import LoadedSettings, environment_with, terminal_variables
from hermes.nurseries.containment import run_until_one_ends

ENTRIES: Final = ("entry.js", "dist/entry.js", "index.js", "dist/index.js", "cli.js", "dist/cli.js")


LAST: Final = "last"


def run_tui(
    loaded: LoadedSettings, *, resume: str | None, serve: bool, url: str | None, options: Sequence[str] = ()
) -> int | None:
    """The client's exit code; None when there is none to start. Raises ``click.ClickException``.

    ``options`` are those of a gateway that is asked for the newest session where the home has no server.
    """
    place = terminal_variables().tui_dist
    if not place:
        return None
    entry = find_entry(Path(place).expanduser())
    node = shutil.which("node")
    if node is None:
        raise click.ClickException("the Ink client needs Node.js, and there is no node on the PATH")
    url = url or (server_of(loaded).websocket if serve else None)
    if resume == LAST:
        resume = trio.run(newest_session, Where(url, () if url else options))
        if resume is None:
            click.echo("There is no session to resume; this is a new one.", err=True)
    extra = ink_environment(loaded, resume=resume, url=url)
    ended = subprocess.run([node, str(entry)], env=environment_with(extra), check=False)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


async def newest_session(where: Where) -> str | None:
    """The id of the session that was used last. Raises ``click.ClickException``."""
    async with open_link(where) as link:
        peer = GatewayPeer(link)
        found: list[str | None] = []

        async def ask() -> None:
            found.append((await peer.call("session.most_recent"))["session_id"])

        async def read() -> None:
            await peer.run()
            raise LinkLost(link.why_lost())

        crash = await run_until_one_ends(("question", ask), ("gateway", read))
    if crash is not None and not found:
        raise crash.error
    return found[0]


def find_entry(place: Path) -> Path:
    """The script to start: what was named, or the usual names below it."""
    if place.is_file():
        return place
    for name in ENTRIES:
        if (place / name).is_file():
            return place / name
    raise click.ClickException(f"HERMES_TUI_DIST names {place}, which holds no {' or '.join(ENTRIES[:2])}")


def ink_environment(loaded: LoadedSettings, *, resume: str | None = None, url: str | None = None) -> dict[str, str]:
    """The variables the client reads (gateway protocol, the 0.19 client)."""
    variables = {"HERMES_HOME": str(loaded.home), "HERMES_CWD": os.getcwd(), "HERMES_PYTHON": str(gateway_command())}
    if url is not None:
        variables["HERMES_TUI_GATEWAY_URL"] = url
    if resume is not None:
        variables["HERMES_TUI_RESUME"] = resume
    return variables


def gateway_command() -> Path:
    """One file that can be started as ``FILE -m tui_gateway.entry``: the installed ``hermes``, or a one-file build."""
    if getattr(sys, "frozen", False):
        return Path(sys.executable)
    installed = Path(sysconfig.get_path("scripts")) / "hermes"
    if installed.is_file():
        return installed
    found = shutil.which("hermes")
    if found is None:
        raise click.ClickException("the hermes command is not installed; the Ink client needs it as its gateway")
    return Path(found)
