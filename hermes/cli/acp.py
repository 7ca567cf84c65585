"""``hermes acp``: the Agent Client Protocol on standard input and output."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from hermes.cli.options import load, shared_options
from hermes.launch import AcpOptions


@click.command("acp")
@click.option("--check", is_flag=True, help="Check that everything needed can be loaded, then exit.")
@click.option("--setup", is_flag=True, help="Choose provider and model, then exit.")
@click.option("--version", is_flag=True, help="Print the version, then exit.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, check: bool, setup: bool, version: bool, **shared: Any) -> None:
    """Speak the Agent Client Protocol on standard input and output; ends with its input."""
    if version:
        ctx.invoke(import_module("hermes.cli.version").command)
        ctx.exit(0)
    if check:
        ctx.exit(_check())
    loaded = load(**shared)
    from hermes import app

    ctx.exit(app.run_acp(loaded, AcpOptions(setup=setup)))


def _check() -> int:
    try:
        import_module("hermes.app")
        import_module("hermes.protocols.acp.surface")
    except ImportError as error:
        click.echo(f"hermes acp cannot run: {error}. Reinstall hermes-agent-server.", err=True)
        return 1
    click.echo("hermes acp: OK")
    return 0
