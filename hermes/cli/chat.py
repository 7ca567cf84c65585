"""``hermes`` and ``hermes chat``: talk to the agent in this terminal; with ``-p``, ask once and leave."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from hermes.cli.options import Seconds, load, shared_options

SEPARATOR: Final = "\n\n"
PASSED_ON: Final = ("home", "model", "provider", "base_url", "log_level", "log_format")


@click.command("chat")
@click.option("-p", "--prompt", is_flag=False, flag_value="", help="Ask once, print the answer and leave.")
@click.option("--json", "as_json", is_flag=True, help="With -p: every event as a line of JSON, the result last.")
@click.option("--deadline", type=Seconds(min=0, min_open=True), help="With -p: seconds for the whole turn.")
@click.option("--yes", is_flag=True, help="With -p: approve what asks for approval, once each time.")
@click.option("--resume", is_flag=False, flag_value="last", metavar="[ID]", help="Take up a session: id, title, last.")
@click.option("--url", help="Use the gateway at this address (ws://…/api/ws?token=…).")
@click.option("--serve", is_flag=True, help="Use this home's running server (hermes serve).")
@click.option("--tui", is_flag=True, help="Start the Ink client that HERMES_TUI_DIST names; without one, this client.")
@shared_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    prompt: str | None,
    as_json: bool,
    deadline: float | None,
    yes: bool,
    resume: str | None,
    url: str | None,
    serve: bool,
    tui: bool,
    **shared: Any,
) -> None:
    """Talk to the agent in this terminal; with -p, ask once and leave.

    Exit codes of -p: 0 complete; 1 failed; 2 used wrongly; 3 something asked for approval and was denied; 124 the
    deadline passed; 130 interrupted.
    """
    if prompt is None and (as_json or deadline is not None or yes):
        raise click.UsageError("--json, --deadline and --yes go with -p")
    if url and serve:
        raise click.UsageError("--url and --serve name two gateways")
    loaded = load(**{**shared, "log_to": shared["log_to"] or "file"})
    if tui and prompt is None:
        from hermes.cli.tui import run_tui

        code = run_tui(loaded, resume=resume, serve=serve, url=url, options=_child_options(shared))
        if code is not None:
            ctx.exit(code)
    # Read before anything is started, so that a pipe that never ends holds nothing but this process.
    text = None if prompt is None else _with_input(prompt)

    import trio

    from hermes.cli.gateway_link import Where

    where = Where(_url(loaded, url, serve), () if url or serve else _child_options(shared))
    chosen = {"resume": resume, "model": shared["model"], "provider": shared["provider"], "cwd": os.getcwd()}
    if text is not None:
        from hermes.cli.one_shot import OneShot, run_once

        wanted = OneShot(prompt=text, deadline=deadline, approve=yes, as_json=as_json, **chosen)
        ctx.exit(trio.run(run_once, where, wanted))
    from hermes.cli.chat_run import run_chat

    ctx.exit(trio.run(run_chat, where, loaded, chosen))


def _url(loaded: Any, url: str | None, serve: bool) -> str | None:
    if not serve:
        return url
    from hermes.cli.running_server import server_of

    return server_of(loaded).websocket


def _child_options(shared: Mapping[str, Any]) -> tuple[str, ...]:
    """The same settings for the gateway; its log goes to files, because the terminal is the chat's."""
    options = ["--log-to", shared["log_to"] or "file"]
    for name in PASSED_ON:
        if shared[name] is not None:
            options += [f"--{name.replace('_', '-')}", str(shared[name])]
    for assignment in shared["assignments"]:
        options += ["--set", assignment]
    return tuple(options)


def _with_input(prompt: str) -> str:
    """The prompt, and what was piped in behind it."""
    parts = [prompt.strip()]
    if _is_piped():
        parts.append(sys.stdin.buffer.read().decode("utf-8", "replace").strip())
    text = SEPARATOR.join(part for part in parts if part)
    if not text:
        raise click.UsageError("there is no prompt: give one with -p, or pipe one in")
    return text


def _is_piped() -> bool:
    """A pipe, a file or a socket; neither a terminal nor /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
