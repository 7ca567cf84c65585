"""Dangerous patterns of everyday work: services, processes, git, containers, privilege, packages. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.agent.command_targets import Scene
from hermes.agent.command_views import CommandView
from hermes.patterns import lazy_pattern

_AGENT = lazy_pattern(r"\bhermes\b", re.I)


# --- services, processes ---------------------------------------------------------------------------------------------


def _stops_service(view: CommandView, _scene: Scene) -> bool:
    words = view.operands
    stopping = {
        "stop",
        "restart",
        "disable",
        "mask",
        "kill",
        "try-restart",
        "reload-or-restart",
        "unload",
        "bootout",
        "remove",
    }
    match view.name:
        case "systemctl" | "launchctl" | "initctl" | "supervisorctl" | "sv":
            return bool(stopping & set(words[:1]))
        case "service" | "rc-service":
            return len(words) > 1 and words[1] in stopping
    return view.command.words[0].text.startswith("/etc/init.d/") and bool(stopping & set(words[:1]))


def _flushes_firewall(view: CommandView, _scene: Scene) -> bool:
    if view.name in ("iptables", "ip6tables", "ebtables", "arptables"):
        return bool(view.flags & {"F", "X", "--flush", "--delete-chain"})
    if view.name == "nft":
        return view.operands[:1] == ("flush",) or view.operands[:1] == ("delete",)
    if view.name == "ufw":
        return bool({"disable", "reset"} & set(view.operands[:2]))
    return view.name == "pfctl" and bool(view.flags & {"F", "d"})


def _forced_kill(view: CommandView, _scene: Scene) -> bool:
    if view.name not in ("pkill", "killall", "skill"):
        return False
    signals = {"-9", "-KILL", "-SIGKILL", "--signal=9", "--signal=KILL", "--signal=SIGKILL"}
    pairs = zip(view.args, view.args[1:], strict=False)
    return bool(signals & set(view.args)) or any(
        name in ("-s", "--signal") and value in ("9", "KILL", "SIGKILL") for name, value in pairs
    )


def _kill_by_pattern(view: CommandView, _scene: Scene) -> bool:
    if view.name == "pkill":
        return bool(view.flags & {"f", "--full", "v", "--inverse"})
    return view.name == "killall" and bool(view.flags & {"r", "--regexp"})


def _kills_agent(view: CommandView, scene: Scene) -> bool:
    if view.name in ("pkill", "killall"):
        return any(_AGENT.search(arg) for arg in view.operands)
    if view.name != "kill":
        return False
    if "xargs" in view.via and any(_AGENT.search(word) for source in view.before for word in source.args):
        return True
    text = " ".join(view.args)
    if "$PPID" in text or any(_AGENT.search(inner) for inner in view.command.substitutions):
        return True
    return any(re.fullmatch(r"-?\d+", arg) and abs(int(arg)) in scene.own_pids for arg in view.args)


def _stops_agent(view: CommandView, _scene: Scene) -> bool:
    if view.name in ("systemctl", "launchctl", "service", "supervisorctl"):
        stopping = {"stop", "restart", "kill", "disable", "unload", "bootout"}
        return bool(stopping & set(view.operands)) and any(_AGENT.search(arg) for arg in view.operands)
    if view.name != "hermes":
        return False
    words = view.operands
    if words[:1] in (("update",), ("uninstall",)) or {"stop", "restart"} & set(words[:2]):
        return True
    serving = words[:1] in (("serve",), ("gateway",)) and "status" not in words
    return serving and (view.command.background or bool({"nohup", "setsid"} & set(view.via)))


# --- git -------------------------------------------------------------------------------------------------------------


def git_words(view: CommandView) -> tuple[str, ...]:
    """Sub-command and its arguments, without git's own options; empty if this is not git."""
    if view.name != "git":
        return ()
    args, at = view.args, 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else 1
    return args[at:]


def _short_flags(args: tuple[str, ...]) -> frozenset[str]:
    letters: set[str] = set()
    for arg in args:
        if re.fullmatch(r"-[A-Za-z]+", arg):
            letters.update(arg[1:])
    return frozenset(letters)


def _hard_reset(view: CommandView, _scene: Scene) -> bool:
    words = git_words(view)
    return words[:1] == ("reset",) and "--hard" in words


def _forced_push(view: CommandView, _scene: Scene) -> bool:
    words = git_words(view)
    if words[:1] != ("push",) or "--dry-run" in words or "n" in _short_flags(words[1:]):
        return False
    long = any(re.match(r"--(force(-with-lease|-if-includes)?(=.*)?|mirror|delete|prune)$", word) for word in words)
    refs = [word for word in words[1:] if not word.startswith("-")]
    return long or bool({"f", "d"} & _short_flags(words[1:])) or any(ref.startswith(("+", ":")) for ref in refs[1:])


def _forced_clean(view: CommandView, _scene: Scene) -> bool:
    words = git_words(view)
    letters = _short_flags(words[1:])
    dry = "n" in letters or "--dry-run" in words
    return words[:1] == ("clean",) and not dry and ("f" in letters or "--force" in words)


def _forced_branch_delete(view: CommandView, _scene: Scene) -> bool:
    words = git_words(view)
    letters = _short_flags(words[1:])
    deletes = "d" in letters or "--delete" in words
    return words[:1] == ("branch",) and ("D" in letters or (deletes and ("f" in letters or "--force" in words)))


