"""The table of dangerous commands: a stable key for each, and the test that finds it. Pure.

A key is a short English description. Users keep keys in their allowlist, so a key never changes its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.agent.command_inline import CALLS_OUT, DELETES, inline_code
from hermes.agent.command_remote import REMOTE_RULES, brings_code
from hermes.agent.command_targets import Scene, is_raw_device, is_vital_tree, sensitive_write, written_paths
from hermes.agent.command_views import SHELLS, CommandView, is_recursive, reads_stdin
from hermes.agent.command_work import WORK_RULES
from hermes.patterns import lazy_pattern

Rule = Callable[[CommandView, Scene], bool]
_INVISIBLE = lazy_pattern("[\u200b\u200c\u2060-\u2064\ufeff\u202a-\u202e\u2066-\u2069\u00ad\U000e0000-\U000e007f]")
_DB_CLIENTS = frozenset(
    [
        "psql",
        "mysql",
        "mariadb",
        "sqlite3",
        "sqlite",
        "sqlcmd",
        "sqlplus",
        "cockroach",
        "clickhouse-client",
        "duckdb",
        "usql",
        "pgcli",
        "mycli",
        "bq",
        "isql",
    ]
)
_DELETE_ROWS = lazy_pattern(r"\bDELETE\s+FROM\s+[^;]*", re.I)
_DROP = lazy_pattern(r"\bDROP\s+(TABLE|DATABASE|SCHEMA|VIEW|INDEX|USER|ROLE|COLUMN|KEYSPACE|COLLECTION)\b", re.I)
_TRUNCATE = lazy_pattern(r"\bTRUNCATE\s+(TABLE\s+)?\w", re.I)


# --- deletion --------------------------------------------------------------------------------------------------------


def _recursive_delete(view: CommandView, _scene: Scene) -> bool:
    if view.name == "rsync":
        return any(flag.startswith("--del") for flag in view.flags) and not view.flags & {"n", "--dry-run"}
    return view.name in ("rm", "grm", "srm") and is_recursive(view)


def _repository_delete(view: CommandView, scene: Scene) -> bool:
    if view.name != "rm" or not is_recursive(view):
        return False
    paths = [path.rstrip("/") for path in view.operands]
    whole = {".", "./*", "*", ".git", "./.git", "$PWD", "${PWD}", scene.cwd, f"{scene.cwd}/.git"} - {"", "/.git"}
    return any(path in whole or path.endswith("/.git") for path in paths)


def _delete_outside(view: CommandView, scene: Scene) -> bool:
    if view.name not in ("rm", "unlink", "rmdir", "shred"):
        return False
    harmless = ("/tmp/", "/var/tmp/", "/private/tmp/", "/dev/shm/")
    for path in map(view.resolve, view.operands):
        inside = bool(scene.cwd) and path.startswith(scene.cwd.rstrip("/") + "/")
        if path.startswith("/") and not path.startswith(harmless) and not inside:
            return True
    return False


def _find_delete(view: CommandView, _scene: Scene) -> bool:
    args = view.args
    if view.name == "find":
        return "-delete" in args
    return view.name in ("rm", "shred", "unlink") and bool(
        {"find", "fd", "fdfind", "xargs", "parallel"} & set(view.via)
    )


def _hidden_flags(view: CommandView, _scene: Scene) -> bool:
    words = view.command.words
    if not words:
        return False
    if words[0].expands and any(re.fullmatch(r"-[a-zA-Z]*(rf|fr|Rf|fR)[a-zA-Z]*", arg) for arg in view.args):
        return True
    if view.name in ("rm", "find", "chmod", "chown") and len(words) > 2:
        return words[1].expands and not words[1].quoted and words[1].text.startswith("$")
    return False


# --- permissions, disks ----------------------------------------------------------------------------------------------


def _world_writable(view: CommandView, _scene: Scene) -> bool:
    if view.name != "chmod":
        return False
    for arg in view.args:
        if re.fullmatch(r"[0-7]{3,4}", arg) and int(arg[-1]) & 2:
            return True
        if any(re.fullmatch(r"[ug]*[oa][ugoa]*[+=][rwxXst]*w[rwxXst]*", part) for part in arg.split(",")):
            return True
    return view.name == "chmod" and "--mode=777" in view.args


def _set_user_id(view: CommandView, _scene: Scene) -> bool:
    return view.name == "chmod" and any(
        re.fullmatch(r"[2467][0-7]{3}", arg) or re.fullmatch(r"[ugoa]*[+=][rwxX]*s[rwxXst]*", arg) for arg in view.args
    )


def _chown_root(view: CommandView, _scene: Scene) -> bool:
    owned_by_root = any(re.match(r"root(:|$)|0(:|$)", arg) for arg in view.args)
    return view.name in ("chown", "chgrp") and is_recursive(view) and owned_by_root


def _changes_system_modes(view: CommandView, scene: Scene) -> bool:
    """All modes or owners below a system directory or a home."""
    if view.name not in ("chmod", "chown", "chgrp", "setfacl") or not is_recursive(view):
        return False
    return any(is_vital_tree(view.resolve(path), scene) for path in view.operands)


def _makes_file_system(view: CommandView, _scene: Scene) -> bool:
    found = re.fullmatch(r"mkfs(\.\w+)?|mke2fs|newfs(_\w+)?|mkntfs|mkswap", view.name)
    return found is not None and not view.flags & {"--help", "--version", "V"}


def _copies_disk(view: CommandView, _scene: Scene) -> bool:
    if view.name == "dd":
        return any(arg.startswith("if=") and is_raw_device(arg[3:]) for arg in view.args)
    return view.name in ("ddrescue", "partclone", "badblocks")


def _partitions(view: CommandView, _scene: Scene) -> bool:
    if view.name in ("lvremove", "vgremove", "pvremove", "wipefs", "cfdisk", "cgdisk"):
        return True
    if view.name == "diskutil":
        return bool(re.match(r"(?i)erase|partition|zero|secureErase", " ".join(view.operands[:1])))
    if view.name in ("fdisk", "sfdisk", "parted", "gdisk", "sgdisk"):
        return not view.flags & {"l", "p", "--list", "--print", "--help", "--version"} and "print" not in view.args
    return False


# --- databases -------------------------------------------------------------------------------------------------------


def _sql(view: CommandView) -> str:
    if view.name not in _DB_CLIENTS:
        return ""
    parts = [*view.args, *(redirect.body or "" for redirect in view.command.redirects)]
    for source in view.before[-1:]:
        if source.name in ("echo", "printf", "cat"):
            parts += [*source.args, *(redirect.body or "" for redirect in source.redirects)]
    return " ".join(parts)


def _drops(view: CommandView, _scene: Scene) -> bool:
    if view.name == "dropdb" or (view.name == "mysqladmin" and "drop" in view.args):
        return True
    if view.name == "redis-cli":
        return any(arg.lower() in ("flushall", "flushdb") for arg in view.args)
    if view.name in ("mongo", "mongosh"):
        return bool(re.search(r"\.drop(Database)?\(", " ".join(view.args)))
    return bool(_DROP.search(_sql(view)))


def _deletes_rows(view: CommandView, _scene: Scene) -> bool:
    return any(not re.search(r"\bWHERE\b", match[0], re.I) for match in _DELETE_ROWS.finditer(_sql(view)))


def _truncates(view: CommandView, _scene: Scene) -> bool:
    return bool(_TRUNCATE.search(_sql(view)))


# --- execution -------------------------------------------------------------------------------------------------------


def _here_document(view: CommandView, _scene: Scene) -> bool:
    if view.name not in SHELLS or not reads_stdin(view.command):
        return False
    sources = [view.command, *(source for source in view.before[-1:] if source.name == "cat")]
    return any(redirect.body is not None for source in sources for redirect in source.redirects)


def _code_of(view: CommandView) -> str:
    return inline_code(view.command, view.before, reads_stdin(view.command))


def _code_deletes(view: CommandView, _scene: Scene) -> bool:
    return DELETES.search(_code_of(view)) is not None


def _code_calls_out(view: CommandView, _scene: Scene) -> bool:
    return CALLS_OUT.search(_code_of(view)) is not None


def _program_option(view: CommandView, _scene: Scene) -> bool:
    text = " ".join(view.args)
    if view.name in ("tar", "gtar", "bsdtar"):
        return bool(re.search(r"--(checkpoint-action=exec|to-command|use-compress-program=\S*sh\b|rsh-command)", text))
    if view.name == "git":
        return bool(
            re.search(
                r"-c\s+(core\.(sshCommand|pager|editor|fsmonitor)|alias\.\w+=!|diff\.external|credential\.helper=!)",
                text,
            )
        )
    return False


LOCAL_RULES: tuple[tuple[str, Rule], ...] = (
    ("delete the working tree or its repository", _repository_delete),
    ("recursive delete", _recursive_delete),
    ("delete outside the project", _delete_outside),
    ("find or xargs delete", _find_delete),
    ("options hidden in a variable", _hidden_flags),
    ("world-writable permissions", _world_writable),
    ("set-user-id permissions", _set_user_id),
    ("recursive change of owner to root", _chown_root),
    ("recursive change of permissions of the system", _changes_system_modes),
    ("make a file system", _makes_file_system),
    ("copy a disk", _copies_disk),
    ("change partitions or volumes", _partitions),
    ("drop database objects", _drops),
    ("delete all rows of a table", _deletes_rows),
    ("truncate a table", _truncates),
    ("here-document to a shell", _here_document),
    ("program run through an option", _program_option),
    ("inline code that deletes files", _code_deletes),
    ("inline code that reaches the network", _code_calls_out),
)

RULES: tuple[tuple[str, Rule], ...] = (*LOCAL_RULES, *WORK_RULES, *REMOTE_RULES)
INVISIBLE_KEY = "invisible characters"
SCRIPT_KEY = "make a file executable and run it"

# These say too little about the next command of their kind to be allowed for good.
NEVER_PERMANENT = frozenset(
    {
        INVISIBLE_KEY,
        "options hidden in a variable",
        "decoded content piped to a shell",
        "stop or replace this agent",
        "kill this agent",
    }
)


def dangers(text: str, views: tuple[CommandView, ...], scene: Scene) -> tuple[str, ...]:
    """The keys of all dangerous patterns in a shell text, in the order in which they appear; empty if none."""
    return tuple(dict.fromkeys(_dangers(text, views, scene)))


def _dangers(text: str, views: tuple[CommandView, ...], scene: Scene) -> Iterator[str]:
    if _INVISIBLE.search(text):
        yield INVISIBLE_KEY
    fetched: dict[str, str] = {}
    """Files that this text makes, with the key under which running them asks."""
    for view in views:
        written = tuple(written_paths(view))
        for path in written:
            if key := sensitive_write(path, scene):
                yield key
        if not view.command.words:
            continue
        yield from (key for key, matches in RULES if matches(view, scene))
        first = view.command.words[0].text
        runs = view.operands[:1] if view.name in SHELLS or view.name in ("source", ".") else (first,)
        yield from (fetched[path] for path in map(view.resolve, runs) if path in fetched)
        if view.name == "chmod" and any(
            "x" in arg or re.fullmatch(r"[0-7]?[157][0-7]{2}", arg) for arg in view.operands[:1]
        ):
            fetched.update((view.resolve(path), SCRIPT_KEY) for path in view.operands[1:])
        elif key := brings_code(view):
            fetched.update((path, key) for path in written)
