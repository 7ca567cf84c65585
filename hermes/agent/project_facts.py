"""What kind of project a directory is, by its files: for hosts that offer to run its checks. Reads names only.

``os.path`` and not ``Path`` looks whether they are there: what cannot be looked at, or no system can have, is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

MANIFESTS: Final[Mapping[str, str]] = {
    "package.json": "npm",
    "pyproject.toml": "pip",
    "requirements.txt": "pip",
    "Cargo.toml": "cargo",
    "go.mod": "go",
    "pom.xml": "maven",
    "build.gradle": "gradle",
    "Gemfile": "bundler",
    "composer.json": "composer",
    "mix.exs": "mix",
    "Makefile": "make",
}
LOCKS: Final[Mapping[str, str]] = {
    "uv.lock": "uv",
    "poetry.lock": "poetry",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
}
VERIFY: Final[Mapping[str, str]] = {"Cargo.toml": "cargo test", "go.mod": "go test ./...", "mix.exs": "mix test"}
CONTEXT_FILES: Final = (".hermes.md", "HERMES.md", "AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".cursorrules")
SCRIPTS: Final = ("test", "lint", "typecheck", "check", "build")


def project_root(cwd: str) -> Path:
    """The nearest directory with a repository, else the directory itself."""
    start = Path(cwd)
    return next((folder for folder in (start, *start.parents) if os.path.exists(folder / ".git")), start)


def project_facts(cwd: str) -> dict[str, Any] | None:
    """``ProjectFacts`` of gateway §10.5; None where there is no such directory. Blocking."""
    root = project_root(cwd)
    if not os.path.isdir(root):
        return None
    manifests = [name for name in MANIFESTS if os.path.isfile(root / name)]
    managers = dict.fromkeys([LOCKS[name] for name in LOCKS if os.path.isfile(root / name)])
    if not managers:
        managers = dict.fromkeys(MANIFESTS[name] for name in manifests if name != "Makefile")
    commands = [VERIFY[name] for name in manifests if name in VERIFY]
    commands += [f"npm run {name}" for name in SCRIPTS if name in _scripts(root / "package.json")]
    if "pyproject.toml" in manifests and os.path.isdir(root / "tests"):
        commands.append("pytest")
    if "Makefile" in manifests:
        commands.append("make")
    return {
        "root": str(root),
        "manifests": manifests,
        "packageManagers": list(managers),
        "verifyCommands": commands,
        "contextFiles": [name for name in CONTEXT_FILES if os.path.isfile(root / name)],
    }


def _scripts(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8")).get("scripts", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return value if isinstance(value, dict) else {}
