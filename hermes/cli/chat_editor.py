"""The screen with a line editor: prompt_toolkit in a thread of its own, the session in Trio.

One editor at the bottom is always there, also while text streams in above it, so a line can be typed during a turn.
The line that is still being streamed is shown above the input and goes to the scrollback when it is whole.

Whose thread: ``_Desk`` (the input that is wanted, the draft) is touched by the editor's thread only; Trio hands over
with ``call_soon_threadsafe``, the editor with ``run_sync_soon``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import StdoutProxy
from prompt_toolkit.shortcuts import CompleteStyle

from hermes.cli.chat_questions import Ask
from hermes.cli.chat_screen import Input, Interrupted, Left, Typed
from hermes.cli.chat_view import Status

QUIET: Final = 0.7
"""Seconds without a key before a key may answer a question that appeared while somebody was typing."""
COMPLETE_WITHIN: Final = 2.0
LEAVE_WITHIN: Final = 2.0
PREVIEW_LINES: Final = 8
"""So much of what is still being written stands above the input."""

Found = Sequence[tuple[str, str, str, int]]
"""Completions: text, what is shown, its meaning, how many characters before the cursor it replaces."""
Lookup = Callable[[str], Any]


class _Desk:
    """What the input line is for. Lives in the editor's thread."""

    def __init__(self) -> None:
        self.ask: Ask | None = None
        self.draft = ""
        self.busy_typing = False
        self.last_key = 0.0

    def note_key(self) -> bool:
        """A key was pressed; True if it may answer the ask."""
        now = time.monotonic()
        quiet = now - self.last_key >= QUIET
        self.last_key = now
        if self.busy_typing and not quiet:
            return False
        self.busy_typing = False
        return True


