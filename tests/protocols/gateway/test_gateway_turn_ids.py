"""Events that name their turn: for the clients that asked for it, live and replayed, and for no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.core import call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected


def told(host: GatewayHost) -> list[dict[str, Any]]:
    return [frame["params"] for frame in host.frames if "seq" in frame.get("params", {})]


@pytest.mark.fault("B-021")
async def test_the_events_of_a_turn_name_it_to_the_client_that_asked(autojump_clock: Any) -> None:
    services, _ = make_services(say("I go.", calls=[call("nap")]), say("Done ", "at ", "last."), say("Again."))
    async with running_tree(services) as tree, connected(tree) as curious, connected(tree) as plain:
        await curious.call("client.capabilities", server_requests=True, turn_ids=True)
        session_id = (await curious.call("session.create"))["session_id"]
        await plain.call("session.activate", session_id=session_id)
        for _ in range(2):
            await curious.call("prompt.submit", session_id=session_id, text="go")
            await curious.event("message.complete")
            await plain.event("message.complete")
        of_turns = [one for one in told(curious) if one["type"].startswith(("message.", "tool."))]
        assert {one["type"] for one in of_turns} >= {"message.start", "message.delta", "tool.start", "message.complete"}
        names = list(dict.fromkeys(one["turn_id"] for one in of_turns))
        assert len(names) == 2
        assert [one["turn_id"] for one in of_turns if one["type"] == "message.complete"] == names
        assert not any("turn_id" in one for one in told(plain))

        replay = (await curious.call("session.events.since", session_id=session_id, last_seen=0))["events"]
        named = {one["seq"]: one.get("turn_id") for one in told(curious)}
        assert all(named[one["seq"]] == one.get("turn_id") for one in replay if one["seq"] in named)
        old = (await plain.call("session.events.since", session_id=session_id, last_seen=0))["events"]
        assert old and not any("turn_id" in one for one in old)
