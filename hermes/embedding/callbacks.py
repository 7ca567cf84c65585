"""Callbacks: what an agent tells its program while it works, in order, without ever waiting for it.

Events are taken in the breath in which they happen and put into a buffer; one task hands them out, each call in a
worker thread, so a slow callback delays the next callback and nothing else (EM-3). What piles up is merged: adjacent
text becomes one piece, and of progress only the newest is kept; starts and ends are never dropped. A callback that
raises is logged and left out for the rest of the turn (EM-2).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import trio

from hermes.embedding.messages import event_name, plain
from hermes.events import (
    InterimText,
    Notice,
    ReasoningAvailable,
    ReasoningDelta,
    SessionEvent,
    StatusUpdate,
    SubagentProgress,
    TextDelta,
    ThinkingStatus,
    ToolEnded,
    ToolGenerating,
    ToolOutputRisk,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnRefused,
    TurnStarted,
    UsageUpdated,
)
from hermes.nurseries.containment import Crash, contained

log = logging.getLogger(__name__)

MAX_THREADS = 40
MAX_WAITING = 4096
"""Events that wait for a slow callback; beyond this, progress and status are left out, never a start or an end."""

NEWEST_ONLY = (ToolProgress, ThinkingStatus, UsageUpdated)
DROPPABLE = (*NEWEST_ONLY, StatusUpdate)
MODEL_SPEAKS = (ThinkingStatus, ReasoningDelta, TextDelta, ToolGenerating, InterimText, UsageUpdated)
"""The first of these after a turn's beginning or after tools tells that a model call has begun."""

Call = tuple[str, tuple[Any, ...], Mapping[str, Any]]


