"""Side agents: a prompt in the background, and a side question about the conversation (gateway §4.7).

Each is a child agent of the session, beside its turns: nothing of it enters the session's history, it may run while a
turn does, and it ends with the session or by a cancel of its node. Its answer is one event.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hermes.errors import EmptyText, HermesError, Overloaded
from hermes.events import BackgroundEnded
from hermes.messages import Prompt
from hermes.nurseries.child_agent import ChildAgent, below
from hermes.nurseries.containment import Crash, contained
from hermes.nurseries.settlement import Settlement
from hermes.outcomes import Cancelled, Completed, Failed, TurnRecord

if TYPE_CHECKING:
    from hermes.agent.ports import Tool
    from hermes.nurseries.scopes import ReasonScope
    from hermes.nurseries.session import Session

log = logging.getLogger(__name__)

MAX_SIDE_AGENTS = 8
NAME_CHARS = 60


class SideWork:
    """Work beside the turns of a session. ``interruptible``: ``session.interrupt`` reaches it."""

    def __init__(self, node: ReasonScope, *, interruptible: bool) -> None:
        self.node = node
        self.interruptible = interruptible
        self.ended: Settlement[None] = Settlement()


def start_background(session: Session, text: str) -> str:
    """Run a prompt in an independent agent; returns its task id. Synchronous.

    Raises ``EmptyText``, ``Overloaded``, ``SessionClosing`` or ``Draining``.
    """
    return _start(session, "background", "bg", text)


def start_btw(session: Session, text: str) -> str:
    """Answer a side question from the conversation as it is, without tools; returns its task id. Synchronous."""
    return _start(session, "btw", "btw", text)


def _start(session: Session, kind: str, prefix: str, text: str) -> str:
    text = text.strip()
    if not text:
        raise EmptyText
    session.refuse_when_closing()
    if sum(work.node.kind == "background" for work in session.side_work.values()) >= MAX_SIDE_AGENTS:
        raise Overloaded(f"{MAX_SIDE_AGENTS} background prompts are running already")
    task_id = session.services.ids(prefix)
    node = below(
        session.scope,
        "background",
        session.services.redact(text)[:NAME_CHARS],
        details={"task_id": task_id, "kind": kind},
    )
    prompt = Prompt(content=text, source="background", unattended=True, allow_clarify=False)
    if kind == "btw":
        # The conversation of this very moment, whatever it becomes while the question is answered.
        prompt = Prompt(
            content=text,
            source="background",
            unattended=True,
            allow_clarify=False,
            history=tuple(session.rows),
        )
    agent = ChildAgent(session, node, source="background", depth=session.depth, allow=_none if kind == "btw" else _any)
    work = session.side_work[task_id] = SideWork(node, interruptible=False)
    question = text if kind == "btw" else None
    session.start_soon(_run, session, task_id, kind, agent, prompt, question, work, name=f"{kind} {task_id}")
    return task_id


def _none(_tool: Tool) -> bool:
    return False


def _any(_tool: Tool) -> bool:
    return True


async def _run(
    session: Session,
    task_id: str,
    kind: str,
    agent: ChildAgent,
    prompt: Prompt,
    question: str | None,
    work: SideWork,
) -> None:
    crash: Crash | None = None
    try:
        with work.node:
            done = await contained(f"{kind} {task_id}", _play, agent, prompt, log=False)
            crash = done if isinstance(done, Crash) else None
    finally:
        session.side_work.pop(task_id, None)
        session.emit(BackgroundEnded(task_id, kind, _answer(agent.record, crash), question))
        work.ended.settle(None)


async def _play(agent: ChildAgent, prompt: Prompt) -> TurnRecord:
    return await agent.run(prompt, started=lambda _turn: None)


def _answer(record: TurnRecord | None, crash: Crash | None) -> str:
    """The text of the event; a failure begins with ``error:``."""
    if crash is not None:
        if isinstance(crash.error, HermesError):
            return f"error: {crash.error.message}"
        log.error("%s failed", crash.name, exc_info=crash.error)
        return "error: it failed because of an error in the server; its log has the details"
    if record is None:
        return "error: stopped before it began"
    match record.outcome:
        case Completed(text=text):
            return text
        case Failed(error=error):
            return f"error: {error}"
        case Cancelled(reason=reason):
            return f"error: stopped ({reason})"
