"""An interrupt at every moment of a turn, over the wire: one end, one answer each, and the next prompt works."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.core import call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected


def _counts(host: GatewayHost) -> Counter[str]:
    return Counter(host.types())


def _check(host: GatewayHost, session: Any) -> None:
    """What must hold after everything, whenever the stop came."""
    words = host.types()
    counts = _counts(host)
    assert all(counts[word] == 1 for word in counts if word.startswith("=")), counts
    assert counts["message.start"] == counts["message.complete"]
    assert counts["tool.start"] == counts["tool.complete"]
    # A question that was put is answered or withdrawn, and is in no list any more.
    assert len(session.requests) == 0 and session.requests.entries() == []
    turn_is_open = False
    for word in words:
        if word in ("message.start", "message.complete"):
            assert turn_is_open is (word == "message.complete")
            turn_is_open = word == "message.start"
        elif word in ("message.delta", "tool.start", "tool.complete", "message.interim"):
            assert turn_is_open, word
    rows = session.rows
    asked = {tool_call.id for row in rows for tool_call in row.tool_calls}
    assert asked == {row.tool_call_id for row in rows if row.role == "tool"}


@pytest.mark.fault("B-040")
@pytest.mark.parametrize("answers", [False, True], ids=["open question", "answered question"])
async def test_a_stop_at_any_moment_leaves_nothing_open(autojump_clock: Any, answers: bool) -> None:
    for ticks in range(0, 90, 2):
        services, _ = make_services(
            say("Let me ", "see.", calls=[call("nap", "n1", seconds=0), call("ask", "a1")]),
            say("done"),
            say("done"),
        )
        async with running_tree(services) as tree, connected(tree) as host:
            session_id = (await host.call("session.create"))["session_id"]
            session = tree.registry.get(session_id)
            host.start("prompt.submit", session_id=session_id, text="first")
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            question = next((frame for frame in host.frames if frame.get("method") == "approval"), None)
            if answers and question is not None:
                host.reply(question["id"], {"choice": "once"})
            stop = host.start("session.interrupt", session_id=session_id)
            following = host.start("prompt.submit", session_id=session_id, text="second", queued=True)
            stopped = await host.answer(stop)
            assert stopped["settled"] is True
            accepted = await host.answer(following)
            assert accepted["status"] in ("streaming", "queued"), ticks
            await _second_turn_ends(host, session)
            again = await host.call("prompt.submit", session_id=session_id, text="third")
            assert again["status"] == "streaming"
            await _second_turn_ends(host, session)
            _check(host, session)


async def _second_turn_ends(host: GatewayHost, session: Any) -> None:
    """Wait until nothing runs; a question that comes now is answered."""
    answered: set[str] = set()
    with trio.fail_after(1000):
        while session.slot.turn is not None or session.slot.queued:
            for frame in host.frames:
                if frame.get("method") == "approval" and frame["id"] not in answered:
                    answered.add(frame["id"])
                    host.reply(frame["id"], {"choice": "once"})
            await trio.sleep(0.01)
    await trio.testing.wait_all_tasks_blocked()
