"""What lies below: one connection for everything, threads that wait for threads, a port that closes, open doors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import trio

from hermes.agent.ports import ParallelClass, ToolContext
from hermes.testing import FakeProvider, Reply, Script
from tests.faults.test_faults_runs import web
from tests.support.core import PlainTool, call, make_services, running_tree
from tests.support.core import say as core_say
from tests.support.drivers import GatewayDriver, http_driver
from tests.support.fault_play import LIMIT, calls, model_environment, playing, say, terminal, write_config
from tests.support.gateway_host import connected
from tests.support.plugins import install_plugin
from tests.support.server_process import children_of, free_port, http_server, http_status, server_process


@pytest.mark.e2e
@pytest.mark.fault("B-152")
@pytest.mark.parametrize("version", ["HTTP/2", "HTTP/1.1"])
async def test_one_connection_carries_the_question_and_its_answer(version: str, tmp_path: Path) -> None:
    async with web(tmp_path / "home", terminal("rm -rf build"), say("done")) as site:
        two = version == "HTTP/2"
        one = httpx2.Limits(max_connections=1)
        async with httpx2.AsyncClient(
            base_url=site.server.origin, headers=site.headers, http1=not two, http2=two, limits=one, timeout=10
        ) as client:
            started = await client.post("/v1/runs", json={"input": "go"})
            assert started.http_version == version
            run = f"/v1/runs/{started.json()['run_id']}"
            if two:
                seen = []
                async with client.stream("GET", f"{run}/events") as stream:
                    async for line in stream.aiter_lines():
                        if not line.startswith("data: "):
                            continue
                        event = json.loads(line[6:])
                        seen.append(event["event"])
                        if seen[-1] == "approval.request":
                            # On the connection whose stream is open.
                            answer = await client.post(f"{run}/approval", json={"choice": "once"})
                            assert answer.status_code == 200
                assert seen[-1] == "run.completed"
            else:
                while (await client.get(run)).json()["status"] != "waiting_for_approval":
                    await trio.sleep(0.01)
                assert (await client.post(f"{run}/approval", json={"choice": "once"})).status_code == 200
                while (await client.get(run)).json()["status"] != "completed":
                    await trio.sleep(0.01)


@pytest.mark.e2e
@pytest.mark.fault("B-169")
@pytest.mark.parametrize(
    ("arguments", "key"), [((), ""), ((), "k" * 40), (("--allow-remote",), "changeme"), (("--allow-remote",), "short")]
)
async def test_a_server_for_the_network_does_not_start_by_accident(
    arguments: tuple[str, ...], key: str, tmp_path: Path
) -> None:
    environ = {"API_SERVER_KEY": key} if key else {}
    line = ("serve", "--host", "0.0.0.0", "--port", str(free_port()), *arguments)
    with trio.fail_after(LIMIT):
        async with server_process(tmp_path / "home", *line, environ=environ) as server:
            assert await server.exit_code() != 0
            await server.wait_until(lambda: server.output_ended)
            assert "--allow-remote" in server.stderr or "API_SERVER_KEY" in server.stderr, server.stderr
            assert "Traceback" not in server.stderr


@pytest.mark.e2e
@pytest.mark.fault("B-169")
async def test_a_server_for_the_network_makes_a_key_and_wants_it(tmp_path: Path) -> None:
    port = free_port()
    line = ("serve", "--host", "0.0.0.0", "--port", str(port), "--allow-remote")
    with trio.fail_after(LIMIT):
        async with server_process(tmp_path / "home", *line) as server:
            while await http_status(port, "/health") != 200:
                assert not server.output_ended, server.stderr
                await trio.sleep(0.02)
            for path in ("/v1/models", "/v1/runs/x", "/api/runs", "/api/sessions", "/v1/tree", "/metrics"):
                assert await http_status(port, path) == 401, path
            key = (tmp_path / "home" / "server.key").read_text().strip()
            assert len(key) >= 32 and key not in server.stderr
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
                assert (await client.get("/v1/models")).status_code == 200


@pytest.mark.e2e
@pytest.mark.fault("B-181")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_while_a_server_ends_new_clients_are_refused_and_those_that_are_there_hear_why(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, {"limits": {"kill_grace": 2}})
    # It ends only by force: until then the server is on its way out.
    stubborn = terminal("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(stubborn, strict=True)) as provider:
            async with http_server(home, environ=model_environment(provider)) as server:
                async with http_driver("gateway websocket", server) as driver:
                    client = cast(GatewayDriver, driver)
                    await client.start("go")
                    await client.wait_for_tool()
                    while not any("trap" in line for line in children_of(server).values()):
                        await trio.sleep(0.01)
                    server.process.terminate()
                    refused = False
                    while not refused:
                        try:
                            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
                        except OSError:
                            refused = True
                        else:
                            await trio.aclose_forcefully(stream)
                            await trio.sleep(0.01)
                    # Refused while it still works on its end.
                    assert server.process.poll() is None
                    end = (await client.event("message.complete"))["params"]["payload"]
                    assert (end["status"], end["cause"]) == ("interrupted", "shutdown")
                    assert await server.exit_code() == 0
                    assert children_of(server) == {}


async def _nested(ctx: ToolContext, arguments: Any) -> str:
    """A synchronous tool that calls back into the loop, which starts a thread again."""

    async def inside() -> str:
        return await trio.to_thread.run_sync(lambda: "inner")

    def outside() -> str:
        return trio.from_thread.run(inside)

    return await trio.to_thread.run_sync(outside)


@pytest.mark.fault("B-179")
@pytest.mark.parametrize("threads", [4, 40])
async def test_tools_whose_threads_wait_for_threads_hold_up_nobody_and_can_be_stopped(threads: int) -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = threads
    calls = [call("nested", f"c{number}") for number in range(8)]
    tool = PlainTool("nested", _nested, ParallelClass.FREE)
    services, model = make_services(core_say("", calls=calls), core_say("next"), core_say("last"), tools=[tool])
    with trio.fail_after(20):
        async with running_tree(services) as tree, connected(tree) as host:
            session_id = (await host.call("session.create"))["session_id"]
            await host.call("prompt.submit", session_id=session_id, text="go")
            if threads > 8:
                assert (await host.event("message.complete"))["payload"]["status"] == "complete"
            else:
                # All places are taken by those who wait for one: the control calls have their own.
                while limiter.borrowed_tokens < 4:
                    await trio.sleep(0.001)
                await host.call("session.history", session_id=session_id)
                await host.call("session.list")
                stopped = await host.call("session.interrupt", session_id=session_id)
                assert stopped["status"] == "interrupted"
                assert (await host.event("message.complete"))["payload"]["status"] in ("interrupted", "complete")
            while limiter.borrowed_tokens:
                await trio.sleep(0.001)
            await host.call("prompt.submit", session_id=session_id, text="again")
            assert (await host.event("message.complete"))["payload"]["status"] == "complete"
            assert model.open == 0


NESTED_PLUGIN = """
import trio
from hermes.agent.ports import ParallelClass, ToolFlags, ToolSpec

