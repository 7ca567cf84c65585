"""Questions over every surface: each keeps its own answer, and goes once, to the right client, when its turn goes."""

from __future__ import annotations

import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Script
from tests.support.drivers import AcpDriver, GatewayDriver, RunDriver, driving, http_driver
from tests.support.fault_play import (
    LIMIT,
    Frame,
    answer,
    calls,
    events,
    frame,
    model_environment,
    playing,
    say,
    terminal,
    write_config,
)
from tests.support.proof import times

pytestmark = pytest.mark.e2e
PERMISSION = "session/request_permission"


def chosen(asked: Frame, kind: str) -> Frame:
    option = next(one["optionId"] for one in asked["params"]["options"] if one["kind"] == kind)
    outcome = {"outcome": {"outcome": "selected", "optionId": option}}
    return {"jsonrpc": "2.0", "id": asked["id"], "result": outcome}


def withdrawals(driver: AcpDriver) -> list[Any]:
    cancels = [one for one in driver.server.frames if one.get("method") == "$/cancel_request"]
    return [one["params"]["requestId"] for one in cancels]


# --- a stop of one, and the question of another -----------------------------------------------------------------------


@pytest.mark.fault("B-057")
async def test_a_cancel_in_one_editor_session_leaves_the_permission_of_another(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep = {name: home / f"keep-{name}" for name in "ab"}
    asks = [terminal(f"rm -rf {keep[name]}", when=f"for {name}") for name in "ab"]
    async with playing(home, *asks, say("ok", when={"last_role": "tool"}), surface="acp") as (driver, _provider):
        sessions, prompts, asked = [], [], []
        for name in "ab":
            keep[name].mkdir(parents=True)
            driver.session_id = ""
            await driver.start(f"for {name}")
            at = len(asked)
            await driver.server.wait_until(
                lambda at=at: sum(one.get("method") == PERMISSION for one in driver.server.frames) > at
            )
            asked = [one for one in driver.server.frames if one.get("method") == PERMISSION]
            sessions.append(driver.session_id)
            prompts.append(driver._prompt_id)
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": sessions[0]}}
        await driver.server.send(cancel)
        ends = [await acp_answer(driver, prompts[0])]
        assert withdrawals(driver) == [asked[0]["id"]]
        await driver.server.send(chosen(asked[1], "allow_once"))
        ends.append(await acp_answer(driver, prompts[1]))
        assert [one["result"]["stopReason"] for one in ends] == ["cancelled", "end_turn"]
        assert keep["a"].exists() and not keep["b"].exists()


async def acp_answer(driver: AcpDriver, number: int) -> Frame:
    return await driver.server.frame(lambda one: one.get("id") == number and "method" not in one)


@pytest.mark.fault("B-057")
async def test_a_stop_of_one_run_leaves_the_question_of_another(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep = {name: home / f"keep-{name}" for name in "ab"}
    asks = [terminal(f"rm -rf {keep[name]}", when=f"for {name}") for name in "ab"]
    async with playing(home, *asks, say("ok", when={"last_role": "tool"}), surface="http run") as (driver, _provider):
        runs = []
        for name in "ab":
            keep[name].mkdir(parents=True)
            body = {"input": f"for {name}", "session_id": f"session-{name}"}
            runs.append((await driver.client.post("/v1/runs", json=body)).json()["run_id"])
            driver.run_id = runs[-1]
            await driver.wait_for_question()
        driver.run_id = runs[0]
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        driver.run_id = runs[1]
        assert (await driver.status())["status"] == "waiting_for_approval"
        told = await driver.client.post(f"/v1/runs/{runs[1]}/approval", json={"choice": "once"})
        assert told.status_code == 200
        assert (await driver.terminal())["status"] == "complete"
        assert keep["a"].exists() and not keep["b"].exists()


@pytest.mark.fault("B-057")
async def test_a_stop_of_one_session_answers_no_clarification_of_another(tmp_path: Path) -> None:
    ask = calls(("clarify", {"questions": [{"question": "which?", "choices": ["x", "y"]}]}))
    work = (ask, ask, say("ok", when={"last_role": "tool"}))
    async with playing(tmp_path / "home", *work) as (driver, provider):
        sessions, asked = [], []
        for name in "ab":
            driver.session_id, at = "", len(driver.frames)
            await driver.start(f"for {name}")
            asked.append(await driver.find(lambda one: one.get("method") == "clarify", at))
            sessions.append({"session_id": driver.session_id})
        await driver.call("session.interrupt", sessions[0])
        assert [one["id"] for one in events(driver, "request.cancel")] == [asked[0]["id"]]
        left = [(await driver.call("session.events.since", one))["open_requests"] for one in sessions]
        assert left[0] == [] and [one["id"] for one in left[1]] == [asked[1]["id"]]
        at, key = len(driver.frames), asked[1]["params"]["questions"][0]["qid"]
        await driver.send({"jsonrpc": "2.0", "id": asked[1]["id"], "result": {"answers": {key: "y"}}})
        end = await driver.event("message.complete", at)
        assert end["params"]["payload"]["status"] == "complete"
        (result,) = [row["content"] for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]
        assert '"y"' in result


# --- lost in the middle of its frame ----------------------------------------------------------------------------------


@pytest.mark.fault("B-080")
async def test_a_question_whose_frame_was_cut_is_shown_again_with_its_id(tmp_path: Path) -> None:
    # Longer than what a socket takes at once, so that the connection ends inside of the frame.
    command = "rm -rf nothing-here # " + "x" * 20_000
    work = (terminal(command), say("thanks"))
    async with playing(tmp_path / "home", *work, surface="gateway websocket") as (driver, _provider):
        async with http_driver("gateway websocket", driver.server) as lost:
            assert isinstance(lost, GatewayDriver)
            raw = lost._socket._stream  # type: ignore[attr-defined]
            cut = CutInQuestion(raw)
            raw.receive_some = cut.receive_some
            await lost.start("go")
            await cut.seen.wait()
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await trio.aclose_forcefully(raw)
            cut.gone.set()
        assert not any(one.get("method") == "approval" for one in lost.frames)
        await driver.call("client.capabilities", {"server_requests": True})
        driver.session_id = lost.session_id
        shown = await driver.call("session.activate", {"session_id": driver.session_id})
        (question,) = shown["open_requests"]
        assert question["id"] in cut.heard, "not the question that was cut"
        again = (await driver.call("session.events.since", {"session_id": driver.session_id}))["open_requests"]
        assert again == [question], "another id or another deadline"
        await driver.send({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once"}})
        assert (await driver.event("message.complete"))["params"]["payload"]["status"] == "complete"
        assert (await driver.call("session.events.since", {"session_id": driver.session_id}))["open_requests"] == []


class CutInQuestion:
    """Lets everything through up to the first bytes of a question, and then nothing more."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._receive = stream.receive_some
        self._data = b""
        self.heard = ""
        self.seen = trio.Event()
        self.gone = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = await self._receive(300)
        self._data += data
        if b'"method":"approval"' in self._data.replace(b" ", b""):
            self.heard = self._data.decode(errors="replace")
            self.seen.set()
            await self.gone.wait()
            raise trio.BrokenResourceError
        return data


# --- gone with its turn -----------------------------------------------------------------------------------------------


@pytest.mark.fault("B-086")
@pytest.mark.parametrize("how", ["cancel", "close", "end of input"])
async def test_an_editor_is_told_once_that_a_permission_is_withdrawn(how: str, tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal("rm -rf x"), surface="acp") as (driver, _provider):
        await driver.start("go")
        asked = await driver.server.frame(lambda one: one.get("method") == PERMISSION)
        if how == "cancel":
            await driver.stop()
        elif how == "close":
            await driver.server.call("session/close", {"sessionId": driver.session_id})
        else:
            await driver.server.close_input()
            assert await driver.server.exit_code() == 0
            await driver.server.wait_for_output(lambda: False)
        if how != "end of input":
            assert (await acp_answer(driver, driver._prompt_id))["result"]["stopReason"] == "cancelled"
            await driver.server.request("session/list", {})
        assert withdrawals(driver) == [asked["id"]]


@pytest.mark.fault("B-086")
@pytest.mark.fault("B-082")
@pytest.mark.parametrize("how", ["stop", "shutdown"])
async def test_a_question_of_a_run_is_told_once_as_withdrawn(how: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, None)
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(terminal("rm -rf x"), say("next"), strict=True)) as provider:
            async with driving("http run", home, model_environment(provider)) as first:
                assert isinstance(first, RunDriver)
                await first.start("go")
                await first.wait_for_question()
                if how == "stop":
                    await first.stop()
                    await first.terminal()
                assert await first.server.stop() == 0
            async with driving("http run", home, model_environment(provider)) as second:
                assert isinstance(second, RunDriver)
                second.run_id = first.run_id
                told = [one for one in await second._events(None) if one["event"].startswith("approval.")]
                assert [one["event"] for one in told] == ["approval.request", "approval.responded"]
                assert (told[1]["outcome"], told[1]["resolved"]) == ("withdrawn", 0)
                status = await second.status()
                expected = ("cancelled", "run_stop") if how == "stop" else ("interrupted", "shutdown")
                assert (status["status"], status["cause"]) == expected and "approval" not in status
                await second.start("again")
                assert (await second.terminal())["status"] == "complete"


# --- the right one ----------------------------------------------------------------------------------------------------


@pytest.mark.fault("B-087")
@pytest.mark.parametrize("surface", ["gateway stdio", "acp", "http run"])
async def test_of_two_calls_the_one_that_was_allowed_runs_and_the_other_does_not(surface: str, tmp_path: Path) -> None:
    rounds, dice, home = times(100, 3), random.Random(87), tmp_path / "home"
    keep, drop = home / "keep", home / "drop"
    replies = []
    for _ in range(rounds):
        commands = [f"rm -rf {keep}", f"rm -rf {drop}"]
        dice.shuffle(commands)
        replies += [terminal(*commands), say("thanks")]
    async with playing(home, *replies, surface=surface, limit=LIMIT + rounds) as (driver, _provider):
        keep.mkdir(parents=True)
        for _ in range(rounds):
            drop.mkdir()
            await driver.start("go")
            for number in range(2):
                await decide(driver, number)
            assert (await driver.terminal())["status"] == "complete"
            assert keep.exists() and not drop.exists()


async def decide(driver: Any, number: int) -> None:
    """Allow what is about "drop" and refuse the other, by the question's own id."""
    if isinstance(driver, RunDriver):
        one: Frame = {}
        while not one or one["request_id"] == driver.last_question:
            one = (await driver.status()).get("approval") or {}
            await trio.sleep(0.01)
        driver.last_question = one["request_id"]
        body = {"choice": "once" if "drop" in str(one) else "deny", "request_id": one["request_id"]}
        assert (await driver.client.post(f"/v1/runs/{driver.run_id}/approval", json=body)).status_code == 200
        return
    frames = driver.frames if isinstance(driver, GatewayDriver) else driver.server.frames
    start = driver._turn_from if isinstance(driver, GatewayDriver) else driver._from
    method = "approval" if isinstance(driver, GatewayDriver) else PERMISSION
    while len(asked := [one for one in frames[start:] if one.get("method") == method]) <= number:
        await trio.sleep(0.005)
    good = "drop" in str(asked[number]["params"])
    if isinstance(driver, AcpDriver):
        await driver.server.send(chosen(asked[number], "allow_once" if good else "reject_once"))
    else:
        result = {"choice": "once" if good else "deny"}
        await driver.send({"jsonrpc": "2.0", "id": asked[number]["id"], "result": result})


@pytest.mark.fault("B-087")
async def test_of_two_sessions_that_ask_the_newer_is_answered_first_by_its_own_id(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep = {name: home / f"keep-{name}" for name in "ab"}
    asks = [terminal(f"rm -rf {keep[name]}", when=f"for {name}") for name in "ab"]
    async with playing(home, *asks, say("ok", when={"last_role": "tool"})) as (driver, _provider):
        asked, sessions = [], []
        for name in "ab":
            keep[name].mkdir(parents=True)
            driver.session_id, at = "", len(driver.frames)
            await driver.start(f"for {name}")
            asked.append(await driver.find(lambda one: one.get("method") == "approval", at))
            sessions.append(driver.session_id)
        await driver.server.send(
            {"jsonrpc": "2.0", "id": asked[1]["id"], "result": {"choice": "once"}},
            {"jsonrpc": "2.0", "id": asked[0]["id"], "result": {"choice": "deny"}},
            frame("p", "ping", {}),
        )
        await answer(driver, "p")
        while len(events(driver, "message.complete")) < 2:
            await driver.event("message.complete", len(driver.frames))
        assert keep["a"].exists() and not keep["b"].exists()
