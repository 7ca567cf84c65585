"""``hermes config``: show, read and change settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hermes.cli.options import home_option
from hermes.config import (
    LoadedSettings,
    config_path,
    effective_settings,
    home_from_environment,
    load_settings,
    make_home,
    save_setting,
)
from hermes.errors import HermesError, InvalidValue


def known_keys(ctx: click.Context, _key: click.Parameter, incomplete: str) -> list[str]:
    """The settings that begin so, for a shell that completes. A home that cannot be read completes nothing."""
    home = ctx.obj if isinstance(ctx.obj, Path) else home_from_environment()
    try:
        settings = effective_settings(load_settings(home=home))
    except (HermesError, OSError):
        return []
    return [key for key, _, _ in settings if key.startswith(incomplete)]


@click.group("config")
@home_option
def command() -> None:
    """Show, read and change settings."""


@command.command("path")
@home_option
@click.pass_obj
def path(home: Path) -> None:
    """Print where the configuration file is."""
    click.echo(config_path(home))


@command.command("show")
@click.option("--all", "everything", is_flag=True, help="Defaults as well.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the source of each value.")
@home_option
@click.pass_obj
def show(home: Path, everything: bool, as_json: bool) -> None:
    """Print the settings in force and where each comes from; secrets are masked."""
    rows = [row for row in effective_settings(_loaded(home)) if everything or row[2] != "default"]
    if as_json:
        click.echo(json.dumps({key: {"value": value, "source": source} for key, value, source in rows}, indent=2))
        return
    if not rows:
        click.echo("# Every setting has its default; `hermes config show --all` lists them.")
    for key, value, source in rows:
        click.echo(f"{key} = {json.dumps(value, ensure_ascii=False)}  # {source}")


@command.command("get")
@click.argument("key", shell_complete=known_keys)
@home_option
@click.pass_obj
def get(home: Path, key: str) -> None:
    """Print one setting as JSON, or all of an area as an object."""
    values = {name: value for name, value, _ in effective_settings(_loaded(home))}
    inside = {name: value for name, value in values.items() if name.startswith(f"{key}.")}
    if inside:
        click.echo(json.dumps(inside, ensure_ascii=False, indent=2))
        return
    if key not in values:
        raise InvalidValue(f"unknown setting: {key}")
    click.echo(json.dumps(values[key], ensure_ascii=False))


# A value may begin with a dash: "-1".
@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key", shell_complete=known_keys)
@click.argument("value")
@home_option
@click.pass_obj
def set_value(home: Path, key: str, value: str) -> None:
    """Write one setting into the configuration file. VALUE is JSON, or text."""
    try:
        save_setting(home, key, _parsed(value))
    except OSError as error:
        raise InvalidValue(f"the configuration file cannot be written: {error}") from error


@command.command("unset")
@click.argument("key", shell_complete=known_keys)
@home_option
@click.pass_obj
def unset(home: Path, key: str) -> None:
    """Take one setting out of the configuration file."""
    save_setting(home, key, None)


@command.command("edit")
@home_option
@click.pass_obj
def edit(home: Path) -> None:
    """Open the configuration file in your editor (VISUAL, EDITOR) and say what is wrong with it afterwards."""
    path = config_path(home)
    if not path.exists():
        make_home(home)
        path.touch(mode=0o600)
    click.edit(filename=str(path))
    _loaded(home)


def _loaded(home: Path) -> LoadedSettings:
    loaded = load_settings(home=home)
    for warning in loaded.warnings:
        click.echo(f"hermes: {warning}", err=True)
    return loaded


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
