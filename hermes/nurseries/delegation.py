"""Delegation: tasks that a turn hands to child agents (agent-core §7).

The children of a call live below that call's node and work side by side, as many as the settings allow; each can be
stopped alone, and a stop of the parent reaches them all. A delegation in the background lives below the session
instead; its results come back as a turn of their own. A child's failure is a result, never an exception.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from hermes.agent.ports import Tool
from hermes.errors import HermesError, InvalidParams, Overloaded, Unavailable, Unsupported
from hermes.events import (
    InterimText,
    ReasoningAvailable,
    SessionEvent,
    SubagentProgress,
    ToolEnded,
    ToolStarted,
)
from hermes.messages import Content, ImagePart, Prompt, TextPart, TurnLimits
from hermes.nurseries.background import SideWork
from hermes.nurseries.child_agent import ChildAgent, below
from hermes.nurseries.child_control import control
from hermes.nurseries.child_results import child_result, notice_prompt, payload, shown_goal
from hermes.nurseries.child_watch import ChildWatch, watched
from hermes.nurseries.children import Child
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.scopes import ReasonScope
from hermes.outcomes import CancelReason, Cause

if TYPE_CHECKING:
    from hermes.nurseries.session import Session
    from hermes.nurseries.turn import Turn

log = logging.getLogger(__name__)

MAX_PER_TURN = 50
NAME_CHARS = 60
PREVIEW_CHARS = 200
ORCHESTRATOR = "orchestrator"
"""The role of a child that may delegate itself, as deep as the settings allow."""
DELEGATE = "delegate_task"
NO_BACKGROUND = frozenset({"acp", "api_server"})
"""Hosts whose clients do not expect a turn that they did not start: there the call waits for its children."""

CHILD_ROLE = (
    "You are a child agent. Another agent gave you one task and sees only your last message: put there everything it "
    "needs, complete and short. You cannot ask anybody; decide for yourself and say what you assumed."
)


async def delegate(
    session: Session, tasks: Sequence[Mapping[str, Any]], *, background: bool, turn: Turn, node: ReasonScope
) -> Mapping[str, Any]:
    """Run the tasks and return their results, or dispatch them and return at once.

    A single task that names an ``action`` (list, steer, stop) speaks to children that exist already. Raises
    ``Unavailable`` while delegation is paused, ``Unsupported``, ``Overloaded``, ``InvalidParams``, ``NotFound``.
    """
    action = tasks[0].get("action") if len(tasks) == 1 else None
    if action is not None:
        await trio.lowlevel.checkpoint()
        return control(session, str(action), tasks[0])
    in_background = background and session.depth == 0 and session.stored.source not in NO_BACKGROUND
    delegation = Delegation(session, tasks, turn, in_background=in_background)
    if in_background:
        await trio.lowlevel.checkpoint()
        return delegation.dispatch()
    return await delegation.run(node)


class Delegation:
    """The tasks of one call."""

    def __init__(
        self, session: Session, tasks: Sequence[Mapping[str, Any]], turn: Turn, *, in_background: bool
    ) -> None:
        settings = session.services.settings().delegation
        if session.services.delegation.paused:
            raise Unavailable("delegation is paused; no new child agents are started")
        if session.depth >= settings.max_spawn_depth:
            raise Unsupported("child agents cannot delegate here")
        if turn.children_started + len(tasks) > MAX_PER_TURN:
            raise Overloaded(f"at most {MAX_PER_TURN} child agents per turn")
        goals = [task.get("goal") for task in tasks]
        images = [tuple(task.get("images") or ()) for task in tasks]
        if not all(isinstance(image, ImagePart) for some in images for image in some):
            raise InvalidParams("the images of a task must have been read")
        if not goals or not all(isinstance(goal, str) and goal.strip() for goal in goals):
            raise InvalidParams("every task needs a goal")
        turn.children_started += len(tasks)
        self._session = session
        self._settings = settings
        self._turn = turn
        self._in_background = in_background
        # Apart from the tasks: a finished child is remembered for long, its images are not.
        self._images = images
        tasks = [{name: task[name] for name in task if name != "images"} for task in tasks]
        self.delegation_id = session.services.ids("deleg")
        self.children = [
            Child(
                session.services.ids("sa").replace("_", "-"),
                str(goal).strip(),
                task,
                index=index,
                count=len(tasks),
                depth=session.depth + 1,
                parent_id=session.subagent_id,
                delegation_id=self.delegation_id,
                parent_turn=None if in_background else turn,
                created_at=session.services.clock(),
                own_key=session.services.ids("session"),
            )
            for index, (goal, task) in enumerate(zip(goals, tasks, strict=True))
        ]
        self._limits = _inherited_limits(turn, in_background=in_background)
        self._parent_tools = frozenset(session.tools.names()) if session.tools is not None else None
        if session.children.room is None or not session.children.live():
            # Also after each batch: the setting may be another one by now.
            session.children.room = trio.Semaphore(settings.max_concurrent_children)

    # --- the two ways to run ---

    def dispatch(self) -> dict[str, Any]:
        """Start in the background; returns what the model is told at once."""
        session = self._session
        node = ReasonScope(
            "delegation",
            session.services.redact(self.children[0].goal)[:NAME_CHARS],
            session.scope,
            details={"delegation_id": self.delegation_id},
        )
        work = session.side_work[self.delegation_id] = SideWork(node, interruptible=True)
        session.start_soon(self._run_in_background, work, name=f"delegation {self.delegation_id}")
        return {
            "status": "dispatched",
            "mode": "background",
            "delegation_id": self.delegation_id,
            "count": len(self.children),
            "goals": [shown_goal(child.goal) for child in self.children],
            "subagent_ids": [child.subagent_id for child in self.children],
            "live_transcripts": [
                {"subagent_id": child.subagent_id, "session_id": child.own_key} for child in self.children
            ],
            "note": "The results start a turn of their own when the work is done; go on without them. What a child has "
            "done so far: session_search with its session_id.",
        }

    async def _run_in_background(self, work: SideWork) -> None:
        session = self._session
        results: Mapping[str, Any] | None = None
        try:
            with work.node:
                done = await contained(f"delegation {self.delegation_id}", self.run, work.node)
                results = None if isinstance(done, Crash) else done
        finally:
            session.side_work.pop(self.delegation_id, None)
            self._set_aside(work.node.reason)
            work.ended.settle(None)
        stopped = work.node.reason
        if results is not None or (stopped is not None and stopped.cause is Cause.NODE_CANCEL):
            await self._announce(stopped)

    def _set_aside(self, stopped: CancelReason | None) -> None:
        """Somebody wanted the whole session to be still: the model hears of it with the next prompt."""
        if stopped is not None and stopped.cause is Cause.USER_INTERRUPT and not self._session.closing:
            self._session.slot.note(notice_prompt(self.delegation_id, self.children, stopped))

    async def _announce(self, stopped: CancelReason | None) -> None:
        """The results as a turn; a full queue is waited for, so that nothing is lost while the session lives."""
        session = self._session
        prompt = notice_prompt(self.delegation_id, self.children, stopped)
        while not session.closing:
            try:
                session.submit_nowait(prompt)
                return
            except Overloaded:
                turn = session.slot.turn
                if turn is None:
                    await trio.sleep(1)
                else:
                    await turn.ended.wait()

    async def run(self, node: ReasonScope) -> dict[str, Any]:
        """All tasks below ``node``; returns when the last child has ended."""
        began = trio.current_time()
        for child in self.children:
            self._session.children.add(child)
            self._tell(child, "spawn_requested")
        try:
            async with trio.open_nursery() as nursery:
                for child in self.children:
                    nursery.start_soon(self._run_child, child, node, name=f"subagent {child.subagent_id}")
        finally:
            for child in self.children:
                # Those that a stop has met before they began.
                self._end(child, None)
        return {
            "results": [child.result for child in self.children],
            "total_duration_seconds": round(trio.current_time() - began, 3),
        }

    # --- one child ---

    async def _run_child(self, child: Child, parent: ReasonScope) -> None:
        room = self._session.children.room
        assert room is not None
        name = self._session.services.redact(child.goal)[:NAME_CHARS]
        node = child.node = below(parent, "subagent", name, details={"subagent_id": child.subagent_id})
        node.phase = lambda: child.status
        crash: Crash | None = None
        try:
            with node:
                async with room:
                    timeout = self._settings.child_timeout_seconds
                    if timeout > 0:
                        node.set_deadline(trio.current_time() + timeout)
                    async with watched(child, node, self._settings) as watch:
                        name = f"subagent {child.subagent_id}"
                        done = await contained(name, self._play, child, node, watch, log=False)
                        crash = done if isinstance(done, Crash) else None
        finally:
            self._end(child, crash)

    async def _play(self, child: Child, node: ReasonScope, watch: ChildWatch) -> None:
        session, settings = self._session, self._settings
        toolsets = child.task.get("toolsets") or ()
        parent_tools = self._parent_tools
        orchestrates = child.task.get("role") == ORCHESTRATOR

        def allow(tool: Tool) -> bool:
            name = tool.spec.name
            may = (parent_tools is None or name in parent_tools) and (name != DELEGATE or orchestrates)
            return may and (not toolsets or name in toolsets or tool.flags.toolset in toolsets)

        agent = child.agent = ChildAgent(
            session,
            node,
            source="subagent",
            depth=child.depth,
            key=child.own_key,
            allow=allow,
            model=str(child.task.get("model") or settings.model) or None,
            provider=settings.provider or None,
            marks={"_delegate_from": session.key},
        )
        child.session_key = agent.session.key
        agent.session.subagent_id = child.subagent_id
        agent.session.parent_turn = child.parent_turn
        agent.session.system_message = CHILD_ROLE
        prompt = Prompt(
            content=_task_content(child, self._images[child.index]),
            source="subagent",
            unattended=True,
            allow_clarify=False,
            limits=self._limits,
        )

        def started(turn: Turn) -> None:
            child.status, child.started_at = "running", session.services.clock()
            child.model = agent.session.info().model
            self._tell(child, "start", status="running")

        def seen(event: SessionEvent) -> None:
            watch.seen(event)
            self._seen(child, event)

        await agent.run(prompt, started=started, on_event=seen)

    def _seen(self, child: Child, event: SessionEvent) -> None:
        """What a child shows, as its parent's clients see it."""
        match event:
            case ToolStarted(name=name, context=context):
                child.tool_used(name)
                self._tell(child, "tool", tool_name=name, tool_preview=context[:PREVIEW_CHARS])
            case ToolEnded(name=name, result=result):
                child.tool_ended(name, result.content[:PREVIEW_CHARS], is_error=result.is_error)
            case InterimText(text=text):
                self._tell(child, "progress", text=text[-PREVIEW_CHARS:])
            case ReasoningAvailable(text=text):
                self._tell(child, "thinking", text=text[-PREVIEW_CHARS:])
            case SubagentProgress(kind=kind, payload=payload_below):
                # A child's child: clients draw the whole tree out of one session's events.
                self._emit(kind, payload_below)
            case _:
                return

    def _end(self, child: Child, crash: Crash | None) -> None:
        """Settle what became of a child and tell it; once."""
        if not child.live:
            return
        session = self._session
        child.record = child.agent.record if child.agent is not None else None
        if crash is not None and not isinstance(crash.error, HermesError):
            log.error("%s failed", crash.name, exc_info=crash.error)
        child.ended_at = session.services.clock()
        rows = child.agent.session.rows if child.agent is not None else ()
        child.result = child_result(
            child, rows, crash, max_chars=self._settings.max_summary_chars, spill=session.services.spill
        )
        child.status = child.result["status"]
        if child.record is not None:
            child.said = child.record.text or ""
            if child.parent_turn is not None:
                child.parent_turn.children_usage = child.parent_turn.children_usage.plus(
                    child.agent.turn.spent() if child.agent is not None and child.agent.turn else child.record.usage
                )
        self._tell(child, "complete", **_end_facts(child))
        child.agent = child.node = None

    def _tell(self, child: Child, kind: str, **facts: Any) -> None:
        self._emit(kind, payload(child, facts))

    def _emit(self, kind: str, facts: Mapping[str, Any]) -> None:
        if self._in_background:
            self._session.emit(SubagentProgress(None, kind, facts))
        else:
            self._turn.emit(SubagentProgress(self._turn.turn_id, kind, facts))


