"""``hermes completion``: what a shell needs to complete our commands and options."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

VARIABLE: Final = "_HERMES_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, /, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(hermes completion bash)"     in ~/.bashrc
    zsh:   eval "$(hermes completion zsh)"      in ~/.zshrc
    fish:  hermes completion fish > ~/.config/fish/completions/hermes.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "hermes", VARIABLE).source())
