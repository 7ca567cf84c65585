"""The tool calls of one model message, each in its own scope, each with exactly one result.

Segments run in order, the calls of a segment side by side. A result is stored before its end is announced, in call
order whatever the order of completion. A call that is cancelled by itself yields a row that says so and the turn goes
on; when the turn is cancelled, ``close_cancelled`` gives every call that is left its result, so that no transcript
holds a call without one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol

import trio

from hermes.agent.ports import PlannedCall, ToolContext, ToolFailure, ToolOutput
from hermes.events import SessionEvent, ToolEnded, ToolStarted
from hermes.messages import Content, Row, TextPart, ToolCall, ToolResult
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.scopes import ReasonScope
from hermes.outcomes import CancelReason

log = logging.getLogger(__name__)

MAX_PARALLEL = 8
_LARGEST_LOOKED_INTO = 1_000_000


class BatchHost(Protocol):
    """What a batch needs of its turn."""

    turn_id: str
    scope: ReasonScope

    def emit(self, event: SessionEvent) -> None: ...

    def tool_context(self, planned: PlannedCall, node: ReasonScope, batch: ToolBatch) -> ToolContext: ...

    async def store(self, rows: Sequence[Row]) -> tuple[Row, ...]: ...

    def now(self) -> float: ...

    def shown_arguments(self, planned: PlannedCall) -> Mapping[str, Any]: ...

    def shown_summary(self, planned: PlannedCall) -> str: ...


class SlotState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STORED = "stored"


class CallSlot:
    """One call of the batch and what became of it."""

    __slots__ = (
        "announced",
        "begun",
        "context",
        "finished",
        "node",
        "planned",
        "result",
        "shown",
        "started_at",
        "state",
    )

    def __init__(self, planned: PlannedCall) -> None:
        self.planned = planned
        self.state = SlotState.WAITING
        self.result: ToolResult | None = None
        self.context: ToolContext | None = None
        self.node: ReasonScope | None = None
        self.announced = False
        self.finished = False
        self.begun: trio.Event | None = None
        """Set when a call of a group has begun: the next one begins behind it."""
        self.shown: Mapping[str, Any] = {}
        self.started_at = 0.0

    @property
    def call(self) -> ToolCall:
        return self.planned.call


class ToolBatch:
    """Runs the calls of one model message.

    ``finish`` is applied to each result in call order before it is stored, and ``prepare`` before that, which may wait;
    not to what is left when the turn is stopped. ``group_deadline`` (seconds, None for no
    limit) bounds a parallel segment; time in which a human is asked does not count.
    """

    def __init__(
        self,
        host: BatchHost,
        segments: Sequence[Sequence[PlannedCall]],
        finish: Callable[[ToolResult], ToolResult],
        prepare: Callable[[ToolResult], Awaitable[None]] | None = None,
        *,
        group_deadline: float | None,
    ) -> None:
        self._host = host
        self._segments = [[CallSlot(planned) for planned in segment] for segment in segments]
        self._slots = [slot for segment in self._segments for slot in segment]
        self._finish = finish
        self._prepare = prepare
        self._group_deadline = group_deadline
        self._group: ReasonScope | None = None
        self._askers = 0
        self._time_left = 0.0
        self._publishing = trio.Lock()
        self.asking = trio.Lock()
        """Questions of parallel calls are shown one at a time."""

    async def run(self) -> list[ToolResult]:
        """Run everything; returns the results in call order, all of them stored."""
        for segment in self._segments:
            if len(segment) == 1:
                await self._run_call(segment[0])
            else:
                await self._run_group(segment)
            await self._publish()
        return [slot.result for slot in self._slots if slot.result is not None]

    @contextmanager
    def human_time(self) -> Iterator[None]:
        """Time in here does not count against the group's deadline.

        It is taken off while anybody is asked: an answer that takes longer must not find the group gone."""
        group = self._group
        if group is None:
            yield
            return
        if self._askers == 0:
            self._time_left = group.deadline - trio.current_time()
            group.set_deadline(float("inf"))
        self._askers += 1
        try:
            yield
        finally:
            self._askers -= 1
            if self._askers == 0:
                group.set_deadline(trio.current_time() + self._time_left)

    def names(self) -> list[dict[str, Any]]:
        """Running calls for ``inflight``."""
        return [
            {"id": slot.call.id, "name": slot.call.name, "args": dict(slot.shown), "started_at": slot.started_at}
            for slot in self._slots
            if slot.state is SlotState.RUNNING
        ]

    def close_cancelled(self, reason: CancelReason | None) -> list[Row]:
        """After a cancellation of the turn: every unfinished call has its result now. Returns the rows that are not
        stored yet; the caller stores them and then says ``announce_closed``. Nothing else runs here any more."""
        self._prepare = None
        for slot in self._slots:
            if slot.state is SlotState.RUNNING:
                slot.result, slot.state = cancelled_result(slot, reason), SlotState.DONE
            elif slot.state is SlotState.WAITING:
                slot.result, slot.state = skipped_result(slot, reason), SlotState.DONE
        rows: list[Row] = []
        for slot in self._slots:
            if slot.state is SlotState.DONE and slot.result is not None:
                self._finish_once(slot, slot.result)
                rows.append(tool_row(slot.result, self._host.now()))
        return rows

    def announce_closed(self) -> None:
        """The rows of ``close_cancelled`` are stored."""
        for slot in self._slots:
            if slot.state is SlotState.DONE and slot.result is not None:
                slot.state = SlotState.STORED
                if slot.announced:
                    self._announce_end(slot, slot.result)

    def announce_unstored(self, reason: CancelReason | None) -> None:
        """The store is gone: tell the end of every call whose beginning was told, so that nobody waits for it."""
        for slot in self._slots:
            if slot.announced and slot.state is not SlotState.STORED:
                if slot.result is None:
                    slot.result = cancelled_result(slot, reason)
                slot.state = SlotState.STORED
                self._announce_end(slot, slot.result)

    # --- one segment, one call ---

    async def _run_group(self, segment: Sequence[CallSlot]) -> None:
        deadline = float("inf") if self._group_deadline is None else trio.current_time() + self._group_deadline
        group = self._group = ReasonScope("tool_group", f"{len(segment)} calls", self._host.scope, deadline=deadline)
        room = trio.Semaphore(MAX_PARALLEL)
        try:
            with group:
                async with trio.open_nursery() as nursery:
                    before: trio.Event | None = None
                    for slot in segment:
                        nursery.start_soon(self._run_in_group, slot, before, room, name=f"tool {slot.call.name}")
                        before = slot.begun = trio.Event()
        finally:
            self._group = None
        for slot in segment:
            if slot.state is SlotState.WAITING:
                slot.result, slot.state = skipped_result(slot, group.own_reason), SlotState.DONE
            elif slot.state is SlotState.RUNNING:
                slot.result, slot.state = cancelled_result(slot, group.own_reason), SlotState.DONE

    async def _run_in_group(self, slot: CallSlot, before: trio.Event | None, room: trio.Semaphore) -> None:
        if before is not None:
            # Trio starts tasks in any order; calls begin, and so ask their questions, in the model's order.
            await before.wait()
        async with room:
            await self._run_call(slot)
        await self._publish()

    async def _run_call(self, slot: CallSlot) -> None:
        # No tool starts after a stop was accepted (TL-62): this checkpoint raises, and nothing waits between it and
        # the start.
        await trio.lowlevel.checkpoint_if_cancelled()
        planned = slot.planned
        slot.started_at = self._host.now()
        slot.shown = self._host.shown_arguments(planned)
        parent = self._group or self._host.scope
        node = slot.node = ReasonScope("tool_call", slot.call.name, parent, details={"arguments": dict(slot.shown)})
        slot.state = SlotState.RUNNING
        slot.announced = True
        self._host.emit(
            ToolStarted(
                self._host.turn_id,
                slot.call.id,
                slot.call.name,
                slot.shown,
                self._host.shown_summary(planned),
                node.node_id,
            )
        )
        if slot.begun is not None:
            slot.begun.set()
        with node:
            result = await self._result_of(slot, node)
            # Set inside the scope: a result that came in the same tick as a cancel is what happened.
            slot.result, slot.state = result, SlotState.DONE
            node.outcome = "failed" if result.is_error else "completed"
        if slot.result is None:
            slot.result, slot.state = cancelled_result(slot, node.own_reason), SlotState.DONE

    async def _result_of(self, slot: CallSlot, node: ReasonScope) -> ToolResult:
        planned = slot.planned
        if planned.error is not None or planned.tool is None:
            assert planned.error is not None
            return planned.error
        context = slot.context = self._host.tool_context(planned, node, self)
        output = await contained(f"tool {slot.call.name}", planned.tool.run, context, planned.arguments, log=False)
        return result_from(slot.call, output)

    # --- storing in call order ---

    async def _publish(self) -> None:
        """Store the finished calls whose predecessors are all stored, then announce them."""
        async with self._publishing:
            for slot in self._slots:
                if slot.state is SlotState.STORED:
                    continue
                if slot.state is not SlotState.DONE or slot.result is None:
                    break
                if self._prepare is not None:
                    await self._prepare(slot.result)
                self._finish_once(slot, slot.result)
                await self._host.store([tool_row(slot.result, self._host.now())])
                slot.state = SlotState.STORED
                if slot.announced:
                    self._announce_end(slot, slot.result)

    def _finish_once(self, slot: CallSlot, result: ToolResult) -> None:
        """A stop may come while a finished result is being stored; it is then stored as it is."""
        if not slot.finished:
            slot.result, slot.finished = self._finish(result), True

    def _announce_end(self, slot: CallSlot, result: ToolResult) -> None:
        duration = max(0.0, self._host.now() - slot.started_at)
        self._host.emit(ToolEnded(self._host.turn_id, slot.call.id, slot.call.name, slot.shown, result, duration))


def tool_row(result: ToolResult, now: float) -> Row:
    """The transcript row of a result."""
    content: Content = result.content
    if result.images:
        content = (*_text_part(result.content), *result.images)
    metadata = result.details
    if result.is_error and result.disposition is None:
        # The content may be plain text: without this, a loaded session would show the call as one that went well.
        metadata = {**(metadata or {}), "failed": True}
        if result.status == "blocked":
            metadata["blocked"] = True
    return Row(
        role="tool",
        content=content,
        timestamp=now,
        tool_call_id=result.call_id,
        tool_name=result.name,
        effect_disposition=result.disposition,
        display_metadata=metadata,
    )


def _tells_an_error(text: str) -> bool:
    """Whether a structured result has an ``error``: a tool that gives a plain text back has no other way to say so."""
    if len(text) > _LARGEST_LOOKED_INTO or not text.lstrip().startswith("{") or '"error"' not in text:
        return False
    try:
        return bool(json.loads(text).get("error"))
    except (ValueError, RecursionError):
        return False


def result_from(call: ToolCall, output: ToolOutput | str | Crash) -> ToolResult:
    """What a tool gave back, or how it broke, as the one result of its call."""
    if isinstance(output, Crash):
        error = output.error
        if isinstance(error, ToolFailure):
            return ToolResult(call.id, call.name, error.content, is_error=True, status=error.status)
        log.error("tool %s crashed", call.name, exc_info=error)
        text = json.dumps({"error": f"the tool failed: {type(error).__name__}"})
        return ToolResult(call.id, call.name, text, is_error=True, status="error")
    if isinstance(output, str):
        failed = _tells_an_error(output)
        return ToolResult(call.id, call.name, output, is_error=failed, status="error" if failed else "ok")
    return ToolResult(
        call.id,
        call.name,
        output.content,
        is_error=output.is_error,
        status=output.status,
        summary=output.summary,
        diffs=output.diffs,
        images=output.images,
        details=output.details,
    )


def cancelled_result(slot: CallSlot, reason: CancelReason | None) -> ToolResult:
    """The result of a call that had started: what it did is not known, unless the tool itself can tell."""
    told: ToolOutput | None = None
    hook = getattr(slot.planned.tool, "cancelled", None)
    if hook is not None and slot.context is not None:
        told = hook(slot.context, slot.planned.arguments)
    why = _why(reason)
    content = told.content if told is not None else json.dumps({"error": f"the call was cancelled ({why})"})
    return ToolResult(
        slot.call.id,
        slot.call.name,
        content,
        is_error=True,
        disposition="unknown",
        status="cancelled",
        summary=f"cancelled ({why})",
        details=told.details if told is not None else None,
    )


def skipped_result(slot: CallSlot, reason: CancelReason | None) -> ToolResult:
    """The result of a call that never started."""
    text = json.dumps({"error": f"the call was skipped, it did not start ({_why(reason)})"})
    return ToolResult(slot.call.id, slot.call.name, text, is_error=True, disposition="none", status="skipped")


def _why(reason: CancelReason | None) -> str:
    return "stopped" if reason is None else str(reason)


def _text_part(text: str) -> tuple[TextPart, ...]:
    return (TextPart(text),) if text else ()
