"""Answers that come again, too late, or at the wrong process: on every surface that asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Script
from tests.support.drivers import AcpDriver, GatewayDriver, RunDriver
from tests.support.fault_play import LIMIT, Frame, events, model_environment, playing, say, terminal, user_texts
from tests.support.mortal_server import mortal_servers
from tests.support.server_process import free_port, http_status
from tests.support.sse_client import streaming

pytestmark = pytest.mark.e2e
ASKING = ("gateway stdio", "gateway websocket", "acp", "http run")


class Desk:
    """The questions of one turn as they come, whatever the surface, and the answers to them."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    async def each(self, count: int, act: Callable[[Frame], Awaitable[None]]) -> None:
        """``act`` with each of the next questions of the turn that was started last, as soon as it is there."""
        if isinstance(self.driver, RunDriver):
            path = f"/v1/runs/{self.driver.run_id}/events"
            async with streaming(self.driver.server.port, "GET", path, headers=self.driver.headers) as stream:
                for _ in range(count):
                    while (event := await stream.data()) is not None and event["event"] != "approval.request":
                        pass
                    assert event is not None, "the run ended before it asked"
                    await act(event)
            return
        at = self.driver._from if isinstance(self.driver, AcpDriver) else self.driver._turn_from
        for _ in range(count):
            question, at = await self._next(at)
            await act(question)

    async def _next(self, at: int) -> tuple[Frame, int]:
        if isinstance(self.driver, AcpDriver):
            frames, find = self.driver.server.frames, self.driver.server.frame
            question = await find(lambda one: one.get("method") == "session/request_permission", after=at)
        else:
            frames = self.driver.frames
            question = await self.driver.find(lambda one: one.get("method") == "approval", at)
        return question, frames.index(question) + 1

    async def allow(self, question: Frame) -> int | None:
        """Answer it with a consent; the status of the answer, where there is one."""
        if isinstance(self.driver, RunDriver):
            body = {"choice": "once", "request_id": question["request_id"]}
            return (await self.driver.client.post(f"/v1/runs/{self.driver.run_id}/approval", json=body)).status_code
        chosen: Frame = {"choice": "once"}
        if isinstance(self.driver, AcpDriver):
            chosen = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            await self.driver.server.send({"jsonrpc": "2.0", "id": question["id"], "result": chosen})
        else:
            await self.driver.send({"jsonrpc": "2.0", "id": question["id"], "result": chosen})
        return None


