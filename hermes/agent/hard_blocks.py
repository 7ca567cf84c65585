"""Commands that are never run, in no mode and with no approval. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from hermes.agent.command_targets import Scene, is_raw_device, is_vital_tree, written_paths
from hermes.agent.command_views import CommandView, clean_path, is_recursive
from hermes.agent.shell_words import normalize
from hermes.patterns import lazy_pattern

# Names are bounded: the text may be long and is searched from every position.
_FORK_BOMB = lazy_pattern(
    r"(?P<name>[\w:.]{1,40})\(\)\{(?P=name)(?:\|(?P=name))+&?\}?"
    r"|function(?P<third>[\w:.]{1,40})(?:\(\))?\{(?P=third)(?:[|&](?P=third))+"
    r"|(?P<other>[\w:.]{1,40})\(\)\{[^}]{0,200}(?P=other)&(?P=other)"
)
_FUNCTION = lazy_pattern(r"\(\)\{|function")
_ASKS_HELP = frozenset({"--help", "--version"})


def _deletes_vital_tree(view: CommandView, scene: Scene) -> bool:
    if view.name in ("rm", "grm", "srm") and is_recursive(view):
        return any(is_vital_tree(_full(view.resolve(path), scene), scene) for path in view.operands)
    if view.name == "find" and _find_deletes(view):
        narrowed = any(
            re.match(r"-(i?name|i?path|i?regex|newer|mtime|mmin|ctime|size|user|empty|atime)", arg) for arg in view.args
        )
        roots = itertools.takewhile(lambda arg: not re.match(r"-[a-z]{2}|[(!]", arg), view.args)
        full = [_full(view.resolve(root), scene) for root in roots if not root.startswith("-")]
        return not narrowed and any(is_vital_tree(root, scene) for root in full)
    return False


def _full(path: str, scene: Scene) -> str:
    return path if path.startswith(("/", "~", "$")) or not scene.cwd else clean_path(f"{scene.cwd}/{path}")


def _find_deletes(view: CommandView) -> bool:
    args = view.args
    return "-delete" in args or any(
        a in ("-exec", "-execdir") and b.endswith("rm") for a, b in itertools.pairwise(args)
    )


def _formats(view: CommandView, _scene: Scene) -> bool:
    if not re.fullmatch(r"mkfs(\.\w+)?|mke2fs|newfs(_\w+)?|mkntfs", view.name) or view.flags & (_ASKS_HELP | {"V"}):
        return False
    return not view.operands or any(path.startswith(("/dev/", "$")) for path in view.operands)


def _writes_raw_device(view: CommandView, _scene: Scene) -> bool:
    if view.name in ("wipefs", "blkdiscard") and any(is_raw_device(arg) for arg in view.args):
        return view.name == "blkdiscard" or bool(view.flags & {"a", "o", "--all"})
    return any(is_raw_device(path) for path in written_paths(view))


def _kills_everything(view: CommandView, _scene: Scene) -> bool:
    if view.name == "killall5":
        return not view.flags & _ASKS_HELP
    if view.name != "kill":
        return False
    args = list(view.args)
    if "--" in args:
        return "-1" in args[args.index("--") + 1 :]
    if args and args[0] in ("-s", "-n", "--signal"):
        return "-1" in args[2:]
    return len(args) > 1 and "-1" in args[1:]


def _stops_machine(view: CommandView, _scene: Scene) -> bool:
    args = view.args
    if view.name in ("shutdown", "reboot", "halt", "poweroff"):
        return not (view.flags & (_ASKS_HELP | {"c"}))
    if view.name == "kexec":
        return bool(view.flags & {"e", "--exec"})
    if view.name in ("init", "telinit"):
        return args[:1] in (("0",), ("6",))
    if view.name in ("systemctl", "loginctl"):
        words = set(view.operands)
        isolates = bool({"isolate", "start"} & words) and any(
            re.match(r"(poweroff|reboot|halt|runlevel[06])(\.target)?$", w) for w in words
        )
        return isolates or bool(words & {"poweroff", "reboot", "halt", "kexec", "soft-reboot"} & set(view.operands[:1]))
    if view.name == "osascript":
        return bool(re.search(r"\b(shut down|restart|log out)\b", " ".join(args)))
    if view.name in ("busctl", "dbus-send", "gdbus"):
        return bool(re.search(r"login1.*(PowerOff|Reboot|Halt)", " ".join(args)))
    return any(path == "/proc/sysrq-trigger" for path in written_paths(view))


_RULES: tuple[tuple[str, Callable[[CommandView, Scene], bool]], ...] = (
    ("recursive deletion of the root, a system directory or a home directory", _deletes_vital_tree),
    ("formatting a file system", _formats),
    ("writing raw data to a disk device", _writes_raw_device),
    ("killing every process", _kills_everything),
    ("stopping or restarting the machine", _stops_machine),
)


def hard_block(text: str, views: tuple[CommandView, ...], scene: Scene) -> str | None:
    """What this text would do that is never allowed, or None."""
    if _is_fork_bomb(text, views):
        return "a fork bomb"
    for view in views:
        for what, matches in _RULES:
            if view.command.words and matches(view, scene):
                return what
        if not view.command.words and _writes_raw_device(view, scene):
            return "writing raw data to a disk device"
    return None


def _is_fork_bomb(text: str, views: tuple[CommandView, ...]) -> bool:
    # Outside of quotes only: a fork bomb in a commit message is a text.
    candidates = [re.sub(r"'[^']*'|\"[^\"]*\"", "''", normalize(text))]
    candidates += [" ".join(view.args) for view in views if view.name in ("bash", "sh")]
    squeezed = (re.sub(r"\s+", "", candidate) for candidate in candidates)
    return any(
        re.search(r"\(\)\{|function", candidate) and _FORK_BOMB.search(candidate) is not None for candidate in squeezed
    )
