"""Floods, silent models and busy processors: what was promised to everybody else holds, on every channel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.faults.test_faults_runs import ENDED, HI, reset, web
from tests.support.drivers import GatewayDriver, driving, http_driver
from tests.support.fault_play import LIMIT, playing, say, stream, terminal
from tests.support.proof import PROOF, times
from tests.support.server_process import HttpServer, open_descriptors, server_process
from tests.support.sse_client import streaming

pytestmark = [
    pytest.mark.e2e,
    # The client library leaves its socket to the collector when the server closes first.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SILENT = Reply.of({"text": ["x ", "y "]}, faults={"hang_after": 0})


async def metric(site: Any, name: str) -> float:
    text = (await site.client.get("/metrics")).text
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[-1])


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.fault("B-108")
async def test_a_run_takes_no_longer_because_a_reader_stalls_and_another_has_left(tmp_path: Path) -> None:
    count = times(100_000, 2000)
    flood = Reply.of({"wait_for": "go"}, {"text": [f"{number} " for number in range(count)]})
    took: list[float] = []
    async with web(tmp_path / "home", *[flood] * 4, within=LIMIT + times(1200, 0)) as site:
        for number in range(4):
            # Sessions of their own: what one has said is not read to the next.
            body = {"input": "go", "session_id": f"s{number}"}
            run_id = (await site.client.post("/v1/runs", json=body)).json()["run_id"]
            await site.provider.wait_for_request(number + 1)
            async with site.events(run_id) as stalled, site.events(run_id) as leaving:
                if number % 2:
                    assert await stalled.line() is not None and await leaving.line() is not None
                    reset(leaving.stream)
                else:
                    reset(stalled.stream)
                    reset(leaving.stream)
                began = trio.current_time()
                site.provider.release("go")
                status = await site.until(run_id, *ENDED)
                took.append(trio.current_time() - began)
            assert status["status"] == "completed"
            assert status["output"].split() == [str(one) for one in range(count)]
    if PROOF:
        assert min(took[1::2]) < 1.1 * min(took[::2]), took


@pytest.mark.fault("B-138")
async def test_cut_off_streams_leave_neither_descriptor_nor_task_nor_memory(tmp_path: Path) -> None:
    rounds = times(5000, 150)
    async with web(tmp_path / "home", stream("Hello "), within=LIMIT + times(600, 0)) as site:
        run_id = await site.run()
        await site.provider.wait_chunks(1, 1)

        async def cut_off(count: int) -> None:
            for number in range(count):
                async with site.events(run_id) as seen:
                    assert await seen.line() is not None
                    if number % 2:
                        reset(seen.stream)

        async def now() -> tuple[int, float]:
            return open_descriptors(site.server.pid), await metric(site, "hermes_tree_nodes")

        await cut_off(30)
        await trio.sleep(0.2)
        before, memory = await now(), resident(site.server.pid)
        await cut_off(rounds)
        with trio.move_on_after(30):
            while any(after > was + 2 for after, was in zip(await now(), before, strict=True)):
                await trio.sleep(0.05)
        assert all(after <= was + 2 for after, was in zip(await now(), before, strict=True))
        assert resident(site.server.pid) < 1.1 * memory + 4 * 1024 * 1024
        assert (await site.status(run_id))["status"] == "running"


@pytest.mark.fault("B-140")
async def test_no_client_that_left_keeps_a_silent_model_busy_however_often_it_comes_again(tmp_path: Path) -> None:
    tries = times(500, 30)
    body = {"messages": HI, "stream": True}
    async with web(tmp_path / "home", *[SILENT] * tries, within=LIMIT + times(300, 0)) as site:
        for number in range(1, tries + 1):
            async with streaming(
                site.server.port, "POST", "/v1/chat/completions", headers=site.headers, body=body
            ) as answer:
                await site.provider.wait_for_request(number)
                assert site.provider.open_requests <= 1
                reset(answer.stream)
            assert (await site.provider.wait_closed(number)).closed_by == "client"
        assert site.provider.open_requests == 0


@pytest.mark.fault("B-140")
@pytest.mark.parametrize("fault", [{"hang": True}, {"hang_after": 0}], ids=["no head", "head only"])
async def test_a_silent_model_ends_the_turn_with_an_error_that_says_so(fault: dict[str, Any], tmp_path: Path) -> None:
    replies = [Reply.of({"text": "x"}, faults=fault)] * 4
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies)) as provider:
            config = {
                "model": {"default": "fake-model", "provider": "mine"},
                "agent": {"api_max_retries": 1, "auto_recovery_cycles": 0},
                "providers": {
                    "mine": {"base_url": provider.base_url, "api_key": "k" * 20, "stale_timeout_seconds": 0.3}
                },
            }
            home = tmp_path / "home"
            home.mkdir(mode=0o700)
            (home / "config.yaml").write_text(json.dumps(config))
            async with driving("gateway stdio", home, {}) as driver:
                assert isinstance(driver, GatewayDriver)
                await driver.start("go")
                payload = (await driver.event("message.complete"))["params"]["payload"]
                assert payload["status"] == "error", payload
                assert (payload["failure_reason"], payload["error_surface"]["code"]) == ("timeout", "timeout")
                while provider.open_requests:
                    await trio.sleep(0.01)


@pytest.mark.fault("B-146")
async def test_a_question_behind_a_burst_reaches_a_client_that_paused(tmp_path: Path) -> None:
    words = [f"w{number} " for number in range(5000)]
    ask = Reply.of({"text": words}, {"tool_call": {"name": "terminal", "arguments": {"command": "rm -rf build"}}})
    async with playing(tmp_path / "home", ask, say("done"), surface="gateway websocket") as (driver, provider):
        socket = driver._socket
        await driver.start("go")
        # The client stops reading for as long as the burst takes to arrive, and half a second more.
        lock = socket._stream.receive_some

        async def late(*given: Any) -> Any:
            await trio.sleep(0.5)
            socket._stream.receive_some = lock
            return await lock(*given)

        socket._stream.receive_some = late
        question = await driver.find(lambda one: one.get("method") == "approval")
        await driver.send({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once"}})
        assert (await driver.terminal())["status"] == "complete"
        told = [one["params"] for one in driver.frames if "seq" in one.get("params", {})]
        numbers = [one["seq"] for one in told]
        assert numbers == sorted(set(numbers))
        spoken = "".join(one["payload"]["text"] for one in told if one["type"] == "message.delta")
        assert spoken.startswith("".join(words)) and len(provider.requests) == 2


@pytest.mark.fault("B-148")
@pytest.mark.parametrize("command", ["gateway", "acp"])
async def test_a_flood_over_a_pipe_is_answered_request_by_request(command: str, tmp_path: Path) -> None:
    count = times(10_000, 2000)
    with trio.fail_after(LIMIT + times(60, 0)):
        async with server_process(tmp_path / "home", command) as server:
            method, params = "ping", "{}"
            if command == "acp":
                method, params = "session/list", "{}"
                await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            lines = [
                f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}\n'
                for number in range(1000, 1000 + count)
            ]
            await server.send_bytes("".join(lines).encode())
            await server.wait_until(lambda: sum("id" in one for one in server.frames) >= count)
            assert (await server.request(method, {}))["id"] < 1000
            answered = sorted(one["id"] for one in server.frames if one.get("id", 0) >= 1000)
            assert answered == list(range(1000, 1000 + count))


@pytest.mark.fault("B-150")
async def test_python_that_computes_in_a_tool_stops_neither_heartbeats_nor_calls(tmp_path: Path) -> None:
    seconds = times(30, 1)
    code = f"import time\nend = time.time() + {seconds}\nwhile time.time() < end: pass\nprint('x' * 10_000_000)"
    (tmp_path / "burn.py").write_text(code)
    work = terminal(f"python3 {tmp_path / 'burn.py'}")
    async with playing(tmp_path / "home", work, say("done"), surface="gateway websocket", limit=LIMIT + seconds) as (
        driver,
        provider,
    ):
        server = cast(HttpServer, driver.server)
        await driver.start("go")
        await driver.wait_for_tool()
        async with http_driver("gateway websocket", server) as other:
            beats = 0
            while not any(one.get("params", {}).get("type") == "message.complete" for one in driver.frames):
                assert (await cast(GatewayDriver, other).call("gateway.ping", {}))["ok"] is True
                beats += 1
                await trio.sleep(0.02)
        assert beats > 10 and (await driver.terminal())["status"] == "complete"
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=20) as client:
            lines = (await client.get("/metrics")).text.splitlines()
        lag = float(next(one for one in lines if one.startswith("hermes_loop_longest_round_seconds")).split()[-1])
        # Ten times the promise, for machines that are busy with others.
        assert lag < 1.0
        assert len(provider.requests[-1].body["messages"][-1]["content"]) < 100_000
