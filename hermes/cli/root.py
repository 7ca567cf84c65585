"""The command line with all its options: a group whose commands are loaded when they are called."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

# Name → (module with the command, one line of help). The help stands here so that `hermes --help` loads none of them.
COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "chat": ("chat", "Talk to the agent in this terminal; -p asks once. What `hermes` alone does."),
        "serve": ("serve", "Serve HTTP, SSE and WebSocket on one port."),
        "gateway": ("gateway", "Speak gateway JSON-RPC on standard input and output."),
        "acp": ("acp", "Speak the Agent Client Protocol on standard input and output."),
        "rpc": ("rpc", "Call a running server's gateway."),
        "sessions": ("sessions", "List, show, search, export and delete stored sessions."),
        "runs": ("runs", "List, look at and stop what the running server does."),
        "tree": ("tree", "Show the running server's live tree; cancel a node of it."),
        "model": ("model_command", "Show, list and choose the model."),
        "setup": ("setup", "Choose provider and model, try them, and keep them."),
        "doctor": ("doctor", "Find out what is wrong with this installation and its home."),
        "config": ("config_command", "Show, read and change settings."),
        "schema": ("schema", "Print reference pages and schemas."),
        "completion": ("completion", "Print the completion script of a shell."),
        "fake-provider": ("fake_provider", "Serve a scripted model for tests."),
        "version": ("version", "Print the version."),
    }
)

MODE_ANSWER = """hermes has no --mode. It speaks three protocols:
  hermes gateway   gateway JSON-RPC, one object per line on stdin and stdout (over WebSocket: hermes serve, /api/ws)
  hermes acp       the Agent Client Protocol on stdin and stdout
  hermes serve     the OpenAI-compatible HTTP API with server-sent events"""


DEFAULT = "chat"
OWN_OPTIONS = ("-h", "--help", "--version", "--mode")

# What the Ink client starts as its gateway (HERMES_PYTHON names this command).
INK_GATEWAY = ["-m", "tui_gateway.entry"]


class LazyGroup(click.Group):
    """A group whose commands are imported by name when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"hermes.cli.{COMMANDS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        # A shell that completes gives the line as it was typed, and `hermes -p hi --dead` is a line of the chat.
        typed = with_command(args) if args and extra.get("resilient_parsing") else args
        return super().make_context(info_name, typed, parent, **extra)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        chat = self.get_command(ctx, DEFAULT)
        if incomplete.startswith("-") and chat is not None:
            with chat.make_context(DEFAULT, [], ctx, resilient_parsing=True) as its:
                known = {item.value for item in found}
                found += [item for item in chat.shell_complete(its, incomplete) if item.value not in known]
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--mode", hidden=True)
@click.option("--version", is_flag=True, help="Print the version.")
@click.pass_context
def hermes(ctx: click.Context, mode: str | None, version: bool) -> None:
    """An agent server: one process, one tree of tasks, and a stop that stops.

    Without a command: a chat in this terminal (`hermes --resume`, `hermes -p "…"`; see `hermes chat --help`).
    """
    if mode is not None:
        click.echo(MODE_ANSWER, err=True)
        ctx.exit(2)
    if version:
        ctx.invoke(import_module("hermes.cli.version").command)
        ctx.exit(0)


def with_command(arguments: Sequence[str]) -> list[str]:
    """``hermes -p …`` is ``hermes chat -p …``; only the options of the group itself need no command."""
    given = list(arguments)
    if given == INK_GATEWAY:
        return ["gateway", "--legacy-requests"]
    if not given or (given[0].startswith("-") and given[0].partition("=")[0] not in OWN_OPTIONS):
        return [DEFAULT, *given]
    return given


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code. Raises ``HermesError``."""
    try:
        code = hermes.main(with_command(arguments), prog_name="hermes", standalone_mode=False)
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return error.exit_code
    except click.Abort:
        return 130
    return code if isinstance(code, int) else 0
