"""A host's own browser over the gateway: who may register, where commands go, and what a lost connection leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from hermes.nurseries.server_tree import ServerTree
from hermes.protocols.gateway.admission import AdmissionConfig
from hermes.protocols.gateway.websocket import websocket_handler
from hermes.settings import Settings
from tests.protocols.gateway.test_gateway_websocket import KEY, Client, client_of
from tests.support.core import Reply, call, make_services, running_tree, say
from tests.support.gateway_host import connected
from tests.support.listening import Running, listening, small_app

ON = Settings.model_validate({"browser": {"extension_control": {"enabled": True}}})
FORBIDDEN = 4403
BROWSER = {
    "controller_id": "ext-1",
    "browser_profile_id": "work",
    "protocol_version": 1,
    "capabilities": ["browser_navigate", "browser_evaluate", "browser_artifact_upload"],
}
OPEN_IT = say("", calls=[call("browser_navigate", url="https://docs.example/")])


@asynccontextmanager
async def hosting(*replies: Reply, settings: Settings = ON) -> AsyncIterator[tuple[Running, ServerTree]]:
    services, _ = make_services(*replies, settings=settings)
    with trio.fail_after(20):
        async with running_tree(services) as tree:
            endpoint = websocket_handler(tree, AdmissionConfig(KEY))
            async with listening(small_app, websockets={"/api/ws": endpoint.handle}) as running:
                yield running, tree


async def registered(client: Client) -> str:
    session_id: str = (await client.call("session.create"))["session_id"]
    scope = (await client.call("browser.controller.register", session_id=session_id, **BROWSER))["scope"]
    assert scope["capabilities"] == ["browser_navigate"]
    assert scope["transport_family"] == "cloud-ticket-ws"
    assert scope["principal_id"].startswith("principal:dashboard:")
    return session_id


async def test_a_turn_of_this_gateway_acts_in_the_registered_browser() -> None:
    async with hosting(OPEN_IT, say("done")) as (running, _), client_of(running) as client:
        session_id = await registered(client)
        await client.call("prompt.submit", session_id=session_id, text="open the docs")
        command = await client.event("browser.controller.command")
        assert command["session_id"] == session_id
        numbers = [frame["params"]["seq"] for frame in client.frames if "seq" in frame.get("params", {})]
        assert numbers == sorted(set(numbers)) and command["seq"] == numbers[-1]
        asked = command["payload"]
        assert (asked["action"], asked["arguments"]) == ("browser_navigate", {"url": "https://docs.example/"})
        assert (asked["controller_id"], asked["browser_profile_id"]) == ("ext-1", "work")
        answer = {"session_id": session_id, "command_id": asked["command_id"], "ok": True, "result": {"title": "Docs"}}
        assert await client.call("browser.controller.result", **answer) == {"accepted": True}
        assert await client.call("browser.controller.result", **answer) == {"accepted": False}
        assert (await client.event("message.complete"))["payload"]["text"] == "done"


async def test_a_stop_cancels_the_command_in_the_same_breath() -> None:
    async with hosting(OPEN_IT) as (running, _), client_of(running) as client:
        session_id = await registered(client)
        await client.call("prompt.submit", session_id=session_id, text="open the docs")
        asked = (await client.event("browser.controller.command"))["payload"]
        stopped = await client.call("session.interrupt", session_id=session_id)
        assert (stopped["status"], stopped["settled"]) == ("interrupted", True)
        told = [
            frame["params"] for frame in client.frames if frame.get("params", {}).get("type", "").endswith(".cancel")
        ]
        assert [one["payload"]["command_id"] for one in told] == [asked["command_id"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_version": True},
        {"protocol_version": "1"},
        {"protocol_version": 2},
        {"capabilities": ["fly"]},
        {"capabilities": ["browser_evaluate"]},
        {"controller_id": " "},
        {"controller_id": "c" * 257},
        {"browser_profile_id": "p" * 257},
    ],
)
async def test_a_registration_that_is_refused_is_4403(changes: dict[str, Any]) -> None:
    async with hosting() as (running, _), client_of(running) as client:
        session_id = (await client.call("session.create"))["session_id"]
        params = {**BROWSER, **changes}
        assert await client.call("browser.controller.register", session_id=session_id, **params) == FORBIDDEN


async def test_switched_off_it_is_4403() -> None:
    async with hosting(settings=Settings()) as (running, _), client_of(running) as client:
        session_id = (await client.call("session.create"))["session_id"]
        assert await client.call("browser.controller.register", session_id=session_id, **BROWSER) == FORBIDDEN


async def test_a_host_on_standard_input_has_no_identity_for_it() -> None:
    services, _ = make_services(settings=ON)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        with pytest.raises(Exception, match="4403"):
            await host.call("browser.controller.register", session_id=session_id, **BROWSER)


async def test_only_the_connection_that_registered_may_answer() -> None:
    async with hosting(OPEN_IT) as (running, _), client_of(running) as client, client_of(running) as other:
        session_id = await registered(client)
        assert await other.call("browser.controller.register", session_id=session_id, **BROWSER) == FORBIDDEN
        await other.call("session.activate", session_id=session_id)
        await client.call("prompt.submit", session_id=session_id, text="open the docs")
        asked = (await client.event("browser.controller.command"))["payload"]
        answer = {"session_id": session_id, "command_id": asked["command_id"], "ok": True, "result": "mine"}
        assert await other.call("browser.controller.result", **answer) == FORBIDDEN
        assert await other.call("browser.controller.heartbeat", session_id=session_id) == FORBIDDEN
        assert await other.call("browser.controller.detach", session_id=session_id) == FORBIDDEN
        types = [frame.get("params", {}).get("type", "") for frame in other.frames]
        assert not any(type.startswith("browser.") for type in types)
        replayed = (await other.call("session.events.since", session_id=session_id, last_seen=0))["events"]
        assert not any(event["type"].startswith("browser.") for event in replayed)
        assert await client.call("browser.controller.heartbeat", session_id=session_id) == {"ok": True}
        await client.call("session.interrupt", session_id=session_id)


async def test_detach_cancels_what_was_asked_and_ends_the_right_to_answer() -> None:
    async with hosting(OPEN_IT, say("without it")) as (running, _), client_of(running) as client:
        session_id = await registered(client)
        await client.call("prompt.submit", session_id=session_id, text="open the docs")
        await client.event("browser.controller.command")
        assert await client.call("browser.controller.detach", session_id=session_id) == {"detached": True}
        assert await client.call("browser.controller.heartbeat", session_id=session_id) == FORBIDDEN
        while not any(frame.get("params", {}).get("type") == "message.complete" for frame in client.frames):
            await client.next()


async def test_a_closed_connection_leaves_its_browser_offline_and_a_new_one_goes_on_with_the_command() -> None:
    async with hosting(OPEN_IT, say("done")) as (running, tree), client_of(running) as second:
        async with client_of(running) as first:
            session_id = await registered(first)
            await first.call("prompt.submit", session_id=session_id, text="open the docs")
            asked = (await first.event("browser.controller.command"))["payload"]
        (controller,) = tree.browsers._controllers.values()
        while controller.online:
            await trio.sleep(0.005)
        assert list(controller.pending) == [asked["command_id"]]
        await second.call("session.activate", session_id=session_id)
        await second.call("browser.controller.register", session_id=session_id, **BROWSER)
        replayed = await second.call("session.events.since", session_id=session_id, last_seen=0)
        commands = [event for event in replayed["events"] if event["type"] == "browser.controller.command"]
        assert [event["payload"] for event in commands] == [asked], "what was on its way when the connection was lost"
        answer = {"session_id": session_id, "command_id": asked["command_id"], "ok": True, "result": "there"}
        assert await second.call("browser.controller.result", **answer) == {"accepted": True}
