"""What a shell text would really run: every simple command in it, with wrappers taken off.

``sudo env A=1 nohup sh -c 'rm -rf x'`` is seen as ``sudo``, ``env``, ``nohup``, ``sh`` and ``rm -rf x``. Commands in
substitutions, in ``find -exec``, behind ``xargs``, in ``eval`` and in text piped or fed to a shell are found too.
Quoted words that are only data stay words of their command.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from hermes.agent.command_inline import inline_code, is_interpreter, shell_texts
from hermes.agent.command_text import fed_texts, said_by, script_argument, texts_in_arguments
from hermes.agent.command_wrappers import behind_wrapper
from hermes.agent.shell_words import Pipeline, SimpleCommand, TooMuchText, Word, read_pipelines
from hermes.records import dataclass

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "csh", "tcsh"})
_MAX_DEPTH = 12
_MAX_VIEWS = 1000
_MAX_WORDS = 20_000
"""Of all views together: a command that holds commands that hold commands repeats its words in each of them."""


@dataclass(frozen=True, slots=True)
class CommandView:
    """One simple command in its surroundings.

    ``before`` are the commands whose output is piped into it, ``via`` the wrappers around it. ``directory`` is where an
    earlier literal ``cd`` of the same text has gone, or "".
    """

    command: SimpleCommand
    before: tuple[SimpleCommand, ...] = ()
    via: tuple[str, ...] = ()
    directory: str = ""

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def args(self) -> tuple[str, ...]:
        return self.command.args

    @property
    def operands(self) -> tuple[str, ...]:
        """Arguments that are not options."""
        args = self.args
        if "--" in args:
            cut = args.index("--")
            return tuple(arg for arg in args[:cut] if not arg.startswith("-")) + args[cut + 1 :]
        return tuple(arg for arg in args if not arg.startswith("-") or arg == "-")

    @property
    def flags(self) -> frozenset[str]:
        """Single letters of short options (combined ones taken apart) and whole long options without values."""
        found: set[str] = set()
        for arg in self.args:
            if arg == "--":
                break
            if arg.startswith("--"):
                found.add(arg.partition("=")[0])
            elif arg.startswith("-"):
                found.update(arg[1:])
        return frozenset(found)

    def resolve(self, path: str) -> str:
        """``path`` without dots, joined to the directory of an earlier ``cd``."""
        if self.directory and not path.startswith(("/", "~")):
            path = f"{self.directory}/{path}"
        return clean_path(path)


def clean_path(path: str) -> str:
    """A path without double slashes, dots and a trailing slash; ``~`` stays."""
    if not path:
        return path
    cleaned = posixpath.normpath(path)
    return "/" + cleaned.lstrip("/") if cleaned.startswith("//") else cleaned


def is_recursive(view: CommandView) -> bool:
    """An option says so; a long option may be cut short, as far as GNU programs understand it."""
    return bool(view.flags & {"r", "R"}) or any(
        len(flag) > 2 and "--recursive".startswith(flag) for flag in view.flags if flag.startswith("--")
    )


class _TooDeep(Exception):
    """There are commands further inside than is looked."""


def views_of(text: str) -> tuple[CommandView, ...]:
    """Every command view of a shell text that ``look_through`` finds, outer ones first."""
    return look_through(text)[0]


def look_through(text: str) -> tuple[tuple[CommandView, ...], bool]:
    """The views of a shell text, outer ones first, and whether they are all of it. Bounded, whatever the text.

    Whoever judges a text by its views must not let pass what was not seen.
    """
    found: list[CommandView] = []
    words = 0
    try:
        for view in _walk_text(text, 0, ()):
            found.append(view)
            words += len(view.command.words)
            if len(found) > _MAX_VIEWS or words > _MAX_WORDS:
                return tuple(found), False
    except (_TooDeep, TooMuchText):
        return tuple(found), False
    return tuple(found), True


def _walk_text(text: str, depth: int, via: tuple[str, ...]) -> Iterator[CommandView]:
    if depth > _MAX_DEPTH:
        raise _TooDeep
    directory = ""
    for pipeline in read_pipelines(text):
        yield from _walk_pipeline(pipeline, depth, via, directory)
        directory = _after_cd(pipeline, directory)


def _after_cd(pipeline: Pipeline, directory: str) -> str:
    first = pipeline.commands[0]
    if len(pipeline.commands) != 1 or first.name not in ("cd", "pushd"):
        return directory
    if not first.args:
        return "~"
    target = first.args[-1]
    return target if target.startswith(("/", "~")) or not directory else f"{directory}/{target}"


def _walk_pipeline(pipeline: Pipeline, depth: int, via: tuple[str, ...], directory: str) -> Iterator[CommandView]:
    for index, command in enumerate(pipeline.commands):
        before = pipeline.commands[:index]
        yield from _walk_command(CommandView(command, before, via, directory), depth)
        for inner in command.substitutions:
            yield from _walk_text(inner, depth + 1, (*via, "substitution"))


def _walk_command(view: CommandView, depth: int) -> Iterator[CommandView]:
    if depth > _MAX_DEPTH:
        raise _TooDeep
    yield view
    if not view.command.words:
        return
    inner = unwrap(view)
    if inner is not None:
        yield from _walk_command(inner, depth + 1)
        return
    for text in _inner_texts(view):
        yield from _walk_text(text, depth + 1, (*view.via, view.name))
    for words in _find_actions(view):
        yield from _walk_command(replace(view, command=SimpleCommand(words), via=(*view.via, "find")), depth + 1)


def unwrap(view: CommandView) -> CommandView | None:
    """The command behind one wrapper, or None if this is no wrapper (or wraps nothing)."""
    rest = behind_wrapper(view.command)
    if not rest:
        return None
    if view.name == "xargs":
        rest = (*rest, *(Word(word) for text in fed_texts(view.command, view.before) for word in text.split()))
    command = replace(view.command, words=rest, substitutions=())
    return replace(view, command=command, via=(*view.via, view.name))


def reads_stdin(command: SimpleCommand) -> bool:
    """True if a shell or interpreter takes its program from standard input."""
    args = command.args
    if command.name in SHELLS and script_argument(command) is not None:
        return False
    rest = [arg for arg in args if arg not in ("-", "-s", "/dev/stdin")]
    if "-s" in args or "-" in args or "/dev/stdin" in args:
        return True
    return all(
        arg.startswith("-") and not re.fullmatch(r"-[a-zA-Z]*[cemM]|--eval|--print|-p|--version|--help", arg)
        for arg in rest
    )


def _inner_texts(view: CommandView) -> Iterator[str]:
    """The texts in this command that a shell reads as commands again."""
    command = view.command
    if view.name in SHELLS or view.name in ("su", "runuser"):
        script = script_argument(command)
        if script is not None:
            yield script
        elif reads_stdin(command):
            yield from fed_texts(command, view.before)
    elif view.name in ("source", ".") and "/dev/stdin" in view.args:
        yield from fed_texts(command, view.before)
    else:
        yield from texts_in_arguments(command, view.before)
    if is_interpreter(view.name):
        yield from shell_texts(inline_code(command, view.before, reads_stdin(command)))
    if command.words[0].text.startswith(("$(", "`")):
        # What the substitution says is the command, and the words after it are its arguments.
        behind = " ".join(view.args)
        yield from (f"{said} {behind}" for said in _said_in(command))
    elif view.name in SHELLS | {"source", "."} and any(arg.startswith("<(") for arg in view.args):
        yield from _said_in(command)


def _said_in(command: SimpleCommand) -> Iterator[str]:
    for inner in command.substitutions:
        for pipeline in read_pipelines(inner):
            yield from said_by(pipeline.commands)


def _find_actions(view: CommandView) -> Iterator[tuple[Word, ...]]:
    if view.name not in ("find", "fd", "fdfind"):
        return
    words = view.command.words
    starts = ("-exec", "-execdir", "-ok", "-okdir") if view.name == "find" else ("-x", "-X", "--exec", "--exec-batch")
    for index, word in enumerate(words):
        if word.text in starts:
            tail = words[index + 1 :]
            end = next((at for at, item in enumerate(tail) if item.text in (";", "+")), len(tail))
            if end:
                yield tail[:end]
