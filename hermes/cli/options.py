"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hermes.cli.loading import load_with
from hermes.config import LoadedSettings, home_from_environment

Command = TypeVar("Command", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A span of time: ``nan`` is in every range for click, and nobody waits for ``inf``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


_SHARED = (
    click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Home directory (HERMES_HOME)."),
    click.option("--model", help="Model id (model.default)."),
    click.option("--provider", help="Provider id (model.provider)."),
    click.option("--base-url", help="Endpoint of a custom provider (model.base_url)."),
    click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting, for this run."),
    click.option("--log-level", help="DEBUG, INFO, WARNING or ERROR."),
    click.option("--log-format", type=click.Choice(["text", "json"]), help="Form of log records."),
    click.option("--log-to", type=click.Choice(["stderr", "file"]), help="stderr, or files in the home's logs/."),
)


def home_option(command: Command) -> Command:
    """``--home`` of a group whose object is the home, and of each of its commands: people write it in both places."""
    return click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        help="Home directory (HERMES_HOME).",
        expose_value=False,
        callback=_take_home,
    )(command)


def _take_home(ctx: click.Context, _option: click.Parameter, given: Path | None) -> None:
    if given is not None:
        ctx.obj = given.absolute()
    elif ctx.obj is None:
        ctx.obj = home_from_environment()


def shared_options(command: Command) -> Command:
    for option in reversed(_SHARED):
        command = option(command)
    return command


def load(
    *,
    home: Path | None,
    model: str | None,
    provider: str | None,
    base_url: str | None,
    assignments: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
    log_to: str | None,
    **more: Any,
) -> LoadedSettings:
    """Settings of this run, with logging set up. ``more`` maps dotted keys, with ``__`` for the dots, to values."""
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise click.UsageError(f"--set wants KEY=VALUE, not {assignment!r}")
        overrides[key.strip()] = value
    overrides |= {key.replace("__", "."): value for key, value in more.items() if value is not None}
    named = {
        "model.default": model,
        "model.provider": provider,
        "model.base_url": base_url,
        "logging.level": log_level,
        "logging.format": log_format,
        "logging.destination": log_to,
    }
    overrides |= {key: value for key, value in named.items() if value is not None}
    return load_with(overrides, home)
