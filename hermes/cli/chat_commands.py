"""Slash commands of the chat: the few that are the terminal's own, and the server's, with their completion."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from hermes.cli.gateway_link import CallFailed
from hermes.cli.terminal_style import printable

if TYPE_CHECKING:
    from hermes.cli.chat_session import ChatSession

SESSIONS_SHOWN: Final = 20
CLEAR_SCREEN: Final = "\x1b[2J\x1b[H"
OWN_TEXT: Final = """Keys: Enter sends, Alt-Enter makes a new line, Ctrl-C stops the turn, twice leaves, Ctrl-D leaves.
A line typed during a turn goes to the turn (/busy says how). /quit leaves."""


class ChatCommands:
    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat

    async def run(self, line: str) -> None:
        """Raises ``CallFailed``."""
        name, _, arg = line[1:].partition(" ")
        arg = arg.strip()
        match name.lower():
            case "quit" | "exit":
                self._chat.leave()
            case "new" | "reset":
                await self._new(arg)
            case "clear":
                if self._chat.style.colour:
                    self._chat.screen.write(CLEAR_SCREEN)
                await self._new("")
            case "resume" if arg:
                await self._switch(arg)
            case "resume" | "sessions":
                await self._sessions()
            case _:
                await self._dispatch(name, arg)
                if name.lower() == "help" and not arg:
                    self._chat.screen.write(OWN_TEXT)

    async def complete(self, text: str) -> list[tuple[str, str, str, int]]:
        """Raises ``CallFailed``."""
        chat = self._chat
        if text.startswith("/"):
            found = await chat.peer.call("complete.slash", {"text": text, "session_id": chat.session_id})
            replaced = len(text) - int(found.get("replace_from", 0))
        else:
            word = text.rpartition(" ")[2]
            found = await chat.peer.call("complete.path", {"word": word, "session_id": chat.session_id})
            replaced = len(word)
        return [_item(item, replaced) for item in found.get("items") or ()]

    async def _dispatch(self, name: str, arg: str) -> None:
        chat = self._chat
        params = {"name": name, "arg": arg, "session_id": chat.session_id}
        result = await chat.peer.call("command.dispatch", params)
        if result.get("type") == "alias":
            target, _, rest = str(result.get("target", "")).removeprefix("/").partition(" ")
            result = await chat.peer.call(
                "command.dispatch", {**params, "name": target, "arg": f"{rest} {arg}".strip()}
            )
        if result.get("notice"):
            chat.screen.write(chat.style.dim(printable(str(result["notice"]))))
        match result.get("type"):
            case "send" | "skill":
                await chat.submit(str(result.get("message", "")))
            case "prefill":
                chat.screen.prefill(str(result.get("message", "")))
            case _:
                output = printable(str(result.get("output") or "")).strip("\n")
                if output:
                    chat.screen.write(output)

    async def _new(self, title: str) -> None:
        chat = self._chat
        await self._close()
        await chat.create({"cwd": os.getcwd(), "title": title or None})
        chat.screen.write(chat.style.dim("A new session."))

    async def _switch(self, wanted: str) -> None:
        if wanted == "last":
            wanted = (await self._chat.peer.call("session.most_recent"))["session_id"] or wanted
        before = self._chat.session_id
        await self._chat.resume(wanted)
        if self._chat.session_id != before:
            await self._close(before)

    async def _close(self, session_id: str | None = None) -> None:
        params = {"session_id": session_id or self._chat.session_id, "reason": "another session was opened"}
        try:
            await self._chat.peer.call("session.close", params)
        except CallFailed:
            return

    async def _sessions(self) -> None:
        chat = self._chat
        found = await chat.peer.call("session.list", {"limit": SESSIONS_SHOWN})
        rows = found.get("sessions") or []
        lines = [f"{row['id']}  {printable(str(row.get('title') or row.get('preview') or ''))[:60]}" for row in rows]
        chat.screen.write("\n".join([*lines, "/resume ID takes one up."] if lines else ["No stored sessions yet."]))


def _item(item: dict[str, Any], replaced: int) -> tuple[str, str, str, int]:
    text = str(item.get("text", ""))
    return text, str(item.get("display") or text), str(item.get("meta") or ""), replaced
