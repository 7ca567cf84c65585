"""Several clients, rewinds, steers and queues: the gateway of the real process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving, http_driver
from tests.support.server_process import HttpServer

pytestmark = pytest.mark.e2e
NEVER = Reply.of({"text": ["Hello ", "there "]}, {"wait_for": "never"})
CONFIRMED = {"confirm_truncate": True, "confirm_empty_truncate": True}


def terminal(command: str) -> Reply:
    return Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": command}}})


def said(text: str) -> Reply:
    return Reply.of({"text": text})


@asynccontextmanager
async def playing(
    home: Path, *replies: Reply, surface: str = "gateway stdio", config: str = ""
) -> AsyncIterator[tuple[GatewayDriver, FakeProvider]]:
    home.mkdir(mode=0o700, parents=True)
    (home / "config.yaml").write_text(config or "{}\n")
    with trio.fail_after(60):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving(surface, home, environ) as driver:
                yield cast(GatewayDriver, driver), provider


async def say(driver: GatewayDriver, text: str) -> None:
    await driver.start(text)
    assert (await driver.terminal())["status"] == "complete"


async def history(driver: GatewayDriver) -> list[Any]:
    found: list[Any] = (await driver.call("session.history", {"session_id": driver.session_id}))["messages"]
    return found


def events(driver: GatewayDriver) -> list[Any]:
    return [frame["params"] for frame in driver.frames if "seq" in frame.get("params", {})]


def text_of(told: list[Any]) -> str:
    return "".join(one["payload"]["text"] for one in told if one["type"] == "message.delta")


def steps_of(told: list[Any]) -> list[tuple[int, str]]:
    """What is told of one turn beside its text, whose pieces are merged for each client on its own."""
    turn = [(one["seq"], one["type"]) for one in told if one["type"].startswith(("message.", "tool."))]
    return [step for step in turn if step[1] != "message.delta"]


def users(provider: FakeProvider, number: int = -1) -> list[str]:
    """What people said, as the model read it."""
    return [one["content"] for one in provider.requests[number].body["messages"] if one["role"] == "user"]


@pytest.mark.fault("B-102")
async def test_what_was_streamed_before_a_stop_is_kept_and_the_next_turn_knows_it(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", NEVER, said("next")) as (driver, provider):
        await driver.start("one")
        await provider.wait_chunks(1, 2)
        await driver.event("message.delta")
        while "".join(e["payload"]["text"] for e in events(driver) if e["type"] == "message.delta") != "Hello there ":
            await trio.sleep(0.01)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        partial = [row for row in await history(driver) if row["role"] == "assistant"]
        assert len(partial) == 1 and partial[0]["text"].startswith("Hello there"), partial
        await say(driver, "two")
        kept = [one["content"] for one in provider.requests[-1].body["messages"] if one["role"] == "assistant"]
        assert len(kept) == 1 and kept[0].startswith("Hello there")


@pytest.mark.fault("B-105")
async def test_unknown_idle_and_finished_sessions_have_different_answers_to_a_replay(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", said("one")) as (driver, _):
        unknown = await driver.request("session.events.since", {"session_id": "ffffffff", "last_seen": 0})
        assert unknown["error"]["code"] == 4001
        driver.session_id = (await driver.call("session.create", {}))["session_id"]
        asked = {"session_id": driver.session_id, "last_seen": 0}
        idle = await driver.call("session.events.since", asked)
        assert not idle["truncated"] and "message.complete" not in [one["type"] for one in idle["events"]]
        await say(driver, "go")
        ended = await driver.call("session.events.since", asked)
        assert [one["type"] for one in ended["events"]].count("message.complete") == 1
        await driver.call("session.close", {"session_id": driver.session_id})
        closed = await driver.request("session.events.since", asked)
        assert closed["error"]["code"] == 4001


@pytest.mark.fault("B-110")
async def test_three_clients_see_one_sequence_and_answers_go_to_the_caller_alone(tmp_path: Path) -> None:
    words = [f"w{number} " for number in range(40)]
    steps: list[dict[str, Any]] = [{"text": words[:20]}, {"wait_for": "third"}, {"text": words[20:]}]
    async with playing(tmp_path / "home", Reply.of(*steps), surface="gateway websocket") as (first, provider):
        web = cast(HttpServer, first.server)
        async with http_driver("gateway websocket", web) as b, http_driver("gateway websocket", web) as c:
            second, third = cast(GatewayDriver, b), cast(GatewayDriver, c)
            await first.start("go")
            await second.call("session.activate", {"session_id": first.session_id})
            await provider.wait_chunks(1, 20)
            shown = await third.call("session.activate", {"session_id": first.session_id})
            missed = await third.call("session.events.since", {"session_id": first.session_id, "last_seen": 0})
            assert shown["session_id"] == first.session_id
            async with http_driver("gateway websocket", web) as gone:
                await cast(GatewayDriver, gone).call("session.activate", {"session_id": first.session_id})
            provider.release("third")
            for one in (first, second, third):
                await one.event("message.complete")
            assert text_of(events(first)) == "".join(words)
            whole, tail = steps_of(events(first)), steps_of(events(second))
            assert tail and tail == whole[-len(tail) :]
            # What came before the answer to the replay is in the answer too; the number tells.
            live = [one for one in events(third) if one["seq"] > missed["latest_seq"]]
            assert text_of([*missed["events"], *live]) == "".join(words)
            assert steps_of([*missed["events"], *live])[-len(whole) :] == whole
            for other in (second, third):
                assert [f for f in other.frames if "id" in f and f["id"] > 4] == []


@pytest.mark.fault("B-114")
@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("late", [False, True])
async def test_a_session_outlives_its_only_client_for_the_grace_and_can_be_resumed_after_it(
    late: bool, busy: bool, tmp_path: Path
) -> None:
    grace = "dashboard:\n  ws_orphan_reap_grace_s: " + ("0.05\n" if late else "20\n")
    replies = (said("first"), NEVER if busy else said("second"), said("third"))
    home = tmp_path / "home"
    async with playing(home, *replies, surface="gateway websocket", config=grace) as (watcher, provider):
        web = cast(HttpServer, watcher.server)
        async with http_driver("gateway websocket", web) as only:
            client = cast(GatewayDriver, only)
            await say(client, "one")
            session_id = client.session_id
            key = (await client.call("session.list", {}))["sessions"][0]["id"]
            if busy:
                await client.start("two")
                await provider.wait_chunks(2, 2)
        if late and not busy:
            await watcher.event("session.reclaimed")
            gone = await watcher.request("session.activate", {"session_id": session_id})
            assert gone["error"]["code"] == 4001
        back = await watcher.call("session.resume", {"session_id": key})
        watcher.session_id = back["session_id"]
        if busy or not late:
            assert back["session_id"] == session_id
        if busy:
            cut = {"session_id": session_id, "text": "x", "truncate_before_user_ordinal": 0, **CONFIRMED}
            assert (await watcher.request("prompt.submit", cut))["error"]["code"] == 4009
            await watcher.stop()
        await say(watcher, "three")
        assert users(provider)[0] == "one"


@pytest.mark.fault("B-115")
async def test_a_stale_ordinal_deletes_nothing_without_both_confirmations(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", said("1"), said("2"), said("again")) as (driver, provider):
        await say(driver, "one")
        await say(driver, "two")
        before = await history(driver)
        asked = {"session_id": driver.session_id, "text": "anew", "truncate_before_user_ordinal": 0}
        for confirmed, code in (({}, 4029), ({"confirm_truncate": True}, 4028)):
            refused = await driver.request("prompt.submit", {**asked, **confirmed})
            assert refused["error"]["code"] == code, refused
            assert await history(driver) == before
        driver._turn_from = len(driver.frames)
        accepted = await driver.call("prompt.submit", {**asked, **CONFIRMED})
        assert accepted["status"] == "streaming"
        assert (await driver.terminal())["status"] == "complete"
        assert users(provider) == ["anew"]


@pytest.mark.fault("B-117")
@pytest.mark.parametrize("index", [0, 1, 2])
async def test_rows_that_are_only_shown_do_not_count_as_turns(index: int, tmp_path: Path) -> None:
    replies = [said(str(number)) for number in range(4)]
    async with playing(tmp_path / "home", *replies) as (driver, provider):
        for number in range(3):
            await say(driver, f"user {number}")
            hidden = {"session_id": driver.session_id, "key": "reasoning", "value": ["low", "high", "medium"][number]}
            await driver.request("config.set", hidden)
        rows = [row for row in await history(driver) if row["role"] == "user" and row["text"].startswith("user ")]
        asked = {"session_id": driver.session_id, "text": "edited", **CONFIRMED, "confirm_deep_truncate": True}
        other = rows[(index + 1) % 3]["row_id"]
        both = {"truncate_before_user_ordinal": index, "truncate_before_row_id": other}
        refused = await driver.request("prompt.submit", {**asked, **both})
        assert refused["error"]["code"] == 4030, refused
        driver._turn_from = len(driver.frames)
        both["truncate_before_row_id"] = rows[index]["row_id"]
        await driver.call("prompt.submit", {**asked, **both})
        await driver.terminal()
        assert users(provider) == [f"user {number}" for number in range(index)] + ["edited"]


@pytest.mark.fault("B-121")
async def test_a_busy_session_is_interrupted_and_edited_at_the_first_try(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", said("1"), NEVER, said("edited")) as (driver, provider):
        await say(driver, "one")
        await driver.start("two")
        await provider.wait_chunks(2, 2)
        edit = {"session_id": driver.session_id, "text": "two, edited", "truncate_before_user_ordinal": 1, **CONFIRMED}
        assert (await driver.request("prompt.submit", edit))["error"]["code"] == 4009
        await driver.stop()
        at = driver._turn_from = len(driver.frames)
        assert (await driver.call("prompt.submit", edit))["status"] == "streaming"
        assert (await driver.terminal())["status"] == "complete"
        assert users(provider) == ["one", "two, edited"]
        assert "Hello" not in json.dumps(await history(driver)) + json.dumps(driver.frames[at:])


@pytest.mark.fault("B-122")
async def test_a_steer_of_an_idle_session_is_refused(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", said("1"), said("2")) as (driver, provider):
        await say(driver, "one")
        answer = await driver.request("session.steer", {"session_id": driver.session_id, "text": "stranded"})
        assert "error" in answer or answer["result"]["status"] == "rejected", answer
        await say(driver, "two")
        assert "stranded" not in json.dumps(provider.requests[-1].body)


@pytest.mark.fault("B-126")
async def test_a_stop_hands_back_what_waited_and_the_model_sees_the_next_prompt_alone(tmp_path: Path) -> None:
    async with playing(tmp_path / "home", terminal("sleep 7010"), said("z")) as (driver, provider):
        await driver.start("one")
        await driver.wait_for_tool()
        for text in ("steer A", "steer B"):
            steered = await driver.call("session.steer", {"session_id": driver.session_id, "text": text})
            assert steered["status"] == "queued"
        follow = {"session_id": driver.session_id, "text": "follow-up", "queued": True}
        assert (await driver.call("prompt.submit", follow))["status"] == "queued"
        result = await driver.call("session.interrupt", {"session_id": driver.session_id})
        assert result["status"] == "interrupted"
        assert "steer A" in result["pending_steer"] and "steer B" in result["pending_steer"], result
        assert "follow-up" in json.dumps(result["dropped_prompts"]), result
        assert (await driver.terminal())["status"] == "interrupted"
        await say(driver, "Z")
        asked = json.dumps(provider.requests[-1].body)
        assert users(provider) == ["one", "Z"]
        assert "steer A" not in asked and "steer B" not in asked and "follow-up" not in asked


@pytest.mark.fault("B-128")
async def test_a_steer_is_answered_by_one_of_three_words_and_seen_behind_its_tool(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wait = terminal(f"while [ ! -e {gate} ]; do sleep 0.02; done")
    async with playing(tmp_path / "home", wait, said("done")) as (driver, provider):
        await driver.start("one")
        await driver.wait_for_tool()
        answer = await driver.call("session.steer", {"session_id": driver.session_id, "text": "use tabs"})
        assert answer == {"status": "queued", "text": "use tabs"}
        gate.touch()
        end = await driver.event("message.complete")
        assert "pending_steer" not in end["params"]["payload"]
        assert "use tabs" in json.dumps(provider.requests[-1].body["messages"][-1])
        idle = await driver.request("session.steer", {"session_id": driver.session_id, "text": "late"})
        assert "error" in idle or idle["result"]["status"] == "rejected"


@pytest.mark.fault("B-131")
@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
@pytest.mark.parametrize(
    ("mode", "work", "word"),
    [
        ("queue", "tool", "queued"),
        ("queue", "stream", "queued"),
        ("steer", "tool", "steered"),
        ("steer", "stream", "steered"),
        ("interrupt", "tool", "steered"),
        ("interrupt", "stream", "redirected"),
    ],
)
async def test_a_prompt_during_a_turn_is_answered_at_once_in_every_mode(
    mode: str, work: str, word: str, surface: str, tmp_path: Path
) -> None:
    config = f"display:\n  busy_input_mode: {mode}\n"
    first = terminal("sleep 7011") if work == "tool" else NEVER
    async with playing(tmp_path / "home", first, NEVER, surface=surface, config=config) as (driver, provider):
        await driver.start("one")
        await (driver.wait_for_tool() if work == "tool" else driver.event("message.delta"))
        with trio.fail_after(10):
            answer = await driver.call("prompt.submit", {"session_id": driver.session_id, "text": "two"})
        assert answer["status"] == word, answer
        assert answer.get("queue_position") == (1 if word == "queued" else None)
        status = await driver.call("session.status", {"session_id": driver.session_id})
        assert ("Queued Prompts: 1" in status["output"]) == (word == "queued"), status
        assert len(provider.requests) == 1 or word == "redirected"


@pytest.mark.fault("B-163")
@pytest.mark.parametrize("work", ["a stream", "tools"])
async def test_a_deadline_ends_a_turn_that_makes_progress_and_keeps_what_there_is(work: str, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = []
    for number in range(500):
        steps += [{"text": [f"w{number} "]}, {"delay": 0.02}]
    replies = [Reply.of(*steps)] if work == "a stream" else [terminal(f"sleep 0.1; echo {n}") for n in range(60)]
    async with playing(tmp_path / "home", *replies) as (driver, _):
        await driver.call("client.capabilities", {"server_requests": True})
        driver.session_id = (await driver.call("session.create", {}))["session_id"]
        await driver.call("prompt.submit", {"session_id": driver.session_id, "text": "go", "deadline_s": 0.6})
        end = await driver.terminal()
        assert (end["status"], end["cause"]) == ("interrupted", "deadline")
        rows = await history(driver)
        assert any(row["role"] == ("assistant" if work == "a stream" else "tool") for row in rows), rows
        if work == "a stream":
            assert "w0 w1" in json.dumps(rows)
