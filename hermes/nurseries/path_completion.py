"""Completion of paths and of ``@`` references in a prompt (gateway §8.10). One directory is read, in a thread."""

from __future__ import annotations

import os
from typing import Final

import trio

MAX_ITEMS: Final = 30
REFERENCES: Final = (
    ("@diff", "changes of the working directory"),
    ("@staged", "staged changes"),
    ("@file:", "a file"),
    ("@folder:", "a folder"),
    ("@url:", "a web page"),
    ("@git:", "commits"),
)
PREFIXES: Final = ("@file:", "@folder:")


async def complete_path(word: str, cwd: str) -> list[dict[str, str]]:
    """At most thirty items ``{text, display, meta, kind}``; folders end with a slash."""
    if word.startswith("@") and not word.startswith(PREFIXES):
        return [
            {"text": name, "display": name, "meta": meta, "kind": "reference"}
            for name, meta in REFERENCES
            if name.startswith(word)
        ]
    prefix = next((name for name in PREFIXES if word.startswith(name)), "")
    return await trio.to_thread.run_sync(_entries, prefix, word.removeprefix(prefix), cwd)


def _entries(prefix: str, path: str, cwd: str) -> list[dict[str, str]]:
    folder, begin = os.path.split(path)
    place = os.path.join(cwd, os.path.expanduser(folder)) if folder else cwd
    items = []
    try:
        with os.scandir(place) as entries:
            found = sorted(entries, key=lambda entry: (not entry.is_dir(), entry.name))
    except (OSError, ValueError):
        return []
    for entry in found:
        if not entry.name.startswith(begin) or (entry.name.startswith(".") and not begin.startswith(".")):
            continue
        is_folder = entry.is_dir()
        if prefix == "@folder:" and not is_folder:
            continue
        name = entry.name + ("/" if is_folder else "")
        text = prefix + os.path.join(folder, name) if folder else prefix + name
        items.append({"text": text, "display": name, "meta": "folder" if is_folder else "file", "kind": "path"})
        if len(items) == MAX_ITEMS:
            break
    return items
