"""Server-sent events out of the HTTP surface: frames, keepalive, and the body that Quart sends.

A stream is an object whose ``next`` gives the next bytes; it waits inside that one call and nowhere else, so no scope
is ever open while Quart sends. Everything that has piled up goes out in one write.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from quart import Response
from quart.wrappers.response import ResponseBody

from hermes.events import SessionEvent
from hermes.nurseries.turn_feed import TurnFeed
from hermes.outcomes import TurnRecord
from hermes.protocols.http.call import ByteStream, Reply
from hermes.protocols.wire.json_codec import encode
from hermes.protocols.wire.sse import json_event, sse_comment

KEEPALIVE_SECONDS: Final = 10.0
KEEPALIVE: Final = sse_comment("keepalive")
SSE_TYPE: Final = "text/event-stream"
RECONNECT_MS: Final = 1000
"""What readers are told to wait before they come back."""

SSE_HEADERS: Final = (("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no"))


def frame(value: Any, *, event: str | None = None, id: int | None = None) -> bytes:
    return json_event(encode(value), event=event, id=id)


def sse_reply(stream: ByteStream, headers: dict[str, str]) -> Reply:
    return Reply(200, stream, {**headers, **dict(SSE_HEADERS)}, SSE_TYPE)


class TurnStream:
    """A stream that shows one turn. Subclasses say how it begins, what each event looks like, and how it ends."""

    def __init__(self, feed: TurnFeed) -> None:
        self._feed = feed
        self._began = False
        self._ended = False

    def opening(self) -> list[bytes]:
        return []

    def shown(self, event: SessionEvent) -> list[bytes]:
        raise NotImplementedError

    async def ending(self, record: TurnRecord) -> list[bytes]:
        raise NotImplementedError

    async def next(self) -> bytes | None:
        """The next bytes; None at the end."""
        if not self._began:
            self._began = True
            if first := b"".join(self.opening()):
                return first
        while not self._ended:
            events = await self._feed.next(KEEPALIVE_SECONDS)
            pieces = [piece for event in events for piece in self.shown(event)]
            if self._feed.finished:
                self._ended = True
                if self._feed.record is not None:
                    pieces += await self.ending(self._feed.record)
            elif not events:
                pieces.append(KEEPALIVE)
            if pieces:
                return b"".join(pieces)
        return None

    def close(self) -> None:
        """Nobody reads any more."""
        self._ended = True


class StreamBody(ResponseBody):
    """What Quart iterates over."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def __aenter__(self) -> StreamBody:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stream.close()

    def __aiter__(self) -> StreamBody:
        return self

    async def __anext__(self) -> bytes:
        data = await self._stream.next()
        if data is None:
            raise StopAsyncIteration
        return data


def quart_response(reply: Reply) -> Response:
    """The reply as Quart's response. A stream has no time limit (Quart's own would cut it after a minute)."""
    if isinstance(reply.body, bytes):
        response = Response(reply.body, reply.status, content_type=reply.content_type)
    else:
        response = Response(StreamBody(reply.body), reply.status, content_type=reply.content_type)
        response.timeout = None
    for name, value in reply.headers.items():
        response.headers[name] = value
    return response
