"""ASGI middleware in front of the application: bounded request bodies, and security headers on every answer.

The body is read here, not by the application, because an application that answers before it has read everything
leaves Hypercorn's reader stuck and the kept-alive connection unusable. A body over the limit is read on and thrown
away, so that the client sees the refusal and may use the connection again; one that goes on for more than ``drain``
bytes beyond the limit, or too slowly, is answered with ``Connection: close``. Who has no right to be heard is refused
by ``admit`` before a byte of the body is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import trio

from hermes.records import dataclass

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

MAX_BODY: Final = 10_000_000
DRAIN: Final = 8 * 1024 * 1024
MAX_DIGITS: Final = 18

SECURITY_HEADERS: Final[Headers] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"strict-transport-security", b"max-age=31536000; includeSubDomains"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"x-xss-protection", b"0"),
    (b"referrer-policy", b"no-referrer"),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A complete answer: status, JSON body and extra headers."""

    status: int
    body: bytes
    headers: Headers = ()


class BodyGuard:
    """The middleware.

    Parameters: ``too_large``, ``bad_length`` and ``too_slow``, the answers to an over-size body, to an unparsable
    ``Content-Length`` (or one beside a ``Transfer-Encoding``) and to a body that takes longer than ``deadline``
    seconds; ``admit``, called with the scope before the body is read, returns the refusal of a request that shall not
    reach the application.
    """

    def __init__(
        self,
        app: AsgiApp,
        *,
        too_large: Refusal,
        bad_length: Refusal,
        too_slow: Refusal,
        admit: Callable[[Scope], Refusal | None] | None = None,
        max_body: int = MAX_BODY,
        drain: int = DRAIN,
        deadline: float = 60.0,
        drain_deadline: float = 10.0,
    ) -> None:
        self._app = app
        self._too_large = too_large
        self._bad_length = bad_length
        self._too_slow = too_slow
        self._admit = admit
        self._max_body = max_body
        self._drain = drain
        self._deadline = deadline
        self._drain_deadline = drain_deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _with_security_headers(send)
        if _has_two_lengths(scope):
            # Where the request ends is a matter of opinion: what follows could be the rest of it, or another client's.
            await self._refuse(self._bad_length, receive, guarded, already_read=0, close=True)
            return
        refusal = self._refusal_of_head(scope)
        if refusal is not None:
            await self._refuse(refusal, receive, guarded, already_read=0)
            return
        body = _Body()
        with trio.move_on_after(self._deadline) as slow:
            await body.read(receive, up_to=self._max_body)
        if slow.cancelled_caught:
            await _answer(self._too_slow, guarded, close=True)
        elif body.client_gone:
            return
        elif body.size > self._max_body:
            await self._refuse(self._too_large, receive, guarded, already_read=body.size, ended=body.ended)
        else:
            await self._app(scope, body.replay(receive), guarded)

    def _refusal_of_head(self, scope: Scope) -> Refusal | None:
        refusal = self._admit(scope) if self._admit is not None else None
        if refusal is not None:
            return refusal
        for name, value in scope["headers"]:
            if name.lower() == b"content-length":
                if not value.isdigit():
                    return self._bad_length
                if len(value) > MAX_DIGITS or int(value) > self._max_body:
                    return self._too_large
        return None

    async def _refuse(
        self,
        refusal: Refusal,
        receive: Receive,
        send: Send,
        *,
        already_read: int,
        ended: bool = False,
        close: bool = False,
    ) -> None:
        """Read the rest of the body, within bounds, and only then answer: a client that is still sending would
        not see an answer, and the connection could not be used again."""
        rest = _Body(ended=ended)
        with trio.move_on_after(self._drain_deadline):
            await rest.discard(receive, up_to=self._max_body + self._drain - already_read)
        if not rest.client_gone:
            await _answer(refusal, send, close=close or not rest.ended)


def _has_two_lengths(scope: Scope) -> bool:
    return {b"content-length", b"transfer-encoding"} <= {name.lower() for name, _ in scope["headers"]}


class _Body:
    """A request body while it is read."""

    def __init__(self, *, ended: bool = False) -> None:
        self.ended = ended
        self.client_gone = False
        self.size = 0
        self._parts: list[bytes] = []

    async def read(self, receive: Receive, up_to: int) -> None:
        """Read until the end or until more than ``up_to`` bytes have come, keeping what is within the bound."""
        while not self.ended and self.size <= up_to:
            part = await self._next(receive)
            if self.size <= up_to:
                self._parts.append(part)
            else:
                self._parts.clear()
            if self.client_gone:
                return

    async def discard(self, receive: Receive, up_to: int) -> None:
        while not self.ended and not self.client_gone and self.size <= up_to:
            await self._next(receive)

    def replay(self, receive: Receive) -> Receive:
        """A ``receive`` that hands the whole body over first."""
        pending = [b"".join(self._parts)]
        self._parts.clear()

        async def receive_again() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            return await receive()

        return receive_again

    async def _next(self, receive: Receive) -> bytes:
        message = await receive()
        if message["type"] != "http.request":
            self.client_gone = True
            return b""
        part: bytes = message.get("body", b"")
        self.size += len(part)
        self.ended = not message.get("more_body", False)
        return part


def _with_security_headers(send: Send) -> Send:
    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in SECURITY_HEADERS if name not in present]
            message = {**message, "headers": headers}
        await send(message)

    return send_guarded


async def _answer(refusal: Refusal, send: Send, *, close: bool) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(refusal.body)).encode()),
        *refusal.headers,
    ]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body, "more_body": False})
