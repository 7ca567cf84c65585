"""``hermes acp`` as a process: many stops at random moments, and a client that does not read.

``PROOF=1`` stops 1,000 turns instead of 100. A failure names the seed; ``CANCEL_SEED`` runs it again.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.acp_schema import CheckedConversation
from tests.support.server_process import COMMAND, assert_no_children, clean_environment, server_process

pytestmark = pytest.mark.e2e
STOPS = 1000 if os.environ.get("PROOF") == "1" else 100
SEED = int(os.environ.get("CANCEL_SEED") or random.SystemRandom().randrange(1 << 32))
PER_SESSION = 20
Frame = dict[str, Any]


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


def working_turn() -> Script:
    """Text, two tools at once and a question; then a few words. A prompt with "plain" in it gets an answer at once."""
    call = {"name": "terminal", "arguments": {"command": "echo a line; sleep 0.02"}}
    edit = {"name": "write_file", "arguments": {"path": "a.txt", "content": "x\n"}}
    begin: list[dict[str, Any]] = [{"text": "thinking "}, {"delay": 0.01}, {"text": "aloud "}, {"delay": 0.01}]
    return Script.of(
        Reply.of({"text": "a plain answer"}, when={"last_role": "user", "last_user_contains": "plain"}),
        Reply.of(*begin, {"tool_call": call}, {"tool_call": edit}, when={"last_role": "user"}),
        Reply.of({"text": "some "}, {"delay": 0.02}, {"text": "more"}, when={"last_role": "tool"}),
    )


class Stopper:
    """A client that answers most questions, sooner or later, and checks what belongs together."""

    def __init__(self, server: Any, chance: random.Random) -> None:
        self.server = server
        self.chance = chance
        self._checked = CheckedConversation()
        self._number = 0

    async def start(self, method: str, *behind: Frame, **params: Any) -> int:
        self._number += 1
        frame = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._checked.client_sent(frame)
        await self.server.send(frame, *behind)
        return self._number

    async def answer(self, number: int) -> Frame:
        frame: Frame = await self.server.frame(lambda f: f.get("id") == number and "method" not in f)
        return frame

    async def call(self, method: str, **params: Any) -> Any:
        frame = await self.answer(await self.start(method, **params))
        assert "error" not in frame, frame
        return frame["result"]

    async def start_prompt(self, session: str, text: str, *behind: Frame) -> int:
        block = {"type": "text", "text": text}
        return await self.start("session/prompt", *behind, sessionId=session, prompt=[block])

    async def answer_questions(self) -> None:
        while True:
            frame = await self.server.next_frame()
            if frame.get("method") == "session/request_permission" and self.chance.random() < 0.7:
                outcome = {"outcome": "selected", "optionId": self.chance.choice(["allow_once", "deny"])}
                await trio.sleep(self.chance.random() * 0.01)
                await self.server.send({"jsonrpc": "2.0", "id": frame["id"], "result": {"outcome": outcome}})

    def check(self) -> int:
        """Order and completeness of everything; how many prompts were answered."""
        answers: dict[Any, int] = {}
        closed: set[str] = set()
        current: set[str] = set()
        open_calls: set[str] = set()
        for frame in self.server.frames:
            self._checked.agent_sent(frame)
            if "method" not in frame:
                answers[frame["id"]] = answers.get(frame["id"], 0) + 1
                if "stopReason" in frame["result"]:
                    assert open_calls == set(), "a call was left open"
                    closed |= current
                    current = set()
                continue
            update = frame["params"].get("update", {})
            for key in ("messageId", "toolCallId"):
                if key in update:
                    assert update[key] not in closed, f"an update of a turn that was answered: {update}"
                    current.add(update[key])
            if update.get("sessionUpdate") == "tool_call":
                open_calls.add(update["toolCallId"])
            elif update.get("status") in ("completed", "failed"):
                open_calls.remove(update["toolCallId"])
        assert set(answers.values()) == {1}
        assert self.server.stray == []
        return len(answers)


@pytest.mark.fault("B-021")
async def test_stops_at_random_moments_leave_one_answer_no_open_call_and_a_session_that_works(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    reasons: dict[str, int] = {}
    with trio.fail_after(60 + STOPS * 2):
        async with FakeProvider(working_turn()) as provider:
            async with server_process(tmp_path / "home", "acp", environ=environment(provider)) as server:
                client = Stopper(server, chance)
                await client.call("initialize", protocolVersion=1)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.answer_questions)
                    session = ""
                    for number in range(STOPS):
                        if number % PER_SESSION == 0:
                            if session:
                                await client.call("session/close", sessionId=session)
                            session = (await client.call("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
                        stop = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
                        at_once = chance.random() < 0.1
                        prompt = await client.start_prompt(session, f"work {number}", *[stop] * at_once)
                        if not at_once:
                            await trio.sleep(chance.random() ** 2 * 0.25)
                            await server.send(*[stop] * chance.choice([1, 1, 2]))
                        reason = (await client.answer(prompt))["result"]["stopReason"]
                        assert reason in ("cancelled", "end_turn"), (SEED, number)
                        reasons[reason] = reasons.get(reason, 0) + 1
                        plain = await client.start_prompt(session, f"plain {number}")
                        assert (await client.answer(plain))["result"]["stopReason"] == "end_turn", (SEED, number)
                    nursery.cancel_scope.cancel()
                await assert_no_children(server)
                assert client.check() >= 2 * STOPS, SEED
    assert reasons.get("cancelled", 0) > STOPS // 2, (SEED, reasons)


class LateReader:
    """Reads the output only when it is asked to."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._rest = b""
        self.frames: list[Frame] = []
        self._checked = CheckedConversation()
        self._process = process

    async def say(self, number: int, method: str, **params: Any) -> None:
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._checked.client_sent(frame)
        assert self._process.stdin is not None
        await self._process.stdin.send_all(orjson.dumps(frame) + b"\n")

    async def until(self, *numbers: int) -> None:
        """Read up to the answers of these requests."""
        missing = set(numbers)
        while missing:
            data = await self._stream.receive_some()
            assert data, "the output ended"
            *lines, self._rest = (self._rest + data).split(b"\n")
            for frame in map(orjson.loads, lines):
                self._checked.agent_sent(frame)
                self.frames.append(frame)
                missing.discard(frame.get("id") or 0)

    def text(self, session: str) -> str:
        told = [f["params"] for f in self.frames if f.get("method") == "session/update" and "update" in f["params"]]
        updates = [p["update"] for p in told if p["sessionId"] == session]
        return "".join(u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk")


def memory_of(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.fault("B-030")
async def test_a_client_that_does_not_read_for_ten_seconds_loses_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    # No two alike: an answer that repeats itself is cut by the server. More than all queues on the way can hold.
    pieces = [hashlib.sha512(str(number).encode()).hexdigest()[:60] + " " for number in range(100_000)]
    script = Script.of(
        Reply.of({"text": pieces}, when={"last_user_contains": "long"}),
        Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": "echo ran"}}}, when={"last_role": "user"}),
        Reply.of({"text": "the other answer"}, when={"last_role": "tool"}),
    )
    home = tmp_path / "home"
    home.mkdir()
    with trio.fail_after(120):
        async with FakeProvider(script) as provider:
            process = await trio.lowlevel.open_process(
                [str(COMMAND), "acp"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=clean_environment(home) | environment(provider),
            )
            client = LateReader(process)
            sessions: list[str] = []
            for number in (1, 2):
                await client.say(number, "session/new", cwd=str(tmp_path), mcpServers=[])
                await client.until(number)
                sessions += [f["result"]["sessionId"] for f in client.frames if f.get("id") == number]
            before = memory_of(process.pid)
            block = {"type": "text", "text": "a long answer"}
            await client.say(3, "session/prompt", sessionId=sessions[0], prompt=[block])
            began = trio.current_time()
            record = await provider.wait_closed(1)
            assert record.answered
            # The pipe is full, and the other session works: its tool runs and its second request arrives.
            block = {"type": "text", "text": "something else"}
            await client.say(4, "session/prompt", sessionId=sessions[1], prompt=[block])
            with trio.fail_after(20):
                await provider.wait_closed(3)
            await trio.sleep_until(began + 10)
            grown = memory_of(process.pid) - before
            await client.until(3, 4)
            assert client.text(sessions[0]) == "".join(pieces)
            assert client.text(sessions[1]) == "the other answer"
            # A multiple of the text's 6 MB, whatever the number of deltas.
            assert grown < 100 << 20, grown
            await client.say(5, "session/prompt", sessionId=sessions[0], prompt=[{"type": "text", "text": "else"}])
            await client.until(5)
            assert process.stdin is not None
            await process.stdin.aclose()
            assert await process.wait() == 0
            await trio.aclose_forcefully(client._stream)
