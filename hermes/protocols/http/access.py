"""Who may be heard: the key, the origins, and the headers that browsers want. Decided from the request head alone.

Order (api-server §1.3, §1.5): origin first, for any path and method, then the key; a body is read only after both.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Callable, Sequence
from typing import Any

from hermes.errors import Forbidden, Unauthorized
from hermes.protocols.error_table import http_error, row_of
from hermes.protocols.http.body_guard import Headers, Refusal, Scope
from hermes.protocols.http.call import error_body
from hermes.protocols.wire.json_codec import encode

log = logging.getLogger(__name__)

CORS_HEADERS: Headers = (
    (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE, OPTIONS"),
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Type, Idempotency-Key, X-Hermes-Session-Id, X-Hermes-Session-Key, Last-Event-ID, "
        b"X-Artifact-Filename, X-Hermes-On-Disconnect, X-Hermes-Session-Token",
    ),
    (
        b"access-control-expose-headers",
        b"X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial, X-Hermes-Error, "
        b"X-Hermes-Model, Idempotency-Replayed, Retry-After, Location",
    ),
    (b"access-control-max-age", b"600"),
)
SESSION_TOKEN = b"x-hermes-session-token"
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of this (lower-case) name."""
    for key, value in scope["headers"]:
        if key.lower() == name:
            return bytes(value)
    return None


class Access:
    """The gate in front of the application.

    Parameters: ``key``, the server's; ``origins``, asked for the allowlist of the moment; ``host``, the address the
    server listens on; ``is_public``, whether a path needs no key.
    """

    def __init__(
        self, *, key: str, origins: Callable[[], Sequence[str]], host: str, is_public: Callable[[str, str], bool]
    ) -> None:
        self._key = key.encode()
        self._origins = origins
        self._host = host
        self._is_public = is_public

    def admit(self, scope: Scope) -> Refusal | None:
        """The refusal (or the preflight's answer) of a request that shall not reach the application."""
        origin = self.foreign_origin(scope)
        allowed = origin is not None and self.allows(origin)
        if scope["method"] == "OPTIONS":
            return Refusal(200, b"") if allowed else _refused_origin()
        if origin is not None and not allowed:
            return _refused_origin()
        if self._is_public(scope["method"], scope["path"]) or self.has_key(scope):
            return None
        self._audit(scope)
        error = http_error(Unauthorized(), "auth")
        return Refusal(error.status, encode(error_body(error)), ((b"www-authenticate", b"Bearer"),))

    def has_key(self, scope: Scope) -> bool:
        """The bearer token is the key, or the session token that pages and their hosts send. Compared as bytes, in
        constant time."""
        scheme, _, token = (header(scope, b"authorization") or b"").strip().partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._key):
            return True
        return hmac.compare_digest((header(scope, SESSION_TOKEN) or b"").strip(), self._key)

    def allows(self, origin: str) -> bool:
        origins = self._origins()
        return "*" in origins or origin in origins

    def foreign_origin(self, scope: Scope) -> str | None:
        """The origin, unless there is none or it is this server's own."""
        raw = header(scope, b"origin")
        if raw is None:
            return None
        origin = raw.decode("latin-1").strip()
        host = (header(scope, b"host") or b"").decode("latin-1").strip().lower()
        own = origin.lower() in (f"http://{host}", f"https://{host}") and self._is_own_host(host)
        return None if own else origin

    def cors_headers(self, scope: Scope) -> Headers:
        """What an allowed origin's answer carries, streams included."""
        origin = self.foreign_origin(scope)
        if origin is None or not self.allows(origin):
            return ()
        if "*" in self._origins():
            return ((b"access-control-allow-origin", b"*"), *CORS_HEADERS)
        return ((b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin"), *CORS_HEADERS)

    def _is_own_host(self, host: str) -> bool:
        """A name that an attacker's DNS could point here is not ours, even if it is what the browser asked for."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name in LOCAL_NAMES or name == self._host.lower():
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _audit(self, scope: Scope) -> None:
        peer = (scope.get("client") or ("?",))[0]
        shown = [
            _plain(value)
            for value in (
                peer,
                header(scope, b"x-forwarded-for") or "-",
                scope["method"],
                scope["path"],
                header(scope, b"user-agent") or "-",
            )
        ]
        log.warning("refused without a valid key: peer %s forwarded %s %s %s agent %s", *shown)


def _refused_origin() -> Refusal:
    return Refusal(row_of(Forbidden()).http, b"")


def _plain(value: Any) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return "".join(char for char in text if char.isprintable())[:200]
