"""``hermes schema``: reference pages made from the code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

import click

# Topic → module with ``markdown() -> str`` and ``schema() -> object``.
TOPICS: Mapping[str, str] = MappingProxyType(
    {
        "cli": "hermes.cli.command_reference",
        "config": "hermes.cli.config_reference",
        "openapi": "hermes.protocols.http.openapi",
    }
)


@click.command("schema")
@click.argument("topic", type=click.Choice(list(TOPICS)))
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), default="markdown", show_default=True)
def command(topic: str, form: str) -> None:
    """Print a reference page (markdown) or a JSON schema."""
    source = import_module(TOPICS[topic])
    click.echo(source.markdown() if form == "markdown" else json.dumps(source.schema(), indent=2), nl=form == "json")
