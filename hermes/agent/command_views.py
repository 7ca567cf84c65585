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

from hermes.agent.shell_words import Pipeline, SimpleCommand, Word, read_pipelines
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "csh", "tcsh"})
_INTERPRETER = lazy_pattern(
    r"(python|pypy)[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node|nodejs|deno|bun|php[0-9.]*|lua[0-9.]*|osascript|tclsh"
)
_MAX_DEPTH = 12
_MAX_VIEWS = 1000
_MAX_WORDS = 20_000
"""Of all views together: a command that holds commands that hold commands repeats its words in each of them."""

# Wrappers: options that take a value of their own, and how many words stand before the command.
_WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "sudo": (
        frozenset(
            [
                "-u",
                "-g",
                "-p",
                "-C",
                "-h",
                "-r",
                "-t",
                "-T",
                "-U",
                "-D",
                "-R",
                "--user",
                "--group",
                "--prompt",
                "--chdir",
                "--host",
            ]
        ),
        0,
    ),
    "doas": (frozenset({"-u", "-C"}), 0),
    "env": (frozenset({"-u", "--unset", "-C", "--chdir"}), 0),
    "nohup": (frozenset(), 0),
    "setsid": (frozenset(), 0),
    "time": (frozenset({"-f", "-o"}), 0),
    "nice": (frozenset({"-n", "--adjustment"}), 0),
    "ionice": (frozenset({"-c", "-n"}), 0),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0),
    "timeout": (frozenset({"-k", "-s", "--kill-after", "--signal"}), 1),
    "xargs": (
        frozenset(
            [
                "-I",
                "-n",
                "-P",
                "-L",
                "-s",
                "-d",
                "-E",
                "-a",
                "--max-args",
                "--max-procs",
                "--delimiter",
                "--replace",
                "--arg-file",
            ]
        ),
        0,
    ),
    "command": (frozenset(), 0),
    "builtin": (frozenset(), 0),
    "exec": (frozenset({"-a"}), 0),
    "busybox": (frozenset(), 0),
    "toybox": (frozenset(), 0),
    "chroot": (frozenset({"--userspec", "--groups"}), 1),
    "flock": (frozenset({"-w", "-E", "--timeout"}), 1),
    "strace": (frozenset({"-o", "-e", "-p", "-s"}), 0),
    "unshare": (frozenset(), 0),
    "caffeinate": (frozenset({"-t", "-w"}), 0),
    "parallel": (frozenset({"-j", "--jobs"}), 0),
}


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


def is_interpreter(name: str) -> bool:
    return _INTERPRETER.fullmatch(name) is not None


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
    except _TooDeep:
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
    options = _WRAPPERS.get(view.name)
    if options is None:
        return None
    with_value, skip = options
    words = view.command.words[1:]
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if text.startswith("-") and len(text) > 1:
            at += 2 if text in with_value else 1
        elif re.match(r"[A-Za-z_][A-Za-z0-9_]*=", text) and view.name in ("env", "sudo", "doas"):
            at += 1
        else:
            break
    rest = words[at + skip :]
    if not rest:
        return None
    if view.name == "env" and any(word.text in ("-S", "--split-string") for word in words):
        rest = tuple(Word(piece) for word in rest for piece in word.text.split())
    command = replace(view.command, words=rest, substitutions=())
    return replace(view, command=command, via=(*view.via, view.name))


def script_argument(command: SimpleCommand) -> str | None:
    """The text after ``-c`` of a shell or of ``su``, or None."""
    args = command.args
    for index, arg in enumerate(args[:-1]):
        if arg == "--command" or re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", arg):
            return args[index + 1]
        if not arg.startswith(("-", "+")) and command.name != "su":
            return None
    return None


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
    command = view.command
    if view.name in SHELLS or view.name == "su":
        script = script_argument(command)
        if script is not None:
            yield script
        elif reads_stdin(command):
            yield from fed_text(view)
    elif view.name == "eval":
        yield " ".join(view.args)
    elif view.name == "trap" and view.operands:
        yield view.operands[0]
    elif view.name == "alias":
        yield from (arg.partition("=")[2] for arg in view.args if "=" in arg)
    elif view.name == "ssh":
        operands = _after_ssh_host(view.args)
        if operands:
            yield " ".join(operands)
    elif view.name == "script" and (text := script_argument(command)):
        yield text
    elif view.name == "watch" and view.operands:
        yield " ".join(view.operands)


def fed_text(view: CommandView) -> Iterator[str]:
    """Literal text that a command gets on its standard input: here-documents, here-strings, ``echo … |``."""
    for redirect in view.command.redirects:
        if redirect.body is not None:
            yield redirect.body
    if view.before:
        source = view.before[-1]
        if source.name in ("echo", "printf"):
            yield " ".join(arg for arg in source.args if arg not in ("-e", "-n", "-E", "%s", "%s\\n")).replace(
                "\\n", "\n"
            )
        elif source.name == "cat":
            for redirect in source.redirects:
                if redirect.body is not None:
                    yield redirect.body


def _after_ssh_host(args: tuple[str, ...]) -> tuple[str, ...]:
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += (
            2
            if args[at] in ("-i", "-p", "-l", "-o", "-F", "-J", "-L", "-R", "-D", "-b", "-c", "-e", "-m", "-S", "-W")
            else 1
        )
    return args[at + 1 :]


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
