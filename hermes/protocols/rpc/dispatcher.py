"""Drives one JSON-RPC conversation over a channel: frames in, handlers called, one answer for each request.

``RpcConnection`` is the single place where an exception becomes an error frame. The synchronous part of a handler
runs in the reader, in arrival order; what it leaves to wait for runs in a task of the connection, cancellable by the
request's id. Answers to our own requests are handed to their callbacks in the reader, synchronously. A handler never
ends the connection, whatever it raises; a bad frame costs only itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import trio
from pydantic import ValidationError

from hermes.errors import Overloaded
from hermes.logs import log_fields
from hermes.nurseries.connection import ConnectionEnd, ConnectionTree
from hermes.nurseries.containment import Crash, PooledTask, PoolFull, alone, contained
from hermes.protocols.channels.message_channel import Frames, MessageChannel
from hermes.protocols.rpc.method_table import Answer, Awaiting, Method, MethodTable, to_wire
from hermes.protocols.wire.frame_values import MAX_VALUES, are_too_many, may_be_too_many
from hermes.protocols.wire.jsonrpc import (
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    ErrorObject,
    build_notification,
)
from hermes.protocols.wire.ndjson import Line, TooManyValues
from hermes.protocols.wire.peer import Call, Dropped, Peer, Refused, Reply
from hermes.records import dataclass

logger = logging.getLogger(__name__)

C = TypeVar("C")

RESERVED = 64
"""So many of those that are always taken may wait beside the others."""

MOST_DROPPED_TOLD = 20
"""Ignored frames of one connection that are worth a line in the log; a peer that sends nothing else gets no more."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the surfaces that speak JSON-RPC.

    ``map_error``: any exception of a handler to its error object, given the method's name; must not raise.
    ``map_params_error``: the same for parameters that the model refused. ``before``: called before a method is
    looked up, may refuse the call. ``cancel_method``: the notification that cancels a request, and the parameter
    that holds its id. ``answers_notifications``: whether calls without an id are answered with a null one.
    ``always``: methods that are taken although as many requests wait as may: stops, answers, signs of life.
    ``holds``: whether other calls wait then for their turn, in order; else they are refused. ``stops``: of those that
    are always taken, the ones that pass what is held and withdraw what is held for the same ``session_id``.
    """

    map_error: Callable[[Exception, str], ErrorObject]
    map_params_error: Callable[[ValidationError, str], ErrorObject]
    before: Callable[[Call], ErrorObject | None] | None = None
    cancel_method: str = "$/cancel_request"
    cancel_id_keys: tuple[str, ...] = ("requestId", "id")
    answers_notifications: bool = False
    always: frozenset[str] = frozenset()
    holds: bool = False
    stops: frozenset[str] = frozenset()
    cancelled: ErrorObject = ErrorObject(REQUEST_CANCELLED, "request cancelled")


async def _counted(line: bytes) -> Line:
    """The line, or that it holds too much."""
    too_many = await trio.to_thread.run_sync(are_too_many, line, MAX_VALUES)
    return TooManyValues(MAX_VALUES) if too_many else line


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call whose answer is still being waited for."""

    task: PooledTask
    on_cancel: Callable[[], None] | None


ReplyHandler = Callable[[Reply], None]


