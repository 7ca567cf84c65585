"""One chat: what a typed line does, which question is before the person, and how a stop and an end go.

Theory of operation. The screen's inputs and the gateway's events arrive synchronously and are put in one queue; one
task takes them in order, so nothing here is ever done twice at a time. Only calls that wait for a turn (an interrupt)
run in tasks of their own, so that a second Ctrl-C is seen while the first one is being answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio

from hermes.cli.chat_commands import ChatCommands
from hermes.cli.chat_questions import Ask, OpenQuestion, open_question
from hermes.cli.chat_screen import Input, Interrupted, Left, Screen, Typed
from hermes.cli.chat_view import ChatView, one_line
from hermes.cli.gateway_link import NO_SUCH_SESSION, CallFailed, LinkLost
from hermes.cli.gateway_peer import Event, GatewayPeer, Question
from hermes.cli.terminal_style import Style, printable
from hermes.nurseries.containment import TaskPool
from hermes.protocols.wire.jsonrpc import METHOD_NOT_FOUND

AGAIN_WITHIN: Final = 2.0
"""Seconds in which a second Ctrl-C means: leave."""
SHOWN_ROWS: Final = 6
ROW_CHARS: Final = 400
STOPPED_CHARS: Final = 40
BUSY_WORDS: Final[Mapping[str, str]] = {
    "queued": "queued: it runs after this turn",
    "steered": "handed to the running turn",
    "redirected": "the running turn starts over with this",
}


@dataclass(frozen=True, slots=True)
class Start:
    """How the session begins. ``resume``: a stored id or title, or ``last``."""

    cwd: str
    columns: int
    resume: str | None = None
    model: str | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is gone; another one is being tried for."""

    why: str


@dataclass(frozen=True, slots=True)
class Back:
    """There is a connection again."""


Item = Input | Event | Question | Lost | Back


