"""``hermes fake-provider``: a scripted model for tests of hosts and clients."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click


@click.command("fake-provider")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; 0: any free one.")
@click.option(
    "--script", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="What the model says (YAML or JSON)."
)
@click.option("--strict", is_flag=True, help="Refuse malformed histories.")
def command(host: str, port: int, script: Path | None, strict: bool) -> None:
    """Serve a scripted model until interrupted; without a script it echoes."""
    import trio

    from hermes.testing.fake_provider import run
    from hermes.testing.script import ScriptError

    try:
        trio.run(partial(run, script, host, port, report=click.echo, strict=strict))
    except (OSError, ScriptError) as error:
        raise click.ClickException(str(error)) from error