class RpcConnection(Generic[C]):
    """One client's conversation.

    Parameters: ``max_requests``, how many requests may wait at a time; more are refused as overloaded, or, where the
    dialect holds them, so many again are kept and then nothing more is read; ``farewell_within``, how long the end may
    take to flush and close.
    """

    def __init__(
        self,
        channel: MessageChannel,
        table: MethodTable[C],
        dialect: Dialect,
        *,
        max_requests: int = 256,
        farewell_within: float = 6.0,
    ) -> None:
        self._channel = channel
        self._table = table
        self._dialect = dialect
        self._peer = Peer(answers_notifications=dialect.answers_notifications)
        self._max_requests = max_requests
        self._tree = ConnectionTree(channel.name, max_requests=max_requests + RESERVED, farewell_within=farewell_within)
        self._waiting: dict[int, _Waiting] = {}
        self._held: dict[int, Call] = {}
        self._changed = trio.Event()
        self._reply_handlers: dict[str, ReplyHandler] = {}
        self._dropped = 0

    @property
    def channel(self) -> MessageChannel:
        return self._channel

    @property
    def name(self) -> str:
        return self._channel.name

    async def run(
        self,
        ctx: C,
        *,
        on_open: Callable[[], None] | None = None,
        on_hang_up: Callable[[], Awaitable[None]] | None = None,
    ) -> ConnectionEnd:
        """Serve the client until it is gone or the connection is closed.

        Parameters: ``on_open``, called before the first frame is read: the place for a greeting and for
        companions; ``on_hang_up``, awaited when the client has ended its input, before waiting requests are
        cancelled.
        """

        async def read() -> None:
            for name, fn in self._channel.companions():
                self._tree.start_companion(fn, name=name)
            if on_open is not None:
                on_open()
            while (line := await self._channel.receive()) is not None:
                if isinstance(line, bytes) and may_be_too_many(line, MAX_VALUES):
                    line = await _counted(line)
                self._take(ctx, self._peer.receive(line))
                while len(self._held) >= self._max_requests:
                    # Not read on: the transport tells the client.
                    await self._changed.wait()

        return await self._tree.run(
            read=read, write=self._channel.run_writer, farewell=self._channel.aclose, on_hang_up=on_hang_up
        )

    def notify(self, method: str, params: Any = None) -> bool:
        """Queue a notification. False when the client is gone. Raises Unencodable."""
        return self._channel.send_nowait(build_notification(method, params))

    def send_frame(self, frame: bytes) -> bool:
        """Queue a frame that was built elsewhere. False when the client is gone."""
        return self._channel.send_nowait(frame)

    def send_together(self, frames: Frames) -> bool:
        """Queue frames that others get too. False when the client is gone."""
        return self._channel.send_together_nowait(frames)

    @property
    def is_running(self) -> bool:
        """Whether the client is still being served."""
        return self._tree.is_running

    @property
    def has_room(self) -> bool:
        """Whether queueing is welcome right now."""
        return self._channel.has_room

    async def wait_room(self) -> bool:
        """Wait until queueing is welcome, for senders that can wait. False when the client is gone."""
        return await self._channel.wait_room()

    async def flushed(self, within: float) -> bool:
        """Wait until everything queued has been written. False when that took longer than ``within``."""
        return await self._channel.flushed(within)

    def ask(self, id: str, method: str, params: Any, on_reply: ReplyHandler) -> bool:
        """Queue a request of ours. ``on_reply`` is called in the reader with the answer, at most once; it must not
        wait, and what it raises is logged. False when the client is gone."""
        frame = self._peer.ask(id, method, params)
        self._reply_handlers[id] = on_reply
        if self._channel.send_nowait(frame):
            return True
        self.withdraw(id)
        return False

    def expect(self, id: str, on_reply: ReplyHandler) -> None:
        """Take the answer to a request of ours that the client knows already, from a snapshot; nothing is sent."""
        self._peer.expect(id)
        self._reply_handlers[id] = on_reply

    def withdraw(self, id: str) -> bool:
        """Stop waiting for the answer to a request of ours; a late one is dropped. True if it was open."""
        self._reply_handlers.pop(id, None)
        return self._peer.withdraw(id)

    async def answered(self, within: float) -> None:
        """Wait until no request of the client waits for its answer, at most ``within`` seconds."""
        with trio.move_on_after(within):
            while self._held:
                await self._changed.wait()
            await self._tree.wait_answered(within)

    def start_companion(self, fn: Callable[[], Awaitable[None]], *, name: str) -> PooledTask:
        """Start a task that lives at most as long as the connection, such as an event pump."""
        return self._tree.start_companion(fn, name=name)

    def cancel_request(self, id: Any, reason: str | None = None) -> bool:
        """Cancel the open call of the client that has this id. True if there was one that waits."""
        number = self._peer.call_with_id(id)
        if number is not None and (held := self._held.pop(number, None)) is not None:
            self._refuse(held, self._dialect.cancelled)
            self._tell_changed()
            return True
        waiting = None if number is None else self._waiting.get(number)
        if waiting is None:
            return False
        if waiting.on_cancel is not None:
            waiting.on_cancel()
            return True
        return waiting.task.cancel(reason)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """End the connection: cancel its tasks, flush, close with this code where the transport has codes."""
        self._channel.closing_code(code, reason)
        self._tree.cancel(reason or None)

    def _take(self, ctx: C, received: Call | Reply | Refused | Dropped) -> None:
        match received:
            case Call():
                self._take_call(ctx, received)
            case Reply():
                self._take_reply(received)
            case Refused(frame):
                self._channel.send_nowait(frame)
            case Dropped(why):
                self._dropped += 1
                level = logging.INFO if self._dropped <= MOST_DROPPED_TOLD else logging.DEBUG
                logger.log(level, "%s: ignored %s", self.name, why)

    def _take_reply(self, reply: Reply) -> None:
        handler = self._reply_handlers.pop(reply.id, None)
        if handler is None:
            return
        try:
            handler(reply)
        except Exception:
            logger.exception("%s: the answer to %s could not be used", self.name, reply.id)

    def _take_call(self, ctx: C, call: Call) -> None:
        if call.method == self._dialect.cancel_method:
            self._take_cancel(call)
            return
        error = None if self._dialect.before is None else self._dialect.before(call)
        if error is not None:
            self._refuse(call, error)
            return
        method = self._table.find(call.method)
        if method is None:
            self._refuse(call, ErrorObject(METHOD_NOT_FOUND, f"unknown method: {call.method}"))
            return
        if call.method in self._dialect.stops:
            self._withdraw_held(call)
        if call.method not in self._dialect.always and (self._held or not self._has_room):
            # Before its handler runs: what is held or refused has done nothing.
            if self._dialect.holds:
                self._hold(ctx, call)
            else:
                self._refuse(call, self._dialect.map_error(self._too_many(), call.method))
            return
        self._call(ctx, call, method)

    # --- calls that wait for room ---

    @property
    def _has_room(self) -> bool:
        return self._tree.waiting_requests < self._max_requests

    def _hold(self, ctx: C, call: Call) -> None:
        self._held[call.number] = call
        if len(self._held) == 1:
            self._tree.start_companion(lambda: self._take_held(ctx), name=f"{self.name} held requests")

    async def _take_held(self, ctx: C) -> None:
        """In their order, as room comes."""
        while self._held:
            await self._tree.wait_room(self._max_requests)
            while self._held and self._has_room:
                call = self._held.pop(next(iter(self._held)))
                method = self._table.find(call.method)
                if method is not None:
                    self._call(ctx, call, method)
            self._tell_changed()

    def _withdraw_held(self, stop: Call) -> None:
        """A stop passes what came before it; of its session that has not begun, and does not begin after it."""
        session = stop.params.get("session_id")
        if session is None:
            return
        for call in [call for call in self._held.values() if call.params.get("session_id") == session]:
            del self._held[call.number]
            self._refuse(call, self._dialect.cancelled)
        self._tell_changed()

    def _tell_changed(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _too_many(self) -> Overloaded:
        return Overloaded(
            f"{self._tree.waiting_requests} requests of this connection wait for their answers, which is its limit; "
            "send more when some have come"
        )

    def _take_cancel(self, call: Call) -> None:
        for key in self._dialect.cancel_id_keys:
            if key in call.params:
                found = self.cancel_request(call.params[key], "cancelled by the client")
                logger.debug("%s: cancel of %r: %s", self.name, call.params[key], "found" if found else "not open")
                break
        # A notification by contract: answered only where somebody sent it as a request.
        if not call.is_notification:
            self._answer(call, None)
        else:
            self._peer.abandon(call)

    def _call(self, ctx: C, call: Call, method: Method[C]) -> None:
        try:
            params = method.read_params(call.params)
        except ValidationError as error:
            self._refuse(call, self._dialect.map_params_error(error, call.method))
            return
        # Whatever this call starts, now or in a task of its own, logs under its name.
        with log_fields(request=f"{self.name} {call.method} #{call.number}"):
            try:
                outcome = method.call(ctx, params)
                if isinstance(outcome, Awaiting):
                    self._start_waiting(call, outcome)
                else:
                    self._answer(call, outcome)
            except Exception as error:
                self._refuse(call, self._dialect.map_error(alone(error), call.method))

    def _start_waiting(self, call: Call, awaiting: Awaiting[Any]) -> None:
        async def wait() -> None:
            try:
                if awaiting.on_cancel is None:
                    # A cancel right behind its request is read before this returns: then nothing has begun.
                    await trio.lowlevel.checkpoint()
                await self._wait(call, awaiting)
            finally:
                self._waiting.pop(call.number, None)

        try:
            task = self._tree.start_request(
                wait,
                name=f"{self.name} {call.method} #{call.number}",
                on_cancelled=lambda: self._refuse(call, self._dialect.cancelled),
            )
        except PoolFull:
            raise self._too_many() from None
        self._waiting[call.number] = _Waiting(task, awaiting.on_cancel)

    async def _wait(self, call: Call, awaiting: Awaiting[Any]) -> None:
        outcome = await contained(call.method, awaiting.run, log=False)
        try:
            if isinstance(outcome, Crash):
                raise outcome.error
            self._answer(call, outcome)
        except Exception as error:
            self._refuse(call, self._dialect.map_error(error, call.method))

    def _answer(self, call: Call, outcome: Any) -> None:
        after: Callable[[], None] | None = None
        if isinstance(outcome, Answer):
            outcome, after = outcome.result, outcome.after
        frame = self._peer.answer(call, to_wire(outcome))
        if frame is not None:
            self._channel.send_nowait(frame)
        if after is not None:
            after()

    def _refuse(self, call: Call, error: ErrorObject) -> None:
        frame = self._peer.refuse(call, error)
        if frame is not None:
            self._channel.send_nowait(frame)
