"""``hermes doctor``: looks at an installation and its home, says what is wrong and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from hermes.cli import doctor_checks as checks
from hermes.cli.doctor_checks import Finding, Level
from hermes.cli.tables import busy
from hermes.cli.terminal_style import Style, style_of_output
from hermes.config import home_from_environment

SIGNS: Final = {Level.OK: ("✓", "ok"), Level.WARNING: ("!", "warning"), Level.WRONG: ("✗", "WRONG")}


@click.command("doctor")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Home directory (HERMES_HOME).")
@click.option("--offline", is_flag=True, help="Do not ask the model provider.")
@click.option("--fix", is_flag=True, help="Repair what can be repaired without loss: file modes, leftover processes.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def command(ctx: click.Context, home: Path | None, offline: bool, fix: bool, as_json: bool) -> None:
    """Find out what is wrong with this installation and its home.

    Exits 1 when something is wrong, 0 when there is nothing or only warnings.
    """
    place = home.absolute() if home is not None else home_from_environment()
    style = style_of_output()
    found: list[Finding] = []
    for finding in _examine(place, offline=offline, fix=fix):
        found.append(finding)
        if not as_json:
            click.echo(_shown(finding, style))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    wrong = sum(finding.level is Level.WRONG for finding in found)
    if not as_json:
        click.echo(f"\n{wrong} wrong." if wrong else "\nNothing is wrong.")
    ctx.exit(1 if wrong else 0)


def _examine(home: Path, *, offline: bool, fix: bool) -> Iterator[Finding]:
    """What is cheap first. Without settings that can be read, only what needs none."""
    yield from checks.installation()
    yield from checks.home_directory(home, fix=fix)
    loaded, findings = checks.configuration(home)
    yield from findings
    yield from checks.file_modes(home, fix=fix)
    with busy("Checking the database …"):
        findings = list(checks.database(home))
    yield from findings
    yield from checks.leftovers(home, fix=fix)
    if loaded is None:
        return
    yield from checks.server_key(loaded)
    yield from checks.port(loaded)
    with busy("Asking the model provider …"):
        findings = list(checks.provider(loaded, offline=offline))
    yield from findings


def _shown(finding: Finding, style: Style) -> str:
    fine, plain = SIGNS[finding.level]
    sign = style.sign(fine, plain)
    paint = {Level.OK: style.dim, Level.WARNING: style.yellow, Level.WRONG: style.red}[finding.level]
    line = f"{paint(sign)} {finding.topic}: {finding.text}"
    return f"{line}\n    {style.dim(finding.advice)}" if finding.advice else line
