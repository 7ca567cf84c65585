"""The one-file build for tests: made once for what the sources are now, and kept until they change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "binary"
# More than one, because a run of another state of the sources may be using its own.
KEPT_BUILDS = 2


def can_build() -> bool:
    return find_spec("PyInstaller") is not None


def binary() -> Path:
    """The file. Raises ``CalledProcessError`` if it cannot be built; a minute of work unless it is there already."""
    folder = KEPT / _digest()
    if not (folder / "hermes").is_file():
        for old in sorted(KEPT.glob("*"), key=lambda place: place.stat().st_mtime)[:-KEPT_BUILDS]:
            shutil.rmtree(old, ignore_errors=True)
        program = ROOT / ".ci" / "packaging" / "build_binary.py"
        subprocess.run([sys.executable, str(program), str(folder)], check=True, cwd=ROOT)
    return folder / "hermes"


def _digest() -> str:
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    yield from sorted((ROOT / ".ci" / "packaging").glob("*.py"))
    yield ROOT / "pyproject.toml"
    yield from sorted((ROOT / "hermes").rglob("*.py"))
    yield from sorted((ROOT / "hermes" / "console" / "static").iterdir())
