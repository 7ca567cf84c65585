"""Texts too long for the conversation: written under the home directory, where the model can read ranges of them."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path

KEEP_SECONDS = 24 * 3600.0


def write_spillover(home: Path, name: str, text: str, *, now: float) -> str | None:
    """Write the text and forget files older than a day. Blocking; the path, or None if the disk refuses."""
    folder = home / "cache" / "spillover"
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:80] or "output"
    path = folder / f"{safe}-{uuid.uuid4().hex[:6]}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return None
    _prune(folder, now)
    return str(path)


def _prune(folder: Path, now: float) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False) and now - entry.stat().st_mtime > KEEP_SECONDS:
                    os.unlink(entry.path)
