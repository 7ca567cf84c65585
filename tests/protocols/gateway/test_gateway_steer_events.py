"""What is said to a running turn: told to the other clients that asked for it, live and replayed, and to no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hermes.agent.ports import ToolContext
from tests.support.core import PlainTool, call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected


def steers_of(host: GatewayHost) -> list[tuple[str, str]]:
    events = [frame["params"] for frame in host.frames if frame.get("method") == "event"]
    return [
        (event["payload"]["text"], event["payload"]["status"]) for event in events if event["type"] == "message.steer"
    ]


@pytest.mark.fault("B-128")
async def test_a_steer_is_told_to_every_client_that_asked_for_it(autojump_clock: Any) -> None:
    hosts: list[GatewayHost] = []

    async def talk(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await hosts[0].call("session.steer", session_id=ids[0], text="use tabs")
        return "there"

    ids: list[str] = []
    services, _ = make_services(say("I go.", calls=[call("talk")]), say("Done."), tools=[PlainTool("talk", talk)])
    async with running_tree(services) as tree, connected(tree) as one, connected(tree) as other, connected(tree) as old:
        hosts.append(one)
        for curious in (one, other):
            await curious.call("client.capabilities", server_requests=True, steers=True)
        ids.append((await one.call("session.create"))["session_id"])
        for late in (other, old):
            await late.call("session.activate", session_id=ids[0])
        await one.call("prompt.submit", session_id=ids[0], text="go")
        for host in (one, other, old):
            await host.event("message.complete")

        told = [("use tabs", "accepted"), ("use tabs", "delivered")]
        assert (steers_of(one), steers_of(other), steers_of(old)) == (told, told, [])
        for host, expected in ((other, 2), (old, 0)):
            replay = await host.call("session.events.since", session_id=ids[0], last_seen=0)
            assert [event["type"] for event in replay["events"]].count("message.steer") == expected
