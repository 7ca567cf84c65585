"""``hermes runs``: what the home's running server does at the moment, and how to stop it."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

import click

from hermes.cli.options import load, shared_options
from hermes.cli.running_server import RunningServer, server_of
from hermes.cli.tables import print_table

COLUMNS: Final = ("run", "status", "session", "model", "last event")


@click.group("runs")
def command() -> None:
    """List, look at and stop the runs of this home's running server."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@shared_options
def list_(as_json: bool, **shared: Any) -> None:
    """List the runs that have not ended."""
    runs = _server(shared).request("GET", "/api/runs").get("data") or []
    if as_json:
        click.echo(json.dumps(runs, indent=2, ensure_ascii=False))
        return
    rows = [
        (run.get("run_id"), run.get("status"), run.get("session_id"), run.get("model"), run.get("last_event"))
        for run in runs
    ]
    print_table(COLUMNS, rows)


@command.command("status")
@click.argument("run_id", metavar="RUN")
@shared_options
def status(run_id: str, **shared: Any) -> None:
    """Print the status of a run as JSON."""
    answer = _server(shared).request("GET", f"/v1/runs/{quote(run_id, safe='')}")
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


@command.command("stop")
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@click.option("--reason", help="Told in the run's last event and kept with it.")
@shared_options
def stop(run_ids: tuple[str, ...], reason: str | None, **shared: Any) -> None:
    """Stop runs, with everything below them. One that cannot be stopped keeps none of the others running."""
    server = _server(shared)
    failed = False
    for run_id in run_ids:
        body = {"reason": reason} if reason else {}
        try:
            answer = server.request("POST", f"/v1/runs/{quote(run_id, safe='')}/stop", body)
        except click.ClickException as error:
            failed = True
            click.echo(f"{run_id}: {error.message}", err=True)
        else:
            click.echo(f"{run_id}: {answer.get('status', 'stopping')}")
    if failed:
        raise click.exceptions.Exit(1)


def _server(shared: dict[str, Any]) -> RunningServer:
    return server_of(load(**{**shared, "log_to": shared["log_to"] or "file"}))
