"""The wrapper around each shell command: it runs the text in a fresh shell and records where the shell ended up.

Directory and exported variables go to a side file, never to the visible output. The text is evaluated as it is, so that
its exit code, its ``exit`` and its syntax errors are its own. Pure; the side file is read by the caller.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_END = "hermes-end"
_END_OF_EXPORTS = "hermes-exports-end"

# $1 is the command, $2 the side file. The trap also runs when the command says `exit`. Bash lists its variables by
# itself; another process (`env`) takes longer than most commands. It is needed where functions are exported, which
# that list leaves out, and in other shells, whose lists look different.
_RECORD = (
    "__hermes_state=$2; __hermes_command=$1; shift $#; "
    '__hermes_record() { { [ -z "$BASH_VERSION" ] || builtin declare -Fx; } >"$__hermes_state" 2>/dev/null; '
    'if [ -n "$BASH_VERSION" ] && ! [ -s "$__hermes_state" ]; '
    f"then {{ printf '%s\\0' \"$PWD\"; builtin export -p; printf '{_END_OF_EXPORTS}\\0'; }} "
    '>"$__hermes_state" 2>/dev/null; '
    f"else {{ printf '%s\\0' \"$PWD\"; command env -0; printf '{_END}\\0'; }} "
    '>"$__hermes_state" 2>/dev/null; fi; }; '
    "trap __hermes_record EXIT; "
)
_PLAIN = "__hermes_command=$1; shift $#; "
# The password comes in on standard input and stays in a variable that is not exported; `sudo -v` checks it, then the
# command runs without a password, so that its own standard input is its own.
_SUDO = (
    "IFS= read -r __hermes_sudo; "
    "sudo() { printf '%s\\n' \"$__hermes_sudo\" | command sudo -S -p '' -v && command sudo -n \"$@\"; }; "
)
_NO_INPUT = "exec </dev/null; "
_RUN = 'eval "$__hermes_command"'


@dataclass(frozen=True, slots=True)
class ShellState:
    """Where a shell ended: its directory, and its exported variables if all of them were recorded."""

    cwd: str
    environment: dict[str, str] | None


def shell_argv(
    shell: str,
    command: str,
    state_file: str | None,
    *,
    init_files: Sequence[str] = (),
    with_sudo: bool = False,
    keeps_input: bool = False,
) -> tuple[str, ...]:
    """The argv that runs ``command``. Without ``state_file`` nothing is recorded.

    ``with_sudo``: the first line of the input is the password. ``keeps_input``: what comes after it is the command's.
    """
    sudo = _SUDO + ("" if keeps_input else _NO_INPUT) if with_sudo else ""
    init = "".join(f"[ -r {shlex.quote(path)} ] && . {shlex.quote(path)} >/dev/null; " for path in init_files)
    script = (_PLAIN if state_file is None else _RECORD) + sudo + init + _RUN
    return (shell, "-c", script, "bash", command, *(() if state_file is None else (state_file,)))


def read_state(raw: bytes) -> ShellState | None:
    """The state in a side file; None if the shell recorded none (it was killed, or replaced itself)."""
    parts = raw.decode("utf-8", "surrogateescape").split("\0")
    if not parts[0].startswith("/"):
        return None
    entries = parts[1:]
    if entries and entries[0].endswith(_END_OF_EXPORTS):
        return ShellState(parts[0], _exports(entries[0].removesuffix(_END_OF_EXPORTS)))
    if _END not in entries:
        return ShellState(parts[0], None)
    entries = entries[: entries.index(_END)]
    pairs = (entry.partition("=") for entry in entries if "=" in entry)
    environment = {name: value for name, _, value in pairs if _printable(name) and _printable(value)}
    return ShellState(parts[0], environment or None)


def _printable(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


# --- `export -p` as bash writes it -----------------------------------------------------------------------------------

_EXPORT = lazy_pattern(
    r"(?:declare -\w+|export(?: -\w+)?) ([A-Za-z_]\w*)(=)?"
    r"""(?:"((?:[^"\\]|\\.)*)"|\$'((?:[^'\\]|\\.)*)'|(\(.*?\)))?\n""",
    re.DOTALL,
)
_ESCAPED_IN_DOUBLE_QUOTES = lazy_pattern(r"""\\([$`"\\\n])""")
_ESCAPED_IN_ANSI_QUOTES = lazy_pattern(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ANSI_NAMES: dict[str, str] = {
    "a": "\a",
    "b": "\b",
    "E": "\x1b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


def _exports(listing: str) -> dict[str, str] | None:
    """The variables of the listing; None if it holds anything that is not understood. Arrays are not exported."""
    found: dict[str, str] = {}
    at = 0
    while at < len(listing):
        match = _EXPORT.match(listing, at)
        if match is None:
            return None
        at = match.end()
        name, given, plain, ansi, array = match.groups()
        if given is None or array is not None:
            continue
        value = _from_ansi(ansi) if ansi is not None else _ESCAPED_IN_DOUBLE_QUOTES.sub(r"\1", plain or "")
        if _printable(value):
            found[name] = value
    return found or None


def _from_ansi(text: str) -> str:
    """The inside of ``$'…'``. Octal numbers are bytes, so that a character may be written as several of them."""

    def plain(match: re.Match[str]) -> str:
        word = match[1]
        return chr(0xDC00 + int(word, 8)) if word[0] in "01234567" else _ANSI_NAMES.get(word, word)

    # Bytes that are no text stand for themselves (surrogateescape), and so do the numbers until here.
    marked = _ESCAPED_IN_ANSI_QUOTES.sub(plain, text)
    data = bytearray()
    for char in marked:
        data += bytes([ord(char) - 0xDC00]) if 0xDC00 <= ord(char) <= 0xDCFF else char.encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "surrogateescape")
