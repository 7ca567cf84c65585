"""The body guard, driven as a server drives an ASGI application."""

from typing import Any

import pytest
import trio
import trio.testing

from hermes.protocols.http.body_guard import SECURITY_HEADERS, BodyGuard, Message, Receive, Refusal, Scope, Send

TOO_LARGE, BAD_LENGTH, TOO_SLOW = Refusal(413, b'{"e":"large"}'), Refusal(400, b'{"e":"length"}'), Refusal(408, b"{}")


class Exchange:
    """One request's messages and the answer to it."""

    def __init__(self, *parts: bytes, headers: dict[str, str] | None = None, stalls: bool = False) -> None:
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
        }
        self.pending: list[Message] = [
            {"type": "http.request", "body": part, "more_body": index < len(parts) - 1}
            for index, part in enumerate(parts)
        ]
        self.stalls = stalls
        self.sent: list[Message] = []
        self.seen_by_app: bytes | None = None

    async def receive(self) -> Message:
        await trio.lowlevel.checkpoint()
        if self.pending:
            return self.pending.pop(0)
        if self.stalls:
            await trio.sleep_forever()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        self.seen_by_app = body
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-frame-options", b"SAMEORIGIN")]})
        await send({"type": "http.response.body", "body": b"ok", "more_body": True})

    async def through_guard(self, **settings: Any) -> dict[bytes, bytes]:
        guard = BodyGuard(
            self.app,
            too_large=TOO_LARGE,
            bad_length=BAD_LENGTH,
            too_slow=TOO_SLOW,
            **{"max_body": 10, "drain": 20, "deadline": 5, "drain_deadline": 5, **settings},
        )
        await guard(self.scope, self.receive, self.send)
        return dict(self.sent[0]["headers"]) if self.sent else {}

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status


async def test_a_body_within_the_limit_reaches_the_application_whole() -> None:
    exchange = Exchange(b"12345", b"", b"67890")
    headers = await exchange.through_guard()
    assert (exchange.status, exchange.seen_by_app) == (200, b"1234567890")
    assert headers[b"x-frame-options"] == b"SAMEORIGIN"
    assert {name for name, _ in SECURITY_HEADERS} <= set(headers)


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_read_to_its_end_and_the_connection_kept(declared: bool) -> None:
    exchange = Exchange(b"12345", b"67890", b"x", headers={"Content-Length": "11"} if declared else None)
    headers = await exchange.through_guard()
    assert (exchange.status, exchange.sent[1]["body"], exchange.seen_by_app) == (413, TOO_LARGE.body, None)
    assert exchange.pending == []
    assert b"connection" not in headers
    assert headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_far_over_the_limit_closes_the_connection(declared: bool) -> None:
    exchange = Exchange(*[b"12345"] * 50, headers={"Content-Length": "250"} if declared else None)
    headers = await exchange.through_guard()
    assert exchange.status == 413
    assert headers[b"connection"] == b"close"
    assert 0 < len(exchange.pending) < 45


async def test_an_over_size_body_that_stalls_is_answered_all_the_same(autojump_clock: trio.testing.MockClock) -> None:
    exchange = Exchange(b"12345", b"67890", b"x", b"never")
    exchange.pending.pop()
    exchange.stalls = True
    headers = await exchange.through_guard()
    assert (exchange.status, headers[b"connection"]) == (413, b"close")


async def test_a_slow_body_is_answered_and_the_connection_closed(autojump_clock: trio.testing.MockClock) -> None:
    exchange = Exchange(b"12345", b"never")
    exchange.pending.pop()
    exchange.stalls = True
    headers = await exchange.through_guard()
    assert (exchange.status, headers[b"connection"], exchange.seen_by_app) == (408, b"close", None)


async def test_a_length_that_is_no_number_is_refused() -> None:
    exchange = Exchange(b"12345", headers={"Content-Length": "-5"})
    await exchange.through_guard()
    assert (exchange.status, exchange.sent[1]["body"]) == (400, BAD_LENGTH.body)


async def test_a_length_that_no_number_holds_is_too_large() -> None:
    exchange = Exchange(b"12345", headers={"Content-Length": "9" * 5000})
    await exchange.through_guard()
    assert exchange.status == 413


async def test_who_is_not_admitted_is_refused_before_the_body_is_kept() -> None:
    exchange = Exchange(b"12345", b"67890")
    headers = await exchange.through_guard(admit=lambda scope: Refusal(401, b"{}", ((b"www-authenticate", b"Bearer"),)))
    assert (exchange.status, exchange.seen_by_app) == (401, None)
    assert headers[b"www-authenticate"] == b"Bearer"
    assert b"connection" not in headers


async def test_a_client_that_leaves_gets_no_answer() -> None:
    exchange = Exchange(b"12345", b"never")
    exchange.pending.pop()
    await exchange.through_guard()
    assert (exchange.sent, exchange.seen_by_app) == ([], None)
