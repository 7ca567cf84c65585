"""``hermes acp`` driven by the public Python client, which knows nothing of this server; all frames are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from tests.support.acp_bridge import check_records, tapped
from tests.support.server_process import clean_environment

pytestmark = pytest.mark.e2e
LIMIT = 60


class Editor:
    """The part of a client that the server may call. Keeps what it is told and answers questions as the test says."""

    def __init__(self, option: str = "allow_once") -> None:
        self.option = option
        self.updates: list[Any] = []
        self.questions: list[tuple[Any, list[Any]]] = []
        self.told = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self.told.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        self.questions.append((tool_call, options))
        self.told.set()
        selected = schema.AllowedOutcome(outcome="selected", option_id=self.option)
        return schema.RequestPermissionResponse(outcome=selected)

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(u.content.text for u in self.updates if u.session_update == kind)

    async def wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.told.clear()
            await self.told.wait()


def drive(home: Path, story: Callable[[Any, Editor], Awaitable[None]], *, option: str = "allow_once") -> None:
    home.mkdir(parents=True, exist_ok=True)
    command, *arguments = tapped(home / "frames")

    async def main() -> None:
        client: Any = Editor(option)
        async with (
            asyncio.timeout(LIMIT),
            acp.spawn_agent_process(
                lambda _agent: client, command, *arguments, env=clean_environment(home), cwd=home
            ) as (connection, process),
        ):
            hello = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
            assert hello.protocol_version == 1
            await story(connection, client)
        assert process.returncode == 0

    asyncio.run(main())
    check_records(home / "frames")


def text(words: str) -> list[Any]:
    return [acp.text_block(words)]


def test_a_conversation_with_a_tool_is_understood(tmp_path: Path) -> None:
    async def story(connection: Any, client: Editor) -> None:
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        assert session.modes.current_mode_id == "default"
        assert [option.id for option in session.config_options] == ["mode", "model"]
        answer = await connection.prompt(session_id=session.session_id, prompt=text("run: echo out-of-the-tool"))
        assert answer.stop_reason == "end_turn"
        call = next(u for u in client.updates if u.session_update == "tool_call")
        last = [u for u in client.updates if u.session_update == "tool_call_update"][-1]
        assert (call.kind, call.tool_call_id, last.status) == ("execute", last.tool_call_id, "completed")
        assert "out-of-the-tool" in last.content[0].content.text
        assert client.text()
        assert any(u.session_update == "available_commands_update" for u in client.updates)

    drive(tmp_path / "home", story)


def test_a_permission_request_is_shown_and_its_denial_respected(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()

    async def story(connection: Any, client: Editor) -> None:
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        answer = await connection.prompt(session_id=session.session_id, prompt=text(f"run: rm -rf {victim}"))
        assert answer.stop_reason == "end_turn"
        assert client.questions[0][1][0].kind == "allow_once"
        assert victim.is_dir()

    drive(tmp_path / "home", story, option="deny")


def test_a_cancel_is_a_result(tmp_path: Path) -> None:
    async def story(connection: Any, client: Editor) -> None:
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        prompt = asyncio.create_task(connection.prompt(session_id=session.session_id, prompt=text("run: sleep 1000")))
        await client.wait(lambda: any(u.session_update == "tool_call" for u in client.updates))
        await connection.cancel(session_id=session.session_id)
        assert (await prompt).stop_reason == "cancelled"
        again = await connection.prompt(session_id=session.session_id, prompt=text("hello"))
        assert again.stop_reason == "end_turn"

    drive(tmp_path / "home", story)


def test_sessions_are_listed_loaded_resumed_and_forked(tmp_path: Path) -> None:
    async def story(connection: Any, client: Editor) -> None:
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        await connection.prompt(session_id=session.session_id, prompt=text("hello there"))
        listed = await connection.list_sessions(cwd=str(tmp_path))
        assert [entry.session_id for entry in listed.sessions] == [session.session_id]
        said = client.text()
        client.updates.clear()
        await connection.load_session(cwd=str(tmp_path), session_id=session.session_id, mcp_servers=[])
        assert client.text("user_message_chunk") == "hello there"
        assert client.text() == said
        fork = await connection.fork_session(cwd=str(tmp_path), session_id=session.session_id)
        assert fork.session_id != session.session_id
        await connection.set_session_mode(session_id=fork.session_id, mode_id="accept_edits")
        await connection.close_session(session_id=fork.session_id)
        resumed = await connection.resume_session(cwd=str(tmp_path), session_id=fork.session_id)
        assert resumed.modes.current_mode_id == "accept_edits"

    drive(tmp_path / "home", story)


def test_an_unknown_session_is_an_error_the_client_can_tell(tmp_path: Path) -> None:
    async def story(connection: Any, client: Editor) -> None:
        with pytest.raises(acp.RequestError) as caught:
            await connection.load_session(cwd=str(tmp_path), session_id="nothing", mcp_servers=[])
        assert caught.value.code == -32002

    drive(tmp_path / "home", story)