class EditorScreen:
    """See ``chat_screen.Screen``."""

    def __init__(self, status: Status, *, history: Path, lookup: Lookup) -> None:
        self.status = status
        self.on_input: Callable[[Input], None] = lambda _: None
        self._desk = _Desk()
        self._wanted_ask: Ask | None = None
        self._prefill = ""
        self._partial = ""
        self._preview = ""
        self._closing = False
        self._ended = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._out = StdoutProxy(sleep_between_writes=0.02, raw=True)
        self._session: PromptSession[str] = PromptSession(
            history=_history(history, self._desk),
            completer=_GatewayCompleter(lookup, self._token, self._desk),
            complete_in_thread=True,
            complete_while_typing=Condition(lambda: self._desk.ask is None),
            complete_style=CompleteStyle.COLUMN,
            key_bindings=self._bindings(),
            is_password=Condition(lambda: self._desk.ask is not None and self._desk.ask.hidden),
            bottom_toolbar=lambda: FormattedText([("", f" {self.status.line()} ")]),
            reserve_space_for_menu=4,
        )

    # --- output (Trio's thread)

    def write(self, text: str) -> None:
        before, self._partial = self._partial, ""
        self._out.write(f"{before}\n{text}\n" if before else f"{text}\n")
        self.refresh()

    def stream(self, text: str) -> None:
        whole, newline, self._partial = (self._partial + text).rpartition("\n")
        if newline:
            self._out.write(f"{whole}\n")
        self.refresh()

    def preview(self, text: str) -> None:
        self._preview = text
        self.refresh()

    def ask(self, ask: Ask | None) -> None:
        self._wanted_ask = ask
        self._in_editor(self._take_ask)

    def prefill(self, text: str) -> None:
        self._prefill = text
        self._in_editor(self._take_ask)

    def refresh(self) -> None:
        self._session.app.invalidate()

    def _in_editor(self, fn: Callable[[], None]) -> None:
        loop = self._session.app.loop
        if loop is not None:
            # The loop may have ended in between; the next prompt begins with the same function.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(fn)

    # --- input

    async def run(self) -> None:
        try:
            await trio.to_thread.run_sync(self._read_lines, abandon_on_cancel=True)
        finally:
            self._closing = True
            self._in_editor(self._leave)
            # The terminal is given back by the editor's thread: without it the shell would get a raw terminal.
            with trio.move_on_after(LEAVE_WITHIN, shield=True):
                await self._ended.wait()
                await trio.to_thread.run_sync(self._out.close, abandon_on_cancel=True)

    def _read_lines(self) -> None:
        try:
            while not self._closing:
                try:
                    text = self._session.prompt(self._message, pre_run=self._take_ask)
                except EOFError:
                    self._tell(Left())
                    return
                except KeyboardInterrupt:
                    self._tell(Interrupted())
                else:
                    self._desk.last_key = 0.0
                    self._tell(Typed(text, self._desk.ask))
        finally:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._ended.set)

    def _tell(self, what: Input) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.on_input, what)

    def _leave(self) -> None:
        if self._session.app.is_running:
            self._session.app.exit(exception=EOFError)

    def _take_ask(self) -> None:
        """Put the wanted input on the desk; a draft is laid aside and comes back afterwards."""
        if self._closing:
            self._leave()
        desk, buffer = self._desk, self._session.default_buffer
        if self._wanted_ask is not desk.ask:
            if desk.ask is None:
                desk.draft = buffer.text
                desk.busy_typing = bool(desk.draft) or time.monotonic() - desk.last_key < QUIET
            desk.ask = self._wanted_ask
            buffer.reset(Document(desk.draft if desk.ask is None else ""))
            if desk.ask is None:
                desk.draft = ""
        if self._prefill and desk.ask is None:
            buffer.reset(Document(self._prefill))
            self._prefill = ""
        self._session.app.invalidate()

    def _message(self) -> Any:
        ask = self._desk.ask
        prompt = ask.prompt if ask is not None else "> "
        # A line that has been sent stays on the screen without what was streaming above it: that is still to come.
        if self._session.app.is_done or not (self._partial or self._preview):
            return prompt
        width = max(self._session.app.output.get_size().columns - 1, 10)
        if self._partial:
            return ANSI(f"{self._partial[-width:]}\n{prompt}")
        lines = [line[-width:] for line in self._preview.split("\n")[-PREVIEW_LINES:]]
        return ANSI("".join(f"{line}\n" for line in lines) + prompt)

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        desk = self._desk
        by_key = Condition(lambda: desk.ask is not None and bool(desk.ask.keys))

        @bindings.add("c-c")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text and not self.status.running and desk.ask is None:
                buffer.reset()
            else:
                self._tell(Interrupted())

        @bindings.add(Keys.Any, filter=by_key)
        def _(event: KeyPressEvent) -> None:
            if desk.note_key() and desk.ask is not None and event.data.lower() in desk.ask.keys:
                self._tell(Typed(event.data.lower(), desk.ask))

        @bindings.add("enter", filter=by_key)
        @bindings.add(Keys.BracketedPaste, filter=by_key)
        def _(event: KeyPressEvent) -> None:
            """Neither Enter nor a paste answers an approval."""

        @bindings.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add(Keys.Any, filter=~by_key)
        def _(event: KeyPressEvent) -> None:
            desk.last_key = time.monotonic()
            event.current_buffer.insert_text(event.data)

        return bindings


def _history(path: Path, desk: _Desk) -> FileHistory:
    """The lines of earlier chats; answers to questions are not among them, secrets least of all."""

    class PromptsOnly(FileHistory):
        def append_string(self, string: str) -> None:
            if desk.ask is None and string.strip():
                super().append_string(string)

    # Made here, with its mode: the library would use the umask.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    return PromptsOnly(str(path))


class _GatewayCompleter(Completer):
    """Asks the gateway, from the completer's own thread."""

    def __init__(self, lookup: Lookup, token: trio.lowlevel.TrioToken, desk: _Desk) -> None:
        self._lookup = lookup
        self._token = token
        self._desk = desk

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        word = text.rpartition(" ")[2]
        if self._desk.ask is not None or not (text.startswith("/") or word.startswith(("@", "./", "~/", "../"))):
            return
        try:
            found: Found = trio.from_thread.run(self._bounded, text, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):  # noqa: ASYNC103 (this thread is not Trio's)
            # The chat is ending, and nobody is there to be cancelled here.
            return  # noqa: ASYNC104
        for insert, shown, meaning, replaced in found:
            yield Completion(insert, start_position=-replaced, display=shown, display_meta=meaning)

    async def _bounded(self, text: str) -> Found:
        with trio.move_on_after(COMPLETE_WITHIN):
            return tuple(await self._lookup(text))
        return ()
