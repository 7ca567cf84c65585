"""``hermes serve``: HTTP, SSE and WebSocket on one port."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from hermes.cli.options import load, shared_options
from hermes.launch import ServeOptions


@click.command("serve")
@click.option("--host", help="Address to listen on (gateway.api_server.host).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0: any free one.")
@click.option("--allow-remote", is_flag=True, help="Permit an address that other machines can reach.")
@click.option("--systemd", is_flag=True, help="Print a unit file for systemd with these options, then exit.")
@shared_options
@click.pass_context
def command(
    ctx: click.Context, /, host: str | None, port: int | None, allow_remote: bool, systemd: bool, **shared: Any
) -> None:
    """Serve HTTP, SSE and WebSocket on one port."""
    if systemd:
        click.echo(import_module("hermes.cli.systemd_unit").unit(sys.argv[1:]), nl=False)
        ctx.exit(0)
    loaded = load(gateway__api_server__host=host, gateway__api_server__port=port, **shared)
    from hermes import app

    ctx.exit(app.run_serve(loaded, ServeOptions(allow_remote=allow_remote, report=click.echo)))
