"""Output of tools that still run: told to the clients that asked for it, live and replayed, and to no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.agent.ports import ToolContext
from hermes.settings import Settings
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


async def _fail_always(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    raise ValueError("it is broken")


def tool_words(host: GatewayHost) -> list[str]:
    events = [frame["params"] for frame in host.frames if frame.get("method") == "event"]
    return [f"{event['type'][5:]} {event['payload']['name']}" for event in events if event["type"].startswith("tool.")]


async def _words_of_a_turn(mode: str) -> tuple[list[str], list[str]]:
    """What is told live, and replayed, of a turn that calls talk twice, fail twice, and talk once more."""
    answers = [say(calls=[call("talk"), call("talk", call_id="c2")]), say(calls=[call("fail")])]
    answers += [say(calls=[call("fail", call_id="c4"), call("talk", call_id="c5")]), say("Done.")]
    tools = [PlainTool("talk", _talk), PlainTool("fail", _fail_always)]
    settings = Settings.model_validate({"display": {"tool_progress": mode}})
    services, _ = make_services(*answers, tools=tools, settings=settings)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        await host.event("message.complete")
        replay = await host.call("session.events.since", session_id=session_id, last_seen=0)
        replayed = [event for event in replay["events"] if event["type"].startswith("tool.")]
        return tool_words(host), [f"{event['type'][5:]} {event['payload']['name']}" for event in replayed]


async def test_with_new_a_tool_is_shown_only_where_another_was_before_it_and_failures_always(
    autojump_clock: Any,
) -> None:
    live, replayed = await _words_of_a_turn("new")
    assert live == replayed
    assert [word for word in live if word.startswith("start")] == ["start talk", "start fail", "start talk"]
    ends = [word for word in live if word.startswith("complete")]
    assert sorted(ends) == ["complete fail"] * 2 + ["complete talk"] * 2


async def test_with_all_each_call_is_shown_and_with_off_only_failures(autojump_clock: Any) -> None:
    everything, _ = await _words_of_a_turn("all")
    assert [everything.count(f"{what} {name}") for what in ("start", "complete") for name in ("talk", "fail")] == [
        *(3, 2),
        *(3, 2),
    ]
    nothing, replayed = await _words_of_a_turn("off")
    assert nothing == replayed == ["complete fail", "complete fail"]
