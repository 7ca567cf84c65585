"""Runs over HTTP, through the real process: repeated answers, lost streams, clients that go, repeated starts."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import Reply, Script
from tests.support.http_clients import Served, served
from tests.support.server_process import assert_no_connection_to, open_descriptors
from tests.support.sse_client import streaming

pytestmark = pytest.mark.e2e
NEVER = Reply.of({"text": ["Hello ", "there "]}, {"wait_for": "never"})
ENDED = ("completed", "failed", "cancelled", "interrupted")
HI = [{"role": "user", "content": "hi"}]


def danger() -> Reply:
    return Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": "rm -rf build; echo ran >> effects"}}})


class Web:
    """A server, the model behind it, and a client of it."""

    def __init__(self, rig: Served, client: httpx2.AsyncClient) -> None:
        self.server = rig.server
        self.provider = rig.provider
        self.client = client
        self.headers = {"Authorization": f"Bearer {rig.server.key}"}

    async def run(self, text: str = "go", **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.client.post("/v1/runs", json={"input": text, "session_id": "s1"}, headers=named)
        assert answer.status_code == 202, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    async def status(self, run_id: str) -> Any:
        return (await self.client.get(f"/v1/runs/{run_id}")).json()

    async def until(self, run_id: str, *statuses: str) -> Any:
        while (found := await self.status(run_id))["status"] not in statuses:
            await trio.sleep(0.01)
        return found

    def events(self, run_id: str, after: int | None = None) -> Any:
        cursor = {} if after is None else {"Last-Event-ID": str(after)}
        return streaming(self.server.port, "GET", f"/v1/runs/{run_id}/events", headers={**self.headers, **cursor})

    async def whole(self, run_id: str, after: int | None = None) -> list[Any]:
        found = []
        async with self.events(run_id, after) as answer:
            assert answer.status == 200
            while (event := await answer.data()) is not None:
                found.append(event)
        return found


@asynccontextmanager
async def web(home: Path, *replies: Reply, within: float = 60) -> AsyncIterator[Web]:
    with trio.fail_after(within):
        async with served(home, Script.of(*replies, strict=True), limit=within) as rig:
            headers = {"Authorization": f"Bearer {rig.server.key}"}
            async with httpx2.AsyncClient(base_url=rig.server.origin, headers=headers, timeout=60) as client:
                yield Web(rig, client)


def reset(stream: trio.SocketStream) -> None:
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


@pytest.mark.fault("B-095")
@pytest.mark.parametrize("keyed", [False, True])
async def test_the_same_answer_five_times_at_once_has_one_effect(keyed: bool, tmp_path: Path) -> None:
    async with web(tmp_path / "home", danger(), Reply.of({"text": "done"})) as rig:
        run_id = await rig.run()
        status = await rig.until(run_id, "waiting_for_approval")
        answers: list[httpx2.Response] = []

        async def answer() -> None:
            headers = {"Idempotency-Key": "one-answer"} if keyed else {}
            answers.append(
                await rig.client.post(f"/v1/runs/{run_id}/approval", json={"choice": "once"}, headers=headers)
            )

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(answer)
        assert (await rig.until(run_id, *ENDED))["status"] == "completed", status
        codes = sorted(one.status_code for one in answers)
        assert codes[0] == 200 and set(codes) <= {200, 409}, [one.text for one in answers]
        names = [event["event"] for event in await rig.whole(run_id)]
        assert names.count("approval.responded") == 1, names
        assert names.count("tool.completed") == 1
        assert len(rig.provider.requests) == 2


@pytest.mark.fault("B-096")
async def test_a_dropped_event_stream_can_be_taken_up_again_and_again_also_after_the_end(tmp_path: Path) -> None:
    words = [f"w{number} " for number in range(100)]
    steps: list[dict[str, Any]] = []
    for word in words:
        steps += [{"text": [word]}, {"delay": 0.002}]
    async with web(tmp_path / "home", Reply.of(*steps)) as rig:
        run_id = await rig.run()
        seen: list[Any] = []
        for _ in range(20):
            async with rig.events(run_id, seen[-1]["seq"] if seen else None) as stream:
                assert stream.status == 200
                for _ in range(5):
                    if (event := await stream.data()) is not None:
                        seen.append(event)
        seen += await rig.whole(run_id, seen[-1]["seq"])
        assert [event["seq"] for event in seen] == list(range(len(seen)))
        assert seen[-1]["event"] == "run.completed"
        assert "".join(event.get("delta", "") for event in seen if event["event"] == "message.delta") == "".join(words)
        # Read again from the start when everything is over.
        assert await rig.whole(run_id) == seen


@pytest.mark.fault("B-098")
async def test_every_data_frame_has_an_id_line_and_everything_else_is_a_comment(tmp_path: Path) -> None:
    async with web(tmp_path / "home", Reply.of({"text": ["a ", "b ", "c "]})) as rig:
        run_id = await rig.run()
        lines = []
        async with rig.events(run_id) as stream:
            while (line := await stream.line()) is not None:
                lines.append(line)
        ids = [int(line[4:]) for line in lines if line.startswith("id: ")]
        data = [line for line in lines if line.startswith("data: ")]
        assert len(ids) == len(data) and ids == sorted(set(ids))
        assert any(line.startswith("retry: ") for line in lines), lines
        blocks = "\n".join(lines).split("\n\n")
        for block in filter(None, blocks):
            assert "data: " not in block or "id: " in block
            assert "data: " in block or "id: " not in block


@pytest.mark.fault("B-106")
@pytest.mark.parametrize("policy", ["", "cancel", "continue"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/api/sessions/s1/chat/stream", "events"])
async def test_what_a_client_that_leaves_in_a_tool_takes_along_is_the_documented_default_or_its_own_choice(
    path: str, policy: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    tool = Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": command}}})
    async with web(tmp_path / "home", tool, Reply.of({"text": "finished"})) as rig:
        headers = rig.headers | ({"X-Hermes-On-Disconnect": policy} if policy else {})
        body: Any
        method, where = "POST", path
        if path == "events":
            run_id = await rig.run()
            method, where, body = "GET", f"/v1/runs/{run_id}/events", None
        elif "sessions" in path:
            assert (await rig.client.post("/api/sessions", json={"id": "s1"})).status_code == 201
            body = {"message": "hi"}
        elif "chat" in path:
            body = {"messages": HI, "stream": True}
        else:
            body = {"input": "hi", "stream": True}
        async with streaming(rig.server.port, method, where, headers=headers, body=body) as stream:
            assert stream.status == 200
            while "terminal" not in (await stream.line() or ""):
                pass
            if path != "events":
                (listed,) = (await rig.client.get("/api/runs")).json()["data"]
                run_id = listed["run_id"]
        goes_on = policy == "continue" or (not policy and path == "events")
        if goes_on:
            gate.touch()
        status = await rig.until(run_id, *ENDED)
        expected = ("completed", "completed") if goes_on else ("cancelled", "client_disconnect")
        assert (status["status"], status.get("cause") or status["status"]) == expected, status
        if not goes_on:
            assert status["turn_exit_reason"] == "interrupted_by_system(sse_client_disconnected)", status


@pytest.mark.fault("B-106")
@pytest.mark.parametrize("word", ["grace", "grace(30s)", "keep"])
async def test_a_policy_that_is_not_offered_is_refused_and_nothing_is_started(word: str, tmp_path: Path) -> None:
    """Whoever may lose the connection for a while says `continue` and reads the run later; nothing is guessed."""
    async with web(tmp_path / "home") as site:
        assert (await site.client.post("/api/sessions", json={"id": "s1"})).status_code == 201
        headers = {"X-Hermes-On-Disconnect": word}
        for path, body in (
            ("/v1/chat/completions", {"messages": HI, "stream": True}),
            ("/v1/responses", {"input": "hi", "stream": True}),
            ("/api/sessions/s1/chat/stream", {"message": "hi"}),
            ("/v1/runs", {"input": "hi"}),
        ):
            refused = await site.client.post(path, json=body, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request"), path
            assert "cancel or continue" in refused.text
        assert (await site.client.get("/api/runs")).json()["data"] == [] == site.provider.requests


@pytest.mark.fault("B-129")
async def test_ten_starts_with_one_key_are_one_run_also_after_a_restart_and_another_body_conflicts(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with web(home, Reply.of({"text": "once"})) as rig:
        found: list[Any] = []

        async def start() -> None:
            found.append(await rig.client.post("/v1/runs", json={"input": "go"}, headers={"Idempotency-Key": "k1"}))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(start)
        assert {one.status_code for one in found} == {202}, [one.text for one in found]
        (run_id,) = {one.json()["run_id"] for one in found}
        assert sum(not one.json()["replayed"] for one in found) == 1
        await rig.until(run_id, "completed")
        other = await rig.client.post("/v1/runs", json={"input": "else"}, headers={"Idempotency-Key": "k1"})
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_conflict")
        assert len(rig.provider.requests) == 1
    async with web(home) as rig:
        again = await rig.client.post("/v1/runs", json={"input": "go"}, headers={"Idempotency-Key": "k1"})
        assert (again.status_code, again.json()["run_id"], again.json()["replayed"]) == (202, run_id, True)
        assert rig.provider.requests == []


@pytest.mark.fault("B-136")
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_two_calls_of_one_session_at_once_do_not_break_its_history(path: str, tmp_path: Path) -> None:
    replies = [Reply.of({"text": f"answer {number}"}, {"delay": 0.02}) for number in range(4)]
    async with web(tmp_path / "home", *replies) as rig:
        codes: list[int] = []

        async def ask(text: str) -> None:
            if path == "/v1/responses":
                answer = await rig.client.post(path, json={"input": text, "conversation": "shared"})
            else:
                body = {"messages": [{"role": "user", "content": text}]}
                answer = await rig.client.post(path, json=body, headers={"X-Hermes-Session-Id": "shared"})
            codes.append(answer.status_code)

        await ask("zero")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "one")
            nursery.start_soon(ask, "two")
        assert 200 in codes[1:] and set(codes) <= {200, 409}, codes
        await ask("three")
        assert codes[-1] == 200
        last = [one for one in rig.provider.requests[-1].body["messages"] if one["role"] != "system"]
        assert [one["role"] for one in last] == ["user", "assistant"] * (len(last) // 2) + ["user"]
        assert (last[0]["content"], last[-1]["content"]) == ("zero", "three")
        if path == "/v1/chat/completions":
            assert len(last) == 2 * codes[:-1].count(200) + 1


@pytest.mark.fault("B-138")
async def test_event_streams_that_are_cut_off_leave_no_descriptor(tmp_path: Path) -> None:
    async with web(tmp_path / "home", NEVER) as rig:
        run_id = await rig.run()
        await rig.provider.wait_chunks(1, 2)

        async def rounds(count: int) -> None:
            for number in range(count):
                async with rig.events(run_id) as stream:
                    assert await stream.line() is not None
                    if number % 2:
                        reset(stream.stream)

        await rounds(5)
        before = open_descriptors(rig.server.pid)
        await rounds(200)
        with trio.move_on_after(10):
            while open_descriptors(rig.server.pid) > before + 2:
                await trio.sleep(0.02)
        assert open_descriptors(rig.server.pid) <= before + 2


@pytest.mark.fault("B-140")
async def test_a_model_that_sends_headers_and_nothing_more_costs_no_connection_of_a_client_that_left(
    tmp_path: Path,
) -> None:
    silent = Reply.of({"text": ["x ", "y "]}, faults={"hang_after": 0})
    async with web(tmp_path / "home", *[silent] * 30) as rig:
        body = {"messages": HI, "stream": True}
        for number in range(1, 31):
            async with streaming(
                rig.server.port, "POST", "/v1/chat/completions", headers=rig.headers, body=body
            ) as stream:
                await rig.provider.wait_for_request(number)
                reset(stream.stream)
            assert (await rig.provider.wait_closed(number)).closed_by == "client"
        assert rig.provider.open_requests == 0
        await assert_no_connection_to(rig.server, int(rig.provider.base_url.split(":")[2].split("/")[0]))


@pytest.mark.fault("B-175")
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("when", ["before the first byte", "between pieces"])
async def test_a_client_that_goes_cancels_its_handler(when: str, how: str, tmp_path: Path) -> None:
    first = NEVER if when == "between pieces" else Reply.of({"text": "x"}, faults={"hang": True})
    async with web(tmp_path / "home", first) as rig:
        body = {"messages": HI, "stream": True}
        async with streaming(rig.server.port, "POST", "/v1/chat/completions", headers=rig.headers, body=body) as stream:
            if when == "between pieces":
                await rig.provider.wait_chunks(1, 2)
            else:
                await rig.provider.wait_for_request(1)
            if how == "reset":
                reset(stream.stream)
        with trio.fail_after(20):
            assert (await rig.provider.wait_closed(1)).closed_by == "client"


@pytest.mark.fault("B-181")
async def test_a_server_that_ends_refuses_new_connections_and_tells_the_runs(tmp_path: Path) -> None:
    async with web(tmp_path / "home", NEVER) as rig:
        run_id = await rig.run()
        await rig.provider.wait_chunks(1, 2)
        events = []
        async with rig.events(run_id) as stream:
            await stream.data()
            with trio.fail_after(30):
                assert await rig.server.stop() == 0
            while (event := await stream.data()) is not None:
                events.append(event)
        assert events[-1]["event"] == "run.interrupted", events
        assert events[-1]["cause"] == "shutdown"
        with pytest.raises(OSError):
            await trio.open_tcp_stream("127.0.0.1", rig.server.port)


@pytest.mark.fault("B-165")
async def test_the_patience_of_a_client_is_not_the_deadline_of_its_run(tmp_path: Path) -> None:
    async with web(tmp_path / "home", NEVER, NEVER) as rig:
        run_id = await rig.run()
        await rig.provider.wait_chunks(1, 2)
        async with rig.events(run_id) as stream:
            assert await stream.data() is not None
        # It has given up waiting: the run has not.
        assert (await rig.status(run_id))["status"] == "running"
        assert (await rig.client.post(f"/v1/runs/{run_id}/stop", json={})).status_code == 200
        assert (await rig.until(run_id, *ENDED))["cause"] == "run_stop"
        bounded = await rig.client.post("/v1/runs", json={"input": "go", "deadline_s": 0.3, "session_id": "s2"})
        assert bounded.status_code == 202, bounded.text
        status = await rig.until(bounded.json()["run_id"], *ENDED)
        assert (status["status"], status["cause"]) == ("cancelled", "deadline")
        assert status["output"].strip() == "Hello there"
