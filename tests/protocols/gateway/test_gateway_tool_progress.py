"""Output of tools that still run: told to the clients that asked for it, live and replayed, and to no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.agent.ports import ToolContext
from tests.support.core import PlainTool, call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected


async def _talk(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    ctx.progress("half way")
    return "there"


def progress_of(host: GatewayHost) -> list[dict[str, Any]]:
    events = [frame["params"] for frame in host.frames if frame.get("method") == "event"]
    return [event["payload"] for event in events if event["type"] == "tool.progress"]


async def test_progress_of_a_tool_goes_to_the_client_that_asked_for_it(autojump_clock: Any) -> None:
    services, _ = make_services(say("I go.", calls=[call("talk")]), say("Done."), tools=[PlainTool("talk", _talk)])
    async with running_tree(services) as tree, connected(tree) as curious, connected(tree) as plain:
        await curious.call("client.capabilities", server_requests=True, tool_progress=True)
        session_id = (await curious.call("session.create"))["session_id"]
        await plain.call("session.activate", session_id=session_id)
        await curious.call("prompt.submit", session_id=session_id, text="go")
        await curious.event("message.complete")
        await plain.event("message.complete")

        (told,) = progress_of(curious)
        assert (told["name"], told["preview"]) == ("talk", "half way")
        assert progress_of(plain) == []
        for host, expected in ((curious, 1), (plain, 0)):
            replay = await host.call("session.events.since", session_id=session_id, last_seen=0)
            assert [event["type"] for event in replay["events"]].count("tool.progress") == expected
