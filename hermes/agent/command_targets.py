"""Which paths matter when a command writes, deletes or uploads: devices, system folders, credential files. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from hermes.agent.command_views import CommandView, clean_path
from hermes.patterns import lazy_pattern
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a command would run. All paths absolute; ``own_pids`` are the pids of the server and its group."""

    cwd: str = ""
    user_home: str = ""
    agent_home: str = ""
    own_pids: frozenset[int] = frozenset()


SYSTEM_TOP = frozenset(
    [
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/var",
        "/Users",
        "/System",
        "/Library",
        "/Applications",
        "/Volumes",
        "/private",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/usr/sbin",
        "/var/lib",
    ]
)
SYSTEM_FILES = lazy_pattern(
    r"/(etc|boot|bin|sbin|lib|lib32|lib64|usr(?!/(?:local|src)/)|sys|proc/sys|System|Library|private/etc)(/|$)"
)
_RAW_DEVICE = lazy_pattern(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|dm-|md|mapper/|loop|sr|nbd|block/)\S*")
START_UP = lazy_pattern(
    r"(^|/)\.(bashrc|bash_profile|bash_login|bash_logout|profile|zshrc|zprofile|zshenv|zlogin|kshrc|cshrc|tcshrc)$"
    r"|(^|/)\.config/fish/config\.fish$"
)
_CREDENTIALS = lazy_pattern(
    r"(^|/)\.(netrc|pgpass|npmrc|pypirc|git-credentials|htpasswd)$"
    r"|(^|/)\.(aws|gnupg|kube|azure)(/|$)|(^|/)\.docker/config\.json$|(^|/)\.config/(gh|gcloud)(/|$)"
    r"|(^|/)id_(rsa|dsa|ecdsa|ed25519)$|(^|/)[^/]+\.(pem|p12|pfx)$|(^|/)credentials(\.json)?$"
)
_ENV_FILE = lazy_pattern(r"(^|/)\.env(\.(?!example$|sample$|template$|dist$)[A-Za-z0-9_-]+)?$")
HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"})


def is_raw_device(path: str) -> bool:
    return _RAW_DEVICE.match(path) is not None


def is_home(path: str, scene: Scene) -> bool:
    """The home directory of somebody: ``~``, ``~user``, ``/home/user``, ``/root``."""
    if path in ("~", "/root") or re.fullmatch(r"~[a-z_][a-z0-9_-]*|/(home|Users)/[^/]+", path):
        return True
    return bool(scene.user_home) and path == scene.user_home


def is_vital_tree(path: str, scene: Scene) -> bool:
    """Deleting this tree would ruin the system or somebody's home."""
    if re.fullmatch(r"/[^/]*[*?\[][^/]*", path):
        return True
    bare = clean_path(re.sub(r"/(\*|\.\*|\.\[.*|\{\*,\.\*\})$", "", path) or "/")
    return bare in SYSTEM_TOP or is_home(bare, scene)


def sensitive_write(path: str, scene: Scene) -> str | None:
    """The key of the pattern that writing this path matches, or None."""
    if path in HARMLESS_DEVICES or path.startswith("/dev/fd/"):
        return None
    shown = path
    if scene.user_home and path.startswith(scene.user_home + "/"):
        shown = "~" + path[len(scene.user_home) :]
    full = "~".join(path.split("~", 1)) if not path.startswith("~") else scene.user_home + path[1:]
    if (
        scene.agent_home
        and (full == scene.agent_home or full.startswith(scene.agent_home + "/"))
        and _agent_file(full, scene)
    ):
        return "overwrite the agent's configuration"
    if re.search(r"(^|/)\.hermes/(config\.yaml|\.env|auth[^/]*|server\.key)$", path):
        return "overwrite the agent's configuration"
    if SYSTEM_FILES.match(path) or path == "/":
        return "overwrite a system file"
    if re.search(r"(^|/)\.ssh(/|$)", shown):
        return "overwrite an SSH file"
    if START_UP.search(shown):
        return "overwrite a shell start-up file"
    if _CREDENTIALS.search(shown):
        return "overwrite a credential file"
    if _ENV_FILE.search(shown):
        return "overwrite an environment file"
    return None


def _agent_file(path: str, scene: Scene) -> bool:
    rest = path[len(scene.agent_home) :].lstrip("/")
    return rest.split("/", 1)[0] not in ("cache", "skills", "logs") if rest else True


def is_credential_file(path: str) -> bool:
    """True if uploading this file would give a secret away."""
    bare = path.removeprefix("@")
    return bool(
        _CREDENTIALS.search(bare)
        or _ENV_FILE.search(bare)
        or re.search(r"(^|/)\.ssh(/|$)|^/etc/(shadow|sudoers)|(^|/)\.hermes/(auth|server\.key)", bare)
    )


def written_paths(view: CommandView) -> Iterator[str]:
    """The files this command would write: redirections, and the targets of the usual writing programs."""
    for redirect in view.command.redirects:
        if redirect.writes and redirect.target.text:
            yield view.resolve(redirect.target.text)
    yield from (view.resolve(path) for path in _program_targets(view))


def _program_targets(view: CommandView) -> Iterator[str]:
    operands, flags = view.operands, view.flags
    match view.name:
        case "tee" | "truncate" | "shred" | "sponge":
            yield from operands
        case "cp" | "mv" | "install" | "ln" | "rsync":
            if len(operands) > 1:
                yield operands[-1]
            target = next((arg.partition("=")[2] for arg in view.args if arg.startswith("--target-directory=")), "")
            if target:
                yield target
            yield from (value for name, value in itertools.pairwise(view.args) if name == "-t")
            if view.name == "mv":
                # What is moved away is gone from where it was.
                yield from operands[:-1]
        case "dd":
            yield from (arg[3:] for arg in view.args if arg.startswith("of="))
        case "sed":
            if any(
                arg == "--in-place" or arg.startswith(("--in-place=", "-i")) or re.match(r"-[nErsz]*i", arg)
                for arg in view.args
            ):
                yield from operands
        case "tar" | "gtar" | "bsdtar" | "unzip":
            into = ("-d",) if view.name == "unzip" else ("-C", "--directory")
            yield from (value for name, value in itertools.pairwise(view.args) if name in into)
            yield from (arg.partition("=")[2] for arg in view.args if arg.startswith("--directory="))
        case "perl" | "ruby":
            if "i" in flags:
                yield from operands
        case "curl" | "wget":
            for name, value in itertools.pairwise(view.args):
                if name in ("-o", "-O", "--output", "--output-document") and not value.startswith("-"):
                    yield value
