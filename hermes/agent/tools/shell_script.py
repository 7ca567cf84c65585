"""The wrapper around each shell command: it runs the text in a fresh shell and records where the shell ended up.

Directory and exported variables go to a side file, never to the visible output. The text is evaluated as it is, so that
its exit code, its ``exit`` and its syntax errors are its own. Pure; the side file is read by the caller.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hermes.records import dataclass

_END = "hermes-end"

# $1 is the command, $2 the side file. The trap also runs when the command says `exit`.
_RECORD = (
    "__hermes_state=$2; __hermes_command=$1; shift $#; "
    "__hermes_record() { { printf '%s\\0' \"$PWD\"; command env -0; printf '" + _END + "\\0'; } "
    '>"$__hermes_state" 2>/dev/null; }; '
    "trap __hermes_record EXIT; "
)
_PLAIN = "__hermes_command=$1; shift $#; "
# The password comes in on standard input and stays in a variable that is not exported; `sudo -v` checks it, then the
# command runs without a password, so that its own standard input is its own.
_SUDO = (
    "IFS= read -r __hermes_sudo; exec </dev/null; "
    "sudo() { printf '%s\\n' \"$__hermes_sudo\" | command sudo -S -p '' -v && command sudo -n \"$@\"; }; "
)
_RUN = 'eval "$__hermes_command"'


@dataclass(frozen=True, slots=True)
class ShellState:
    """Where a shell ended: its directory, and its exported variables if all of them were recorded."""

    cwd: str
    environment: dict[str, str] | None


def shell_argv(
    shell: str, command: str, state_file: str | None, *, init_files: Sequence[str] = (), with_sudo: bool = False
) -> tuple[str, ...]:
    """The argv that runs ``command``. Without ``state_file`` nothing is recorded."""
    init = "".join(f"[ -r {shlex.quote(path)} ] && . {shlex.quote(path)} >/dev/null; " for path in init_files)
    script = (_PLAIN if state_file is None else _RECORD) + (_SUDO if with_sudo else "") + init + _RUN
    return (shell, "-c", script, "bash", command, *(() if state_file is None else (state_file,)))


def read_state(raw: bytes) -> ShellState | None:
    """The state in a side file; None if the shell recorded none (it was killed, or replaced itself)."""
    parts = raw.decode("utf-8", "surrogateescape").split("\0")
    if not parts[0].startswith("/"):
        return None
    entries = parts[1:]
    if _END not in entries:
        return ShellState(parts[0], None)
    entries = entries[: entries.index(_END)]
    pairs = (entry.partition("=") for entry in entries if "=" in entry)
    environment = {name: value for name, _, value in pairs if _printable(name) and _printable(value)}
    return ShellState(parts[0], environment or None)


def _printable(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
