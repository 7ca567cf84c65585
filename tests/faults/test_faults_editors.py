"""What editors met: late consent, noise on standard output, long lines, promises not kept, lost sessions."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.fault_play import playing
from tests.support.server_process import ServerProcess, server_process

pytestmark = pytest.mark.e2e
LIMIT = 60


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def terminal(command: str) -> Reply:
    return Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": command}}})


def said(text: str) -> Reply:
    return Reply.of({"text": text})


@asynccontextmanager
async def agent(home: Path, *replies: Reply, **capabilities: Any) -> AsyncIterator[tuple[ServerProcess, FakeProvider]]:
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            async with server_process(home, "acp", environ=environment(provider)) as server:
                await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})
                yield server, provider
                assert server.stray == []
                assert all(frame["jsonrpc"] == "2.0" for frame in server.frames)


async def new_session(server: ServerProcess, cwd: Path | None = None) -> str:
    made = await server.call("session/new", {"cwd": str(cwd or server.home), "mcpServers": []})
    session_id: str = made["sessionId"]
    return session_id


async def start(server: ServerProcess, number: int, session_id: str, text: str) -> None:
    params = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
    await server.send({"jsonrpc": "2.0", "id": number, "method": "session/prompt", "params": params})


async def answer(server: ServerProcess, number: int) -> Any:
    frame = await server.frame(lambda one: one.get("id") == number and "method" not in one)
    assert "error" not in frame, frame
    return frame["result"]


async def prompt(server: ServerProcess, session_id: str, text: str) -> Any:
    params = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
    return await server.call("session/prompt", params)


def consent(question: Any) -> Any:
    return {
        "jsonrpc": "2.0",
        "id": question["id"],
        "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}},
    }


async def asked(server: ServerProcess) -> Any:
    return await server.frame(lambda one: one.get("method") == "session/request_permission")


@pytest.mark.fault("B-091")
async def test_consent_after_a_cancel_runs_nothing(tmp_path: Path) -> None:
    effect = tmp_path / "effect"
    async with agent(tmp_path / "home", terminal(f"rm -rf build; touch {effect}"), said("next")) as (server, _):
        session_id = await new_session(server)
        await start(server, 900, session_id, "please")
        question = await asked(server)
        await server.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}})
        assert (await answer(server, 900))["stopReason"] == "cancelled"
        await server.send(consent(question))
        assert (await prompt(server, session_id, "go on"))["stopReason"] == "end_turn"
        assert not effect.exists()


@pytest.mark.fault("B-091")
async def test_consent_after_the_end_of_the_turn_runs_nothing_and_a_second_consent_neither(tmp_path: Path) -> None:
    log = tmp_path / "log"
    replies = (terminal(f"rm -rf build; echo ran >> {log}"), said("done"), said("next"))
    async with agent(tmp_path / "home", *replies) as (server, _):
        session_id = await new_session(server)
        await start(server, 900, session_id, "please")
        question = await asked(server)
        await server.send(consent(question))
        assert (await answer(server, 900))["stopReason"] == "end_turn"
        await server.send(consent(question))
        assert (await prompt(server, session_id, "go on"))["stopReason"] == "end_turn"
        assert log.read_text() == "ran\n"


@pytest.mark.fault("B-152")
async def test_an_answer_on_the_connection_of_its_open_prompt_is_read_at_once(tmp_path: Path) -> None:
    async with agent(tmp_path / "home", terminal("rm -rf build"), said("done")) as (server, _):
        session_id = await new_session(server)
        await start(server, 900, session_id, "please")
        await server.send(consent(await asked(server)))
        assert (await answer(server, 900))["stopReason"] == "end_turn"


@pytest.mark.fault("B-153")
async def test_nothing_but_frames_is_on_standard_output_whatever_prints(tmp_path: Path) -> None:
    home, noisy = tmp_path / "home", tmp_path / "noisy.py"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("unknown_key_for_a_warning: 1\n")
    noisy.write_text("import sys\nprint('not a frame', flush=True)\nprint('noise', file=sys.stderr, flush=True)\n")
    shout = "echo to stdout; echo to stderr >&2; echo to the agent > /proc/$PPID/fd/1"
    async with agent(home, terminal(shout), said("done")) as (server, _):
        servers = [{"name": "noisy", "command": "python3", "args": [str(noisy)], "env": []}]
        made = await server.call("session/new", {"cwd": str(tmp_path), "mcpServers": servers})
        assert (await prompt(server, made["sessionId"], "go"))["stopReason"] == "end_turn"
        assert server.stray == []


@pytest.mark.fault("B-153")
async def test_nothing_but_frames_is_on_the_gateways_output_with_warnings_on_and_a_noisy_peer(tmp_path: Path) -> None:
    home, noisy = tmp_path / "home", tmp_path / "noisy.py"
    noisy.write_text("import sys\nprint('not a frame', flush=True)\nprint('noise', file=sys.stderr, flush=True)\n")
    peer = {"command": sys.executable, "args": [str(noisy)]}
    config = {"unknown_key_for_a_warning": 1, "mcp_servers": {"noisy": peer}}
    shout = "echo to stdout; echo to stderr >&2; echo to the host > /proc/$PPID/fd/1"
    loud = {"PYTHONWARNINGS": "always", "PYTHONDEVMODE": "1"}
    home.mkdir(mode=0o700)
    # A key from an earlier day.
    (home / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-0123456789012345678901234567890\n")
    async with playing(home, terminal(shout), said("done"), config=config, environ=loud, limit=60) as (driver, _):
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete"
        assert driver.server.stray == []
        assert all(one["jsonrpc"] == "2.0" for one in driver.server.frames)


@pytest.mark.fault("B-155")
@pytest.mark.parametrize("size", [64 * 1024 - 1, 64 * 1024, 1024 * 1024, 8 * 1024 * 1024])
async def test_long_lines_pass_both_ways(size: int, tmp_path: Path) -> None:
    text = "".join(f"{number:07} " for number in range(size // 8))
    async with agent(tmp_path / "home", Reply.of({"text": [text[: min(size, 1024 * 1024)]]})) as (server, provider):
        session_id = await new_session(server)
        resource = {"uri": "file:///big.txt", "text": text}
        blocks = [{"type": "text", "text": "read"}, {"type": "resource", "resource": resource}]
        done = await server.call("session/prompt", {"sessionId": session_id, "prompt": blocks})
        assert done["stopReason"] == "end_turn"
        chunks = [
            frame["params"]["update"]["content"]["text"]
            for frame in server.frames
            if frame.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
        ]
        assert "".join(chunks) == text[: min(size, 1024 * 1024)]
        assert len(provider.requests) == 1


@pytest.mark.fault("B-155")
async def test_a_line_over_the_limit_is_one_error_and_the_connection_lives(tmp_path: Path) -> None:
    async with agent(tmp_path / "home") as (server, _):
        before = len(server.frames)
        await server.send_bytes(b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"p":"')
        for _ in range(70):
            await server.send_bytes(b"x" * 1024 * 1024)
        await server.send_bytes(b'"}}\n')
        await server.frame(lambda one: "error" in one, after=before)
        await new_session(server)
        assert sum("error" in one for one in server.frames[before:]) == 1


@pytest.mark.fault("B-159")
async def test_resume_shows_nothing_again_load_shows_all_and_what_is_advertised_answers(tmp_path: Path) -> None:
    async with agent(tmp_path / "home", said("first answer")) as (server, _):
        hello = server.frames[0]["result"]["agentCapabilities"]
        session_id = await new_session(server)
        await prompt(server, session_id, "one")
        where = {"sessionId": session_id, "cwd": str(server.home), "mcpServers": []}

        def shown(after: int) -> list[str]:
            updates = [
                one["params"]["update"] for one in server.frames[after:] if one.get("method") == "session/update"
            ]
            return [one["sessionUpdate"] for one in updates if "message_chunk" in one["sessionUpdate"]]

        at = len(server.frames)
        assert hello["loadSession"] is True
        await server.call("session/load", where)
        assert shown(at) == ["user_message_chunk", "agent_message_chunk"]
        offered = hello.get("sessionCapabilities", {})
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "resume": ("session/resume", where),
            "fork": ("session/fork", where),
            "list": ("session/list", {}),
            "close": ("session/close", {"sessionId": session_id}),
        }
        for name, (method, params) in calls.items():
            at = len(server.frames)
            response = await server.request(method, params)
            if offered.get(name) is not None:
                assert "result" in response, (name, response)
            else:
                assert response["error"]["code"] == -32601, (name, response)
            assert shown(at) == []


@pytest.mark.fault("B-161")
@pytest.mark.parametrize("end", ["eof", "term", "kill"])
async def test_a_session_is_found_again_however_its_process_ended(end: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with agent(home, said("first answer")) as (server, _):
            session_id = await new_session(server)
            await prompt(server, session_id, "one")
            if end == "eof":
                await server.close_input()
                assert await server.exit_code() == 0
            else:
                await server.stop(signal.SIGTERM if end == "term" else signal.SIGKILL)
        async with agent(home, said("second answer")) as (server, provider):
            where = {"sessionId": session_id, "cwd": str(home), "mcpServers": []}
            await server.call("session/load", where)
            await prompt(server, session_id, "two")
            roles = [one["role"] for one in provider.requests[0].body["messages"] if one["role"] != "system"]
            assert roles == ["user", "assistant", "user"]
