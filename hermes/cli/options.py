"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hermes.config import LoadedSettings, load_settings, make_home
from hermes.logs import LogOptions, set_up_logging

Command = TypeVar("Command", bound=Callable[..., Any])

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
    loaded = load_settings(overrides, home=home.absolute() if home is not None else None)
    make_home(loaded.home)
    start_logging(loaded)
    return loaded


def start_logging(loaded: LoadedSettings) -> None:
    chosen = loaded.settings.logging
    set_up_logging(
        LogOptions(
            level=chosen.level,
            json=chosen.format == "json",
            to_files=chosen.destination == "file",
            directory=loaded.home / "logs",
            max_bytes=int(chosen.max_size_mb * 1_000_000),
            backups=chosen.backup_count,
        ),
        redaction(loaded),
        # A copy: a stdio server gives descriptor 1, and with it stray prints, to standard error later.
        stderr=os.dup(2),
    )
    for warning in loaded.warnings:
        logging.getLogger("hermes.config").warning("%s", warning)


def redaction(loaded: LoadedSettings) -> Callable[[str], str]:
    """Masks the exact secrets this process knows. Shapes of other secrets are the business of whoever logs text."""
    if not loaded.settings.security.redact_secrets:
        return lambda text: text
    settings = loaded.settings
    given = [settings.model.api_key, settings.delegation.api_key, settings.gateway.api_server.key]
    given += [value for name, value in loaded.credentials.items() if not name.endswith("_BASE_URL")]
    given += [str(endpoint.get("api_key", "")) for endpoint in settings.providers.values()]
    # The longest first, so that a key that holds another one leaves no rest.
    secrets = sorted({secret for secret in given if len(secret) >= 8}, key=len, reverse=True)

    def redact(text: str) -> str:
        for secret in secrets:
            if secret in text:
                text = text.replace(secret, "***")
        return text

    return redact
