"""``hermes gateway``: gateway JSON-RPC on standard input and output."""

from __future__ import annotations

from typing import Any

import click

from hermes.cli.options import load, shared_options
from hermes.launch import GatewayOptions


@click.command("gateway")
@click.option("--legacy-requests", is_flag=True, help="Send questions as events of the older dialect as well.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, legacy_requests: bool, **shared: Any) -> None:
    """Speak gateway JSON-RPC on standard input and output; ends with its input."""
    loaded = load(**shared)
    from hermes.app import run_gateway

    ctx.exit(run_gateway(loaded, GatewayOptions(legacy_requests=legacy_requests)))
