"""``hermes version``."""

from __future__ import annotations

import platform

import click

from hermes import __version__


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(f"hermes {__version__} (Python {platform.python_version()})")
