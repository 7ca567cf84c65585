"""``hermes -p``: one prompt for scripts and CI. Standard output is the answer's, the exit code tells the outcome.

Nobody is there to be asked: an approval is denied (or given, with ``--yes``), other questions are declined at once. The
gateway behind it is our child and ends with us, however we end.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import click
import trio

from hermes.cli import leave_output
from hermes.cli.chat_questions import OpenQuestion
from hermes.cli.chat_view import one_line
from hermes.cli.gateway_link import LinkLost, Where, open_link
from hermes.cli.gateway_peer import Event, GatewayPeer, Question
from hermes.cli.markdown_text import markdown_for
from hermes.cli.terminal_style import printable, style_of_output
from hermes.errors import HermesError
from hermes.nurseries.containment import Crash, open_task_pool, run_until_one_ends
from hermes.protocols.wire.jsonrpc import METHOD_NOT_FOUND

DEADLINE_GRACE: Final = 5.0
"""Seconds beyond ``--deadline`` for a server that does not keep it by itself."""
STOP_WITHIN: Final = 2.0
STATUS_CHARS: Final = 200
SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Exit(IntEnum):
    """What a script can tell apart. Killed by a signal other than SIGINT: 128 and its number."""

    COMPLETE = 0
    FAILED = 1
    USAGE = 2
    APPROVAL = 3
    DEADLINE = 124
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class OneShot:
    """What is wanted. ``resume``: a stored id or title, or ``last``."""

    prompt: str
    cwd: str
    resume: str | None = None
    model: str | None = None
    provider: str | None = None
    deadline: float | None = None
    approve: bool = False
    as_json: bool = False


async def run_once(where: Where, wanted: OneShot) -> int:
    """Returns the exit code. Raises ``click.ClickException``."""
    async with open_link(where) as link:
        turn = _Turn(GatewayPeer(link), wanted)

        async def read() -> None:
            await turn.peer.run()
            raise LinkLost(link.why_lost())

        crash = await run_until_one_ends(
            ("gateway", read), ("turn", turn.run), ("signals", turn.watch_signals), ("deadline", turn.watch_deadline)
        )
    # An answer that could not be written is none, however its turn has ended.
    if crash is not None and (turn.code is None or isinstance(crash.error, OSError)):
        _raise(crash)
    return int(turn.code if turn.code is not None else Exit.FAILED)


def _raise(crash: Crash) -> None:
    if isinstance(crash.error, HermesError):
        raise click.ClickException(crash.error.message) from crash.error
    raise crash.error


class _Turn:
    """One turn and what is told of it."""

    def __init__(self, peer: GatewayPeer, wanted: OneShot) -> None:
        self.peer = peer
        self.code: int | None = None
        self._wanted = wanted
        self._session_id = ""
        self._stored_id = ""
        self._refused = False
        self._text: list[str] = []
        self._done = trio.Event()
        self._end: Mapping[str, Any] = {}
        self._is_live = sys.stdout.isatty() and not wanted.as_json
        self._out: Callable[[str], None] = _write
        self._markdown = markdown_for(style_of_output()) if self._is_live else None
        peer.on_event = self._event

    async def run(self) -> None:
        async with open_task_pool("answers", 32) as pool:
            self.peer.on_question = lambda question: _start(pool.start, self._answer, question)
            await self.peer.call("client.capabilities", {"server_requests": True})
            await self._open()
            params: dict[str, Any] = {"session_id": self._session_id, "text": self._wanted.prompt}
            if self._wanted.deadline is not None:
                params["deadline_s"] = self._wanted.deadline
            await self.peer.call("prompt.submit", params)
            await self._done.wait()
        if self.code is None:
            self.code = self._outcome()
        self._tell()

    async def _open(self) -> None:
        wanted = self._wanted
        resume = wanted.resume
        if resume == "last":
            resume = (await self.peer.call("session.most_recent"))["session_id"]
        params: dict[str, Any] = {"source": "cli", "close_on_disconnect": True}
        if resume is not None:
            snapshot = await self.peer.call("session.resume", params | {"session_id": resume, "omit_messages": True})
            self._stored_id = snapshot["resumed"]
        else:
            chosen = {"model": wanted.model, "provider": wanted.provider, "cwd": wanted.cwd}
            params |= {key: value for key, value in chosen.items() if value is not None}
            snapshot = await self.peer.call("session.create", params)
            self._stored_id = snapshot["stored_session_id"]
        self._session_id = snapshot["session_id"]
        self._line({"type": "session", "session_id": self._stored_id})

    # --- what comes

    def _event(self, event: Event) -> None:
        if event.session_id != self._session_id or not self._session_id:
            return
        self._line({"type": event.type, "payload": dict(event.payload)})
        match event.type:
            case "message.delta":
                text = str(event.payload.get("text", ""))
                self._text.append(text)
                if self._is_live:
                    self._show(text)
            case "tool.start":
                self._show_rest()
                # What follows is the answer's next segment; a script wants the last one.
                self._text.clear()
            case "status.update":
                self._tell_status(event.payload)
            case "message.complete":
                self._end = event.payload
                self._done.set()
            case "error":
                self._end = {"status": "error", "error": event.payload.get("message")}
                self._done.set()
            case _:
                return

    def _tell_status(self, payload: Mapping[str, Any]) -> None:
        """Why nothing comes for a while, to a person who waits: a compression, a retry."""
        if sys.stderr.isatty() and not self._wanted.as_json and payload.get("text") not in ("", "ready", None):
            click.echo(f"hermes: {printable(one_line(str(payload['text']), STATUS_CHARS))}", err=True)

    def _show(self, text: str) -> None:
        """At a terminal: as it comes, or block by block where Markdown is drawn."""
        text = printable(text)
        if self._markdown is None:
            self._out(text)
        elif drawn := self._markdown.feed(text):
            self._out(f"{drawn}\n\n")

    def _show_rest(self) -> None:
        if self._markdown is not None and (drawn := self._markdown.finish()):
            self._out(f"{drawn}\n")

    async def _answer(self, question: Question) -> None:
        self._line({"type": "question", "method": question.method, "payload": dict(question.params)})
        if question.method != "approval":
            await self.peer.decline(question.id, METHOD_NOT_FOUND, "nobody is here to be asked")
            return
        choice = "once" if self._wanted.approve else "deny"
        if OpenQuestion(question).take(choice) is None:
            choice = "deny"
        self._refused = self._refused or choice == "deny"
        await self.peer.answer(question.id, {"choice": choice})

    # --- how it ends

    def _outcome(self) -> int:
        match self._end.get("status"), self._end.get("cause"):
            case "complete", _:
                return Exit.APPROVAL if self._refused else Exit.COMPLETE
            case "interrupted", "deadline":
                return Exit.DEADLINE
            case "interrupted", _:
                return Exit.INTERRUPTED
            case _:
                return Exit.FAILED

    def _tell(self) -> None:
        text = self._end.get("text")
        said = text if isinstance(text, str) and text and self._end.get("status") != "error" else "".join(self._text)
        if self._is_live:
            self._show_rest()
            self._out("\n" if self._markdown is None else "")
        elif not self._wanted.as_json and said.strip():
            self._out(said.strip("\n") + "\n")
        problem = str(self._end.get("error") or "")
        if problem and not self._wanted.as_json:
            click.echo(f"hermes: {printable(problem)}", err=True)
        if self._refused and not self._wanted.as_json:
            click.echo("hermes: something asked for approval and was denied; see --yes", err=True)
        self._line(
            {
                "type": "result",
                "status": self._end.get("status", "interrupted"),
                "cause": self._end.get("cause"),
                "exit_code": int(self.code if self.code is not None else Exit.FAILED),
                "text": said.strip("\n"),
                "error": problem or None,
                "usage": dict(self._end.get("usage") or {}),
                "session_id": self._stored_id,
            }
        )

    def _line(self, what: Mapping[str, Any]) -> None:
        if self._wanted.as_json:
            self._out(json.dumps(what, ensure_ascii=False) + "\n")

    async def watch_signals(self) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            async for number in signals:
                await self._stop(Exit.INTERRUPTED if number == signal.SIGINT else 128 + number)
                return

    async def watch_deadline(self) -> None:
        if self._wanted.deadline is None:
            await trio.sleep_forever()
        else:
            await trio.sleep(self._wanted.deadline + DEADLINE_GRACE)
            await self._stop(Exit.DEADLINE)

    async def _stop(self, code: int) -> None:
        """Interrupt, and let the turn tell its own end; then leave, whether it has or not."""
        self.code = code
        if self._session_id:
            with trio.move_on_after(STOP_WITHIN):
                await self.peer.call("session.interrupt", {"session_id": self._session_id})
                await self._done.wait()
                await trio.sleep_forever()


def _start(start: Callable[..., object], fn: Callable[[Question], Any], question: Question) -> None:
    start(fn, question, name=f"answer {question.id}")


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has enough; the exit code still tells the outcome.
        leave_output()
