"""How often the facts and the use of a session are told, and what is known before the agent is ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from hermes.agent.ports import ToolContext
from hermes.settings import Settings
from tests.support.core import PlainTool, call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected


def payloads(host: GatewayHost, kind: str, start: int) -> list[dict[str, Any]]:
    events = [frame["params"] for frame in host.frames[start:] if frame.get("method") == "event"]
    return [event["payload"] for event in events if event["type"] == kind]


async def test_a_turn_tells_the_facts_of_its_session_once_when_it_has_ended(autojump_clock: Any) -> None:
    services, _ = make_services(say("one"), say("two"))
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="first")
        await host.event("message.complete")
        await trio.sleep(5)
        start = len(host.frames)
        await host.call("prompt.submit", session_id=session_id, text="second")
        await trio.sleep(5)
        (told,) = payloads(host, "session.info", start)
        assert told["running"] is False
        types = [word for word in host.types(start) if word in ("message.start", "message.complete", "session.info")]
        assert types == ["message.start", "message.complete", "session.info"]


async def test_what_a_turn_uses_is_told_once_a_second_at_most(autojump_clock: Any) -> None:
    async def wait(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        await trio.sleep(float(arguments["seconds"]))
        return "done"

    answers = [say(calls=[call("wait", seconds=seconds)]) for seconds in (0.2, 0.2, 1.5, 0.2)]
    services, _ = make_services(*answers, say("Done."), tools=[PlainTool("wait", wait)])
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        done = await host.event("message.complete")
        assert [told["usage"]["calls"] for told in payloads(host, "session.usage", 0)] == [1, 4]
        assert done["payload"]["usage"]["calls"] == 5


async def test_a_session_that_is_not_ready_yet_names_the_model_that_it_will_begin_with(autojump_clock: Any) -> None:
    settings = Settings.model_validate({"model": {"default": "m-1", "provider": "custom"}})
    services, _ = make_services(settings=settings)
    async with running_tree(services) as tree, connected(tree) as host:
        info = (await host.call("session.create"))["info"]
        assert (info["lazy"], info["model"], info["provider"]) == (True, "m-1", "custom")
        chosen = (await host.call("session.create", model="m-2", provider="openrouter"))["info"]
        assert (chosen["model"], chosen["provider"]) == ("m-2", "openrouter")


async def test_the_service_tier_that_a_session_was_given_is_among_its_facts(autojump_clock: Any) -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        made = await host.call("session.create", fast=True)
        assert (made["info"]["fast"], made["info"]["service_tier"]) == (True, "fast")
        await host.call("config.set", key="fast", value="normal", session_id=made["session_id"])
        told = await host.until(
            lambda frame: frame.get("params", {}).get("payload", {}).get("service_tier") == "normal"
        )
        assert told["params"]["type"] == "session.info" and told["params"]["payload"]["fast"] is False
        assert "fast" not in (await host.call("session.create"))["info"]
