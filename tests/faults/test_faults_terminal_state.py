"""How a stopped turn is told: once, as stopped, with what it had done and spent, and for ever."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.messages import Prompt
from hermes.outcomes import CancelReason, Cause
from hermes.testing import Reply
from tests.support.acp import acp_client
from tests.support.core import ScriptedModel, hang, make_services, running_tree
from tests.support.core import say as core_say
from tests.support.drivers import RunDriver
from tests.support.fault_play import calls, playing, say, stream, terminal
from tests.support.server_process import children_of

MCP_PROGRAM = Path(__file__).parent.parent / "support" / "mcp_hostile_program.py"


def hung() -> Reply:
    return Reply.of({"text": "x"}, faults={"hang": True})


@pytest.mark.fault("B-040")
@pytest.mark.parametrize("first", ["cancel", "finish"])
async def test_a_cancel_in_the_tick_of_the_finish_gives_one_answer(first: str) -> None:
    gate = trio.Event()

    async def reply(request: Any, on_delta: Any) -> Any:
        await gate.wait()
        return await core_say("all of it")(request, on_delta)

    services, model = make_services(model=ScriptedModel(reply))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        while not model.open:
            await trio.testing.wait_all_tasks_blocked()
        for step in (("cancel", "finish"), ("finish", "cancel"))[first == "finish"]:
            if step == "finish":
                gate.set()
            else:
                client.notify("session/cancel", sessionId=session)
        answer = await client.answer(request)
        assert answer["result"]["stopReason"] == "cancelled"
        await trio.testing.wait_all_tasks_blocked()
        assert sum(one.get("id") == request and "method" not in one for one in client.frames) == 1


@pytest.mark.fault("B-040")
async def test_a_cancel_behind_the_end_of_a_prompt_changes_nothing() -> None:
    services, _ = make_services(core_say("all of it"))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
        client.notify("session/cancel", sessionId=session)
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"
        assert sum(one.get("id") == request and "method" not in one for one in client.frames) == 1


@pytest.mark.e2e
@pytest.mark.fault("B-042")
async def test_a_cancelled_prompt_never_tells_a_usage_of_nothing(tmp_path: Path) -> None:
    work = (terminal("echo one"), stream("a", "b"))
    async with playing(tmp_path / "home", *work, surface="acp") as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(2, 2)
        await driver.stop()
        number = driver._prompt_id
        answer = await driver.server.frame(lambda one: one.get("id") == number and "method" not in one)
        assert answer["result"]["stopReason"] == "cancelled"
        # The first request was counted by the model; the second was left before it said anything of the kind.
        assert answer["result"]["usage"]["totalTokens"] > 0


@pytest.mark.e2e
@pytest.mark.fault("B-042")
@pytest.mark.parametrize("surface", ["acp", "gateway stdio", "http run"])
async def test_a_stop_in_the_first_answer_tells_no_usage_or_what_is_known(surface: str, tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("a", "b", "c"), surface=surface) as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 3)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        if surface == "acp":
            number = driver._prompt_id
            told = await driver.server.frame(lambda one: one.get("id") == number and "method" not in one)
            usage = told["result"].get("usage") or {}
        elif surface == "gateway stdio":
            usage = (await driver.event("message.complete"))["params"]["payload"].get("usage") or {}
        else:
            usage = (await driver.status()).get("usage") or {}
        totals = [usage[name] for name in ("total", "totalTokens", "total_tokens") if name in usage]
        assert all(total > 0 for total in totals) or usage.get("estimated"), usage


async def refuse(driver: Any) -> None:
    """Answer the open approval of a turn with no."""
    if isinstance(driver, RunDriver):
        told = await driver.client.post(f"/v1/runs/{driver.run_id}/approval", json={"choice": "deny"})
        assert told.status_code == 200, told.text
    else:
        asked = await driver.find(lambda one: one.get("method") == "approval", driver._turn_from)
        await driver.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"choice": "deny"}})


@pytest.mark.e2e
@pytest.mark.fault("B-044")
@pytest.mark.parametrize("surface", ["gateway stdio", "http run"])
async def test_a_denial_completes_a_turn_and_a_stop_in_the_question_does_not(surface: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep = home / "keep"
    ask = terminal(f"rm -rf {keep}")
    async with playing(home, ask, say("as you wish"), ask, surface=surface) as (driver, provider):
        keep.mkdir(parents=True)
        await driver.start("go")
        await driver.wait_for_question()
        await refuse(driver)
        assert (await driver.terminal())["status"] == "complete"
        await driver.start("again")
        await driver.wait_for_question()
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        assert keep.exists() and len(provider.requests) == 3


@pytest.mark.e2e
@pytest.mark.fault("B-044")
async def test_a_refused_permission_and_a_cancelled_prompt_are_told_apart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep = home / "keep"
    ask = terminal(f"rm -rf {keep}")
    async with playing(home, ask, say("as you wish"), ask, surface="acp") as (driver, provider):
        keep.mkdir(parents=True)
        await driver.start("go")
        asked = await driver.server.frame(lambda one: one.get("method") == "session/request_permission")
        reject = next(one["optionId"] for one in asked["params"]["options"] if one["kind"] == "reject_once")
        outcome = {"outcome": {"outcome": "selected", "optionId": reject}}
        await driver.server.send({"jsonrpc": "2.0", "id": asked["id"], "result": outcome})
        assert (await driver.terminal())["status"] == "complete"
        await driver.start("again")
        await driver.wait_for_question()
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        assert keep.exists() and len(provider.requests) == 3


@pytest.mark.e2e
@pytest.mark.fault("B-046")
async def test_a_cancel_soon_after_its_prompt_is_always_a_result(tmp_path: Path) -> None:
    # A stop before the model is asked uses no reply.
    work = [stream("a") for _ in range(4)]
    async with playing(tmp_path / "home", *work, surface="acp") as (driver, _provider):
        for pause in (0.0, 0.001, 0.005, 0.02):
            await driver.start("go")
            await trio.sleep(pause)
            await driver.stop()
            assert (await driver.terminal())["status"] == "interrupted"


@pytest.mark.e2e
@pytest.mark.fault("B-048")
async def test_a_stopped_run_is_cancelled_and_keeps_its_text_its_tools_and_its_usage(tmp_path: Path) -> None:
    pieces = [f"piece {number}, " for number in range(40)]
    work = (terminal("echo one", "echo two"), stream(*pieces))
    async with playing(tmp_path / "home", *work, surface="http run") as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(2, 40)
        await driver.stop()
        events = await driver._events(None)
        (end,) = [event for event in events if event["event"] == "run.cancelled"]
        assert [event["event"] for event in events].count("tool.completed") == 2
        status = await driver.status()
        assert (status["status"], status["cause"]) == ("cancelled", "run_stop")
        assert status["usage"]["total_tokens"] > 0
        heard = "".join(event["delta"] for event in events if event["event"] == "message.delta").strip()
        assert heard.startswith("piece 0, piece 1, ") and "".join(pieces).startswith(heard)
        assert status["output"].strip() == end["output"].strip() == heard
        assert [
            (one["status"], word in one["result"]) for one, word in zip(status["tools"], ("one", "two"), strict=True)
        ] == [("ok", True)] * 2


@pytest.mark.e2e
@pytest.mark.fault("B-050")
async def test_a_peer_whose_pipe_breaks_in_the_moment_of_the_stop_makes_it_no_failure(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    config = {"mcp_servers": {"peer": {"command": sys.executable, "args": [str(MCP_PROGRAM), "plain", str(notes)]}}}
    work = (calls(("mcp_peer_mute", {})), stream("never"))
    async with playing(tmp_path / "home", *work, surface="http run", config=config) as (driver, _provider):
        await driver.start("go")
        await driver.wait_for_tool()
        while "call mute" not in notes.read_text():
            await trio.sleep(0.01)
        for pid, line in children_of(driver.server).items():
            if "mcp_hostile_program" in line:
                os.kill(pid, signal.SIGKILL)
        await driver.stop()
        end = await driver.terminal()
        assert (end["status"], end["cause"]) == ("interrupted", "run_stop")
        assert "Traceback" not in driver.server.stderr


@pytest.mark.e2e
@pytest.mark.fault("B-050")
@pytest.mark.parametrize("surface", ["gateway stdio", "acp", "http run"])
async def test_a_peer_that_dies_of_the_cancel_makes_the_stop_no_failure(surface: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    config = {"mcp_servers": {"peer": {"command": sys.executable, "args": [str(MCP_PROGRAM), "breaks", str(notes)]}}}
    work = (calls(("mcp_peer_mute", {})), say("next"))
    async with playing(tmp_path / "home", *work, surface=surface, config=config) as (driver, _provider):
        await driver.start("go")
        await driver.wait_for_tool()
        while "call mute" not in notes.read_text():
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        if surface == "http run":
            status = await driver.status()
            assert status["status"] == "cancelled" and "error" not in status
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        assert "Traceback" not in driver.server.stderr


@pytest.mark.e2e
@pytest.mark.fault("B-052")
async def test_a_stop_of_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    work = (say("done"), Reply.of({"text": "x"}, faults={"status": 400}), stream("a"))
    async with playing(tmp_path / "home", *work, surface="http run") as (driver, provider):
        seen = []
        for number in range(3):
            await driver.start("go")
            if number == 2:
                await provider.wait_chunks(3, 1)
                await driver.stop()
            await driver._events(None)
            before = await driver.status()
            seen.append(before["status"])
            for _ in range(2):
                answer = await driver.client.post(f"/v1/runs/{driver.run_id}/stop", json={})
                assert (answer.status_code, answer.json()["status"]) == (200, before["status"])
                assert await driver.status() == before
        assert seen == ["completed", "failed", "cancelled"]


@pytest.mark.e2e
@pytest.mark.fault("B-054")
async def test_the_reason_of_a_stop_reaches_the_transcript_and_the_model(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("half"), say("next")) as (driver, provider):
        await driver.start("go")
        await provider.wait_chunks(1, 1)
        await driver.event("message.delta")
        session = {"session_id": driver.session_id}
        await driver.call("session.interrupt", {**session, "reason": "superseded by another request"})
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        assert "superseded by another request" in str(provider.requests[1].body["messages"])
        export = await driver.call("session.history", session)
        assert "half" in str(export)


@pytest.mark.e2e
@pytest.mark.fault("B-054")
@pytest.mark.parametrize("source", ["user", "host"])
async def test_a_reason_with_its_source_is_told_to_the_model_as_it_was_given(source: str, tmp_path: Path) -> None:
    other = {"user": "The program that runs this conversation stopped", "host": "The user stopped"}
    own = {"user": other["host"], "host": other["user"]}[source]
    async with playing(tmp_path / "home", stream("half"), hung(), say("next")) as (driver, provider):
        session = {"session_id": driver.session_id}
        for number, text in ((1, "superseded"), (2, None)):
            await driver.start("go")
            await provider.wait_for_request(number)
            if text:
                await driver.event("message.delta", driver._turn_from)
            session = {"session_id": driver.session_id}
            await driver.call("session.interrupt", {**session, "reason": {"source": source, "text": text}})
            end = await driver.event("message.complete", driver._turn_from)
            cause = {"user": "user_interrupt", "host": "run_stop"}[source]
            assert (end["params"]["payload"]["cause"], end["params"]["payload"].get("reason")) == (cause, text)
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        told = str(provider.requests[2].body["messages"])
        assert f"{own} this turn: superseded." in told and f"{own} this turn. " in told and other[source] not in told
        assert "superseded" in str(await driver.call("session.history", session))


@pytest.mark.e2e
@pytest.mark.fault("B-054")
async def test_the_reason_of_the_stop_of_a_run_is_in_its_status_and_told_to_the_model(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", stream("half"), say("next"), surface="http run") as (driver, provider):
        await driver.start("go")
        await driver._events("message.delta")
        await driver.client.post(f"/v1/runs/{driver.run_id}/stop", json={"reason": "superseded"})
        assert (await driver.terminal())["status"] == "interrupted"
        status = await driver.status()
        assert (status["cause"], status["reason"]) == ("run_stop", "superseded")
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        told = str(provider.requests[1].body["messages"])
        assert "The program that runs this conversation stopped this turn: superseded." in told


@pytest.mark.fault("B-054")
async def test_a_stop_of_a_person_and_one_of_a_host_are_not_told_to_the_model_in_the_same_words(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, _ = make_services(hang(), hang())
    told = []
    async with running_tree(services) as tree:
        session = tree.registry.create(source="test", cwd="/")
        for cause in (Cause.USER_INTERRUPT, Cause.NODE_CANCEL):
            turn = await session.submit_nowait(Prompt("go")).wait_turn()
            assert turn is not None
            await trio.testing.wait_all_tasks_blocked()
            turn.cancel(CancelReason(cause))
            await turn.wait_ended()
            told.append(str(session.rows[-1].api_content))
    assert "The user stopped this turn" in told[0]
    assert "The user stopped" not in told[1] and "The server stopped this turn (node_cancel)" in told[1]