class CallbackPump:
    """Feeds the callbacks of one agent. ``callbacks`` maps argument names to callables."""

    def __init__(self, callbacks: Mapping[str, Callable[..., Any]]) -> None:
        self._callbacks = dict(callbacks)
        self._for_this_turn: Callable[[str], Any] | None = None
        self._disabled: set[str] = set()
        self._waiting: deque[SessionEvent] = deque()
        self._busy = False
        self._ended = False
        # Of its own: callbacks that do not return keep their threads, and must not take those of the tools.
        self._threads = trio.CapacityLimiter(MAX_THREADS)
        self._wake = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        self._steps = 0
        self._step_due = False
        self._results: dict[str, dict[str, Any]] = {}
        """Of the batch just finished, by call, in the order in which the calls began."""
        self._text_open = False

    def begin_turn(self, stream: Callable[[str], Any] | None) -> None:
        """A new turn: every callback gets its chance again; ``stream`` is one more sink for its text."""
        self._for_this_turn = stream
        self._disabled.clear()

    @property
    def wanted(self) -> bool:
        return bool(self._callbacks) or self._for_this_turn is not None

    def push(self, event: SessionEvent) -> None:
        """Take an event. Synchronous; an observer of the session's log."""
        if not self.wanted:
            return
        last = self._waiting[-1] if self._waiting else None
        if isinstance(event, (TextDelta, ReasoningDelta)) and type(last) is type(event):
            assert isinstance(last, (TextDelta, ReasoningDelta))
            self._waiting[-1] = replace(last, text=last.text + event.text)
        elif isinstance(event, NEWEST_ONLY) and type(last) is type(event):
            self._waiting[-1] = event
        elif len(self._waiting) < MAX_WAITING or not isinstance(event, DROPPABLE):
            self._waiting.append(event)
        self._wake.unpark_all()

    async def run(self) -> None:
        """Hand out events until cancelled."""
        try:
            while True:
                while not self._waiting:
                    self._busy = False
                    self._drained.unpark_all()
                    await self._wake.park()
                self._busy = True
                event = self._waiting.popleft()
                for name, args, options in self._calls(event):
                    await self._call(name, args, options)
        finally:
            self._ended = True
            self._drained.unpark_all()

    async def wait_drained(self) -> None:
        """Until every callback for what has happened so far has returned."""
        while (self._waiting or self._busy) and not self._ended:
            await self._drained.park()

    async def ask(self, name: str, *args: Any) -> Any:
        """Call a callback that answers, in a worker thread. None if there is none, or if it raised."""
        callback = self._callbacks.get(name)
        if callback is None:
            return None
        result = await contained(name, self._in_thread, callback, args, {}, log=False)
        if isinstance(result, Crash):
            log.error("the %s raised", name, exc_info=result.error)
            return None
        return result

    async def _call(self, name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        callback = self._for_this_turn if name == "stream_callback" else self._callbacks.get(name)
        if callback is None or name in self._disabled:
            return
        result = await contained(name, self._in_thread, callback, args, options, log=False)
        if isinstance(result, Crash):
            self._disabled.add(name)
            log.error("the %s raised and is left out for the rest of the turn", name, exc_info=result.error)

    async def _in_thread(self, callback: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        # Abandoned on cancel: a program that does not return from its callback cannot hold the end of a session back.
        return await trio.to_thread.run_sync(
            lambda: callback(*args, **options), abandon_on_cancel=True, limiter=self._threads
        )

    def _calls(self, event: SessionEvent) -> Iterator[Call]:
        if self._text_open and isinstance(event, (ToolStarted, TurnEnded)):
            self._text_open = False
            yield "stream_delta_callback", (None,), {}
        if self._step_due and isinstance(event, MODEL_SPEAKS):
            self._step_due = False
            self._steps += 1
            results, self._results = list(self._results.values()), {}
            yield "step_callback", (self._steps, results), {}
        yield from self._own_calls(event)
        if "event_callback" in self._callbacks:
            yield "event_callback", (event_name(event), plain(event)), {}

    def _own_calls(self, event: SessionEvent) -> Iterator[Call]:
        match event:
            case TurnStarted():
                self._steps, self._step_due, self._results = 0, True, {}
            case TextDelta(text=text):
                self._text_open = True
                yield "stream_delta_callback", (text,), {}
                yield "stream_callback", (text,), {}
            case ReasoningDelta(text=text):
                yield "reasoning_callback", (text,), {}
            case ThinkingStatus(text=text):
                yield "thinking_callback", (text,), {}
            case ToolGenerating(name=name):
                yield "tool_gen_callback", (name,), {}
            case InterimText(text=text, already_streamed=streamed):
                yield "interim_assistant_callback", (text,), {"already_streamed": streamed}
            case ToolStarted(call_id=call_id, name=name, args=args, context=context):
                self._results[call_id] = {"name": name, "result": None, "arguments": dict(args)}
                yield "tool_progress_callback", ("tool.started", name, context, dict(args)), {}
                yield "tool_start_callback", (call_id, name, dict(args)), {}
            case ToolProgress(name=name, preview=preview):
                yield "tool_progress_callback", ("tool.progress", name, preview, {}), {}
            case ToolEnded(call_id=call_id, name=name, args=args, result=result):
                self._step_due = True
                self._results[call_id] = {"name": name, "result": result.content, "arguments": dict(args)}
                yield from _tool_ended(event)
            case ReasoningAvailable(text=text):
                yield "tool_progress_callback", ("reasoning.available", "", text, {}), {}
            case ToolOutputRisk(name=name, risk=risk, findings=findings):
                yield "tool_progress_callback", ("tool.output_risk", name, risk, {"findings": list(findings)}), {}
            case SubagentProgress(kind=kind, payload=payload):
                told = str(payload.get("text") or payload.get("goal") or "")
                yield "tool_progress_callback", (f"subagent.{kind}", "delegate_task", told, dict(payload)), {}
            case StatusUpdate(kind=kind, text=text):
                yield "status_callback", (kind, text), {}
            case Notice(text=None, key=key):
                yield "notice_clear_callback", (key,), {}
            case Notice(text=notice, level=level, key=key):
                yield "notice_callback", (notice,), {"level": level, "key": key}
            case TurnRefused(message=message):
                yield "status_callback", ("error", message), {}
            case _:
                return


def _tool_ended(event: ToolEnded) -> Iterator[Call]:
    result, args = event.result, dict(event.args)
    yield "tool_progress_callback", ("tool.completed", event.name, result.summary or "", args), {}
    yield "tool_complete_callback", (event.call_id, event.name, args, result.content), {}
    metadata = {
        "status": result.status,
        "is_error": result.is_error,
        "summary": result.summary,
        "duration_s": event.duration_s,
        "diffs": plain(result.diffs),
        "details": plain(result.details),
    }
    yield "tool_result_metadata_callback", (event.call_id, event.name, metadata), {}
