"""Passwords, secrets and withdrawn questions at the terminal, before a gateway that asks what the test wants."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio_websocket

from tests.support.server_process import COMMAND, clean_environment
from tests.support.terminal import PtyTerminal, line, pty_terminal, shows, until

pytestmark = pytest.mark.e2e

SESSION = "5e55"


class Gateway:
    """Answers the calls of a starting chat and keeps the rest. ``ask`` and ``event`` are the test's part."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._socket: trio_websocket.WebSocketConnection | None = None
        self._changed = trio.Event()

    async def serve(self, request: trio_websocket.WebSocketRequest) -> None:
        self._socket = await request.accept()
        await self.event("gateway.ready", {}, session=None)
        try:
            while True:
                frame = json.loads(await self._socket.get_message())
                self.frames.append(frame)
                self._changed.set()
                self._changed = trio.Event()
                if "method" in frame:
                    await self._send({"id": frame["id"], "result": self._result(frame["method"])})
        except trio_websocket.ConnectionClosed:
            return

    def _result(self, method: str) -> dict[str, Any]:
        created = {"session_id": SESSION, "stored_session_id": "stored", "message_count": 0, "info": {"model": "m"}}
        return created if method == "session.create" else {"status": "streaming"}

    async def ask(self, question_id: str, method: str, **params: Any) -> None:
        await self._send({"id": question_id, "method": method, "params": {"session_id": SESSION, **params}})

    async def event(self, kind: str, payload: dict[str, Any], *, session: str | None = SESSION) -> None:
        params: dict[str, Any] = {"type": kind, "payload": payload}
        await self._send({"method": "event", "params": params | ({"session_id": session} if session else {})})

    async def answer_to(self, question_id: str) -> Any:
        with trio.fail_after(30):
            while True:
                for frame in self.frames:
                    if frame.get("id") == question_id and "method" not in frame:
                        return frame.get("result", frame.get("error"))
                await self._changed.wait()

    def submitted(self) -> list[str]:
        return [frame["params"]["text"] for frame in self.frames if frame.get("method") == "prompt.submit"]

    async def _send(self, frame: dict[str, Any]) -> None:
        assert self._socket is not None
        await self._socket.send_message(json.dumps({"jsonrpc": "2.0", **frame}))


@asynccontextmanager
async def chat(tmp_path: Path, term: str = "xterm-256color") -> AsyncIterator[tuple[PtyTerminal, Gateway]]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    gateway = Gateway()
    async with trio.open_nursery() as nursery:
        server = await nursery.start(trio_websocket.serve_websocket, gateway.serve, "127.0.0.1", 0, None)
        command = [str(COMMAND), "--url", f"ws://127.0.0.1:{server.port}/api/ws"]
        async with pty_terminal(command, environ=clean_environment(home), cwd=tmp_path, term=term) as terminal:
            await shows(terminal, "Hermes")
            await until(terminal, lambda screen: "\n>" in screen, "the prompt")
            yield terminal, gateway
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
@pytest.mark.parametrize("method", ["sudo", "secret"])
async def test_a_password_is_neither_shown_nor_kept(method: str, term: str, tmp_path: Path) -> None:
    async with chat(tmp_path, term) as (terminal, gateway):
        await line(terminal, "a prompt")
        await until(terminal, lambda _: gateway.submitted() == ["a prompt"], "the prompt, sent")
        await gateway.ask("srq-1", method, env_var="TOKEN", prompt="Your token")
        await shows(terminal, "Not shown")
        await line(terminal, "hunter2")
        assert await gateway.answer_to("srq-1") == {"value": "hunter2"}
        await gateway.event("message.complete", {"status": "complete", "text": "Thanks."})
        assert "hunter2" not in await shows(terminal, "Thanks.")
        assert gateway.submitted() == ["a prompt"]
    history = tmp_path / "home" / "chat_history"
    if term != "dumb":
        assert "a prompt" in history.read_text()
        assert "hunter2" not in history.read_text()
        assert history.stat().st_mode & 0o777 == 0o600


async def test_a_withdrawn_question_takes_half_a_password_with_it_and_gives_the_draft_back(tmp_path: Path) -> None:
    async with chat(tmp_path) as (terminal, gateway):
        await terminal.type("my draft")
        await shows(terminal, "> my draft")
        await gateway.ask("srq-1", "sudo", command="sudo ls")
        await shows(terminal, "wants the password for sudo: sudo ls", "Not shown")
        await terminal.type("hunt")
        await shows(terminal, "****")
        await gateway.event("request.cancel", {"id": "srq-other", "method": "sudo", "reason": "timeout"})
        await gateway.event("request.cancel", {"id": "srq-1", "method": "sudo", "reason": "timeout"})
        await shows(terminal, "the question is withdrawn (timeout)", "> my draft")
        await terminal.key("Enter")
        await until(terminal, lambda _: gateway.submitted() == ["my draft"], "the draft, sent")


async def test_questions_wait_for_each_other_and_each_answer_goes_to_its_own(tmp_path: Path) -> None:
    async with chat(tmp_path) as (terminal, gateway):
        await gateway.ask("srq-1", "approval", command="first", choices=["once", "deny"])
        await gateway.ask("srq-2", "approval", command="second", choices=["once", "deny"])
        await shows(terminal, "    first", "[o] once")
        await terminal.type("d")
        await shows(terminal, "    second")
        await terminal.type("o")
        assert await gateway.answer_to("srq-1") == {"choice": "deny"}
        assert await gateway.answer_to("srq-2") == {"choice": "once"}


async def test_what_a_terminal_cannot_show_is_declined_at_once(tmp_path: Path) -> None:
    async with chat(tmp_path) as (_, gateway):
        await gateway.ask("srq-1", "preview.act", action="click")
        assert (await gateway.answer_to("srq-1"))["message"] == "a terminal cannot show this"
