"""The client's side of a gateway conversation: calls in flight, events and questions as they come.

``run`` is the only reader; beside it any task may ``call`` and ``answer``. What comes is handed on synchronously and in
the order of the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import trio

from hermes.cli.gateway_link import CallFailed, Frame, Link, LinkLost


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the gateway."""

    type: str
    session_id: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A request of the server; ``id`` is what its answer names."""

    id: str
    method: str
    session_id: str
    params: Mapping[str, Any]


@dataclass(slots=True)
class _Call:
    method: str
    done: trio.Event = field(default_factory=trio.Event)
    result: Any = None
    error: click.ClickException | None = None


class GatewayPeer:
    """One conversation. Until it is told otherwise, events and questions are dropped."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._calls: dict[int, _Call] = {}
        self._last_id = 0
        self._sending = trio.Lock()
        self._lost: str | None = None
        self.on_event: Callable[[Event], None] = lambda _: None
        self.on_question: Callable[[Question], None] = lambda _: None

    async def run(self) -> None:
        """Read until the gateway is gone; then every open call fails with ``LinkLost``."""
        while (frame := await self._link.receive()) is not None:
            self._take(frame)
        self._lost = self.why_lost()
        for call in self._calls.values():
            call.error = LinkLost(self._lost)
            call.done.set()

    def take_over(self, link: Link) -> None:
        """Go on over another link, once ``run`` has ended; the next ``run`` reads from it."""
        self._link, self._lost = link, None

    def why_lost(self) -> str:
        return self._link.why_lost()

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result. Raises ``CallFailed``, ``LinkLost``."""
        if self._lost is not None:
            raise LinkLost(self._lost)
        self._last_id += 1
        number = self._last_id
        call = self._calls[number] = _Call(method)
        try:
            await self._send({"id": number, "method": method, "params": dict(params or {})})
            await call.done.wait()
        finally:
            del self._calls[number]
        if call.error is not None:
            raise call.error
        return call.result

    async def answer(self, question_id: str, result: Mapping[str, Any]) -> None:
        await self._send({"id": question_id, "result": dict(result)})

    async def decline(self, question_id: str, code: int, message: str) -> None:
        """Nobody here can answer this: the agent is told at once instead of after a timeout."""
        await self._send({"id": question_id, "error": {"code": code, "message": message}})

    async def _send(self, frame: Mapping[str, Any]) -> None:
        async with self._sending:
            await self._link.send(frame)

    def _take(self, frame: Frame) -> None:
        method, params = frame.get("method"), frame.get("params") or {}
        if method == "event":
            payload = params.get("payload") or {}
            self.on_event(Event(str(params.get("type")), params.get("session_id") or "", payload))
        elif method is not None and "id" in frame:
            self.on_question(Question(str(frame["id"]), method, params.get("session_id") or "", params))
        elif (call := self._calls.get(frame.get("id") or 0)) is not None:
            if (error := frame.get("error")) is not None:
                call.error = CallFailed(call.method, error)
            call.result = frame.get("result")
            call.done.set()
