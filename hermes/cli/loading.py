"""The settings of a run, with its home made and its log set up."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes.config import LoadedSettings, load_settings, make_home
from hermes.errors import InvalidValue
from hermes.logs import LogOptions, set_up_logging


def load_with(overrides: Mapping[str, Any], home: Path | None) -> LoadedSettings:
    """``overrides``: dotted keys of the command line. Raises ``InvalidValue``."""
    loaded = load_settings(overrides, home=home.absolute() if home is not None else None)
    make_home(loaded.home)
    try:
        start_logging(loaded)
    except OSError as error:
        raise InvalidValue(f"the log in {loaded.home} cannot be written: {error}") from error
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
    given = [settings.model.api_key, settings.gateway.api_server.key]
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
