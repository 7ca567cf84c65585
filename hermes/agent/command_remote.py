"""Dangerous patterns that reach out: downloads that are run, decoded code, uploads of secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.agent.command_inline import is_interpreter
from hermes.agent.command_targets import Scene, is_credential_file
from hermes.agent.command_views import SHELLS, CommandView, reads_stdin
from hermes.agent.shell_words import SimpleCommand, read_pipelines
from hermes.patterns import lazy_pattern

_DOWNLOADERS = frozenset({"curl", "wget", "fetch", "aria2c", "http", "https", "lynx", "xh"})
_UPLOADERS = frozenset(
    {"curl", "wget", "nc", "ncat", "netcat", "socat", "ftp", "sftp", "http", "https", "telnet", "openssl"}
)
_METADATA = lazy_pattern(
    r"169\.254\.169\.254|metadata\.google\.internal|100\.100\.100\.200|fd00:ec2::254|0xa9fea9fe|2852039166", re.I
)


def _runs_code(command: SimpleCommand) -> bool:
    return command.name in SHELLS or is_interpreter(command.name)


def _is_download(command: SimpleCommand) -> bool:
    return command.name in _DOWNLOADERS or any(word.text in _DOWNLOADERS for word in command.words[:4])


def _decodes(command: SimpleCommand) -> bool:
    args = command.args
    match command.name:
        case "base64" | "base32" | "gbase64" | "basenc":
            return any(arg in ("--decode", "-D") or re.fullmatch(r"-[a-z]*d[a-z]*", arg) for arg in args)
        case "xxd":
            return any(re.match(r"-[a-z]*r", arg) for arg in args)
        case "openssl":
            return "-d" in args or "-base64" in args
        case "tr" | "rev" | "uudecode" | "hexdump":
            return True
        case "gunzip" | "zcat" | "bunzip2" | "xzcat":
            return False
    return False


def _downloads_in(texts: tuple[str, ...]) -> bool:
    return any(_is_download(command) for text in texts for pipe in read_pipelines(text) for command in pipe.commands)


def _decodes_in(texts: tuple[str, ...]) -> bool:
    return any(_decodes(command) for text in texts for pipe in read_pipelines(text) for command in pipe.commands)


def _consumes(view: CommandView) -> bool:
    """The command runs as code what it is given through a pipe or a substitution."""
    return _runs_code(view.command) or view.name in ("eval", "source", ".", "exec")


def _runs_download(view: CommandView, _scene: Scene) -> bool:
    if _runs_code(view.command) and reads_stdin(view.command) and any(map(_is_download, view.before)):
        return True
    if not view.command.substitutions:
        return False
    inside = _downloads_in(view.command.substitutions)
    return inside and (_consumes(view) or view.command.words[0].text.startswith("$("))


def _runs_decoded(view: CommandView, _scene: Scene) -> bool:
    if _runs_code(view.command) and reads_stdin(view.command) and any(map(_decodes, view.before)):
        return True
    if not view.command.substitutions:
        return False
    return _decodes_in(view.command.substitutions) and (_consumes(view) or view.command.words[0].text.startswith("$("))


def brings_code(view: CommandView) -> str | None:
    """The key under which running a file asks that this command has written; None if it writes nothing foreign."""
    sources = (view.command, *view.before)
    if any(map(_is_download, sources)):
        return "run a download"
    return "decoded content piped to a shell" if any(map(_decodes, sources)) else None


def _reads_credentials(command: SimpleCommand) -> bool:
    words = [*command.args, *(redirect.target.text for redirect in command.redirects if not redirect.writes)]
    return any(is_credential_file(word) for word in words)


def _uploads_credentials(view: CommandView, _scene: Scene) -> bool:
    if view.name in _UPLOADERS and (any(map(_reads_credentials, view.before)) or _fed_credentials(view)):
        return True
    if view.name == "curl":
        values = [arg.partition("@")[2].split(";")[0] for arg in view.args if "@" in arg]
        pairs = zip(view.args, view.args[1:], strict=False)
        values += [value for name, value in pairs if name in ("-T", "--upload-file")]
        return any(is_credential_file(value) for value in values if value)
    if view.name == "wget":
        return any(
            is_credential_file(arg.partition("=")[2])
            for arg in view.args
            if arg.startswith(("--post-file=", "--body-file="))
        )
    if view.name in ("scp", "rsync", "rclone"):
        operands = view.operands
        remote = bool(operands) and ":" in operands[-1]
        return remote and any(is_credential_file(path) for path in operands[:-1])
    return False


def _fed_credentials(view: CommandView) -> bool:
    feeds = any(r.op == "<" and is_credential_file(r.target.text) for r in view.command.redirects)
    inner = any(
        _reads_credentials(c)
        for text in view.command.substitutions
        for pipe in read_pipelines(text)
        for c in pipe.commands
    )
    return feeds or inner


def _asks_metadata(view: CommandView, _scene: Scene) -> bool:
    reaching = view.name in _DOWNLOADERS or view.name in _UPLOADERS or is_interpreter(view.name)
    return reaching and any(_METADATA.search(arg) for arg in view.args)


REMOTE_RULES: tuple[tuple[str, Callable[[CommandView, Scene], bool]], ...] = (
    ("run a download", _runs_download),
    ("decoded content piped to a shell", _runs_decoded),
    ("upload of a credential file", _uploads_credentials),
    ("cloud metadata address", _asks_metadata),
)
