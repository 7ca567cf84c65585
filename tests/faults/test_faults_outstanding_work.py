"""Children that outlive the turn that sent them: named and ended by a stop, on every surface, and silent afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.drivers import GatewayDriver
from tests.support.fault_play import calls, delegate, events, playing, say, stream, user_texts
from tests.support.proof import times

pytestmark = pytest.mark.e2e


def task(number: int) -> dict[str, Any]:
    return {"tasks": [{"goal": f"child {number}."}], "background": True}


@pytest.mark.fault("B-009")
async def test_a_stop_of_an_idle_session_names_and_ends_its_children_for_every_client(tmp_path: Path) -> None:
    after_tool = {"last_role": "tool"}
    work = (delegate("one", "two", background=True), say("dispatched", when=after_tool), stream("a"), stream("b"))
    async with playing(tmp_path / "home", *work, say("next"), surface="gateway websocket") as (driver, provider):
        await driver.start("go")
        assert (await driver.terminal())["status"] == "complete"
        for number in (3, 4):
            await provider.wait_chunks(number, 1)
        session = {"session_id": driver.session_id}
        stopped = await driver.call("session.interrupt", session)
        assert (stopped["status"], stopped["settled"]) == ("interrupted", True)
        assert "delegation" in [node["kind"] for node in stopped["stopped"]]
        assert [(await provider.wait_closed(number)).closed_by for number in (3, 4)] == ["client", "client"]
        assert (await driver.call("delegation.status", {}))["active"] == []
        assert (await driver.call("session.interrupt", session))["status"] == "idle"
        await driver.start("again")
        assert (await driver.terminal())["text"] == "next"
        # Two turns of the person; none that a child's answer began. The model is told with the person's own words.
        for _ in range(3):
            listed = await driver.call("session.active_list", {})
            assert [one["status"] for one in listed["sessions"]] == ["idle"]
        assert len(events(driver, "message.start")) == 2 and len(provider.requests) == 5
        told = "".join(user_texts(provider.requests[-1]))
        assert "was stopped (user_interrupt" in told and told.endswith("again")
        rows = (await driver.call("session.history", session))["messages"]
        assert [one["text"] for one in rows if one["role"] == "user" and "display_kind" not in one] == ["go", "again"]


@pytest.mark.fault("B-009")
@pytest.mark.parametrize("surface", ["acp", "http run", "http chat"])
async def test_where_nobody_could_be_told_later_children_belong_to_their_turn_and_end_with_it(
    surface: str, tmp_path: Path
) -> None:
    """A model may ask for children in the background; a session without a listener does not count as idle meanwhile."""
    work = (delegate("one", "two", background=True), stream("a"), stream("b"), say("next"))
    async with playing(tmp_path / "home", *work, surface=surface) as (driver, provider):
        await driver.start("go")
        for number in (2, 3):
            await provider.wait_chunks(number, 1)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        assert [(await provider.wait_closed(number)).closed_by for number in (2, 3)] == ["client", "client"]
        assert len(provider.requests) == 3
        await driver.start("again")
        assert (await driver.terminal())["status"] == "complete"
        assert len(provider.requests) == 4


@pytest.mark.fault("B-009")
async def test_a_child_that_ends_in_the_moment_of_the_stop_starts_no_turn_behind_its_answer(tmp_path: Path) -> None:
    rounds = times(100, 8)

    def asked(text: str) -> dict[str, str]:
        return {"last_user_contains": text, "last_role": "user"}

    # The first that fits is taken. The gate ends the child's answer; where its result gets through before the stop, it
    # starts a turn, which has a reply.
    replies = [calls(("delegate_task", task(number)), when=f"go {number}.") for number in range(rounds)]
    replies += [say("heard", when=asked(" finished: "))] * rounds
    replies += [say("dispatched", when={"last_role": "tool"})] * rounds
    replies += [
        stream(f"answer {number}", gate=f"gate {number}", when=asked(f"child {number}.")) for number in range(rounds)
    ]
    async with playing(tmp_path / "home", *replies, limit=60 + rounds) as (driver, provider):
        assert isinstance(driver, GatewayDriver)
        for number in range(rounds):
            await driver.start(f"go {number}.")
            await driver.event("message.complete", driver._turn_from)
            while not any(f"child {number}." in str(one.body["messages"][-1]) for one in provider.requests):
                await trio.sleep(0.005)
            provider.release(f"gate {number}")
            await trio.sleep(0.004 * (number % 8))
            await driver.call("session.interrupt", {"session_id": driver.session_id})
            begun, asked = len(events(driver, "message.start")), len(provider.requests)
            for _ in range(3):
                listed = await driver.call("session.active_list", {})
                assert [one["status"] for one in listed["sessions"]] == ["idle"]
            assert (await driver.call("delegation.status", {}))["active"] == []
            assert (len(events(driver, "message.start")), len(provider.requests)) == (begun, asked)