def _end_facts(child: Child) -> dict[str, Any]:
    result = child.result or {}
    facts: dict[str, Any] = {
        "status": child.status,
        "summary": result.get("summary") or result.get("error") or "",
        "duration_seconds": result.get("duration_seconds", 0),
        "output_tail": list(child.outputs),
    }
    if child.record is not None:
        usage = child.record.usage
        facts |= {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "api_calls": child.record.api_calls,
        }
        if child.record.cause is not None:
            facts["cause"] = child.record.cause.value
    return facts


def _inherited_limits(turn: Turn, *, in_background: bool) -> TurnLimits:
    """What is left of the limits of the request.

    In the foreground the parent's own scope and budget bound its children; in the background nothing above does.
    """
    limits = turn.prompt.limits
    if not in_background:
        return TurnLimits(max_iterations=limits.max_iterations)
    deadline = turn.scope.deadline
    spent = turn.spent()
    return TurnLimits(
        deadline_s=None if deadline == float("inf") else max(0.0, deadline - trio.current_time()),
        max_iterations=limits.max_iterations,
        max_tokens_total=None
        if limits.max_tokens_total is None
        else max(0, limits.max_tokens_total - spent.total_tokens),
        max_cost_usd=None if limits.max_cost_usd is None else max(0.0, limits.max_cost_usd - (spent.cost_usd or 0.0)),
    )


def _task_content(child: Child, images: Sequence[ImagePart]) -> Content:
    """The child's prompt: the text, and behind it what it is to see, as in the prompt of a person."""
    task, parts = child.task, [child.goal]
    if task.get("context"):
        parts.append(f"Context:\n{task['context']}")
    if task.get("output_schema"):
        schema = json.dumps(task["output_schema"], ensure_ascii=False)
        parts.append(f"Your last message must be one JSON object, and nothing else, that fits this schema:\n{schema}")
    text = "\n\n".join(parts)
    return (TextPart(text), *images) if images else text
