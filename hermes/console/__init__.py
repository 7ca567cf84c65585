"""The web console: a page that speaks the gateway protocol like any other host.

``src/`` holds its sources (TypeScript), ``static/`` what is built from them (``make console``); only the latter is
shipped, and read from the package, so that it also works out of an archive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

INDEX: Final = "index.html"
CONTENT_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
"""By the end of the name. A file of another kind is not served."""


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """``path`` is where it is served; ``etag`` changes with the content."""

    path: str
    body: bytes
    content_type: str
    etag: str


def console_files() -> Iterator[ConsoleFile]:
    """Everything that the page consists of. Nothing if the console is not part of this installation."""
    folder = files("hermes.console") / "static"
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        content_type = CONTENT_TYPES.get(entry.name.rpartition(".")[2])
        if content_type is None or not entry.is_file():
            continue
        body = entry.read_bytes()
        digest = hashlib.sha256(body).hexdigest()[:32]
        yield ConsoleFile("/" if entry.name == INDEX else f"/{entry.name}", body, content_type, f'"{digest}"')
