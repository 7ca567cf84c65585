"""``hermes acp`` as a process: edits, persistence over a kill, ends of every kind; each frame checked by the schema."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.acp_process import Frame, editor, model_environment, said, tool
from tests.support.proof import times
from tests.support.server_process import (
    COMMAND,
    assert_no_children,
    children_of,
    clean_environment,
    processes_of,
    server_process,
)

pytestmark = pytest.mark.e2e
LIMIT = 60
MCP_PROGRAM = Path(__file__).parents[1] / "support" / "mcp_server_program.py"


async def test_an_edit_is_asked_for_with_its_diff_and_happens_only_with_consent(tmp_path: Path) -> None:
    script = Script.of(
        tool("write_file", path="a.txt", content="denied\n"), said("ok"),
        tool("write_file", path="a.txt", content="allowed\n"), said("ok"),
        tool("write_file", path="a.txt", content="accepted\n"), said("ok"),
    )  # fmt: skip
    work = tmp_path / "work"
    work.mkdir()
    file = work / "a.txt"
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, editor(tmp_path / "home", model_environment(provider)) as client:
            session = await client.new_session(work)
            for option, outcome in (("deny", None), ("allow_once", "allowed\n")):
                start = len(client.server.frames)
                prompt = await client.start_prompt(session, "write")
                question = await client.question(after=start)
                call = question["params"]["toolCall"]
                announced = (await client.update("tool_call", after=start))["toolCallId"]
                assert (call["toolCallId"], call["kind"]) == (announced, "edit")
                assert [o["optionId"] for o in question["params"]["options"]] == ["allow_once", "deny"]
                assert call["content"][0]["type"] == "diff"
                assert call["content"][0]["path"] == str(file)
                assert "oldText" not in call["content"][0]
                await client.reply(question, option)
                assert (await client.answer(prompt))["stopReason"] == "end_turn"
                last = client.updates("tool_call_update", after=start)[-1]
                assert last["status"] == ("failed" if outcome is None else "completed")
                assert (file.read_text() if file.exists() else None) == outcome
            await client.call("session/set_mode", sessionId=session, modeId="accept_edits")
            start = len(client.server.frames)
            await client.answer(await client.start_prompt(session, "write"))
            assert file.read_text() == "accepted\n"
            assert not any(f.get("method") == "session/request_permission" for f in client.server.frames[start:])
            diff = client.updates("tool_call_update", after=start)[-1]["content"][0]
            assert (diff["oldText"], diff["newText"]) == ("allowed\n", "accepted\n")


async def test_a_denied_command_does_not_run_and_the_turn_goes_on(tmp_path: Path) -> None:
    victim = tmp_path / "build"
    victim.mkdir()
    script = Script.of(tool("terminal", command=f"rm -rf {victim}"), said("I left it."))
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, editor(tmp_path / "home", model_environment(provider)) as client:
            session = await client.new_session(tmp_path)
            prompt = await client.start_prompt(session, "clean")
            question = await client.question()
            assert question["params"]["toolCall"]["rawInput"]["command"] == f"rm -rf {victim}"
            await client.reply(question, "deny")
            assert (await client.answer(prompt))["stopReason"] == "end_turn"
            assert victim.is_dir()
            assert client.text("agent_message_chunk") == "I left it."


@pytest.mark.fault("B-161")
@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "input"])
async def test_a_session_survives_its_process_and_is_loaded_by_the_next_one(end: str, tmp_path: Path) -> None:
    script = Script.of(said("one"), said("two"))
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            environ = model_environment(provider)
            async with editor(tmp_path / "home", environ) as client:
                empty = await client.new_session(tmp_path)
                session = await client.new_session(tmp_path)
                await client.answer(await client.start_prompt(session, "first"))
                if end == "input":
                    await client.server.close_input()
                    await client.server.exit_code()
                else:
                    await client.server.stop(signal.Signals[end])
            async with editor(tmp_path / "home", environ) as client:
                await client.call("session/resume", sessionId=empty, cwd=str(tmp_path))
                await client.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
                assert client.text("user_message_chunk") == "first"
                assert client.text("agent_message_chunk") == "one"
                listed = (await client.call("session/list"))["sessions"]
                assert [entry["sessionId"] for entry in listed] == [session]
                await client.answer(await client.start_prompt(session, "second"))
                assert client.text("agent_message_chunk") == "onetwo"


@pytest.mark.parametrize("end", ["input", "SIGTERM", "SIGINT"])
async def test_every_end_stops_the_turn_its_processes_and_the_agent(end: str, tmp_path: Path) -> None:
    script = Script.of(tool("terminal", command="sleep 7001 & (setsid sleep 7002 &); sleep 7003"))
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, editor(tmp_path / "home", model_environment(provider)) as client:
            session = await client.new_session(tmp_path)
            prompt = await client.start_prompt(session, "go")
            await client.update("tool_call")
            while sum("sleep 700" in line for line in children_of(client.server).values()) < 3:
                await trio.sleep(0.01)
            if end == "input":
                await client.server.close_input()
            else:
                client.server.process.send_signal(signal.Signals[end])
            with trio.fail_after(10):
                assert await client.server.exit_code() == 0
            await client.server.wait_until(lambda: client.server.output_ended)
            assert (await client.answer(prompt))["stopReason"] == "cancelled"
            await assert_no_children(client.server)


async def test_an_input_that_is_closed_at_once_ends_the_agent(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with server_process(tmp_path / "home", "acp") as server:
            await server.close_input()
            assert await server.exit_code() == 0
            assert server.frames == []


async def test_a_cancel_ends_the_processes_and_the_session_goes_on(tmp_path: Path) -> None:
    script = Script.of(tool("terminal", command="trap '' TERM; sleep 7004 & wait; sleep 7005"), said("again"))
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, editor(tmp_path / "home", model_environment(provider)) as client:
            session = await client.new_session(tmp_path)
            prompt = await client.start_prompt(session, "go")
            await client.update("tool_call")
            while not any("sleep 7004" in line for line in children_of(client.server).values()):
                await trio.sleep(0.01)
            await client.notify("session/cancel", sessionId=session)
            assert (await client.answer(prompt))["stopReason"] == "cancelled"
            await assert_no_children(client.server)
            assert client.updates("tool_call_update")[-1]["status"] == "failed"
            await client.answer(await client.start_prompt(session, "and now?"))
            assert client.text("agent_message_chunk") == "again"


async def test_a_client_that_stops_reading_loses_nothing_and_the_turn_ends_meanwhile(tmp_path: Path) -> None:
    """The pipe is full when the turn ends; the session is free all the same, and everything comes when it is read."""
    # No two alike: an answer that repeats itself is cut by the server.
    pieces = [hashlib.sha512(str(number).encode()).hexdigest() * 3 + " " for number in range(3000)]
    script = Script.of(Reply.of({"text": pieces}), said("next"))
    home = tmp_path / "home"
    home.mkdir()
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            process = await trio.lowlevel.open_process(
                [str(COMMAND), "acp"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=clean_environment(home) | model_environment(provider),
            )
            assert process.stdin is not None
            assert process.stdout is not None
            output = LineReader(process.stdout)

            async def say(number: int, method: str, **params: Any) -> None:
                frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                assert process.stdin is not None
                await process.stdin.send_all(json.dumps(frame).encode() + b"\n")

            await say(1, "initialize", protocolVersion=1)
            await say(2, "session/new", cwd=str(tmp_path), mcpServers=[])
            session = (await output.until(2))[-1]["result"]["sessionId"]
            await say(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "long"}])
            await provider.wait_closed(1)
            await say(4, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "more"}])
            # Nobody has read the first turn's end, and the second one runs.
            await provider.wait_closed(2)
            first = await output.until(3)
            assert chunks(first) == "".join(pieces)
            assert first[-1]["result"]["stopReason"] == "end_turn"
            assert chunks(await output.until(4)) == "next"
            await process.stdin.aclose()
            assert await process.wait() == 0
            await process.stdout.aclose()


async def test_an_agent_whose_output_nobody_reads_ends_with_its_input(tmp_path: Path) -> None:
    pieces = [hashlib.sha512(str(number).encode()).hexdigest() * 3 + " " for number in range(3000)]
    script = Script.of(Reply.of({"text": pieces}), tool("terminal", command="sleep 7001 & sleep 7002"))
    home = tmp_path / "home"
    home.mkdir()
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider:
            process = await trio.lowlevel.open_process(
                [str(COMMAND), "acp"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=clean_environment(home) | model_environment(provider),
            )
            assert process.stdin is not None
            assert process.stdout is not None
            output = LineReader(process.stdout)

            async def say(number: int, method: str, **params: Any) -> None:
                frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                assert process.stdin is not None
                await process.stdin.send_all(json.dumps(frame).encode() + b"\n")

            await say(1, "session/new", cwd=str(tmp_path), mcpServers=[])
            session = (await output.until(1))[-1]["result"]["sessionId"]
            for number in (2, 3):
                await say(number, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
            while not any("sleep 7002" in line for line in processes_of(home).values()):
                await trio.sleep(0.02)
            await process.stdin.aclose()
            with trio.fail_after(5):
                assert await process.wait() == 0
            assert processes_of(home) == {}
            await process.stdout.aclose()


class LineReader:
    """Reads frames only when it is asked to."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""
        self._lines: list[bytes] = []

    async def until(self, number: int) -> list[Frame]:
        """The frames up to the answer of this request."""
        frames: list[Frame] = []
        while not frames or frames[-1].get("id") != number:
            while not self._lines:
                data = await self._stream.receive_some()
                assert data, "the output ended"
                *self._lines, self._rest = (self._rest + data).split(b"\n")
            frames.append(json.loads(self._lines.pop(0)))
        return frames


