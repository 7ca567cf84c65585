"""Session: one conversation while it is live: transcript, turn slot, event log, open questions, processes.

Its methods are the verbs that surfaces call. Everything that changes state is synchronous; what waits only waits. A
session is not a child of the connection that made it: a client may leave and another may watch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from hermes.agent.ports import BackgroundProcessInfo, ResolvedModel, StoredSession, Tool, ToolSet
from hermes.agent.row_memory import RowMemory
from hermes.errors import Draining, EmptyText, SessionClosing
from hermes.events import (
    Notice,
    SessionClosed,
    SessionEvent,
    SessionInfo,
    SessionInfoChanged,
    event_cost,
)
from hermes.messages import Prompt, RewindIntent, Row
from hermes.nurseries import delegation, told_before, turn_end, turn_start, turn_store
from hermes.nurseries.background import SideWork
from hermes.nurseries.background_process import BackgroundProcess
from hermes.nurseries.browser_tools import bind_guests
from hermes.nurseries.child_agent import AllowTool
from hermes.nurseries.children import Children
from hermes.nurseries.client_requests import WITHDRAWAL_WORDS, Attachment, OpenRequests
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.event_log import EventLog
from hermes.nurseries.family import Family, NoFamily
from hermes.nurseries.interrupt import Interrupt
from hermes.nurseries.question_log import QuestionLog
from hermes.nurseries.scopes import ReasonScope
from hermes.nurseries.services import Services
from hermes.nurseries.session_memory import SessionMemory
from hermes.nurseries.session_processes import SessionProcesses
from hermes.nurseries.settlement import Settlement
from hermes.nurseries.turn import Turn
from hermes.nurseries.turn_slot import Accepted, BusyPolicy, Submission, TurnSlot
from hermes.outcomes import CancelReason, Cause, TurnRecord, Usage

log = logging.getLogger(__name__)

ClientTool = Callable[[Mapping[str, Any]], Any]


class Session:
    """A live conversation.

    Parameters: ``services``, shared by all; ``stored``, the session row (new or loaded); ``rows``, its active rows;
    ``runtime_id``, the id of this life of the session; ``parent``, the node below which it lives; ``depth``, 0 for a
    conversation with a human, 1 and more for delegated agents; ``is_stored``, whether the row is in the store already.
    """

    def __init__(
        self,
        services: Services,
        stored: StoredSession,
        rows: Sequence[Row] = (),
        *,
        runtime_id: str,
        parent: ReasonScope,
        depth: int = 0,
        is_stored: bool = False,
        resolved: ResolvedModel | None = None,
    ) -> None:
        self.services = services
        self.stored = stored
        self.key = stored.key
        self.runtime_id = runtime_id
        self.depth = depth
        self.is_stored = is_stored
        self.rows: list[Row] = list(rows)
        self.rows_before_turn = len(self.rows)
        self.row_memory = RowMemory()
        self.usage: Usage = stored.usage
        self.history_version = stored.history_version
        self.resolved = resolved
        self.memory = SessionMemory(cwd=stored.cwd or str(services.home))
        self.memory.yolo = bool(stored.model_config.get("yolo"))
        self.log = _new_log(services)
        self.scope = ReasonScope(
            "session", stored.title or stored.key, parent, details={"session": stored.key}, phase=lambda: self.status
        )
        self.scope.on_cancel = self.cancel
        self.slot = TurnSlot(max_queued=services.settings().limits.max_queued_prompts)
        self.question_log = QuestionLog(self)
        self.requests = OpenRequests(append=self.log.append, ids=services.ids, note=self.question_log.note)
        self.requests.phase_changed = self._question_opened_or_closed
        self.processes = SessionProcesses(self, services.supervisor, services.ids, services.clock)
        self.extra_tools: list[Tool] = []
        self.client_tools: dict[str, ClientTool] = {}
        self.retained_failure: dict[str, Any] | None = None
        self.created_at = services.clock()
        self.last_active = stored.last_activity_at or self.created_at
        self.ended: Settlement[str] = Settlement()
        self.on_turn_end: list[Callable[[Turn, TurnRecord], None]] = []
        self.on_attached_changed: Callable[[Session], None] | None = None
        self.pinned_prompt: tuple[str, ...] | None = None
        self.to_pin: dict[str, Any] = {}
        """Columns of what is pinned and not stored yet; the next rows take them along."""
        self.system_message: str | None = None
        self.last_prompt_tokens = 0
        self.close_on_disconnect = False
        self.reopens = False
        """Its client names it by key and its surface loads it again: it may make room although somebody watches."""
        self.parks = False
        """A session of a host that may come back: closed by the registry when it was idle and unwatched for a while."""
        self.detached_at: float | None = None
        self.idle_since = trio.current_time()
        self._be_nobodys_child()
        self._nursery: trio.Nursery | None = None
        self._not_yet_started: deque[tuple[Callable[..., Any], tuple[Any, ...], str]] = deque()
        self._closing: CancelReason | None = None

    def _be_nobodys_child(self) -> None:
        """What a child agent's session is given besides (``child_agent.py``), and the children of its own."""
        self.side_work: dict[str, SideWork] = {}
        """Background prompts and delegations that outlive the turn which started them, by id."""
        self.children = Children()
        self.family: Family = NoFamily()
        self.is_child = False
        self.subagent_id: str | None = None
        self.parent_turn: Turn | None = None
        self.allowed_tools: AllowTool | None = None
        self.tools: ToolSet | None = None
        """Those of the newest turn."""

    def make_child(
        self, stored: StoredSession, node: ReasonScope, *, depth: int, resolved: ResolvedModel | None
    ) -> Session:
        """A session that lives below ``node`` and works for this one. It takes one prompt at a time, and no others'."""
        child = Session(
            self.services, stored, runtime_id=self.services.ids("runtime"), parent=node, depth=depth, resolved=resolved
        )
        child.family = self.family
        child.is_child = True
        return child

    # --- life ---

    async def run(self) -> None:
        """The session's own task: everything it starts lives in its nursery. Ends when the session is cancelled."""
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    while self._not_yet_started:
                        fn, args, name = self._not_yet_started.popleft()
                        nursery.start_soon(self._child, fn, args, name, name=name)
                    await trio.sleep_forever()
        finally:
            self._nursery = None
            reason = self.scope.reason or CancelReason(Cause.SHUTDOWN)
            self._closing = self._closing or reason
            with trio.CancelScope(deadline=trio.current_time() + 5, shield=True):
                await contained("question log", self.question_log.flush)
                await turn_end.close_stored(self, reason)
            word = WITHDRAWAL_WORDS.get(reason.cause, reason.cause.value)
            self.log.append(SessionClosed(word))
            self.log.close()
            self.ended.settle(word)

    def start_soon(self, fn: Callable[..., Any], *args: Any, name: str) -> None:
        """Run ``fn(*args)`` as a child of the session. Synchronous; refused with ``SessionClosing`` at the end."""
        if self.closing:
            raise SessionClosing
        if self._nursery is None:
            self._not_yet_started.append((fn, args, name))
        else:
            self._nursery.start_soon(self._child, fn, args, name, name=name)

    async def _child(self, fn: Callable[..., Any], args: tuple[Any, ...], name: str) -> None:
        """A crash of ours in one child closes the session, told as that; nothing above it notices."""
        if isinstance(await contained(name, fn, *args), Crash):
            self.cancel(CancelReason(Cause.SESSION_CLOSED, "an error in the server"))

    async def start_background_process(self, process: BackgroundProcess, name: str) -> None:
        """Start a background process below the session. Raises ``SpawnFailed`` or ``Overloaded``."""
        if self._nursery is None or self.closing:
            raise SessionClosing
        await self._nursery.start(self.supervise_process, process, name, name=name)

    async def supervise_process(  # noqa: ASYNC128 (handed on)
        self, process: BackgroundProcess, name: str, task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED
    ) -> None:
        supervisor = self.services.supervisor
        node = ReasonScope("process", name, self.scope, pids=lambda: supervisor.pids_of(process.process_id))
        with node:
            await process.supervise(task_status=task_status)

    def cancel(self, reason: CancelReason) -> bool:
        """Close the session: refuse what is new, stop everything below, in one breath. True for the first call."""
        if self._closing is not None:
            return False
        self._closing = reason
        self.drop_queue()
        if self.slot.turn is not None:
            self.slot.turn.cancel(reason)
        self.requests.withdraw(WITHDRAWAL_WORDS.get(reason.cause, "interrupted"))
        self.scope.cancel(reason)
        return True

    async def wait_closed(self) -> str:
        """Wait until nothing of the session is left."""
        return await self.ended.wait()

    # --- what it is ---

    @property
    def closing(self) -> bool:
        """Nothing new is let in: the session, or something above it, has been asked to stop."""
        return self._closing is not None or self.scope.reason is not None

    @property
    def running(self) -> bool:
        return self.slot.turn is not None

    @property
    def has_work(self) -> bool:
        """Something runs beside the conversation."""
        return bool(self.side_work) or any(True for _ in self.processes.running())

    @property
    def status(self) -> str:
        """``starting``, ``idle``, ``working`` or ``waiting`` (gateway §3.5)."""
        turn = self.slot.turn
        if turn is None:
            return "working" if self.slot.held else "idle"
        if turn.started_at is None:
            return "starting"
        return "waiting" if len(self.requests) else "working"

    def info(self) -> SessionInfo:
        turn = self.slot.turn
        stored = self.stored
        settings = self.services.settings()
        resolved = self.resolved
        return SessionInfo(
            session_key=self.key,
            runtime_id=self.runtime_id,
            model=turn_start.model_now(self)[0],
            provider=turn_start.model_now(self)[1],
            cwd=self.memory.cwd,
            title=stored.title,
            running=turn is not None,
            turn_started_at=turn.started_at if turn is not None else None,
            reasoning_effort=stored.model_config.get("reasoning_effort"),
            service_tier=stored.model_config.get("service_tier"),
            approval_mode=settings.approvals.mode,
            yolo=self.memory.yolo or settings.host.yolo,
            mode=str(stored.model_config.get("mode", "default")),
            personality=stored.model_config.get("personality"),
            branch=self.memory.extras.get("branch"),
            tools=self.memory.extras.get("toolsets", {}),
            skills=self.memory.extras.get("skills", {}),
            mcp_servers=self.memory.extras.get("mcp_servers", ()),
            usage=self.usage,
            context_used=self.last_prompt_tokens or None,
            context_max=resolved.context_length if resolved else None,
            message_count=len(self.rows),
            source=stored.source,
            lazy=resolved is None,
        )

    def inflight(self) -> dict[str, Any] | None:
        """The running turn so far, or the retained failed one until the next turn starts (gateway §4.9)."""
        turn = self.slot.turn
        if turn is not None:
            return turn.inflight()
        return self.retained_failure

    def announce_info(self) -> None:
        self.memory.extras["told_model"] = turn_start.model_now(self)
        self.log.append(SessionInfoChanged(self.info()))

    def emit(self, event: SessionEvent) -> int:
        return self.log.append(event)

    async def ensure_stored(self) -> None:
        """Store the session row now (ACP and HTTP do at creation); without messages it stays out of every list."""
        await turn_start.ensure_stored(self)

    async def set_title(self, title: str, *, source: str = "user") -> None:
        """Give the session a title. Raises ``TitleTaken`` or ``InvalidValue``; before it is stored, memory only."""
        if self.is_stored:
            await self.services.store.update_session(self.key, title=title, title_source=source)
            stored = await self.services.store.get_session(self.key)
            # As it was stored: cleaned, and numbered if a title of ours was taken.
            title = (stored.title if stored is not None else None) or title
        self.stored = replace(self.stored, title=title, title_source=source)
        self.scope.name = title
        self.announce_info()

    def notice(self, text: str, *, level: str = "info") -> None:
        self.log.append(Notice(text, level))

    # --- who watches ---

    def attach(self, attachment: Attachment) -> None:
        """A client watches; it is asked what it says it answers."""
        self.requests.attach(attachment)
        self.detached_at = None
        if self.on_attached_changed is not None:
            self.on_attached_changed(self)

    def detach(self, name: str) -> None:
        """The client is gone. What then becomes of the session is the registry's policy (gateway §3.15)."""
        self.requests.detach(name)
        if not self.requests.attached:
            self.detached_at = trio.current_time()
        if self.on_attached_changed is not None:
            self.on_attached_changed(self)

    # --- prompts ---

    def submit_nowait(
        self,
        prompt: Prompt,
        *,
        rewind: RewindIntent | None = None,
        policy: BusyPolicy = BusyPolicy.QUEUE,
    ) -> Submission:
        """Let a prompt in: start a turn, or route it by the busy policy. Raises what refuses it; then nothing changed.

        Raises ``SessionClosing``, ``Draining``, ``Overloaded``, and ``SessionBusy`` for a rewind while the slot is
        taken (PS-11).
        ``await submission.wait_accepted()`` tells when the prompt is durable.
        """
        self.refuse_when_closing()
        if not self.slot.taken:
            return self._start_turn(prompt, [Submission(prompt, "streaming")], rewind).submissions[0]
        if rewind is not None or self.is_child:
            raise self.slot.busy()
        submission = self._route_busy(prompt, policy)
        self.last_active = self.services.clock()
        return submission

    def _route_busy(self, prompt: Prompt, policy: BusyPolicy) -> Submission:
        turn = self.slot.turn
        plain = isinstance(prompt.content, str) and bool(prompt.content.strip()) and prompt.api_content is None
        if turn is not None and plain and policy is not BusyPolicy.QUEUE:
            if turn.submissions and prompt.text == turn.prompt.text and prompt.source == turn.prompt.source:
                # Sent again, by a host that had no answer yet: accepted once (gateway §4.2).
                return turn.submissions[0]
            if policy is BusyPolicy.REDIRECT and turn.redirect(prompt.text.strip()):
                return _given(prompt, "redirected")
            take = turn.steer if policy is BusyPolicy.STEER else turn.overtake
            if (policy is BusyPolicy.STEER or turn.in_tools) and take(prompt.text.strip()):
                return _given(prompt, "steered")
        submission = Submission(prompt, "queued")
        self.slot.enqueue(submission)
        return submission

    def _start_turn(self, prompt: Prompt, submissions: list[Submission], rewind: RewindIntent | None) -> Turn:
        turn = Turn(self, prompt, submissions, rewind)
        self.slot.reserve(turn)
        for submission in submissions:
            submission.turn.settle(turn)
        self.last_active = self.services.clock()
        self.start_soon(turn.run, name=f"turn {turn.turn_id}")
        return turn

    def start_next_queued(self) -> None:
        """Start the next envelope of the queue, if the slot is free (gateway §4.3)."""
        if self.slot.taken or self.closing:
            return
        envelope = self.slot.take_next()
        if envelope is not None:
            prompt, submissions = envelope
            self._start_turn(prompt, submissions, None)

    def drop_queue(self, *, keep_notices: bool = False) -> list[Submission]:
        return self.slot.drop_all(keep_notices=keep_notices)

    def refuse_when_closing(self) -> None:
        """Raise ``SessionClosing``, or ``Draining`` if the whole server stops."""
        reason = self._closing or self.scope.reason
        if reason is not None:
            raise Draining if reason.cause is Cause.SHUTDOWN else SessionClosing

    # --- stop, steer ---

    def interrupt_nowait(self, reason: CancelReason, *, clear_queue: bool = True) -> Interrupt:
        """Stop the running turn and drop what waits, at once; ``await interrupt.wait_settled(within)`` for the end."""
        return Interrupt(self, reason, clear_queue=clear_queue)

    def steer(self, text: str) -> bool:
        """Text for the next tool boundary of the running turn. Raises ``EmptyText``; false if no turn takes it."""
        if not text.strip():
            raise EmptyText
        turn = self.slot.turn
        return turn is not None and turn.steer(text.strip())

    def redirect(self, text: str) -> str:
        """``redirected``, ``queued`` (as a steer) or ``rejected`` (gateway §4.5). Raises ``EmptyText``."""
        if not text.strip():
            raise EmptyText
        turn = self.slot.turn
        if turn is None:
            return "rejected"
        if turn.redirect(text.strip()):
            return "redirected"
        return "queued" if turn.overtake(text.strip()) else "rejected"

    # --- the turn's own way in (see turn_start.py and turn_end.py) ---

    async def begin_turn(self, turn: Turn) -> None:
        await turn_start.begin(self, turn)

    async def prepare(self, turn: Turn) -> Any:
        bind_guests(self.extra_tools, turn.prompt)
        return await turn_start.prepare(self, turn)

    async def keep_lease(self, turn: Turn, since: float) -> None:
        await turn_start.keep_lease(self, turn, since)

    def turn_started(self, turn: Turn) -> None:
        self.retained_failure = None
        turn_start.tell_model(self)

    async def append_rows(self, rows: Sequence[Row], *, usage: Usage | None = None) -> tuple[Row, ...]:
        """Store rows and, in the same breath, have them in memory (rule 11: durable before visible)."""
        return await turn_store.append(self, rows, usage=usage)

    async def replace_with_summary(self, summarized_ids: Sequence[int], summary_rows: Sequence[Row]) -> None:
        """Compression: the store first, then memory, with no wait between."""
        rows = await self.services.store.replace_with_summary(
            self.key,
            summarized_ids=summarized_ids,
            summary_rows=summary_rows,
            expected_version=self.history_version,
        )
        told_before.take_rows(self, rows)
        self.rows_before_turn = turn_start.where_turn_begins(rows, self.slot.turn)
        self.history_version += 1
        if summary_rows:
            self.stored = replace(self.stored, compression_count=self.stored.compression_count + 1)
        self.memory.file_reads.clear()

    async def ask_auxiliary(
        self, system: str, user: str, *, max_tokens: int, timeout: float, scope: ReasonScope
    ) -> str:
        return await turn_start.ask_auxiliary(self, system, user, max_tokens=max_tokens, timeout=timeout, scope=scope)

    async def delegate(
        self, tasks: Sequence[Mapping[str, Any]], *, background: bool, turn: Turn, node: ReasonScope
    ) -> Mapping[str, Any]:
        """Child agents for this turn (agent-core §7); see ``delegation.py``."""
        return await delegation.delegate(self, tasks, background=background, turn=turn, node=node)

    async def client_tool(self, name: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A capability of the attached client, or None if it offers none of this name."""
        tool = self.client_tools.get(name)
        if tool is None:
            await trio.lowlevel.checkpoint()
            return None
        result: Mapping[str, Any] | None = await tool(params)
        return result

    def process_finished(self, info: BackgroundProcessInfo, output: str) -> None:
        """A background process that was to be announced has ended: its end becomes a turn of its own kind."""
        turn_start.submit_process_end(self, info, output)

    def stored_changed(self) -> None:
        """The list of stored sessions is different."""
        self.services.stored_changes.note()

    def _question_opened_or_closed(self) -> None:
        if self.slot.turn is not None:
            self.slot.turn.question_opened_or_closed()
        self.scope.tree.touched()


def _new_log(services: Services) -> EventLog[SessionEvent]:
    limits = services.settings().limits
    services.replay.max_bytes, services.replay.max_logs = limits.replay_total_bytes, limits.replay_sessions
    return EventLog(
        cost=event_cost,
        clock=services.clock,
        max_events=limits.replay_events,
        max_cost=limits.replay_bytes,
        memory=services.replay,
    )


def _given(prompt: Prompt, status: Any) -> Submission:
    submission = Submission(prompt, status)
    submission.turn.settle(None)
    submission.accepted.settle(Accepted(None))
    return submission
