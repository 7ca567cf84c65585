"""The reference page of the command line, made from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import click

from hermes.cli.root import COMMANDS, hermes

INTRODUCTION: Final = """# Command line

<!-- Made by `make docs` (`hermes schema cli`); changes here are overwritten. -->

`hermes` without a command, or with options of its own, is `hermes chat`. Every command has `--help`. Exit codes: 0
done, 1 failed, 2 used or configured wrongly, 130 interrupted; `hermes -p` has more, see [chat](#hermes-chat). Output
that is not a terminal's is without colours, and lists are tab-separated lines without a heading.
"""


def markdown() -> str:
    parts = [INTRODUCTION]
    for path, command in commands():
        parts.append("\n".join(_section(path, command)))
    return "\n".join(parts)


def schema() -> Any:
    """For ``--format json``: the options of each command."""
    return {
        " ".join(path): {
            "help": command.get_short_help_str(200),
            "parameters": [
                {"name": parameter.name, "options": list(parameter.opts), "kind": parameter.param_type_name}
                for parameter in command.params
            ],
        }
        for path, command in commands()
    }


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path, groups before what is in them."""
    yield ("hermes",), hermes
    for name in COMMANDS:
        command = import_module(f"hermes.cli.{COMMANDS[name][0]}").command
        yield ("hermes", name), command
        if isinstance(command, click.Group):
            for sub, below in command.commands.items():
                yield ("hermes", name, sub), below


def _section(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    yield f"{'#' * min(len(path) + 1, 3)} `{' '.join(path)}`"
    yield ""
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    yield text or "No description."
    yield ""
    arguments = [
        item.make_metavar(click.Context(command)) for item in command.params if item.param_type_name == "argument"
    ]
    if arguments:
        yield f"Arguments: `{' '.join(arguments)}`"
        yield ""
    options = [item for item in command.params if isinstance(item, click.Option) and not item.hidden]
    if options:
        yield "| Option | Meaning |"
        yield "| --- | --- |"
        for option in options:
            yield f"| {_names(option)} | {_cell(option.help or '')}{_default(option)} |"
        yield ""


def _names(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names} `{_cell(_metavar(option))}`"


def _metavar(parameter: click.Parameter) -> str:
    if parameter.metavar is not None:
        return parameter.metavar
    if isinstance(parameter.type, click.Choice):
        return "|".join(str(choice) for choice in parameter.type.choices)
    if isinstance(parameter, click.Argument):
        name = (parameter.name or "").upper()
        return name if parameter.required else f"[{name}]"
    return parameter.type.name.upper().replace(" RANGE", "")


def _default(option: click.Option) -> str:
    shown = option.show_default and not option.is_flag and option.default is not None
    return f" Default: `{option.default}`." if shown else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