def _discards_changes(view: CommandView, _scene: Scene) -> bool:
    words = git_words(view)
    rest = words[1:]
    match words[:1]:
        case ("checkout",):
            return "--" in rest or "." in rest or "f" in _short_flags(rest) or "--force" in rest
        case ("restore",):
            letters = _short_flags(rest)
            staged = "--staged" in rest or "S" in letters
            return not staged or "--worktree" in rest or "W" in letters
        case ("switch",):
            return bool({"--discard-changes", "--force"} & set(rest)) or "f" in _short_flags(rest)
    return False


def _drops_stash(view: CommandView, _scene: Scene) -> bool:
    return git_words(view)[:2] in (("stash", "drop"), ("stash", "clear"))


# --- containers ------------------------------------------------------------------------------------------------------

_DAEMON_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST")
_CONTAINER_TOOLS = ("docker", "podman", "nerdctl", "docker-compose", "podman-compose")


def _container_words(view: CommandView) -> tuple[str, ...]:
    args, at = view.args, 0
    while at < len(args) and args[at].startswith("-"):
        at += (
            2
            if args[at] in ("-H", "--host", "-c", "--context", "-f", "--file", "-p", "--project-name", "--config")
            else 1
        )
    words = args[at:]
    return words[1:] if words[:1] in (("compose",), ("container",)) else words


def _remote_daemon(view: CommandView, _scene: Scene) -> bool:
    if view.name == "export":
        return any(arg.partition("=")[0] in _DAEMON_VARIABLES for arg in view.args)
    if view.name not in _CONTAINER_TOOLS:
        return False
    if any(name in _DAEMON_VARIABLES for name, _ in view.command.assignments):
        return True
    if view.name in ("docker", "podman"):
        before = view.args[: len(view.args) - len(_container_words(view))]
        return any(re.match(r"-H|--host|--context|--url|--connection", arg) for arg in before)
    return False


def _stops_container(view: CommandView, _scene: Scene) -> bool:
    if view.name not in _CONTAINER_TOOLS:
        return False
    words = tuple(word for word in _container_words(view) if not word.startswith("-"))
    if words[:1] and words[0] in ("stop", "restart", "kill", "down"):
        return True
    return words[:1] == ("rm",) and bool({"f", "--force"} & view.flags)


def _prunes_containers(view: CommandView, _scene: Scene) -> bool:
    if view.name not in _CONTAINER_TOOLS:
        return False
    words = _container_words(view)
    return "prune" in words[:2] or words[:2] == ("volume", "rm")


# --- privilege, packages ---------------------------------------------------------------------------------------------


def sudo_options(view: CommandView) -> frozenset[str]:
    """The short option letters of ``sudo`` itself (long ones by their letter), not of the command behind it."""
    if view.name != "sudo":
        return frozenset()
    names = {"--stdin": "S", "--askpass": "A", "--shell": "s", "--login": "i", "--list": "l"}
    letters: set[str] = set()
    at, args = 0, view.args
    while at < len(args) and args[at].startswith("-") and args[at] != "--":
        letters.update(names.get(args[at], "") if args[at].startswith("--") else args[at][1:])
        at += 2 if args[at] in ("-u", "-g", "-p", "-C", "-h", "-r", "-t", "-T", "-U", "-D", "-R") else 1
    return frozenset(letters)


def _sudo_flags(view: CommandView, _scene: Scene) -> bool:
    return bool(sudo_options(view) & {"S", "A", "s", "i", "l"})


def _becomes_other_user(view: CommandView, _scene: Scene) -> bool:
    return (
        view.name in ("su", "doas", "pkexec", "runuser") and "--help" not in view.args and "--version" not in view.args
    )


def _removes_packages(view: CommandView, _scene: Scene) -> bool:
    words = set(view.operands[:2])
    match view.name:
        case "apt" | "apt-get" | "aptitude":
            return bool(words & {"remove", "purge", "autoremove", "autopurge"})
        case "dnf" | "yum" | "zypper" | "microdnf":
            return bool(words & {"remove", "erase", "autoremove", "rm"})
        case "brew" | "snap" | "flatpak" | "port" | "pkg" | "nix-env":
            return bool(words & {"uninstall", "remove", "rm", "delete"})
        case "pacman" | "yay" | "paru":
            return any(re.match(r"-R", arg) for arg in view.args)
        case "apk":
            return "del" in words
        case "dpkg":
            return bool(view.flags & {"r", "P", "--remove", "--purge"})
        case "rpm":
            return bool(view.flags & {"e", "--erase"})
    return False


WORK_RULES: tuple[tuple[str, Callable[[CommandView, Scene], bool]], ...] = (
    ("stop or restart a service", _stops_service),
    ("flush the firewall", _flushes_firewall),
    ("forced kill by name", _forced_kill),
    ("kill by regular expression", _kill_by_pattern),
    ("kill this agent", _kills_agent),
    ("stop or replace this agent", _stops_agent),
    ("git hard reset", _hard_reset),
    ("git forced push", _forced_push),
    ("git forced clean", _forced_clean),
    ("git forced branch delete", _forced_branch_delete),
    ("git discard changes", _discards_changes),
    ("git drop stash", _drops_stash),
    ("remote container daemon", _remote_daemon),
    ("stop containers", _stops_container),
    ("prune containers", _prunes_containers),
    ("sudo with risky options", _sudo_flags),
    ("run as another user", _becomes_other_user),
    ("remove system packages", _removes_packages),
)
