"""Finding skills on disk: directories with a ``SKILL.md``. Blocking reads, bounded."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from hermes.agent.tools.file_access import FileRefused, read_bytes
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_MAX_SKILLS = 1000
_MAX_DEPTH = 4
_MAX_BYTES = 500_000
_MAX_WORDS = 100
_FRONT = lazy_pattern(r"\A﻿?---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.S)


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill. ``category`` is the folder between the root and the skill, ``qualified`` its unique name."""

    name: str
    description: str
    category: str
    directory: Path
    tags: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    required_variables: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        return slug_of(self.name)

    @property
    def qualified(self) -> str:
        return f"{self.category}/{self.slug}" if self.category else self.slug


def slug_of(name: str) -> str:
    """Lower case; letters (also Unicode ones) and digits stay, everything else becomes single dashes."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-")


def skill_roots(
    home: Path, cwd: str, *, trusted: Sequence[str] = (), create_dir: str = "", external: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Where skills are looked for, first wins: a trusted project, the home, the create directory, others."""
    roots: list[Path] = []
    project = Path(os.path.realpath(cwd)) if cwd else None
    known = {os.path.realpath(Path(one).expanduser()) for one in trusted}
    if project is not None and any(str(folder) in known for folder in (project, *project.parents)):
        root = next(folder for folder in (project, *project.parents) if str(folder) in known)
        roots += [root / ".hermes" / "skills", root / ".agents" / "skills"]
    roots.append(home / "skills")
    roots += [Path(one).expanduser() for one in ((create_dir,) if create_dir else ()) + tuple(external)]
    return tuple(dict.fromkeys(roots))


def discover(roots: Sequence[Path]) -> tuple[Skill, ...]:
    """All skills below the roots, in order; of two with the same qualified name the first counts. Blocking."""
    found: dict[str, Skill] = {}
    for root in roots:
        for directory in _skill_directories(root):
            skill = load(directory, root)
            if skill is not None:
                found.setdefault(skill.qualified, skill)
            if len(found) >= _MAX_SKILLS:
                return tuple(found.values())
    return tuple(found.values())


def _skill_directories(root: Path) -> list[Path]:
    found: list[Path] = []
    waiting = [(root, 0)]
    while waiting and len(found) < _MAX_SKILLS:
        folder, depth = waiting.pop(0)
        if (folder / "SKILL.md").is_file() and depth > 0:
            found.append(folder)
            continue
        if depth < _MAX_DEPTH:
            with contextlib.suppress(OSError):
                names = sorted(
                    entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[:1] not in "._"
                )
                waiting += [(folder / name, depth + 1) for name in names]
    return found


def load(directory: Path, root: Path) -> Skill | None:
    """The skill in a directory, or None if its file cannot be read."""
    content = read_skill_file(directory, "SKILL.md")
    if content is None:
        return None
    head, body = split_front_matter(content)
    category = directory.parent.relative_to(root).as_posix() if directory.is_relative_to(root) else ""
    first = next((line.strip() for line in body.splitlines() if line.strip() and not line.startswith("#")), "")
    metadata = head.get("metadata")
    return Skill(
        name=_text(head.get("name")) or directory.name,
        description=" ".join((_text(head.get("description")) or first).split())[:500],
        category="" if category == "." else category,
        directory=directory,
        tags=_words(head.get("tags")),
        platforms=_words(head.get("platforms")),
        required_variables=_variables(head.get("required_environment_variables") or head.get("required_variables")),
        metadata=metadata if isinstance(metadata, Mapping) else {},
    )


def split_front_matter(content: str) -> tuple[Mapping[str, Any], str]:
    """(front matter, body); a broken front matter counts as none."""
    match = _FRONT.match(content)
    if match is None:
        return {}, content
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        head = YAML(typ="safe", pure=True).load(match[1])
    except (YAMLError, ValueError, TypeError, RecursionError):
        # The library lets out what its own conversions raise: an impossible date, a text that is no number.
        head = None
    return (head if isinstance(head, Mapping) else {}), content[match.end() :]


def read_skill_file(directory: Path, name: str) -> str | None:
    """A text file of a skill; None if it is missing, too large, or lies outside of the directory."""
    base = os.path.realpath(directory)
    path = os.path.realpath(directory / name)
    if path != base and not path.startswith(base + os.sep):
        return None
    try:
        raw, _ = read_bytes(Path(path), limit=_MAX_BYTES)
    except (OSError, FileRefused):
        return None
    return None if b"\0" in raw else raw.decode("utf-8", "replace")


def linked_files(directory: Path) -> tuple[str, ...]:
    """The other files of a skill, relative, at most 200."""
    found: list[str] = []
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(one for one in folders if not one.startswith((".", "__")))
        for name in sorted(names):
            path = (Path(folder) / name).relative_to(directory).as_posix()
            if path != "SKILL.md" and not name.startswith("."):
                found.append(path)
            if len(found) >= 200:
                return tuple(found)
    return tuple(found)


def _text(value: Any) -> str:
    """A scalar as text. A list is none: with aliases a few lines stand for more than fits into the memory."""
    return "" if value is None or isinstance(value, Mapping | list | set | tuple) else str(value)


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    words = map(_text, value[:_MAX_WORDS]) if isinstance(value, list) else ()
    return tuple(word.strip() for word in words if word.strip())


def _variables(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return _words(value)
    names = (_text(one.get("name") if isinstance(one, Mapping) else one) for one in value[:_MAX_WORDS])
    return tuple(name for name in names if name)
