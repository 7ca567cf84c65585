"""``hermes setup``, ``hermes acp --setup``: choose provider and model at a terminal, try them, keep them in the home.

Editors start this in a terminal of theirs when the agent says that it has no credentials; exit status 0 means that it
has now. The key is not shown while it is typed and lands in the home's ``.env``, readable by its owner only; nothing is
written before the choice has been tried, or the user insists.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import trio

from hermes.agent.model_catalog import curated_models, default_model
from hermes.agent.ports import DeltaKind, ModelRequest
from hermes.agent.provider_rows import PROVIDER_ROWS, ProviderRow
from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.registry import Models, ModelSettings
from hermes.cli.tables import busy
from hermes.config import LoadedSettings, make_home, save_setting
from hermes.config_file import read_dotenv, write_atomically
from hermes.errors import HermesError
from hermes.messages import Row

TRY_WITHIN: Final = 30.0
CUSTOM: Final = "custom"
NAME: Final = "hermes acp --setup"
NO_TERMINAL: Final = (
    "{name} asks questions and needs a terminal. Run it in one, or set a provider's key in the "
    "environment or in the home's .env."
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen. ``key_variable`` names where the key is kept; None: with the endpoint in the configuration."""

    provider: str
    model: str
    base_url: str = ""
    key: str = ""
    key_variable: str | None = None


def run_setup(loaded: LoadedSettings, name: str = NAME) -> int:
    """Ask, try, write. The exit status: 0 when it is written, 1 otherwise. ``name``: how the user called it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(NO_TERMINAL.format(name=name), err=True)
        return 1
    choice = ask(loaded.credentials)
    click.echo(f"Trying {choice.model} …")
    with busy("Waiting for an answer …"):
        problem = try_choice(choice, loaded.credentials)
    if problem is None:
        click.echo("It answers.")
    else:
        click.echo(f"It did not work: {problem}")
        if not click.confirm("Keep this choice anyway?", default=False):
            return 1
    write(loaded.home, choice)
    click.echo(f"Written to {loaded.home}.")
    return 0


def ask(credentials: Mapping[str, str]) -> Choice:
    rows = [row for row in PROVIDER_ROWS if row.available]
    for number, row in enumerate(rows, 1):
        there = any(credentials.get(name) for name in row.key_variables)
        click.echo(f"{number:3} {row.name}{' (a key is there)' if there else ''}")
    click.echo(f"{len(rows) + 1:3} Another endpoint that speaks the OpenAI protocol")
    number = click.prompt("Provider", type=click.IntRange(1, len(rows) + 1))
    return _ask_custom() if number > len(rows) else _ask_known(rows[number - 1], credentials)


def _ask_known(row: ProviderRow, credentials: Mapping[str, str]) -> Choice:
    base_url = ""
    if row.local:
        base_url = click.prompt("Address of the server", default=row.base_url)
        base_url = "" if base_url == row.base_url else base_url
    variable = row.key_variables[0] if row.key_variables and not row.local else None
    key = ""
    if variable is not None:
        there = any(credentials.get(name) for name in row.key_variables)
        hint = f"{variable} (not shown{', empty: keep the present one' if there else ''})"
        key = click.prompt(hint, hide_input=True, default="" if there else None, show_default=False).strip()
    models = curated_models(row.id)
    if models:
        click.echo(f"Known models: {', '.join(models[:8])}")
    model = click.prompt("Model", default=default_model(row.id) or None).strip()
    return Choice(row.id, model, base_url, key, variable)


def _ask_custom() -> Choice:
    base_url = click.prompt("Address (such as http://127.0.0.1:8080/v1)").strip()
    key = click.prompt("Key (not shown, empty: none)", hide_input=True, default="", show_default=False).strip()
    model = click.prompt("Model").strip()
    return Choice(CUSTOM, model, base_url, key)


def try_choice(choice: Choice, credentials: Mapping[str, str]) -> str | None:
    """One short call; None if it was answered, else what went wrong."""
    known = dict(credentials)
    if choice.key and choice.key_variable is not None:
        known[choice.key_variable] = choice.key
    settings = ModelSettings(
        default=choice.model,
        provider=choice.provider,
        base_url=choice.base_url or None,
        api_key=choice.key if choice.key_variable is None and choice.key else None,
    )
    try:
        return trio.run(_try, settings, known)
    except HermesError as error:
        return error.message


async def _try(settings: ModelSettings, credentials: Mapping[str, str]) -> str | None:
    client = HttpClient()
    models = Models(settings, credentials, client)
    with trio.move_on_after(TRY_WITHIN):
        resolved = await models.resolve(settings.default, settings.provider)
        request = ModelRequest("setup:api:1", resolved.model, (Row("user", "Say OK."),), max_output_tokens=64)
        await models.provider_for(resolved).call(request, _ignore)
        return None
    return f"no answer within {TRY_WITHIN:g} s"


def _ignore(_kind: DeltaKind, _text: str) -> None:
    """Only that there is an answer counts."""


def write(home: Path, choice: Choice) -> None:
    """The choice into ``config.yaml``, the key into ``.env``; both readable by their owner only."""
    make_home(home)
    save_setting(home, "model.provider", choice.provider)
    save_setting(home, "model.default", choice.model)
    save_setting(home, "model.base_url", choice.base_url or None)
    if choice.key_variable is None:
        save_setting(home, "model.api_key", choice.key or None)
    elif choice.key:
        write_variable(home / ".env", choice.key_variable, choice.key)


def write_variable(path: Path, name: str, value: str) -> None:
    """Set one variable of a ``.env`` file; its other lines stay as they are."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if line.removeprefix("export ").partition("=")[0].strip() != name]
    write_atomically(path, "\n".join([*kept, f"{name}={value}", ""]).encode(), mode=0o600)
    assert read_dotenv(path).get(name) == value
