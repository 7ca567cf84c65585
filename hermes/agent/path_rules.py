"""Which files the file tools may write or read. Pure: paths come in resolved (symlinks followed, absolute).

These rules bind the file tools. The terminal can go around them; its guard is ``approvals.py``. Neither is a sandbox.
"""

from __future__ import annotations

import itertools
import re
from pathlib import PurePath
from typing import Literal

from hermes.agent.command_targets import START_UP, SYSTEM_FILES
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_DENIED_NAMES = frozenset({".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", "authorized_keys"})
_DENIED_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure"})
_DENIED_CONFIG = frozenset({"gh", "gcloud"})
_SYSTEM = lazy_pattern(
    r"/(?:private/)?etc/(?:sudoers|passwd|shadow|gshadow|group)(?:\.d)?(?:/|$)"
    r"|/(?:private/)?etc/(?:systemd|init\.d|cron[^/]*|ssh|pam\.d|ld\.so[^/]*)(?:/|$)"
    r"|/(?:usr/)?lib/systemd/|/Library/Launch|/System/|/boot/|/dev/|/proc/|/sys/"
)
_PRIVATE_KEY = lazy_pattern(r"id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.*\.(p12|pfx)|.*_rsa|.*private.*\.(key|pem)", re.I)
_AGENT_SECRETS = lazy_pattern(
    r"(profiles/[^/]+/)?(\.env(\..*)?|auth[^/]*|server\.key|mcp[-_]tokens?(/.*|\.json)?|vault(/.*)?|credentials[^/]*)",
    re.I,
)
_AGENT_STATE = lazy_pattern(r"(profiles/[^/]+/)?([^/]*\.db([-.].*)?|sessions(/.*)?|config\.ya?ml)", re.I)
_INSTRUCTIONS = frozenset(
    {"agents.md", "agents.override.md", "claude.md", "gemini.md", "soul.md", ".hermes.md", "hermes.md", ".cursorrules"}
)
_PROC_SECRETS = lazy_pattern(
    r"/proc/(?:self|thread-self|\d+)/(?:task/\d+/)?(?:environ|mem|maps|fd|root|cwd|auxv|stack)(?:/|$)|/proc/kcore"
)

# Asked about even where edits are allowed without a question (an editor's "accept edits").
ALWAYS_ASK = lazy_pattern(r"(^|/)(\.env(\.local|\.production)?|id_rsa|id_ed25519)$|(^|/)\.(git|ssh)/")


@dataclass(frozen=True, slots=True)
class PathPolicy:
    """Homes and limits. ``ignore_case`` where the file system does not tell ``A`` from ``a``."""

    user_home: PurePath
    agent_home: PurePath
    safe_root: PurePath | None = None
    protect_instructions: bool = True
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """``ask`` needs a human's yes under ``key``; ``deny`` is final. ``reason`` is a sentence for the model."""

    verdict: Literal["allow", "ask", "deny"]
    reason: str = ""
    key: str = ""


ALLOWED = PathVerdict("allow")


def may_write(path: PurePath, policy: PathPolicy) -> PathVerdict:
    """May a file tool write this resolved path?"""
    if policy.safe_root is not None and not _inside(path, policy.safe_root, policy):
        return PathVerdict("deny", f"writes are limited to {policy.safe_root}")
    shown = path.as_posix()
    parts = _parts(path, policy)
    if _SYSTEM.match(shown):
        return PathVerdict("deny", "it is a system file")
    if ".ssh" in parts[:-1] and parts[-1] == "config":
        return PathVerdict("ask", "it changes how SSH connects", "write the SSH client configuration")
    if parts[-1] in _DENIED_NAMES or _DENIED_FOLDERS & set(parts) or _private_key(parts[-1]):
        return PathVerdict("deny", "it holds credentials")
    if any(a == ".config" and b in _DENIED_CONFIG for a, b in itertools.pairwise(parts)):
        return PathVerdict("deny", "it holds credentials")
    if inner := _inner(path, policy.agent_home, policy):
        if _AGENT_SECRETS.fullmatch(inner):
            return PathVerdict("deny", "it belongs to the agent's secrets")
        if _AGENT_STATE.fullmatch(inner):
            return PathVerdict("deny", "it belongs to the agent's own state")
        if policy.protect_instructions and inner.split("/")[0] in ("skills", "memories"):
            return PathVerdict("ask", "it changes the agent's instructions", "write an instruction file")
    if policy.protect_instructions and parts[-1].lower() in _INSTRUCTIONS:
        return PathVerdict("ask", "it changes the agent's instructions", "write an instruction file")
    # What a command is asked about is asked about here too, under the same keys.
    if SYSTEM_FILES.match(shown):
        return PathVerdict("ask", "it is a file of the system", "overwrite a system file")
    if START_UP.search(shown):
        return PathVerdict("ask", "it runs with every shell", "overwrite a shell start-up file")
    return ALLOWED


def may_read(path: PurePath, policy: PathPolicy) -> PathVerdict:
    """May a file tool read this resolved path?"""
    shown = path.as_posix()
    parts = _parts(path, policy)
    if _PROC_SECRETS.match(shown):
        return PathVerdict("deny", "it shows the memory or environment of a process")
    if shown in ("/etc/shadow", "/etc/gshadow") or _private_key(parts[-1]):
        return PathVerdict("deny", "it holds credentials")
    inner = _inner(path, policy.agent_home, policy)
    if inner and _AGENT_SECRETS.fullmatch(inner):
        return PathVerdict("deny", "it belongs to the agent's secrets")
    return ALLOWED


def _private_key(name: str) -> bool:
    return not name.endswith(".pub") and _PRIVATE_KEY.fullmatch(name) is not None


def _parts(path: PurePath, policy: PathPolicy) -> tuple[str, ...]:
    return tuple(part.lower() for part in path.parts) if policy.ignore_case else path.parts


def _inside(path: PurePath, root: PurePath, policy: PathPolicy) -> bool:
    own, outer = _parts(path, policy), _parts(root, policy)
    return own[: len(outer)] == outer


def _inner(path: PurePath, root: PurePath, policy: PathPolicy) -> str:
    """The part of ``path`` below ``root``, or ""."""
    return "/".join(_parts(path, policy)[len(root.parts) :]) if _inside(path, root, policy) else ""
