"""Programs that run another program: which of their words are their own, and which the command behind. Pure."""

from __future__ import annotations

import re

from hermes.agent.shell_words import SimpleCommand, Word
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """``valued`` are the options that take the next word; ``skip`` words stand before the command."""

    valued: frozenset[str] = frozenset()
    skip: int = 0
    assigns: bool = False
    """``NAME=value`` words may stand before the command."""


def _wrapper(valued: str = "", skip: int = 0, *, assigns: bool = False) -> _Wrapper:
    return _Wrapper(frozenset(valued.split()), skip, assigns)


_SUDO = "-u -g -p -C -h -r -t -T -U -D -R --user --group --prompt --chdir --host"
_XARGS = "-I -n -P -L -s -d -E -a --max-args --max-procs --delimiter --replace --arg-file"
_UNIT = "-p -u -E -M -t -d --property --unit --setenv --slice --uid --gid --working-directory --description"
_SCREEN = "-S -t -c -e -h -s -T -p"

_WRAPPERS: dict[str, _Wrapper] = {
    "sudo": _wrapper(_SUDO, assigns=True),
    "doas": _wrapper("-u -C", assigns=True),
    "pkexec": _wrapper("-u --user"),
    "runuser": _wrapper("-u -g --user --group"),
    "setpriv": _wrapper("--reuid --regid --groups"),
    "env": _wrapper("-u --unset -C --chdir", assigns=True),
    "nohup": _wrapper(),
    "setsid": _wrapper(),
    "time": _wrapper("-f -o"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c -n"),
    "chrt": _wrapper("-T -P -D", 1),
    "taskset": _wrapper("", 1),
    "numactl": _wrapper("-m -N -C"),
    "stdbuf": _wrapper("-i -o -e"),
    "timeout": _wrapper("-k -s --kill-after --signal", 1),
    "watch": _wrapper("-n -q --interval"),
    "xargs": _wrapper(_XARGS),
    "command": _wrapper(),
    "builtin": _wrapper(),
    "exec": _wrapper("-a"),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "chroot": _wrapper("--userspec --groups", 1),
    "nsenter": _wrapper("-t -S -G --target"),
    "unshare": _wrapper(),
    "fakeroot": _wrapper("-l -s -i"),
    "proot": _wrapper("-r -b -w -R -S"),
    "firejail": _wrapper(),
    "flock": _wrapper("-w -E --timeout", 1),
    "strace": _wrapper("-o -e -p -s"),
    "ltrace": _wrapper("-o -e -p -s -l -n"),
    "gdb": _wrapper("-x -ex -p"),
    "valgrind": _wrapper(),
    "caffeinate": _wrapper("-t -w"),
    "parallel": _wrapper("-j --jobs"),
    "systemd-run": _wrapper(_UNIT),
    "screen": _wrapper(_SCREEN),
    "dbus-run-session": _wrapper(),
    "xvfb-run": _wrapper("-n -s -e -f -p"),
    "unbuffer": _wrapper(),
    "ld.so": _wrapper("--library-path --preload --argv0"),
}
_LOADER = re.compile(r"ld-(linux|musl)[\w.-]*\.so[\w.]*")


def behind_wrapper(command: SimpleCommand) -> tuple[Word, ...]:
    """The words of the command that this one runs; empty if this is no wrapper or wraps nothing."""
    name = "ld.so" if _LOADER.fullmatch(command.name) else command.name
    wrapper = _WRAPPERS.get(name)
    if wrapper is None:
        return ()
    words = command.words[1:]
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if text.startswith("-") and len(text) > 1:
            at += 2 if text in wrapper.valued else 1
        elif wrapper.assigns and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", text):
            at += 1
        else:
            break
    rest = words[at + wrapper.skip :]
    if name == "env" and any(word.text in ("-S", "--split-string") for word in words):
        return tuple(Word(piece) for word in rest for piece in word.text.split())
    if name == "flock" and rest and rest[0].text in ("-c", "--command"):
        return (Word("sh"), *rest)
    if name == "watch":
        # Its words are one text for a shell.
        return (Word("sh"), Word("-c"), Word(" ".join(word.text for word in rest))) if rest else ()
    return rest
