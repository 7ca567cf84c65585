"""``hermes acp``: the Agent Client Protocol on standard input and output."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from hermes.cli.options import load, shared_options
from hermes.launch import AcpOptions

NO_BROWSER = "This server brings no browser of its own: there is nothing to install."
NO_HOOKS = "hermes acp: this server runs no shell hooks; --accept-hooks changes nothing"


@click.command("acp")
@click.option("--check", is_flag=True, help="Check that everything needed can be loaded, then exit.")
@click.option("--setup", is_flag=True, help="Choose provider and model at the terminal, then exit.")
@click.option("--setup-browser", is_flag=True, help="Install the browser tools, if there are any, then exit.")
@click.option("--yes", "-y", is_flag=True, help="Answer the questions of --setup-browser with yes.")
@click.option("--accept-hooks", is_flag=True, help="Accept unseen shell hooks without asking.")
@click.option("--version", is_flag=True, help="Print the version, then exit.")
@shared_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    check: bool,
    setup: bool,
    setup_browser: bool,
    yes: bool,
    accept_hooks: bool,
    version: bool,
    **shared: Any,
) -> None:
    """Speak the Agent Client Protocol on standard input and output; ends with its input."""
    if version:
        ctx.invoke(import_module("hermes.cli.version").command)
        ctx.exit(0)
    if check:
        ctx.exit(_check())
    if setup_browser:
        click.echo(NO_BROWSER)
        ctx.exit(0)
    loaded = load(**shared)
    if setup:
        ctx.exit(import_module("hermes.cli.acp_setup").run_setup(loaded))
    if accept_hooks:
        click.echo(NO_HOOKS, err=True)
    from hermes import app

    ctx.exit(app.run_acp(loaded, AcpOptions()))


def _check() -> int:
    try:
        import_module("hermes.start")
        import_module("hermes.protocols.acp.surface")
    except ImportError as error:
        click.echo(f"hermes acp cannot run: {error}. Reinstall hermes-agent-server.", err=True)
        return 1
    click.echo("hermes acp: OK")
    return 0
