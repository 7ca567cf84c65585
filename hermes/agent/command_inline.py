"""Program text on a command line: ``python -c``, ``perl -e``, ``awk``. What it deletes, whom it calls. Pure.

The text is searched, not parsed: a word in a comment counts, a name built at run time does not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from hermes.agent.command_text import fed_texts
from hermes.agent.shell_words import SimpleCommand
from hermes.patterns import lazy_pattern

_INTERPRETER = lazy_pattern(
    r"(python|pypy)[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node|nodejs|deno|bun|php[0-9.]*|lua[0-9.]*|osascript|tclsh"
    r"|[gmn]?awk"
)
_CODE_OPTION = lazy_pattern(r"-[a-zA-Z]*[ceEr]|--eval|--print|-p|-pe|eval")
_MOST_CODE = 20_000

_RUNS_SHELL = lazy_pattern(
    r"\b(system|popen\d?|exec\w*|spawn\w*|Popen|run|call|check_output|check_call|getoutput|shell_exec|passthru)\b|`|%x|qx",
    re.I,
)
_LITERAL = lazy_pattern(r"'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|`([^`\n]*)`")
_LIST = lazy_pattern(r"\[[^\[\]]{1,2000}\]")

DELETES = lazy_pattern(
    r"\brmtree\b|\bremove_tree\b|\bos\.(remove|unlink|rmdir|removedirs)\b|\.(unlink|rmdir)\(|\b(rm|rmdir|unlink)Sync\b"
    r"|\bfs\.(promises\.)?(rm|unlink|rmdir)\b|\bFileUtils\.(rm|remove)|\b(File|Dir)\.(delete|unlink|rmdir)\b"
    r"|\b(unlink|rmdir)\s*[($\"']|\bDeno\.remove|\bos\.remove\b"
)
CALLS_OUT = lazy_pattern(
    r"\burlopen\b|\burllib(\.request|2|3)\b|\brequests\.|\bhttpx\b|\baiohttp\b|\bhttp\.client\b|\bsocket\b|\bfetch\(|\bNet::|\bLWP\b"
    r"|\bIO::Socket\b|\bopen-uri\b|\bhttps?\.(get|request)\(|\bsmtplib\b|\bparamiko\b|\bftplib\b|\bfsockopen\b|\bcurl_\w+\("
    r"|/inet/"
)


def is_interpreter(name: str) -> bool:
    return _INTERPRETER.fullmatch(name) is not None


def inline_code(command: SimpleCommand, before: Sequence[SimpleCommand], from_stdin: bool) -> str:
    """The program text that stands in the command itself, or ""."""
    if not is_interpreter(command.name):
        return ""
    args = command.args
    if command.name.endswith("awk"):
        return "\n".join(arg for arg in args if not arg.startswith("-"))[:_MOST_CODE]
    pairs = itertools.pairwise(args)
    parts = [text for option, text in pairs if _CODE_OPTION.fullmatch(option)]
    if not parts and from_stdin:
        parts = list(fed_texts(command, before))
    return "\n".join(parts)[:_MOST_CODE]


def shell_texts(code: str) -> Iterator[str]:
    """What a program text would give to a shell: its literals, if it calls anything that runs commands."""
    if not _RUNS_SHELL.search(code):
        return
    for match in _LITERAL.finditer(code):
        yield next(text for text in match.groups("") if text) if any(match.groups()) else ""
    for match in _LIST.finditer(code):
        yield " ".join(text for literal in _LITERAL.finditer(match[0]) for text in literal.groups() if text)