class ChatSession:
    """``run`` is the chat; it returns the exit code."""

    def __init__(self, peer: GatewayPeer, screen: Screen, view: ChatView, style: Style, pool: TaskPool) -> None:
        self.peer = peer
        self.screen = screen
        self.view = view
        self.style = style
        self.session_id = ""
        self.stored_id = ""
        self.has_said = False
        """True once there is something to take up again."""
        self.outlives_link = False
        """With True a lost connection is waited for (``lost``, ``back``); otherwise ``run`` raises ``LinkLost``."""
        self._pool = pool
        self._commands = ChatCommands(self)
        self._questions: deque[OpenQuestion] = deque()
        self._ask: Ask | None = None
        self._queue: deque[Item] = deque()
        self._woken = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self._start = Start(cwd="", columns=0)
        self._stopping = False
        self._leaving = False
        self._pressed_at = float("-inf")
        screen.on_input = self._put
        peer.on_event = self._put
        peer.on_question = self._put

    # --- for the screen

    def wants_input(self) -> trio.Event | None:
        """What to wait for before the next line of a script is read; None: it is wanted now."""
        asked = bool(self._questions) and not self._has_typed()
        return None if self._idle.is_set() or asked else self._woken

    async def complete(self, text: str) -> list[tuple[str, str, str, int]]:
        """What may stand in place of the last word; for the editor."""
        try:
            return await self._commands.complete(text)
        except (CallFailed, LinkLost):
            return []

    # --- the chat

    async def open(self, start: Start) -> None:
        """Make the session, or take one up. Raises ``CallFailed``."""
        self._start = start
        await self.peer.call("client.capabilities", {"server_requests": True})
        resume = start.resume
        if resume == "last":
            resume = (await self.peer.call("session.most_recent"))["session_id"]
            if resume is None:
                self.screen.write(self.style.dim("There is no session to resume; this is a new one."))
        if resume is not None:
            await self.resume(resume, columns=start.columns)
            return
        await self.create({"cols": start.columns, "cwd": start.cwd, "model": start.model, "provider": start.provider})

    async def create(self, params: Mapping[str, Any]) -> None:
        given = {key: value for key, value in params.items() if value is not None}
        self._take(await self.peer.call("session.create", {"source": "cli", "close_on_disconnect": True, **given}))

    async def resume(self, wanted: str, *, columns: int | None = None) -> None:
        snapshot = await self._resumed(wanted, columns=columns)
        self._take(snapshot)
        self._show_rows(snapshot.get("messages") or [])
        self._ask_again(snapshot)

    async def _resumed(self, wanted: str, *, columns: int | None = None) -> Mapping[str, Any]:
        params = {"session_id": wanted, "source": "cli", "close_on_disconnect": True}
        snapshot: Mapping[str, Any] = await self.peer.call(
            "session.resume", params | ({"cols": columns} if columns else {})
        )
        return snapshot

    def _ask_again(self, snapshot: Mapping[str, Any]) -> None:
        for entry in snapshot.get("open_requests") or ():
            self._opened(Question(entry["id"], entry["method"], self.session_id, entry.get("params") or {}))

    def _take(self, snapshot: Mapping[str, Any]) -> None:
        self.session_id = snapshot["session_id"]
        self.stored_id = snapshot.get("stored_session_id") or snapshot.get("session_key") or ""
        self.has_said = bool(snapshot.get("message_count"))
        self._questions.clear()
        self.screen.ask(None)
        status = self.view.status
        status.title, status.usage, status.running = "", "", bool(snapshot.get("running"))
        self.view.show(Event("session.info", self.session_id, snapshot.get("info") or {}))
        self._note_idle()
        self.screen.refresh()

    def _show_rows(self, messages: list[Mapping[str, Any]]) -> None:
        style = self.style
        if len(messages) > SHOWN_ROWS:
            self.screen.write(style.dim(f"… {len(messages) - SHOWN_ROWS} earlier messages (/history shows them)"))
        for row in messages[-SHOWN_ROWS:]:
            text = printable(str(row.get("text") or row.get("context") or "")).strip()
            match row.get("role"):
                case "user":
                    self.screen.write(style.bold(f"> {text[:ROW_CHARS]}"))
                case "tool":
                    self.screen.write(
                        style.dim(f"{style.sign('▸', '>')} {one_line(str(row.get('name')), 40)} {one_line(text, 80)}")
                    )
                case _:
                    self.screen.write(text[:ROW_CHARS])

    async def run(self) -> int:
        """Take inputs and events until the person leaves."""
        while not self._leaving:
            while not self._queue:
                await self._woken.wait()
            item = self._queue.popleft()
            try:
                await self._handle(item)
            except CallFailed as error:
                self.screen.write(self.style.red(error.text))
            except LinkLost:
                if not self.outlives_link:
                    raise
                self._not_sent(item)
            self._note_idle()
            self.screen.refresh()
        return 0

    def leave(self) -> None:
        self._leaving = True

    def _put(self, item: Item) -> None:
        self._queue.append(item)
        if isinstance(item, Typed) and self._idle.is_set():
            self._idle = trio.Event()
        self._woken.set()
        self._woken = trio.Event()

    async def _handle(self, item: Item) -> None:
        match item:
            case Typed(text=text, ask=ask):
                # What was typed for a question that is gone is dropped: it may be a password.
                if ask is not None:
                    await self._answered(text, ask)
                elif text.strip():
                    await self._line(text.strip())
            case Interrupted():
                self._interrupt()
            case Left():
                await self._left()
            case Question():
                await self._opened_or_declined(item)
            case Event():
                self._event(item)
            case Lost(why=why):
                self._went_offline(why)
            case Back():
                await self._take_up_again()

    def _event(self, event: Event) -> None:
        if event.session_id not in ("", self.session_id):
            return
        if event.type == "request.cancel":
            self._closed(str(event.payload.get("id")), str(event.payload.get("reason", "")))
        else:
            self.view.show(event)

    def _note_idle(self) -> None:
        if self.view.status.running:
            if self._idle.is_set():
                self._idle = trio.Event()
        elif not self._has_typed():
            self._idle.set()
        self._woken.set()
        self._woken = trio.Event()

    def _has_typed(self) -> bool:
        """A line has been taken that nothing has been done about yet."""
        return any(isinstance(item, Typed) for item in self._queue)

    # --- when the connection is lost

    def lost(self, why: str) -> None:
        self._put(Lost(why))

    def back(self) -> None:
        self._put(Back())

    @property
    def is_offline(self) -> bool:
        return self.view.status.offline

    def _went_offline(self, why: str) -> None:
        self.view.show(
            Event("error", self.session_id, {"message": f"{why}. Trying to connect again; Ctrl-C twice leaves."})
        )
        self.view.status.doing, self.view.status.offline = "", True
        self._questions.clear()
        self._show_question()

    async def _take_up_again(self) -> None:
        await self.peer.call("client.capabilities", {"server_requests": True})
        words = "Connected again"
        try:
            snapshot = await self._resumed(self.stored_id)
        except CallFailed as error:
            if error.code != NO_SUCH_SESSION:
                raise
            # Nothing was said in it that could have been stored.
            await self.create({"cwd": self._start.cwd, "cols": self._start.columns})
        else:
            self._take(snapshot)
            words += ", the turn goes on." if self.view.status.running else ". /history shows what is stored."
            self._ask_again(snapshot)
        self.view.status.offline = False
        self.screen.write(self.style.dim(words))

    def _not_sent(self, item: Item) -> None:
        self.view.status.running = False
        if isinstance(item, Left):
            self.leave()
        elif isinstance(item, Typed) and item.ask is None:
            self.screen.write(self.style.red("Not sent: there is no connection."))
            self.screen.prefill(item.text)

    # --- lines

    async def _line(self, text: str) -> None:
        first = text.split(maxsplit=1)[0]
        if first.startswith("/") and "/" not in first[1:]:
            await self._commands.run(text)
        else:
            await self.submit(text)

    async def submit(self, text: str) -> None:
        """Send a prompt. During a turn the server does with it what ``display.busy_input_mode`` says."""
        was_running = self.view.status.running
        # Before the answer: a script's next line must not be taken in between.
        self.view.status.running = True
        try:
            result = await self.peer.call("prompt.submit", {"session_id": self.session_id, "text": text})
        except CallFailed:
            self.view.status.running = was_running
            raise
        self.has_said = True
        if (words := BUSY_WORDS.get(str(result.get("status")))) is not None:
            self.screen.write(self.style.dim(words))

    # --- questions

    async def _opened_or_declined(self, question: Question) -> None:
        if not self._opened(question):
            await self.peer.decline(question.id, METHOD_NOT_FOUND, "a terminal cannot show this")

    def _opened(self, question: Question) -> bool:
        opened = open_question(question)
        if opened is None:
            return False
        self._questions.append(opened)
        if len(self._questions) == 1:
            self._show_question()
        return True

    def _show_question(self) -> None:
        if self._questions:
            self.screen.write(self._questions[0].shown(self.style))
            self._ask = self._questions[0].ask()
            self.screen.ask(self._ask)
        else:
            self.screen.ask(None)

    async def _answered(self, text: str, ask: object) -> None:
        if not self._questions or ask is not self._ask:
            return
        question = self._questions[0]
        result = question.take(text)
        if result is not None:
            self._questions.popleft()
            await self.peer.answer(question.id, result)
            if "choice" in result:
                self.screen.write(self.style.dim(f"  {result['choice']}"))
        self._show_question()

    def _closed(self, question_id: str, reason: str) -> None:
        shown = self._questions[0].id if self._questions else None
        kept = [question for question in self._questions if question.id != question_id]
        if len(kept) == len(self._questions):
            return
        self._questions = deque(kept)
        self.screen.write(self.style.dim(f"  the question is withdrawn ({reason})"))
        if shown == question_id:
            self._show_question()

    # --- stopping and leaving

    def _interrupt(self) -> None:
        now = trio.current_time()
        again = now - self._pressed_at < AGAIN_WITHIN
        self._pressed_at = now
        if again or self._stopping:
            self.leave()
        elif self.view.status.running:
            self._stopping = True
            self.view.status.doing = "stopping"
            self._pool.start(self._stop, name="interrupt")
        else:
            self.screen.write(self.style.dim("Press Ctrl-C again to leave."))

    async def _stop(self) -> None:
        try:
            result = await self.peer.call("session.interrupt", {"session_id": self.session_id})
        except CallFailed as error:
            self.screen.write(self.style.red(error.text))
            return
        except LinkLost:
            # Told by whoever reads from the gateway.
            return
        finally:
            self._stopping = False
        stopped = ", ".join(_node_words(node) for node in result.get("stopped") or ())
        words = "settled" if result.get("settled") else "stopping; not everything has ended yet"
        # Behind the events that came before this answer and are still in the queue.
        self._put(Event("status.update", self.session_id, {"text": f"{words}{f' ({stopped})' if stopped else ''}"}))
        back = [str(item.get("text", "")) for item in result.get("dropped_prompts") or ()]
        back += [str(result["pending_steer"])] if result.get("pending_steer") else []
        if back:
            self.screen.prefill("\n".join(back))

    async def _left(self) -> None:
        """End of input. A turn that a script has started runs to its end; at a terminal it is stopped with us."""
        while not self._idle.is_set() and not self._questions:
            while not self._queue:
                await self._woken.wait()
            item = self._queue.popleft()
            if isinstance(item, Interrupted):
                break
            await self._handle(item)
            self._note_idle()
        self.leave()


def _node_words(node: Mapping[str, Any]) -> str:
    """A stopped node for people: the name of a turn is only an id."""
    kind = str(node.get("kind", "")).replace("_", " ")
    return kind if kind == "turn" else f"{kind} {one_line(str(node.get('name', '')), STOPPED_CHARS)}"
