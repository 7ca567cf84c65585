"""``hermes model``: which model is in force, which there are, and the choice of another one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from hermes.agent.provider_rows import DEMO
from hermes.agent.providers.command_keys import CommandKeys
from hermes.agent.providers.http_stream import HttpClient, ProxySettings
from hermes.agent.providers.local_model import ListedLocalModel
from hermes.agent.providers.registry import Models
from hermes.cli.options import load, shared_options
from hermes.cli.tables import busy, print_table
from hermes.config import LoadedSettings, child_environment, proxy_variables, save_setting
from hermes.errors import HermesError
from hermes.model_settings import custom_providers, fallback_specs, model_settings
from hermes.nurseries.key_commands import KeyCommands
from hermes.nurseries.process_tree import owner_tag
from hermes.nurseries.processes import ProcessSupervisor

T = TypeVar("T")
ASK_WITHIN: Final = 20.0
AUTOMATIC: Final = "chosen by the keys that are there"


@click.group("model", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show, list and choose the model. Without a command: show it."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


@command.command("show")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@shared_options
def show(as_json: bool, **shared: Any) -> None:
    """Print the model in force and where it comes from."""
    loaded = _load(shared)
    source = loaded.sources.get("model.default") or AUTOMATIC

    async def resolve(models: Models) -> dict[str, Any]:
        resolved = await models.resolve(None, None)
        return {
            "model": resolved.model,
            "provider": resolved.provider,
            "base_url": resolved.base_url,
            "context_length": resolved.context_length,
            "source": source,
        }

    facts = with_models(loaded, resolve)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        if value:
            click.echo(f"{name}: {value}")


@command.command("list")
@click.option("--refresh", is_flag=True, help="Ask the endpoints what they serve.")
@click.option("--all", "everything", is_flag=True, help="Providers without a key as well.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@shared_options
def list_(refresh: bool, everything: bool, as_json: bool, **shared: Any) -> None:
    """List the models of the providers that can be used."""
    loaded = _load(shared)
    with busy("Asking the endpoints …"):
        menu = with_models(
            loaded, lambda models: models.options(refresh=refresh, include_unconfigured=everything, explicit_only=False)
        )
    if as_json:
        click.echo(json.dumps(menu, indent=2, ensure_ascii=False))
        return
    rows = []
    for provider in menu["providers"]:
        if not provider["models"]:
            rows.append((provider["slug"], "", provider.get("warning", "")))
        for model in provider["models"]:
            chosen = provider["is_current"] and model == menu["model"]
            rows.append((provider["slug"], model, "in force" if chosen else provider.get("warning", "")))
    print_table(("provider", "model", ""), rows)


@command.command("use")
@click.argument("name", metavar="MODEL")
@click.option("--as-provider", metavar="PROVIDER", help="Its provider; default: found from the name.")
@shared_options
def use(name: str, as_provider: str | None, **shared: Any) -> None:
    """Make MODEL the default of this home, after a check that its provider serves it."""
    if not name.strip():
        raise click.UsageError("MODEL is empty")
    loaded = _load(shared)

    async def resolve(models: Models) -> tuple[str, str]:
        resolved = await models.resolve(name, as_provider)
        models.provider_for(resolved)
        return resolved.model, resolved.provider

    with busy(f"Looking for {name} …"):
        model, provider = with_models(loaded, resolve)
    if provider == DEMO and DEMO not in (name.strip(), as_provider):
        # To keep it would hold the home to the demonstration after a key has been set.
        raise click.ClickException(f"nothing is configured that could serve {name}; `hermes setup` asks for a provider")
    save_setting(loaded.home, "model.default", model)
    save_setting(loaded.home, "model.provider", provider)
    click.echo(f"{model} ({provider}) is the default now; sessions that have a model of their own keep it.")


def with_models(loaded: LoadedSettings, work: Callable[[Models], Awaitable[T]]) -> T:
    """Run ``work`` on the model registry of these settings. Raises ``click.ClickException``."""
    import trio

    async def run() -> T:
        models = Models(
            model_settings(loaded),
            loaded.credentials,
            HttpClient(proxies=ProxySettings.from_variables(proxy_variables())),
            custom=custom_providers(loaded),
            fallbacks=fallback_specs(loaded),
            local=ListedLocalModel(),
            keys=CommandKeys(_key_commands(loaded)),
        )
        try:
            with trio.fail_after(ASK_WITHIN):
                return await work(models)
        finally:
            with trio.move_on_after(1.0, shield=True):
                await models.aclose()

    try:
        return trio.run(run)
    except HermesError as error:
        raise click.ClickException(error.message) from error
    except trio.TooSlowError:
        raise click.ClickException(f"no answer within {ASK_WITHIN:g} s") from None


def _key_commands(loaded: LoadedSettings) -> KeyCommands:
    supervisor = ProcessSupervisor(owner_tag(str(loaded.home)), kill_grace=loaded.settings.limits.kill_grace)
    return KeyCommands(supervisor, lambda: child_environment(loaded.settings), str(Path.home()))


def _load(shared: dict[str, Any]) -> LoadedSettings:
    return load(**{**shared, "log_to": shared["log_to"] or "file"})