def chunks(frames: list[Frame]) -> str:
    updates = [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
    return "".join(u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk")


@pytest.mark.fault("B-155")
async def test_large_frames_pass_both_ways(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(said("y" * 300_000))) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                resource = {"uri": "file:///big.txt", "text": "z" * (4 << 20)}
                prompt = [{"type": "text", "text": "read"}, {"type": "resource", "resource": resource}]
                await client.call("session/prompt", sessionId=session, prompt=prompt)
                assert client.text("agent_message_chunk") == "y" * 300_000


async def test_nothing_of_a_stopped_turn_follows_its_answer_wherever_the_stop_falls(tmp_path: Path) -> None:
    """A tool prints as fast as it can; the stop comes at many instants, the next prompt in the same write."""
    chance = random.Random(21)
    noisy = Reply.of(
        {"text": ["thinking ", "aloud "]},
        {"tool_call": {"name": "terminal", "arguments": {"command": "while :; do echo line; done"}}},
    )
    script = Script.of(*[noisy] * 40)
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, editor(tmp_path / "home", model_environment(provider)) as client:
            session = await client.new_session(tmp_path)
            running = await client.start_prompt(session, "0")
            for number in range(1, 21):
                await trio.sleep(chance.random() * 0.15)
                stop = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
                await client.server.send(stop)
                following = await client.start_prompt(session, str(number))
                assert (await client.answer(running))["stopReason"] == "cancelled"
                running = following
            await client.notify("session/cancel", sessionId=session)
            await client.answer(running)
            await assert_no_children(client.server)
        open_calls: set[str] = set()
        for frame in client.server.frames:
            if "result" in frame:
                # At each answer every announced call is closed, so nothing of that turn is left to be said.
                assert open_calls == set()
            update = frame.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == "tool_call":
                open_calls.add(update["toolCallId"])
            elif update.get("status") in ("completed", "failed"):
                open_calls.remove(update["toolCallId"])
            elif update.get("sessionUpdate") == "tool_call_update":
                assert update["toolCallId"] in open_calls


@pytest.mark.parametrize(("status", "code"), [(401, -32000), (400, -32603)])
async def test_a_provider_that_refuses_is_an_error_of_the_prompt_and_the_session_goes_on(
    status: int, code: int, tmp_path: Path
) -> None:
    refused = Reply.of(faults={"status": status})
    # A refused key is read anew and tried once more.
    script = Script.of(*[refused] * (2 if status == 401 else 1), said("better"))
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, editor(tmp_path / "home", model_environment(provider)) as client:
            session = await client.new_session(tmp_path)
            number = await client.start_prompt(session, "hi")
            frame = await client.server.frame(lambda f: f.get("id") == number and "method" not in f)
            assert frame["error"]["code"] == code
            assert frame["error"]["message"]
            assert (await client.answer(await client.start_prompt(session, "again")))["stopReason"] == "end_turn"
            assert client.text("agent_message_chunk") == "better"


async def test_no_credentials_at_all_is_told_before_a_session_is_made(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with server_process(tmp_path / "home", "acp", "--set", "model.provider=none") as server:
            hello = await server.call("initialize", {"protocolVersion": 1})
            assert [method["id"] for method in hello["authMethods"]] == ["hermes-setup"]
            refused = await server.request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
            assert refused["error"]["code"] == -32000
            assert "hermes acp --setup" in refused["error"]["message"]


async def test_the_servers_an_editor_brings_offer_their_tools_to_that_session_and_end_with_it(tmp_path: Path) -> None:
    calls = tool("mcp__specimen__add", a=20, b=22)
    script = Script.of(calls, said("42"), said("nothing to call here"))
    specimen = {
        "name": "specimen",
        "command": sys.executable,
        "args": [str(MCP_PROGRAM), "stdio"],
        "env": [{"name": "SPECIMEN_NOTES", "value": str(tmp_path / "notes")}],
    }
    broken = {"name": "broken", "command": "/nowhere/at/all", "args": [], "env": []}
    with trio.fail_after(LIMIT):
        async with FakeProvider(script) as provider, editor(tmp_path / "home", model_environment(provider)) as client:
            with_servers = await client.call("session/new", cwd=str(tmp_path), mcpServers=[broken, specimen])
            session = with_servers["sessionId"]
            # A busy machine may start the server later than a first turn would wait for it.
            while "mcp__specimen__add" not in client.text("agent_message_chunk"):
                await client.answer(await client.start_prompt(session, "/tools"))
                await trio.sleep(0.1)
            await client.answer(await client.start_prompt(session, "add"))
            last = client.updates("tool_call_update")[-1]
            assert last["status"] == "completed"
            assert "42" in str(last)
            other = await client.new_session(tmp_path)
            await client.answer(await client.start_prompt(other, "hi"))
            assert "mcp__specimen__add" in str(provider.requests[0].body)
            assert "mcp__specimen__add" not in str(provider.requests[-1].body)
            await client.call("session/close", sessionId=session)
            await assert_no_children(client.server)


async def test_resources_of_16_mib_reach_the_model_whole(tmp_path: Path) -> None:
    size, count = 16 << 20, times(5, 1)
    with trio.fail_after(2 * count * LIMIT):
        async with FakeProvider(Script.of(said("read"), said("noted"))) as provider:
            async with editor(tmp_path / "home", model_environment(provider)) as client:
                session = await client.new_session(tmp_path)
                resource: dict[str, str] = {"uri": "file:///big.txt", "text": "z" * size}
                prompt = [{"type": "text", "text": "read"}, *[{"type": "resource", "resource": resource}] * count]
                answer = await client.call("session/prompt", sessionId=session, prompt=prompt)
                assert answer["stopReason"] == "end_turn"
                assert str(provider.requests[0].body["messages"][-1]["content"]).count("z" * size) == count
                # Bytes that are no picture are named, not sent.
                resource = {"uri": "file:///big.bin", "blob": "QUFB" * (size // 4)}
                prompt = [{"type": "text", "text": "look"}, {"type": "resource", "resource": resource}]
                other = await client.new_session(tmp_path)
                await client.call("session/prompt", sessionId=other, prompt=prompt)
                assert "QUFB" not in str(provider.requests[1].body["messages"])
