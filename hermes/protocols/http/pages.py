"""Pages for people, without a key and without data: the API reference at ``/docs`` (the console: ``console_pages``).

Files come out of packages (``importlib.resources``), so that one-file builds work; nothing is fetched from elsewhere.
"""

from __future__ import annotations

import mimetypes
from importlib import resources
from importlib.resources.abc import Traversable

import trio

from hermes.protocols.error_table import HttpRefusal
from hermes.protocols.http.call import Call, Reply

PAGE_POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
VIEWER = "swagger_ui_bundle"
VIEWER_FILES = frozenset({"swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"})
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}

DOCS_PAGE = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Hermes HTTP API</title>
<link rel="icon" href="/docs/favicon-32x32.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
DOCS_SCRIPT = (
    b'SwaggerUIBundle({ url: "/docs/openapi.json", dom_id: "#api", deepLinking: true, tryItOutEnabled: true });\n'
)


def page(body: bytes, name: str) -> Reply:
    suffix = name[name.rfind(".") :]
    content_type = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Reply(200, body, {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}, content_type)


async def docs(_call: Call) -> Reply:
    """The API reference."""
    await trio.lowlevel.checkpoint()
    return page(DOCS_PAGE, "index.html")


async def docs_file(call: Call) -> Reply:
    name = call.path["name"]
    if name == "start.js":
        await trio.lowlevel.checkpoint()
        return page(DOCS_SCRIPT, name)
    if name not in VIEWER_FILES:
        raise HttpRefusal("not_found", "there is no such page")
    return page(await _read(_viewer() / name), name)


def _viewer() -> Traversable:
    folder = resources.files(VIEWER) / "vendor"
    return next(entry for entry in folder.iterdir() if entry.name.startswith("swagger-ui-"))


async def _read(file: Traversable) -> bytes:
    return await trio.to_thread.run_sync(file.read_bytes)