class Nested:
    spec = ToolSpec("nested", "threads in threads", {"type": "object", "properties": {}})
    flags = ToolFlags(toolset="shell", parallel=ParallelClass.FREE)

    async def run(self, ctx, arguments):
        trio.to_thread.current_default_thread_limiter().total_tokens = 4
        # Nobody goes on to the second thread before as many as there are places hold the first one.
        return await trio.to_thread.run_sync(self.outside)

    def outside(self):
        return trio.from_thread.run(self.inside)

    async def inside(self):
        limiter = trio.to_thread.current_default_thread_limiter()
        if limiter.borrowed_tokens < 4:
            await trio.sleep(0.2)
        return await trio.to_thread.run_sync(lambda: "inner")

def tool(services):
    return Nested()
"""


@pytest.mark.e2e
@pytest.mark.fault("B-179")
async def test_eight_tools_that_need_two_threads_each_end_with_four_places_and_calls_are_answered_meanwhile(
    tmp_path: Path,
) -> None:
    environ = install_plugin(tmp_path / "plugins", "nested", NESTED_PLUGIN)
    work = (calls(*[("nested", {})] * 8), say("all of them"))
    async with playing(tmp_path / "home", *work, environ=environ, limit=60) as (driver, provider):
        await driver.start("go")
        await driver.wait_for_tool()
        session = {"session_id": driver.session_id}
        while not any(one.get("params", {}).get("type") == "message.complete" for one in driver.frames):
            assert await driver.call("ping", {}) == {"pong": True}
            await driver.call("session.history", session)
            await driver.call("session.list", {})
            await trio.sleep(0.01)
        assert (await driver.terminal())["status"] == "complete"
        results = [row["content"] for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]
        assert results == ["inner"] * 8
        assert "wait for a thread" in driver.server.stderr, "they were never short of places"


@pytest.mark.e2e
@pytest.mark.fault("B-136")
async def test_two_runs_of_one_session_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    replies = [Reply.of({"text": f"answer {number}"}, {"delay": 0.02}) for number in range(4)]
    async with web(tmp_path / "home", *replies) as site:
        found: list[str] = []

        async def start(text: str) -> None:
            found.append(await site.run(text))

        async with trio.open_nursery() as nursery:
            for text in ("one", "two", "three"):
                nursery.start_soon(start, text)
        for run_id in found:
            assert (await site.until(run_id, "completed", "failed"))["status"] == "completed"
        await site.until(await site.run("last"), "completed", "failed")
        rows = [one for one in site.provider.requests[-1].body["messages"] if one["role"] != "system"]
        roles = [one["role"] for one in rows]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        spoken = json.dumps([one["content"] for one in rows if one["role"] == "user"])
        assert all(text in spoken for text in ("one", "two", "three", "last"))
