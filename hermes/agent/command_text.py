"""Literal text that reaches a shell by a detour: through a pipe, a here-document, a substitution, an argument. Pure.

``echo 'rm -rf x' | cat | sh`` and ``at now <<< 'rm -rf x'`` run what they say. Only text that stands in the command
itself is found; what a file or another program would say is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hermes.agent.shell_words import SimpleCommand, unescape

_SHELL_OPTIONS_WITH_VALUE = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_PASSING = frozenset({"cat", "tee", "head", "tail", "sort", "uniq", "sponge", "pv", "xargs"})
_ECHO_OPTION = re.compile(r"-[neE]+")
_FORMAT = re.compile(r"%(%|[-0-9.]*[bsdiq])")


def script_argument(command: SimpleCommand) -> str | None:
    """The text after ``-c`` of a shell or of ``su``, or None."""
    args = command.args
    at = 0
    while at < len(args) - 1:
        arg = args[at]
        if arg == "--command" or re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", arg):
            # Options may stand between -c and its text.
            return next((text for text in args[at + 1 :] if not text.startswith(("-", "+"))), None)
        if arg in _SHELL_OPTIONS_WITH_VALUE:
            at += 1
        elif not arg.startswith(("-", "+")) and command.name not in ("su", "runuser"):
            return None
        at += 1
    return None


def fed_texts(command: SimpleCommand, before: Sequence[SimpleCommand]) -> Iterator[str]:
    """Literal text on the standard input of a command: here-documents, here-strings, ``echo … |``."""
    for redirect in command.redirects:
        if redirect.body is not None:
            yield redirect.body
    yield from said_by(before)


def said_by(commands: Sequence[SimpleCommand]) -> Iterator[str]:
    """Literal text that a pipeline writes, if its last command says or passes on such text."""
    for at in range(len(commands) - 1, -1, -1):
        source = commands[at]
        if source.name == "echo":
            yield unescape(" ".join(arg for arg in source.args if not _ECHO_OPTION.fullmatch(arg)))
            return
        if source.name == "printf":
            yield _printed([arg for arg in source.args if arg != "--"])
            return
        bodies = [redirect.body for redirect in source.redirects if redirect.body is not None]
        if source.name not in _PASSING:
            return
        if bodies:
            yield from bodies
            return


def _printed(args: Sequence[str]) -> str:
    """What ``printf`` makes of its arguments; the format is used again while there are some left."""
    if not args:
        return ""
    form, values = unescape(args[0]), list(args[1:])
    parts: list[str] = []
    while True:
        left = len(values)
        parts.append(_FORMAT.sub(lambda match: "%" if match[1] == "%" else values.pop(0) if values else "", form))
        if not values or len(values) == left:
            return "".join(parts)


def texts_in_arguments(command: SimpleCommand, before: Sequence[SimpleCommand]) -> Iterator[str]:
    """Words of a command that it gives to a shell."""
    args = command.args
    match command.name:
        case "eval":
            yield " ".join(args)
        case "trap":
            yield from (arg for arg in args if not arg.startswith("-"))
        case "alias":
            yield from (arg.partition("=")[2] for arg in args if "=" in arg)
        case "ssh":
            yield " ".join(_after_ssh_host(args))
        case "script":
            yield script_argument(command) or ""
        case "at" | "batch" | "crontab":
            for text in fed_texts(command, before):
                yield text
                # The five fields of a crontab line.
                yield re.sub(r"(?m)^\s*(\S+\s+){5}", "", text)
        case "tmux" | "expect" | "vim" | "vi" | "nvim" | "entr":
            yield from (re.sub(r"^(:|!|spawn )+", "", arg) for arg in args if " " in arg)


def _after_ssh_host(args: tuple[str, ...]) -> tuple[str, ...]:
    valued = ("-i", "-p", "-l", "-o", "-F", "-J", "-L", "-R", "-D", "-b", "-c", "-e", "-m", "-S", "-W")
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in valued else 1
    return args[at + 1 :]
