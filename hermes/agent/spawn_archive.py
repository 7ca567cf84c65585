"""The archive of spawn trees: JSON files that hosts save and load, one folder per session (gateway §9.6).

Blocking file work, meant for a thread. What hosts save is opaque and comes back unchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hermes.agent.session_folders import folder_name
from hermes.errors import Forbidden, InvalidParams, NotFound

ROOT: Final = "spawn-trees"
INDEX: Final = "_index.jsonl"


def folder_of(home: Path, session_id: str | None) -> Path:
    return home / ROOT / folder_name(session_id)


def save_tree(home: Path, tree: Mapping[str, Any]) -> Path:
    """Write one tree and its line of the index; returns the path. Raises ``OSError``."""
    folder = folder_of(home, tree.get("session_id"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(float(tree["finished_at"])))
    path = folder / f"{stamp}.json"
    number = 2
    while path.exists():
        path = folder / f"{stamp}-{number}.json"
        number += 1
    path.write_text(json.dumps(dict(tree), ensure_ascii=False), encoding="utf-8")
    with (folder / INDEX).open("a", encoding="utf-8") as index:
        index.write(json.dumps(_entry(path, tree), ensure_ascii=False) + "\n")
    return path


def _entry(path: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    subagents = tree.get("subagents")
    return {
        "path": str(path),
        "session_id": tree.get("session_id"),
        "started_at": tree.get("started_at"),
        "finished_at": tree.get("finished_at"),
        "label": tree.get("label"),
        "count": len(subagents) if isinstance(subagents, Sequence) else 0,
    }


def list_trees(home: Path, session_id: str | None, *, cross_session: bool, limit: int) -> list[dict[str, Any]]:
    """Newest first: of one session, or of all."""
    if cross_session or session_id is None:
        folders = [folder for folder in (home / ROOT).glob("*") if folder.is_dir()]
    else:
        folders = [folder_of(home, session_id)]
    entries = [entry for folder in folders for entry in _entries(folder)]
    entries.sort(key=lambda entry: float(entry.get("finished_at") or 0), reverse=True)
    return entries[:limit]


def _entries(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / INDEX).read_text(encoding="utf-8").splitlines()
    except OSError:
        return _scanned(folder)
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and Path(str(entry.get("path", ""))).is_file():
            found.append(entry)
    return found


def _scanned(folder: Path) -> list[dict[str, Any]]:
    """Without an index the files themselves are read."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(tree, dict):
            found.append(_entry(path, tree))
    return found


def load_tree(home: Path, path: str) -> dict[str, Any]:
    """One tree. Raises ``Forbidden`` outside the archive (links followed), ``NotFound``, ``InvalidParams``."""
    root = (home / ROOT).resolve()
    try:
        wanted = Path(path).expanduser()
        resolved = (wanted if wanted.is_absolute() else root / wanted).resolve()
    except (OSError, ValueError, RuntimeError):
        # No name of a file, the home of nobody, a circle of links.
        raise NotFound("there is no such spawn tree") from None
    if not resolved.is_relative_to(root):
        raise Forbidden("this path is outside the spawn-tree archive")
    try:
        tree = json.loads(resolved.read_text(encoding="utf-8"))
    except OSError:
        raise NotFound("there is no such spawn tree") from None
    except ValueError:
        raise InvalidParams("this file is no spawn tree") from None
    if not isinstance(tree, dict):
        raise InvalidParams("this file is no spawn tree")
    return tree
