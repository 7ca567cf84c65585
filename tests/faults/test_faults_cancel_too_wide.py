"""A stop of one thing that took others along."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.drivers import SURFACES
from tests.support.fault_play import events, playing, say, stream, terminal, user_texts

pytestmark = pytest.mark.e2e


@pytest.mark.fault("B-055")
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_stop_of_a_turn_leaves_its_session_and_what_was_said_in_it(surface: str, tmp_path: Path) -> None:
    work = (say("one"), stream("two"), say("three"))
    async with playing(tmp_path / "home", *work, surface=surface) as (driver, provider):
        await driver.start("the first thing")
        assert (await driver.terminal())["status"] == "complete"
        session_id = getattr(driver, "session_id", None)
        await driver.start("the second thing")
        await provider.wait_chunks(2, 1)
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        await driver.start("what did I say first?")
        assert (await driver.terminal())["status"] == "complete"
        assert getattr(driver, "session_id", None) == session_id
        told = user_texts(provider.requests[2])
        assert [word in " ".join(told) for word in ("first thing", "second thing", "say first?")] == [True] * 3


@pytest.mark.fault("B-057")
async def test_a_stop_of_one_session_leaves_the_question_of_another_to_be_answered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep = home / "keep"
    work = (
        terminal(f"rm -rf {keep}-a", when="for a"),
        terminal(f"rm -rf {keep}-b", when="for b"),
        say("ok", when={"last_role": "tool"}),
    )
    async with playing(home, *work) as (driver, _provider):
        for name in "ab":
            (home / f"keep-{name}").mkdir(parents=True)
        sessions, questions = [], []
        for name in "ab":
            driver.session_id = ""
            at = len(driver.frames)
            await driver.start(f"for {name}")
            questions.append(await driver.find(lambda one: one.get("method") == "approval", at))
            sessions.append({"session_id": driver.session_id})
        stopped = await driver.call("session.interrupt", sessions[0])
        assert stopped["status"] == "interrupted"
        withdrawn = events(driver, "request.cancel")
        assert [(one["id"], one["reason"]) for one in withdrawn] == [(questions[0]["id"], "interrupted")]
        left = [(await driver.call("session.events.since", one))["open_requests"] for one in sessions]
        assert left[0] == [] and [one["id"] for one in left[1]] == [questions[1]["id"]]
        at = len(driver.frames)
        await driver.send({"jsonrpc": "2.0", "id": questions[1]["id"], "result": {"choice": "once"}})
        end = await driver.event("message.complete", at)
        assert end["params"]["payload"]["status"] == "complete"
        assert (home / "keep-a").exists() and not (home / "keep-b").exists()
