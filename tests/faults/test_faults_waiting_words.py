"""Words said to a busy session: steers, prompts that wait, repeats of a request, each with one fate that is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolContext
from hermes.testing import Reply
from hermes.testing.cancel_sweep import run_seeded
from tests.faults.test_faults_runs import ENDED, HI, web
from tests.nurseries.test_steer_races import Race, places
from tests.support.core import PlainTool, call, hang, make_services, running_tree
from tests.support.core import say as core_say
from tests.support.fault_play import events, playing, say, stream, terminal, user_texts
from tests.support.gateway_host import connected
from tests.support.proof import times
from tests.support.server_process import assert_no_children, children_of

NEVER = stream("Hello ", "there ")


@pytest.mark.e2e
@pytest.mark.fault("B-122")
@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
async def test_a_steer_without_a_turn_is_refused_before_the_first_turn_and_after_it(
    surface: str, tmp_path: Path
) -> None:
    async with playing(tmp_path / "home", say("1"), say("2"), surface=surface) as (driver, provider):
        await driver.call("client.capabilities", {"server_requests": True})
        driver.session_id = (await driver.call("session.create", {}))["session_id"]
        for text in ("one", "two"):
            steer = {"session_id": driver.session_id, "text": "stranded"}
            for method in ("session.steer", "session.redirect"):
                assert (await driver.call(method, steer))["status"] == "rejected"
            await driver.start(text)
            assert (await driver.terminal())["status"] == "complete"
        assert "stranded" not in json.dumps([one.body for one in provider.requests])
        assert user_texts(provider.requests[-1]) == ["one", "two"]


@pytest.mark.e2e
@pytest.mark.fault("B-122", "B-128")
async def test_a_steer_of_a_run_that_waits_or_has_ended_is_a_conflict(tmp_path: Path) -> None:
    async with web(tmp_path / "home", NEVER, Reply.of({"text": "second"})) as site:
        running = await site.run()
        queued = await site.run()
        await site.provider.wait_chunks(1, 2)
        steers = {name: f"/v1/runs/{run_id}/steer" for name, run_id in (("queued", queued), ("running", running))}
        refused = await site.client.post(steers["queued"], json={"input": "stranded"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_not_accepting_steer")
        taken = await site.client.post(steers["running"], json={"input": "left"})
        assert taken.status_code == 200 and taken.json()["accepted"] is True
        await site.client.post(f"/v1/runs/{running}/stop", json={})
        # No model has seen it: it comes back with the end.
        assert (await site.until(running, *ENDED))["pending_steer"] == "left"
        assert (await site.until(queued, *ENDED))["status"] == "completed"
        refused = await site.client.post(steers["running"], json={"input": "stranded"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_not_accepting_steer")
        assert not any(
            "stranded" in json.dumps(one.body) or "left" in user_texts(one) for one in site.provider.requests
        )


@pytest.mark.fault("B-124")
@pytest.mark.parametrize("stop", [False, True], ids=["to the end", "hard stop"])
def test_a_steer_that_races_is_in_exactly_one_place_a_thousand_times(stop: bool) -> None:
    for seed in range(10_000, 10_000 + times(1000, 30)):
        said = run_seeded(Race(seed, stop=stop, redirects=False).run, seed)
        for text in (*said.taken, *said.refused):
            assert sum(places(said, text).values()) == 1, f"seed {seed}: {text}"


@pytest.mark.e2e
@pytest.mark.fault("B-126")
async def test_a_stop_may_leave_the_queue_and_hands_the_steers_back_all_the_same(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal("sleep 7012"), say("done"), say("z")) as (driver, provider):
        await driver.start("one")
        await driver.wait_for_tool()
        named = {"session_id": driver.session_id}
        for text in ("steer A", "steer B"):
            assert (await driver.call("session.steer", {**named, "text": text}))["status"] == "queued"
        follow = await driver.call("prompt.submit", {**named, "text": "follow-up", "queued": True})
        assert follow == {"status": "queued", "queue_position": 1}
        result = await driver.call("session.interrupt", {**named, "clear_queue": False})
        assert (result["status"], result["dropped_prompts"]) == ("interrupted", [])
        assert "steer A" in result["pending_steer"] and "steer B" in result["pending_steer"]
        first = await driver.event("message.complete")
        second = await driver.event("message.complete", driver.frames.index(first) + 1)
        ends = [one["params"]["payload"]["status"] for one in (first, second)]
        assert ends == ["interrupted", "complete"]
        assert user_texts(provider.requests[-1]) == ["one", "follow-up"]
        await driver.start("Z")
        assert (await driver.terminal())["status"] == "complete"
        assert user_texts(provider.requests[-1]) == ["one", "follow-up", "Z"]
        assert "steer A" not in json.dumps([one.body for one in provider.requests])


@pytest.mark.e2e
@pytest.mark.fault("B-126")
async def test_a_stopped_run_hands_its_steers_back_and_the_next_one_sees_its_own_words_alone(tmp_path: Path) -> None:
    gate = terminal("sleep 7013")
    async with web(tmp_path / "home", gate, Reply.of({"text": "z"})) as site:
        run_id = await site.run("one")
        async with site.events(run_id) as seen:
            while (event := await seen.data()) is not None and event["event"] != "tool.started":
                pass
        for text in ("steer A", "steer B"):
            assert (await site.client.post(f"/v1/runs/{run_id}/steer", json={"input": text})).status_code == 200
        await site.client.post(f"/v1/runs/{run_id}/stop", json={})
        ended = await site.until(run_id, *ENDED)
        assert "steer A" in ended["pending_steer"] and "steer B" in ended["pending_steer"]
        await site.until(await site.run("Z"), "completed")
        assert user_texts(site.provider.requests[-1]) == ["one", "Z"]


@pytest.mark.fault("B-128")
async def test_a_steer_is_told_again_with_the_call_behind_which_the_model_read_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    answers: list[Any] = []

    async def talk(ctx: ToolContext, arguments: Any) -> str:
        answers.append(await host.call("session.steer", session_id=session_id, text="use tabs"))
        return "there"

    calls = [call("talk", "call-7")]
    services, _ = make_services(core_say("", calls=calls), core_say("done"), tools=[PlainTool("talk", talk)])
    async with running_tree(services) as tree, connected(tree) as host:
        await host.call("client.capabilities", server_requests=True, steers=True)
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.complete")
        assert answers == [{"status": "queued", "text": "use tabs"}]
        told = [one["params"] for one in host.frames if one.get("params", {}).get("type") == "message.steer"]
        assert [one["payload"] for one in told] == [
            {"text": "use tabs", "status": "accepted"},
            {"text": "use tabs", "status": "delivered", "tool_id": "call-7"},
        ]


@pytest.mark.fault("B-128")
async def test_a_steer_while_the_history_is_compressed_is_refused_and_goes_nowhere(
    autojump_clock: trio.abc.Clock,
) -> None:
    services, model = make_services(*[core_say("word " * 400) for _ in range(6)], hang(), core_say("next"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        for number in range(6):
            await host.call("prompt.submit", session_id=session_id, text=f"question {number}")
            await host.event("message.complete")
        compressing = host.start("session.compress", session_id=session_id, focus_topic="here 1")
        with trio.fail_after(60):
            while model.open == 0:
                await trio.sleep(0.1)
        for method in ("session.steer", "session.redirect"):
            assert (await host.call(method, session_id=session_id, text="lost?"))["status"] == "rejected"
        waiting = await host.call("prompt.submit", session_id=session_id, text="a prompt waits", queued=True)
        assert waiting["status"] == "queued"
        stopped = await host.call("session.interrupt", session_id=session_id)
        assert [one["text"] for one in stopped["dropped_prompts"]] == ["a prompt waits"]
        assert (await host.answer(compressing))["status"] == "aborted"
        await host.call("prompt.submit", session_id=session_id, text="next")
        await host.event("message.complete")
        assert "lost?" not in repr(model.requests[-1].messages)


@pytest.mark.e2e
@pytest.mark.fault("B-129")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "go"}),
        ("/v1/chat/completions", {"messages": HI}),
    ],
)
async def test_ten_calls_with_one_key_ask_the_model_once(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    async with web(tmp_path / "home", Reply.of({"text": "once"}, {"delay": 0.1}), Reply.of({"text": "other"})) as site:
        found: list[Any] = []
        key = {"Idempotency-Key": "k1"}

        async def start() -> None:
            found.append(await site.client.post(path, json=body, headers=key))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(start)
        assert {one.status_code for one in found} == {200}, [one.text for one in found]
        assert len(site.provider.requests) == 1
        # Another body under the key is another call: here an answer is remembered, no run reserved.
        changed = {"input": "else"} if "input" in body else {"messages": [{"role": "user", "content": "else"}]}
        other = await site.client.post(path, json=changed, headers=key)
        assert "other" in other.text and len(site.provider.requests) == 2


@pytest.mark.e2e
@pytest.mark.fault("B-129")
async def test_a_changed_body_conflicts_after_a_restart_too(tmp_path: Path) -> None:
    home, key = tmp_path / "home", {"Idempotency-Key": "k1"}
    async with web(home, Reply.of({"text": "once"})) as site:
        run_id = (await site.client.post("/v1/runs", json={"input": "go"}, headers=key)).json()["run_id"]
        await site.until(run_id, "completed")
    async with web(home) as site:
        other = await site.client.post("/v1/runs", json={"input": "else"}, headers=key)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_conflict")
        assert site.provider.requests == []


@pytest.mark.e2e
@pytest.mark.fault("B-131")
async def test_prompts_that_wait_are_told_their_place_and_seen_in_the_status(tmp_path: Path) -> None:
    config = {"display": {"busy_input_mode": "queue"}}
    async with playing(tmp_path / "home", NEVER, config=config) as (driver, _):
        await driver.start("one")
        named = {"session_id": driver.session_id}
        for place in (1, 2, 3):
            answer = await driver.call("prompt.submit", {**named, "text": f"later {place}"})
            assert answer == {"status": "queued", "queue_position": place}
            output = (await driver.call("session.status", named))["output"]
            assert f"Queued Prompts: {place}" in output
        stopped = await driver.call("session.interrupt", named)
        assert [one["text"] for one in stopped["dropped_prompts"]] == ["later 1", "later 2", "later 3"]
        assert len(events(driver, "message.start")) == 1


@pytest.mark.e2e
@pytest.mark.fault("B-131")
async def test_a_run_of_a_busy_session_is_answered_as_queued_at_once(tmp_path: Path) -> None:
    async with web(tmp_path / "home", NEVER, Reply.of({"text": "second"})) as site:
        first = await site.run()
        await site.provider.wait_chunks(1, 2)
        second = await site.run("two")
        assert (await site.status(second))["status"] == "queued"
        await site.client.post(f"/v1/runs/{first}/stop", json={})
        assert (await site.until(second, *ENDED))["status"] == "completed"


@pytest.mark.fault("B-133")
@pytest.mark.parametrize("end", ["session.close", "a stop of the server"])
async def test_each_way_to_a_session_begins_one_and_each_end_ends_it_once(
    end: str, autojump_clock: trio.abc.Clock
) -> None:
    services, _ = make_services(core_say("one"), core_say("two"))
    watched: dict[str, Any] = {}
    async with running_tree(services) as tree, connected(tree) as host:
        made = await host.call("session.create")
        await host.call("prompt.submit", session_id=made["session_id"], text="hi")
        await host.event("message.complete")
        branch = await host.call("session.branch", session_id=made["session_id"])
        for _ in range(2):
            await host.call("session.resume", session_id=made["stored_session_id"])
            await host.call("session.activate", session_id=branch["session_id"])
            await host.call("session.activate", session_id=made["session_id"])
            await host.call("reload.env")
            await host.call("reload.mcp", confirm=True)
        watched = {one.runtime_id: one for one in tree.registry.live()}
        assert set(watched) == {made["session_id"], branch["session_id"]}
        if end == "session.close":
            for runtime_id in watched:
                assert (await host.call("session.close", session_id=runtime_id))["closed"] is True
                assert (await host.call("session.close", session_id=runtime_id))["closed"] is False
    for session in watched.values():
        kinds = [type(entry.event).__name__ for entry in session.log.since(0)[0]]
        assert (kinds.count("SessionClosed"), kinds[-1]) == (1, "SessionClosed")
        assert kinds.count("TurnStarted") == kinds.count("TurnEnded") <= 1


MCP_PROGRAM = Path(__file__).parent.parent / "support" / "mcp_hostile_program.py"


def lives(notes: Path) -> tuple[int, int]:
    """How many of these peers were started so far, and how many have ended."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    pids = [int(line.split()[1]) for line in lines if line.startswith("started")]
    return len(pids), sum(not Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.e2e
@pytest.mark.fault("B-133")
async def test_what_the_server_keeps_for_its_sessions_is_started_once_however_they_come_to_life(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    peer = {"command": sys.executable, "args": [str(MCP_PROGRAM), "plain", str(notes)]}
    config = {"mcp_servers": {"peer": peer}}
    async with playing(tmp_path / "home", say("one"), say("two"), config=config, limit=60) as (driver, _):
        await driver.start("hi")
        assert (await driver.terminal())["status"] == "complete"
        key = next(one["result"] for one in driver.frames if "stored_session_id" in one.get("result", ()))
        branch = await driver.call("session.branch", {"session_id": driver.session_id})
        for _ in range(2):
            await driver.call("session.resume", {"session_id": key["stored_session_id"]})
            await driver.call("session.activate", {"session_id": branch["session_id"]})
            await driver.call("session.activate", {"session_id": driver.session_id})
            await driver.call("reload.env", {})
            # Nothing of it has changed: a reload leaves it alone.
            await driver.call("reload.mcp", {"confirm": True})
        assert lives(notes) == (1, 0)
        for session_id in (branch["session_id"], driver.session_id):
            await driver.call("session.close", {"session_id": session_id})
        assert lives(notes) == (1, 0)
        assert await driver.server.stop() == 0
        assert lives(notes) == (1, 1)


@pytest.mark.e2e
@pytest.mark.fault("B-133")
async def test_what_an_editor_brings_along_is_started_and_ended_once_for_each_session(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    peer = {"name": "peer", "command": sys.executable, "args": [str(MCP_PROGRAM), "plain", str(notes)], "env": []}
    async with playing(tmp_path / "home", say("one"), say("two"), surface="acp", limit=60) as (driver, _):
        server = driver.server
        await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        where = {"cwd": str(tmp_path), "mcpServers": [peer]}
        made = await server.call("session/new", where)
        driver.session_id = made["sessionId"]
        await driver.start("hi")
        assert (await driver.terminal())["status"] == "complete"
        assert lives(notes) == (1, 0)
        named = {"sessionId": driver.session_id}
        forked = await server.call("session/fork", where | named)
        for method in ("session/load", "session/resume", "session/load"):
            await server.call(method, where | named)
            running = [line for line in children_of(server).values() if "mcp_hostile_program" in line]
            assert len(running) <= 2, "more than one for each session"
        for session_id in (forked["sessionId"], driver.session_id):
            await server.call("session/close", {"sessionId": session_id})
        await assert_no_children(server, within=20)
        begun, over = lives(notes)
        assert begun == over and 1 <= begun <= 2
