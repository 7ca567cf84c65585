"""CallContext: what one tool call may use; implements ``ports.ToolContext``.

Everything here that waits does so inside the call's own scope, so a tool needs no code for being cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from hermes.agent.ports import (
    BackgroundProcesses,
    ProcessOutcome,
    ProcessRequest,
    SessionMemory,
    TranscriptStore,
)
from hermes.events import SessionEvent, ToolProgress
from hermes.messages import ClientAnswer, NoClient, Question
from hermes.nurseries.scopes import ReasonScope

if TYPE_CHECKING:
    from hermes.nurseries.tool_batch import ToolBatch
    from hermes.nurseries.turn import Turn

PROGRESS_EVERY = 0.1
"""Seconds between two previews of one call; what lies between is merged into the later one."""
PREVIEW_CHARS = 2000
"""The end of a longer preview is shown: tools of third parties may say anything."""


class CallContext:
    """One call's hands and eyes."""

    def __init__(self, turn: Turn, call_id: str, name: str, node: ReasonScope, batch: ToolBatch) -> None:
        session = turn.session
        self.call_id = call_id
        self.turn_id = turn.turn_id
        self.session_key = session.key
        self.memory: SessionMemory = session.memory
        self.settings = turn.settings
        self.home: Path = session.services.home
        self.unattended = turn.prompt.unattended
        self.allow_clarify = turn.prompt.allow_clarify
        self.source = turn.prompt.source
        self.depth = session.depth
        self.processes: BackgroundProcesses = session.processes.for_turn(turn.turn_id)
        self.store: TranscriptStore = session.services.store
        self.answer: ClientAnswer | None = None
        self._turn = turn
        self._name = name
        self._node = node
        self._batch = batch
        self._last_progress = -PROGRESS_EVERY

    def emit(self, event: SessionEvent) -> None:
        self._turn.emit(event)

    def progress(self, preview: str) -> None:
        now = trio.current_time()
        if now - self._last_progress < PROGRESS_EVERY:
            return
        self._last_progress = now
        self._turn.emit(ToolProgress(self.turn_id, self.call_id, self._name, str(preview)[-PREVIEW_CHARS:]))

    async def ask(self, question: Question) -> ClientAnswer:
        if self.unattended:
            await trio.lowlevel.checkpoint()
            return NoClient()
        if question.tool_call_id is None:
            question = replace(question, tool_call_id=self.call_id)
        with self._batch.human_time():
            async with self._batch.asking:
                return await self._turn.session.requests.ask(
                    question,
                    scope=self._node,
                    turn_id=self.turn_id,
                    asks_here=self._turn.prompt.asks_here,
                    on_end=self._question_ended,
                )

    def _question_ended(self, answer: ClientAnswer) -> None:
        self.answer = answer

    async def run_process(self, request: ProcessRequest, on_output: Callable[[bytes], None]) -> ProcessOutcome:
        return await self._turn.session.processes.run_foreground(
            request, on_output, turn_id=self.turn_id, node=self._node
        )

    async def delegate(self, tasks: Sequence[Mapping[str, Any]], *, background: bool) -> Mapping[str, Any]:
        return await self._turn.session.delegate(tasks, background=background, turn=self._turn, node=self._node)

    async def ask_model(self, system: str, user: str, *, max_tokens: int, timeout: float) -> str:
        return await self._turn.session.ask_auxiliary(
            system, user, max_tokens=max_tokens, timeout=timeout, scope=self._node
        )

    async def client_tool(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return await self._turn.session.client_tool(name, params)

    def now(self) -> float:
        return self._turn.now()
