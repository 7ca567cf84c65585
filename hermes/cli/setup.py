"""``hermes setup``: the same questions as ``hermes acp --setup``."""

from __future__ import annotations

from typing import Any

import click

from hermes.cli.options import load, shared_options


@click.command("setup")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, **shared: Any) -> None:
    """Choose provider and model, try them, and keep them. The key is not shown while it is typed."""
    from hermes.cli.acp_setup import run_setup

    ctx.exit(run_setup(load(**{**shared, "log_to": shared["log_to"] or "file"}), name="hermes setup"))
