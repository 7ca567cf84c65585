"""Lines and bodies of any size, promises against the official schema, sessions that are found again, deadlines."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.faults.test_faults_editors import agent, new_session, prompt, said
from tests.faults.test_faults_runs import ENDED, web
from tests.support.acp_schema import CheckedConversation
from tests.support.fault_play import LIMIT, model_environment, playing, say, terminal
from tests.support.proof import PROOF, times
from tests.support.server_process import server_process

pytestmark = pytest.mark.e2e
MIB = 1024 * 1024


@pytest.mark.fault("B-155")
@pytest.mark.parametrize(
    "size", [64 * 1024 - 1, 64 * 1024, MIB, 16 * MIB] if PROOF else [64 * 1024 - 1, 64 * 1024, MIB]
)
async def test_a_frame_of_any_size_below_the_limit_passes_in_and_comes_out_again(size: int, tmp_path: Path) -> None:
    """In: a prompt with an embedded file. Out: the edit of a file, shown as its old and new text."""
    home = tmp_path / "home"
    text = "".join(f"{number:07} " for number in range(size // 8 + 1))[:size]
    big = tmp_path / "big.txt"
    big.write_text("old\n")
    write = Reply.of({"tool_call": {"name": "write_file", "arguments": {"path": str(big), "content": text}}})
    async with agent(home, write, said("done")) as (server, provider):
        session_id = await new_session(server, tmp_path)
        resource = {"uri": "file:///big.txt", "text": text}
        blocks = [{"type": "text", "text": "read"}, {"type": "resource", "resource": resource}]
        params = {"sessionId": session_id, "prompt": blocks}
        await server.send({"jsonrpc": "2.0", "id": 900, "method": "session/prompt", "params": params})
        question = await server.frame(
            lambda one: one.get("method") == "session/request_permission" or one.get("id") == 900
        )
        shown = question
        if "method" in question:
            allowed = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            await server.send({"jsonrpc": "2.0", "id": question["id"], "result": allowed})
        done = await server.frame(lambda one: one.get("id") == 900 and "method" not in one)
        assert done["result"]["stopReason"] == "end_turn"
        assert big.read_text() == text
        longest = max(len(json.dumps(one)) for one in (*server.frames, shown))
        assert longest > min(size, 200_000), "the edit was never shown"
        assert len(provider.requests) == 2


@pytest.mark.fault("B-155")
async def test_a_gateway_line_over_the_limit_is_one_error_and_the_connection_lives(tmp_path: Path) -> None:
    config = {"limits": {"max_frame_bytes": MIB}}
    async with playing(tmp_path / "home", say("done"), config=config) as (driver, provider):
        at = len(driver.frames)
        await driver.server.send_bytes(
            b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"p":"' + b"x" * MIB + b'"}}\n'
        )
        await driver.find(lambda one: "error" in one, at)
        assert await driver.call("ping", {}) == {"pong": True}
        fits = json.dumps({"jsonrpc": "2.0", "id": 8, "method": "nothing", "params": {"p": "x" * (MIB - 200)}})
        await driver.server.send_bytes(fits.encode() + b"\n")
        refused = await driver.find(lambda one: one.get("id") == 8)
        assert refused["error"]["code"] == -32601
        assert sum("error" in one for one in driver.frames[at:]) == 2
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete" and len(provider.requests) == 1


@pytest.mark.fault("B-157")
async def test_ten_megabytes_are_cut_with_a_note_and_half_a_letter_is_marked(tmp_path: Path) -> None:
    commands = ("head -c 10000000 /dev/zero | tr '\\0' x; echo THE-END", "printf 'half \\303'", "printf 'a\\0b'")
    async with playing(tmp_path / "home", *[terminal(one) for one in commands], say("done")) as (driver, provider):
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete"
        rows = [row for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]
        long, half, nul = (json.loads(row["content"])["output"] for row in rows)
        assert (
            re.search(r"\[.*(left out|omitted|truncated).*\]|truncated", long, re.I)
            and "THE-END" in long
            and len(long) < 60_000
        )
        assert half.startswith("half ") and "\udcc3" not in half
        assert nul.startswith("a") and nul.endswith("b") and "\0" not in nul


@pytest.mark.fault("B-159")
async def test_what_an_editor_is_promised_is_what_it_gets_by_the_official_schema(tmp_path: Path) -> None:
    checked = CheckedConversation()
    home = tmp_path / "home"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(say("first"), say("second"), strict=True)) as provider:
            async with server_process(home, "acp", environ=model_environment(provider)) as server:
                number = 0

                async def call(method: str, params: dict[str, Any]) -> Any:
                    nonlocal number
                    number += 1
                    frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                    checked.client_sent(frame)
                    await server.send(frame)
                    return await server.frame(lambda one: one.get("id") == number and "method" not in one)

                hello = await call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                offered = hello["result"]["agentCapabilities"]
                made = await call("session/new", {"cwd": str(home), "mcpServers": []})
                where = {"sessionId": made["result"]["sessionId"], "cwd": str(home), "mcpServers": []}
                words = {"sessionId": where["sessionId"], "prompt": [{"type": "text", "text": "hi"}]}
                assert (await call("session/prompt", words))["result"]["stopReason"] == "end_turn"

                async def shown(method: str, params: dict[str, Any]) -> list[str]:
                    at = len(server.frames)
                    answer = await call(method, params)
                    assert "result" in answer, answer
                    updates = [frame.get("params", {}).get("update", {}) for frame in server.frames[at:]]
                    kinds = [update.get("sessionUpdate", "") for update in updates]
                    return [kind for kind in kinds if kind.endswith("message_chunk")]

                assert offered["loadSession"] is True
                assert await shown("session/load", where) == ["user_message_chunk", "agent_message_chunk"]
                more = offered.get("sessionCapabilities", {})
                assert {"resume", "fork", "list", "close"} <= set(more)
                # To resume is not to load: nothing is shown twice.
                assert await shown("session/resume", where) == []
                listed = await call("session/list", {})
                assert where["sessionId"] in [one["sessionId"] for one in listed["result"]["sessions"]]
                forked = (await call("session/fork", where))["result"]["sessionId"]
                assert forked != where["sessionId"]
                assert await shown("session/close", {"sessionId": where["sessionId"]}) == []
                words["sessionId"] = forked
                assert (await call("session/prompt", words))["result"]["stopReason"] == "end_turn"
                roles = [row["role"] for row in provider.requests[-1].body["messages"] if row["role"] != "system"]
                assert roles == ["user", "assistant", "user"]
            for frame in server.frames:
                checked.agent_sent(frame)


@pytest.mark.fault("B-161")
async def test_a_session_is_found_again_every_time(tmp_path: Path) -> None:
    rounds, home = times(100, 3), tmp_path / "home"
    keys: list[str] = []
    for number in range(rounds):
        async with agent(home, said(f"answer {number}")) as (server, _):
            for key in keys[-1:]:
                where = {"sessionId": key, "cwd": str(home), "mcpServers": []}
                at = len(server.frames)
                await server.call("session/load", where)
                shown = json.dumps(server.frames[at:])
                assert f"prompt {number - 1}" in shown and f"answer {number - 1}" in shown
            keys.append(await new_session(server))
            await prompt(server, keys[-1], f"prompt {number}")
            if number % 3 == 0:
                await server.close_input()
                assert await server.exit_code() == 0
            else:
                await server.stop(signal.SIGTERM if number % 3 == 1 else signal.SIGKILL)
    async with agent(home) as (server, _):
        for key in keys:
            await server.call("session/load", {"sessionId": key, "cwd": str(home), "mcpServers": []})


@pytest.mark.fault("B-163")
@pytest.mark.parametrize("work", ["a stream", "tools"])
@pytest.mark.parametrize("surface", ["gateway", "run"])
async def test_the_callers_deadline_ends_work_that_goes_on_for_ever(surface: str, work: str, tmp_path: Path) -> None:
    seconds = times(10, 1)
    steps = [step for number in range(5000) for step in ({"text": [f"w{number} "]}, {"delay": 0.02})]
    chain = [terminal(f"sleep {seconds / 10}; echo {number}") for number in range(60)]
    replies = [Reply.of(*steps)] if work == "a stream" else chain
    home = tmp_path / "home"
    if surface == "run":
        async with web(home, *replies, within=LIMIT + seconds) as site:
            began = trio.current_time()
            answer = await site.client.post("/v1/runs", json={"input": "go", "deadline_s": seconds})
            status = await site.until(answer.json()["run_id"], *ENDED)
            assert (status["status"], status["cause"]) == ("cancelled", "deadline")
            assert work == "tools" or status["output"].startswith("w0 w1 ")
    else:
        async with playing(home, *replies, limit=LIMIT + seconds) as (driver, _):
            await driver.call("client.capabilities", {"server_requests": True})
            driver.session_id = (await driver.call("session.create", {}))["session_id"]
            began = trio.current_time()
            named = {"session_id": driver.session_id}
            await driver.call("prompt.submit", {**named, "text": "go", "deadline_s": seconds})
            end = await driver.terminal()
            assert (end["status"], end["cause"]) == ("interrupted", "deadline")
            rows = (await driver.call("session.history", named))["messages"]
            assert any(row["role"] == ("assistant" if work == "a stream" else "tool") for row in rows)
    # Never before it; the documented grace after it, and what a busy machine adds.
    assert trio.current_time() - began >= seconds * 0.9
