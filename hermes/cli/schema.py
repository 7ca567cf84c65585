"""``hermes schema``: reference pages and machine-readable contracts, made from the code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

import click

# Topic → module with ``markdown() -> str`` and ``schema() -> object``.
PAGES: Mapping[str, str] = MappingProxyType(
    {
        "cli": "hermes.cli.command_reference",
        "config": "hermes.cli.config_reference",
        "turns": "hermes.cli.turn_states",
        "openapi": "hermes.protocols.http.openapi",
    }
)
# Topic → module and function that gives the whole document.
GATEWAY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "openrpc": ("hermes.protocols.gateway.contract", "openrpc"),
        "typescript": ("hermes.protocols.gateway.contract_typescript", "typescript"),
        "json": ("hermes.protocols.gateway.contract", "json_schemas"),
    }
)


@click.command("schema")
@click.argument("topic", type=click.Choice([*PAGES, *GATEWAY]))
@click.option(
    "--format", "form", type=click.Choice(["markdown", "json"]), help="Of a page; default: markdown, openapi: json."
)
def command(topic: str, form: str | None) -> None:
    """Print a reference page, the OpenAPI document, or the gateway's OpenRPC, TypeScript or JSON Schemas."""
    if topic in GATEWAY:
        if form is not None:
            raise click.UsageError(f"{topic} has a format of its own")
        module, name = GATEWAY[topic]
        document = getattr(import_module(module), name)()
        click.echo(document if isinstance(document, str) else json.dumps(document, indent=2), nl=topic != "typescript")
        return
    source = import_module(PAGES[topic])
    is_page = (form or ("json" if topic == "openapi" else "markdown")) == "markdown"
    click.echo(source.markdown() if is_page else json.dumps(source.schema(), indent=2), nl=not is_page)
