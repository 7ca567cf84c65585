"""Sending one reply over one connection, faults included. Knows nothing of routes, rules or other requests."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from hermes.testing.http_connection import HttpConnection
from hermes.testing.request_log import RequestLog, RequestRecord
from hermes.testing.script import Conversation, Delay, Faults, Finish, Reply, Step, WaitFor
from hermes.testing.wire_chat import ChatEncoder
from hermes.testing.wire_frames import Encoder, Frame, Json, WireFormat, error_body, to_json
from hermes.testing.wire_messages import MessagesEncoder
from hermes.testing.wire_responses import ResponsesEncoder

GARBAGE = {
    "json": b'data: {"choices": [{"delta": {"cont\n\n',
    "sse": b"<html><body>502 Bad Gateway</body></html>\n\n",
    "bytes": b"data: \xff\xfe\x00\x80\n\n",
}
STREAM_HEADERS = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))


class ConnectionDropped(Exception):
    """The script wants the connection closed here."""


class Delivery:
    """One answer on its way. Returns when it is complete; raises ConnectionDropped where the script drops it."""

    def __init__(
        self,
        connection: HttpConnection,
        log: RequestLog,
        record: RequestRecord,
        wait_gate: Callable[[str], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._log = log
        self._record = record
        self._wait_gate = wait_gate
        self._faults = Faults()
        self._frames = 0

    async def reply(self, reply: Reply, wire: WireFormat, body: Json, conversation: Conversation) -> None:
        faults = self._faults = reply.faults
        if faults.hang:
            await trio.sleep_forever()
        if faults.status is not None or faults.error_at_200:
            await self._http_error(wire)
            return
        encoder = _encoder(reply, wire, body, conversation)
        if body.get("stream"):
            await self._stream(encoder, reply, conversation)
        else:
            await self._whole(encoder, reply, conversation)

    async def json(self, status: int, body: object, headers: tuple[tuple[str, str], ...] = ()) -> None:
        data = to_json(body).encode()
        fixed = (("content-type", "application/json"), ("content-length", str(len(data))))
        await self._head(status, (*fixed, *headers))
        self._record.answered = True
        await self._connection.send_body(data)
        await self._connection.end()

    async def _http_error(self, wire: WireFormat) -> None:
        faults = self._faults
        status = faults.status or 500
        body: object = faults.body
        if body is None:
            body = error_body(wire, status, f"The fake provider was told to answer with {status}.")
        headers: tuple[tuple[str, str], ...] = ()
        if faults.retry_after is not None:
            seconds = faults.retry_after
            text = f"{math.ceil(seconds)}" if isinstance(seconds, float) and seconds.is_integer() else str(seconds)
            headers = (("retry-after", text),)
        await self.json(200 if faults.error_at_200 else status, body, headers)

    async def _whole(self, encoder: Encoder, reply: Reply, conversation: Conversation) -> None:
        """The answer in one piece. Positions of stream faults have no meaning here: any of them hits the whole."""
        faults = self._faults
        finish = Finish("stop", None)
        for step in reply.steps(conversation):
            if isinstance(step, Finish):
                finish = step
            elif not await self._waited(step):
                encoder.feed(step)
        await trio.sleep(faults.slow)
        if faults.mid_stream_error is not None:
            wanted = faults.mid_stream_error
            await self.json(500, encoder.error(wanted.message, wanted.type, wanted.code).data)
            return
        data = to_json(encoder.whole(finish)).encode()
        if faults.garbage is not None:
            data = data[: len(data) // 2]
        await self._head(200, (("content-type", "application/json"), ("content-length", str(len(data)))))
        if faults.hang_after is not None:
            await trio.sleep_forever()
        if faults.dropped_after is not None:
            await self._connection.send_half(data)
            raise ConnectionDropped
        self._record.answered = True
        await self._body(data)
        await self._connection.end()

    async def _stream(self, encoder: Encoder, reply: Reply, conversation: Conversation) -> None:
        await self._head(200, STREAM_HEADERS)
        await self._frames_of(encoder, encoder.start())
        for step in reply.steps(conversation):
            if isinstance(step, Finish):
                await self._frames_of(encoder, encoder.finish(step), last=True)
            elif not await self._waited(step):
                await self._frames_of(encoder, encoder.feed(step))
        await self._fault_at_this_place(encoder)
        self._record.answered = True
        await self._connection.end()

    async def _waited(self, step: Step) -> bool:
        """True if the step was a wait, and is over."""
        match step:
            case Delay(seconds):
                await trio.sleep(seconds)
            case WaitFor(gate):
                await self._wait_gate(gate)
            case _:
                return False
        return True

    async def _frames_of(self, encoder: Encoder, frames: list[Frame], *, last: bool = False) -> None:
        for number, frame in enumerate(frames, 1):
            await self._fault_at_this_place(encoder)
            if self._faults.slow:
                await trio.sleep(self._faults.slow)
            if last and number == len(frames):
                self._record.answered = self._faults.hang_after != self._frames + 1
            await self._frame(frame)

    async def _frame(self, frame: Frame) -> None:
        newline = "\r\n" if self._faults.crlf else "\n"
        data = frame.encode(newline)
        if self._faults.dropped_after == self._frames:
            await self._connection.send_half(data)
            raise ConnectionDropped
        comment = f": keep-alive{newline}{newline}".encode()
        await self._body(comment * self._faults.keepalive + data)
        self._frames += 1
        self._log.chunk_sent(self._record)

    async def _fault_at_this_place(self, encoder: Encoder) -> None:
        """What happens between two frames, and once more behind the last."""
        faults = self._faults
        if faults.hang_after == self._frames:
            await trio.sleep_forever()
        if faults.garbage is not None and faults.garbage_after == self._frames:
            self._faults = faults.model_copy(update={"garbage": None})
            await self._body(GARBAGE[faults.garbage])
        wanted = faults.mid_stream_error
        if wanted is not None and wanted.after == self._frames:
            await self._frame(encoder.error(wanted.message, wanted.type, wanted.code))
            # The real services close after an error; so nothing that follows can be taken for an answer.
            await self._connection.end()
            raise ConnectionDropped

    async def _body(self, data: bytes) -> None:
        size = self._faults.split_bytes or max(1, len(data))
        for at in range(0, len(data), size):
            await self._connection.send_body(data[at : at + size])

    async def _head(self, status: int, headers: tuple[tuple[str, str], ...]) -> None:
        self._log.first_byte(self._record, status)
        await self._connection.send_head(status, headers)


def _encoder(reply: Reply, wire: WireFormat, body: Json, conversation: Conversation) -> Encoder:
    match wire:
        case WireFormat.CHAT:
            return ChatEncoder(body, reply.faults, conversation.number)
        case WireFormat.MESSAGES:
            return MessagesEncoder(body, reply.faults, conversation.number, reply.input_tokens(conversation))
        case WireFormat.RESPONSES:
            return ResponsesEncoder(body, reply.faults, conversation.number)
