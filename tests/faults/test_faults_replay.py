"""Streams that are taken up again: numbered frames, nothing lost, one answer for each state of what is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.nurseries import runs
from hermes.protocols.http import runs as http_runs
from hermes.testing import Reply
from tests.faults.test_faults_runs import web
from tests.support.core import hang
from tests.support.core import say as core_say
from tests.support.drivers import SURFACES, AcpDriver, ChatDriver, GatewayDriver, RunDriver
from tests.support.fault_play import (
    LIMIT,
    delegate,
    events,
    model_environment,
    playing,
    say,
    stream,
    text_of,
    user_texts,
)
from tests.support.http_surface import http_surface
from tests.support.mortal_server import mortal_servers
from tests.support.proof import times
from tests.support.sse_client import streaming

HI = [{"role": "user", "content": "hi"}]


@pytest.mark.e2e
@pytest.mark.fault("B-096")
async def test_a_run_that_nobody_watches_for_long_is_read_afterwards_from_its_first_event(tmp_path: Path) -> None:
    alone = times(300, 1)
    reply = Reply.of({"text": ["a ", "b "]}, {"wait_for": "back"}, {"text": ["c"]})
    async with web(tmp_path / "home", reply, within=LIMIT + alone) as site:
        run_id = await site.run()
        async with site.events(run_id) as first:
            seen = [await first.data()]
        await trio.sleep(alone)
        async with site.events(run_id) as again:
            assert [await again.data()] == seen
        site.provider.release("back")
        whole = await site.whole(run_id)
        assert whole[:1] == seen and [one["seq"] for one in whole] == list(range(len(whole)))
        assert (whole[-1]["event"], whole[-1]["output"]) == ("run.completed", "a b c")
        assert await site.whole(run_id, after=0) == whole[1:]


@pytest.mark.fault("B-098")
async def test_heartbeats_are_comments_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_runs, "KEEPALIVE_SECONDS", 0.05)
    async with http_surface(hang()) as surface:
        run_id = (await surface.post("/v1/runs", {"input": "hi"})).json()["run_id"]
        received = b""
        raw = await surface.raw("GET", f"/v1/runs/{run_id}/events")
        while received.count(b": keepalive") < 3:
            received += await raw.receive_some()
        await raw.aclose()
        await surface.post(f"/v1/runs/{run_id}/stop")
        blocks = received.replace(b"\r\n", b"\n").split(b"\n\n")
        assert all(b"id: " not in block for block in blocks if b": keepalive" in block)
        assert all(b"id: " in block for block in blocks if b"data: " in block)


@pytest.mark.e2e
@pytest.mark.fault("B-098")
async def test_streams_that_cannot_be_taken_up_again_have_no_numbers_to_promise_it(tmp_path: Path) -> None:
    requests: dict[str, Any] = {
        "/v1/chat/completions": {"messages": HI, "stream": True},
        "/v1/responses": {"input": "hi", "stream": True},
        "/api/sessions/s1/chat/stream": {"message": "hi"},
    }
    async with web(tmp_path / "home", *[Reply.of({"text": ["a ", "b"]})] * 3) as site:
        await site.client.post("/api/sessions", json={"id": "s1"})
        for path, body in requests.items():
            lines = []
            async with streaming(site.server.port, "POST", path, headers=site.headers, body=body) as answer:
                while (line := await answer.line()) is not None:
                    lines.append(line)
            assert any(line.startswith("data: ") for line in lines), path
            assert {line.partition(":")[0] for line in lines if line} <= {"data", "event", "retry", ""}, path


@pytest.mark.e2e
@pytest.mark.fault("B-100")
async def test_a_client_that_comes_back_reads_of_its_children_what_it_would_have_seen(tmp_path: Path) -> None:
    child = Reply.of({"text": "seen"}, when={"last_user_contains": "look around"})
    async with playing(tmp_path / "home", child, delegate("look around"), say("done")) as (driver, _):
        await driver.start("go")
        await driver.terminal()
        missed = await driver.call("session.events.since", {"session_id": driver.session_id, "last_seen": 0})
        live = [one["params"] for one in driver.frames if "seq" in one.get("params", {})]
        of_children = [(one["seq"], one["type"]) for one in live if one["type"].startswith("subagent.")]
        assert of_children
        assert [
            (one["seq"], one["type"]) for one in missed["events"] if one["type"].startswith("subagent.")
        ] == of_children


@pytest.mark.e2e
@pytest.mark.fault("B-100")
async def test_the_options_of_one_reader_of_a_run_are_not_those_of_the_next(tmp_path: Path) -> None:
    child = Reply.of({"text": "seen"}, when={"last_user_contains": "look around"})
    async with web(tmp_path / "home", child, delegate("look around"), say("done")) as site:
        run_id = await site.run()
        plain = await site.whole(run_id)
        assert any("subagent" in one["event"] for one in plain)
        named, names = [], []
        path = f"/v1/runs/{run_id}/events?named=true"
        async with streaming(site.server.port, "GET", path, headers=site.headers) as answer:
            while (line := await answer.line()) is not None:
                names += [line[7:]] if line.startswith("event: ") else []
                named += [json.loads(line[6:])] if line.startswith("data: {") else []
        assert named == plain and names == [one["event"] for one in plain]
        assert await site.whole(run_id) == plain


async def told(driver: Any, text: str) -> None:
    """Wait until a client of this surface has been told this much of the answer."""
    if isinstance(driver, GatewayDriver):
        while "".join(one["text"] for one in events(driver, "message.delta")) != text:
            await trio.sleep(0.005)
    elif isinstance(driver, AcpDriver):
        await driver.server.wait_until(lambda: said_to_editor(driver) == text)
    elif isinstance(driver, RunDriver):
        seen = ""
        async with streaming(
            driver.server.port, "GET", f"/v1/runs/{driver.run_id}/events", headers=driver.headers
        ) as answer:
            while seen != text:
                event = await answer.data()
                assert event is not None
                seen += event.get("delta", "") if event["event"] == "message.delta" else ""
    else:
        assert isinstance(driver, ChatDriver) and driver._answer is not None
        seen = ""
        while seen != text:
            chunk = await driver._answer.data()
            assert chunk is not None
            seen += (chunk["choices"][0]["delta"].get("content") or "") if chunk.get("choices") else ""


def said_to_editor(driver: AcpDriver) -> str:
    updates = [frame.get("params", {}).get("update", {}) for frame in driver.server.frames]
    return "".join(one["content"]["text"] for one in updates if one.get("sessionUpdate") == "agent_message_chunk")


@pytest.mark.e2e
@pytest.mark.fault("B-102")
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_stop_after_so_many_deltas_keeps_exactly_these(surface: str, tmp_path: Path) -> None:
    pieces = [f"piece{number} " for number in range(7)]
    async with playing(tmp_path / "home", stream(*pieces), say("next"), surface=surface) as (driver, provider):
        await driver.start("one")
        await told(driver, "".join(pieces))
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        if isinstance(driver, GatewayDriver):
            rows = (await driver.call("session.history", {"session_id": driver.session_id}))["messages"]
            (partial,) = [row for row in rows if row["role"] == "assistant"]
            assert partial["display_metadata"]["interrupted"] is True
            assert partial["text"] == "".join(pieces)
        elif isinstance(driver, RunDriver | ChatDriver):
            status = await driver.status()
            assert (status["interrupted"], status["partial"]) == (True, True)
            assert status["output"] == "".join(pieces)
        await driver.start("two")
        assert (await driver.terminal())["status"] == "complete"
        told_again = [text_of(one["content"]) for one in provider.requests[-1].body["messages"]]
        assert any(text.startswith("".join(pieces)) for text in told_again)
        assert user_texts(provider.requests[-1]) == ["one", "two"]


@pytest.mark.e2e
@pytest.mark.fault("B-105")
async def test_a_replay_of_each_state_of_a_session_has_an_answer_of_its_own(tmp_path: Path) -> None:
    # Pieces that come one by one are events of their own.
    slow = [step for number in range(60) for step in ({"text": [f"w{number} "]}, {"delay": 0.01})]
    replies = (Reply.of(*slow), stream("x"))
    config = {"limits": {"replay_events": 20}}
    home = tmp_path / "home"
    async with playing(home, *replies, config=config) as (driver, provider):
        unknown = await driver.request("session.events.since", {"session_id": "ffffffff", "last_seen": 0})
        assert unknown["error"]["code"] == 4001
        await driver.call("client.capabilities", {"server_requests": True})
        made = await driver.call("session.create", {})
        driver.session_id = made["session_id"]
        asked = {"session_id": driver.session_id, "last_seen": 0}
        waiting = await driver.call("session.events.since", asked)
        assert not waiting["truncated"] and all(one["type"].startswith("session.") for one in waiting["events"])
        await driver.start("go")
        await driver.terminal()
        evicted = await driver.call("session.events.since", asked)
        assert evicted["truncated"] and evicted["count"] <= 20
        await driver.start("again")
        await provider.wait_chunks(2, 1)
        running = await driver.call("session.events.since", {**asked, "last_seen": evicted["latest_seq"]})
        assert "message.complete" not in [one["type"] for one in running["events"]]
        # Owned elsewhere: another process says whose it is, and nothing of an end.
        async with mortal_servers(home, model_environment(provider)) as servers:
            other = await servers.start("gateway")
            # By the key that both know: the answer names the owner, is no end, and is none of an unknown id.
            stored = {"session_id": made["stored_session_id"], "last_seen": 0}
            elsewhere = (await other.request("session.events.since", stored))["error"]
            assert elsewhere["code"] == 4090
            assert elsewhere["data"]["owner"].startswith(f"pid {driver.server.pid} on ")
            there = await other.call("session.resume", {"session_id": made["stored_session_id"]})
            assert there["owner"].startswith(f"pid {driver.server.pid} on ")
            replay = await other.call("session.events.since", {"session_id": there["session_id"], "last_seen": 0})
            assert "message.complete" not in [one["type"] for one in replay["events"]]
            refused = await other.request("session.events.since", asked)
            assert refused["error"]["code"] == 4001
            await driver.stop()
            await driver.terminal()
            again = await other.call("session.resume", {"session_id": made["stored_session_id"]})
            assert again.get("owner") is None
            # Stored, and live nowhere here: neither unknown nor somebody else's.
            third = await servers.start("gateway")
            sleeping = (await third.request("session.events.since", stored))["error"]
            assert (sleeping["code"], sleeping["data"]["reason"]) == (4001, "not_live")
            lost = (await third.request("session.events.since", {**stored, "session_id": "nobody"}))["error"]
            assert lost["code"] == 4001 and "reason" not in (lost.get("data") or {})


@pytest.mark.e2e
@pytest.mark.fault("B-105")
async def test_the_events_of_each_state_of_a_run_have_an_answer_of_their_own(tmp_path: Path) -> None:
    async with web(tmp_path / "home", stream("x"), say("second")) as site:
        first = await site.run()
        queued = (await site.client.post("/v1/runs", json={"input": "later", "session_id": "s1"})).json()["run_id"]
        unknown = await site.client.get("/v1/runs/run_unknown/events")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "run_not_found")
        await site.provider.wait_chunks(1, 1)
        assert (await site.status(queued))["status"] == "queued"
        events_of_queued: list[Any] = []

        async def follow() -> None:
            # Known and not begun: the stream waits for its beginning.
            events_of_queued.extend(await site.whole(queued))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await site.client.post(f"/v1/runs/{first}/stop", json={})
        assert (await site.whole(first))[-1]["event"] == "run.cancelled"
        assert events_of_queued[-1]["event"] == "run.completed"


@pytest.mark.fault("B-105")
async def test_a_cursor_whose_events_are_gone_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "JOURNAL_EVENTS", 5)
    async with http_surface(core_say(*[f"w{number} " for number in range(40)], pause=0.01)) as surface:
        run_id = (await surface.post("/v1/runs", {"input": "hi"})).json()["run_id"]
        await surface.ended(run_id)
        surface.surface.api.runs._finished.clear()
        text = (await surface.get(f"/v1/runs/{run_id}/events", **{"Last-Event-ID": "1"})).text
        first = json.loads(text.partition("data: ")[2].partition("\n")[0])
        assert first["event"] == "replay.truncated" and first["oldest_retained_seq"] > 2
