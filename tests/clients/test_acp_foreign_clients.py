"""``hermes acp`` through the public Python and TypeScript clients; every frame of it is checked by the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.acp_bridge import ForeignClient, cancel, foreign_client, selected

pytestmark = [pytest.mark.e2e, pytest.mark.parametrize("kind", ["python", "node"])]
LIMIT = 90


def said(*text: str) -> Reply:
    return Reply.of({"text": list(text)})


def tool(name: str, **arguments: Any) -> Reply:
    return Reply.of({"text": "about to "}, {"tool_call": {"name": name, "arguments": arguments}})


SILENT = Reply.of({"text": "never"}, faults={"hang": True})
STUCK = Reply.of({"text": ["half ", "an ", "answer"]}, faults={"hang_after": 2})


@asynccontextmanager
async def conversation(
    kind: str, tmp_path: Path, *replies: Reply, config: str = "", capabilities: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[ForeignClient, FakeProvider]]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(config)
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with foreign_client(kind, home, environ, capabilities=capabilities) as client:
                yield client, provider


async def test_an_answer_streams_and_a_tool_is_shown(kind: str, tmp_path: Path) -> None:
    replies = tool("terminal", command="echo out-of-the-tool"), said("all ", "done")
    async with conversation(kind, tmp_path, *replies) as (client, _):
        session = await client.new_session(tmp_path)
        assert await client.prompt(session, "go") == "end_turn"
        assert client.text() == "about to all done"
        assert [call["kind"] for call in client.updates("tool_call")] == ["execute"]
        last = client.updates("tool_call_update")[-1]
        assert last["status"] == "completed"
        assert "out-of-the-tool" in str(last["content"])
        await client.updated("available_commands_update")
        await client.updated("usage_update")


async def test_a_cancel_is_a_result_wherever_it_falls_and_the_next_prompt_works(kind: str, tmp_path: Path) -> None:
    replies = (
        SILENT, said("one"), STUCK, said("two"), tool("terminal", command="sleep 1000"), said("three"),
        tool("terminal", command="rm -rf nothing-here"), said("four"), SILENT, said("five"), SILENT, said("six"),
    )  # fmt: skip
    async with conversation(kind, tmp_path, *replies) as (client, provider):
        session = await client.new_session(tmp_path)

        async def stop(number: int, next_says: str, *, times: int = 1) -> None:
            await client.tell(*[cancel(session)] * times)
            assert await client.stop_reason(number) == "cancelled"
            after = len(client.said)
            assert await client.prompt(session, "next") == "end_turn"
            assert client.text(after=after) == next_says

        number = await client.start_prompt(session, "before the first byte")
        await provider.wait_for_request(1)
        await stop(number, "one")
        after = len(client.said)
        number = await client.start_prompt(session, "mid-text")
        await client.updated("agent_message_chunk", after=after)
        await stop(number, "two")
        number = await client.start_prompt(session, "mid-tool")
        await client.updated("tool_call", kind="execute")
        await client.updated("tool_call_update", status="in_progress")
        await stop(number, "three")
        number = await client.start_prompt(session, "during a question")
        question = await client.question()
        await stop(number, "four")
        # An answer that comes too late allows nothing.
        await client.answer(question, selected("allow_once"))
        # The first cancel is of an idle session and stops nothing that comes later.
        await client.tell(cancel(session))
        seen = len(provider.requests)
        number = await client.start_prompt(session, "twice")
        await provider.wait_for_request(seen + 1)
        await stop(number, "five", times=2)
        statuses = [update.get("status") for update in client.updates("tool_call_update")]
        assert statuses.count("failed") == 2


async def test_a_cancel_right_behind_its_prompt_stops_it(kind: str, tmp_path: Path) -> None:
    async with conversation(kind, tmp_path, *[said("words")] * 20) as (client, _):
        session = await client.new_session(tmp_path)
        for number in range(8):
            prompt = await client.start_prompt(session, str(number), cancel(session))
            assert await client.stop_reason(prompt) == "cancelled"
        assert await client.prompt(session, "after all") == "end_turn"


async def test_permissions_are_given_and_refused(kind: str, tmp_path: Path) -> None:
    ask = tool("write_file", path="a.txt", content="x\n")
    config = "approvals:\n  timeout: 1\n"
    async with conversation(kind, tmp_path, *[ask, said("ok")] * 5, config=config) as (client, _):
        session = await client.new_session(tmp_path)
        answers = [selected("deny"), {"outcome": "allow_once"}, selected("yes please"), None, selected("allow_once")]
        for answer in answers:
            after = len(client.said)
            prompt = await client.start_prompt(session, "write")
            question = await client.question(after=after)
            assert [option["kind"] for option in question["params"]["options"]] == ["allow_once", "reject_once"]
            if answer is not None:
                await client.answer(question, answer)
            assert await client.stop_reason(prompt) == "end_turn"
            allowed = answer == selected("allow_once")
            assert (tmp_path / "a.txt").exists() is allowed
            last = client.updates("tool_call_update", after=after)[-1]
            assert last["status"] == ("completed" if allowed else "failed")


async def test_a_session_goes_on_in_another_process_and_as_a_fork(kind: str, tmp_path: Path) -> None:
    replies = tool("terminal", command="echo once"), said("first answer")
    async with conversation(kind, tmp_path, *replies) as (client, _):
        session = await client.new_session(tmp_path)
        await client.prompt(session, "first")
        empty = await client.new_session(tmp_path)
    async with conversation(kind, tmp_path, said("second answer"), said("of the fork"), said("ok")) as (
        client,
        provider,
    ):
        listed = await client.call("session/list", cwd=str(tmp_path))
        assert [entry["sessionId"] for entry in listed["sessions"]] == [session]
        await client.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert client.text("user_message_chunk") == "first"
        assert client.text() == "about to first answer"
        assert [update["status"] for update in client.updates("tool_call_update")] == ["completed"]
        fork = (await client.call("session/fork", sessionId=session, cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        assert await client.prompt(session, "second") == "end_turn"
        assert await client.prompt(fork, "elsewhere") == "end_turn"
        assert "second" not in str(provider.requests[-1].body["messages"])
        assert "first answer" in str(provider.requests[-1].body["messages"])
        await client.call("session/resume", sessionId=empty, cwd=str(tmp_path), mcpServers=[])
        assert await client.prompt(empty, "hello") == "end_turn"
    async with conversation(kind, tmp_path, said("third")) as (client, provider):
        await client.call("session/resume", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert client.updates("user_message_chunk") == []
        assert await client.prompt(session, "third") == "end_turn"
        assert "second answer" in str(provider.requests[-1].body["messages"])


async def test_mode_and_model_are_switched(kind: str, tmp_path: Path) -> None:
    edit = tool("write_file", path="a.txt", content="x\n")
    async with conversation(kind, tmp_path, edit, said("ok"), said("ok")) as (client, provider):
        session = await client.new_session(tmp_path)
        await client.call("session/set_mode", sessionId=session, modeId="accept_edits")
        await client.updated("current_mode_update", currentModeId="accept_edits")
        assert await client.prompt(session, "write") == "end_turn"
        assert (tmp_path / "a.txt").read_text() == "x\n"
        switched = await client.call(
            "session/set_config_option", sessionId=session, configId="model", value="custom:other-model"
        )
        model = next(option for option in switched["configOptions"] if option["id"] == "model")
        assert model["currentValue"].endswith("other-model")
        assert await client.prompt(session, "again") == "end_turn"
        assert provider.requests[-1].body["model"] == "other-model"


async def test_two_sessions_work_at_once_and_a_stop_reaches_one(kind: str, tmp_path: Path) -> None:
    async with conversation(kind, tmp_path, STUCK, said("the other")) as (client, _):
        first, second = await client.new_session(tmp_path), await client.new_session(tmp_path)
        stuck = await client.start_prompt(first, "stay")
        await client.updated("agent_message_chunk")
        assert await client.prompt(second, "go") == "end_turn"
        assert client.text(session=second) == "the other"
        await client.tell(cancel(second))
        await client.tell(cancel(first))
        assert await client.stop_reason(stuck) == "cancelled"


async def test_an_embedded_resource_of_16_mib_is_read(kind: str, tmp_path: Path) -> None:
    async with conversation(kind, tmp_path, said("read")) as (client, provider):
        session = await client.new_session(tmp_path)
        resource = {"uri": "file:///big.txt", "mimeType": "text/plain", "text": "z" * (16 << 20)}
        blocks = [{"type": "text", "text": "read"}, {"type": "resource", "resource": resource}]
        answer = await client.call("session/prompt", sessionId=session, prompt=blocks)
        assert answer["stopReason"] == "end_turn"
        assert len(str(provider.requests[0].body["messages"])) > 16 << 20


async def test_an_unknown_session_is_an_error_the_client_can_tell(kind: str, tmp_path: Path) -> None:
    async with conversation(kind, tmp_path) as (client, _):
        outcome = await client.outcome(
            await client.start("session/load", sessionId="nothing", cwd=str(tmp_path), mcpServers=[])
        )
        assert outcome["error"]["code"] == -32002
