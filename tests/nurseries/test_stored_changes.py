"""Everybody is told that the list of sessions is different: at once, then at most every two seconds, never too late."""

from __future__ import annotations

from typing import Any

import trio

from hermes.events import SessionsChanged
from hermes.messages import Prompt
from hermes.nurseries.stored_changes import EVERY
from tests.support.core import make_services, running_tree, say


async def test_many_changes_are_told_at_once_and_then_together(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services):
        began, told = trio.current_time(), list[float]()
        services.announce.observers.append(
            lambda event: told.append(trio.current_time() - began) if isinstance(event, SessionsChanged) else None
        )
        for _ in range(100):
            services.stored_changes.note()
            await trio.sleep(0.05)
        await trio.sleep(10)
        assert told == [0, EVERY, 2 * EVERY, 3 * EVERY]
        services.stored_changes.note()
        await trio.sleep(0)
        await trio.sleep(1)
        assert len(told) == 5 and told[-1] < trio.current_time() - began - 0.9


async def test_turns_of_a_crowd_wake_those_who_listen_once(autojump_clock: Any) -> None:
    services, _ = make_services(*[say("a")] * 20)
    async with running_tree(services) as tree:
        before = services.announce.latest_seq
        sessions = [tree.registry.create(source="test", cwd="/") for _ in range(20)]
        for session in sessions:
            turn = await session.submit_nowait(Prompt("go")).wait_turn()
            assert turn is not None
            await turn.ended.wait()
        assert services.announce.latest_seq - before <= 2