@pytest.mark.fault("B-089")
@pytest.mark.parametrize("surface", ASKING)
async def test_three_consecutive_approvals_are_three_runs_and_no_words_to_the_turn(
    surface: str, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    commands = [f"rm -rf gone-{number}; echo ran >> {effects}" for number in range(6)]
    together, one_by_one = commands[:3], commands[3:]
    replies = (terminal(*together), say("thanks"), *(terminal(one) for one in one_by_one), say("thanks"))
    async with playing(tmp_path / "home", *replies, surface=surface) as (driver, provider):
        desk = Desk(driver)

        async def at_once(question: Frame) -> None:
            await desk.allow(question)

        async def later(question: Frame) -> None:
            await trio.sleep(0.1)
            await desk.allow(question)

        for text, act in (("go", at_once), ("again", later)):
            await driver.start(text)
            await desk.each(3, act)
            assert (await driver.terminal())["status"] == "complete"
        assert effects.read_text() == "ran\n" * 6
        assert user_texts(provider.requests[-1]) == ["go", "again"]
        if isinstance(driver, GatewayDriver):
            assert events(driver, "request.cancel") == []


@pytest.mark.fault("B-091")
@pytest.mark.parametrize("end", ["stopped", "ended"])
@pytest.mark.parametrize("surface", ASKING)
async def test_consent_to_a_question_that_is_over_has_no_effect_and_leaves_a_line_in_the_log(
    surface: str, end: str, tmp_path: Path
) -> None:
    effect = tmp_path / "effect"
    replies = [terminal(f"rm -rf build; touch {effect}")] + [say("denied, then")] * (end == "ended") + [say("next")]
    config = {"approvals": {"timeout": 0.3 if end == "ended" else 300}}
    async with playing(tmp_path / "home", *replies, surface=surface, config=config) as (driver, _):
        desk, kept = Desk(driver), list[Frame]()
        await driver.start("please")

        async def hold(question: Frame) -> None:
            kept.append(question)

        await desk.each(1, hold)
        if end == "stopped":
            await driver.stop()
        # What nobody answers in time is denied, and the turn goes on to its end.
        assert (await driver.terminal())["status"] == ("interrupted" if end == "stopped" else "complete")
        status = await desk.allow(kept[0])
        if isinstance(driver, RunDriver):
            assert status == 409
        else:
            server, number = driver.server, kept[0]["id"]
            await server.wait_until(lambda: f"ignored an answer to '{number}'" in server.stderr, "the line")
        await driver.start("go on")
        assert (await driver.terminal())["status"] == "complete"
        assert not effect.exists()


@pytest.mark.fault("B-095")
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("method", ["approval.respond", "request.answer"])
async def test_the_same_answer_five_times_over_the_gateway_has_one_effect(
    method: str, keyed: bool, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    replies = (terminal(f"rm -rf build; echo ran >> {effects}"), say("done"))
    async with playing(tmp_path / "home", *replies) as (driver, provider):
        await driver.start("go")
        question = await driver.find(lambda one: one.get("method") == "approval")
        params: dict[str, Any] = {"id": question["id"], "result": {"choice": "once"}}
        if method == "approval.respond":
            named = question["params"]["request_id"]
            params = {"session_id": driver.session_id, "choice": "once", "request_id": named}
        key = {"request_key": "one-answer"} if keyed else {}
        answers: list[Any] = []

        async def answer() -> None:
            answers.append(await driver.call(method, params | key))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(answer)
        assert (await driver.terminal())["status"] == "complete"
        done, over = ({"resolved": 1}, {"resolved": 0}) if "resolved" in answers[0] else ({"status": "ok"}, None)
        over = over or {"status": "expired"}
        # Under one key the stored outcome; else one that settled it and four that came too late.
        assert sorted(answers, key=str, reverse=True) == sorted(
            [done] * (5 if keyed else 1) + [over] * 4 * (not keyed), key=str, reverse=True
        )
        assert effects.read_text() == "ran\n" and len(provider.requests) == 2
        assert len(events(driver, "request.cancel")) <= 1


@pytest.mark.fault("B-093")
async def test_an_answer_at_the_wrong_process_is_told_the_owner_and_the_question_stays_open(tmp_path: Path) -> None:
    ask = terminal("rm -rf build; echo ran")
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(ask, say("done"), strict=True)) as provider:
            async with mortal_servers(tmp_path / "home", model_environment(provider)) as servers:
                owner, other = await servers.start("gateway"), await servers.start("gateway")
                await owner.call("client.capabilities", {"server_requests": True})
                made = await owner.call("session.create", {})
                await owner.call("prompt.submit", {"session_id": made["session_id"], "text": "go"})
                question = await owner.frame(lambda one: one.get("method") == "approval")
                there = await other.call("session.resume", {"session_id": made["stored_session_id"]})
                named = question["params"]["request_id"]
                tries: list[tuple[str, dict[str, Any]]] = [
                    ("approval.respond", {"session_id": there["session_id"], "choice": "once"}),
                    ("approval.respond", {"session_id": there["session_id"], "choice": "once", "request_id": named}),
                    ("request.answer", {"id": question["id"], "result": {"choice": "once"}}),
                ]
                for method, params in tries:
                    refused = await other.request(method, params)
                    while "error" not in refused:
                        # The question becomes durable behind its way to the client.
                        assert refused["result"] in ({"resolved": 0}, {"status": "expired"})
                        refused = await other.request(method, params)
                    assert refused["error"]["code"] == 4090, refused
                    assert refused["error"]["data"]["owner"].startswith(f"pid {owner.pid} on ")
                state = await owner.call("session.activate", {"session_id": made["session_id"]})
                assert [one["id"] for one in state["open_requests"]] == [question["id"]]
                await owner.send({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once"}})
                assert (await owner.event("message.complete"))["params"]["payload"]["status"] == "complete"


@pytest.mark.fault("B-093", "B-105")
async def test_a_run_of_another_process_is_not_answered_here_and_its_owner_is_named(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(terminal("rm -rf build"), say("done"), strict=True)) as provider:
            async with mortal_servers(tmp_path / "home", model_environment(provider)) as servers:
                owner = await servers.start("serve", "--port", str(ports[0]))
                await servers.start("serve", "--port", str(ports[1]))
                for port in ports:
                    while await http_status(port, "/health") != 200:
                        await trio.sleep(0.02)
                headers = {"Authorization": f"Bearer {(tmp_path / 'home' / 'server.key').read_text().strip()}"}
                async with httpx2.AsyncClient(headers=headers, timeout=20) as client:
                    here, there = (f"http://127.0.0.1:{port}/v1/runs" for port in ports)
                    run_id = (await client.post(here, json={"input": "go"})).json()["run_id"]
                    while (await client.get(f"{here}/{run_id}")).json()["status"] != "waiting_for_approval":
                        await trio.sleep(0.01)
                    choice = {"choice": "once"}
                    for method, path, code in (
                        ("POST", "approval", "approval_not_active"),
                        ("POST", "stop", "run_not_active"),
                        ("GET", "events", "run_not_active"),
                    ):
                        refused = await client.request(
                            method, f"{there}/{run_id}/{path}", json=choice if method == "POST" else None
                        )
                        error = refused.json()["error"]
                        assert (refused.status_code, error["code"]) == (409, code)
                        assert error["data"]["owner"].startswith(f"pid {owner.pid} on ")
                    assert (await client.get(f"{here}/{run_id}")).json()["status"] == "waiting_for_approval"
                    assert (await client.post(f"{here}/{run_id}/approval", json=choice)).status_code == 200
                    while (await client.get(f"{here}/{run_id}")).json()["status"] != "completed":
                        await trio.sleep(0.01)
