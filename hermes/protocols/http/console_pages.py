"""The console's files over HTTP: public, because they hold no data; what they show comes through the gateway, which
wants the key. They may load from this server alone.
"""

from __future__ import annotations

from typing import Final

import trio

from hermes.console import ConsoleFile, console_files
from hermes.protocols.http.call import Call, Handler, Reply, Route

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
SUMMARIES: Final = {"/": "The web console"}


def console_routes() -> tuple[Route, ...]:
    """One route for each file; they are read once, when the route table is made."""
    return tuple(
        Route(
            "GET",
            file.path,
            _serve(file),
            SUMMARIES.get(file.path, f"A file of the web console, {file.path[1:]}"),
            public=True,
            page=True,
        )
        for file in console_files()
    )


def _serve(file: ConsoleFile) -> Handler:
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        # Asked for again each time, and answered with 304: so the page never mixes two versions.
        "Cache-Control": "no-cache",
        "ETag": file.etag,
    }

    async def serve(call: Call) -> Reply:
        await trio.lowlevel.checkpoint()
        known = {tag.strip().removeprefix("W/") for tag in call.headers.get("if-none-match", "").split(",")}
        if file.etag in known or "*" in known:
            return Reply(304, b"", dict(headers), file.content_type)
        return Reply(200, file.body, dict(headers), file.content_type)

    return serve
