"""Handshake, sign-in, modes, models, config options, slash commands."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from hermes.errors import ProviderNotConfigured
from hermes.nurseries.services import Services
from tests.support.acp import AcpClient, acp_client
from tests.support.core import OneModel, call, hang, make_services, say


class NoModel(OneModel):
    """A gateway without any provider."""

    def default_provider(self, model: str | None = None) -> str:
        raise ProviderNotConfigured


def without_provider() -> Services:
    services, model = make_services()
    object.__setattr__(services, "models", NoModel(model))
    return services


# --- handshake


@pytest.mark.parametrize("version", [0, 1, 2, 99, 65535])
async def test_every_version_is_answered_with_the_one_that_is_served(version: int) -> None:
    services, _ = make_services()
    async with acp_client(services, hello=False) as client:
        result = await client.call("initialize", protocolVersion=version)
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"] == "hermes-agent"
        assert result["agentCapabilities"]["loadSession"] is True
        assert result["agentCapabilities"]["promptCapabilities"]["embeddedContext"] is True


@pytest.mark.parametrize("version", [None, "1", 1.5, True, -1, 65536])
async def test_a_version_that_is_no_number_of_a_version_is_invalid(version: Any) -> None:
    services, _ = make_services()
    async with acp_client(services, hello=False) as client:
        assert (await client.request("initialize", protocolVersion=version))["error"]["code"] == -32602


async def test_malformed_capabilities_count_as_absent() -> None:
    services, _ = make_services()
    async with acp_client(services, hello=False) as client:
        capabilities = {"fs": "yes", "terminal": 1, "auth": None, "session": [], "new": {}}
        result = await client.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
        assert all(method.get("type") != "terminal" for method in result["authMethods"])


async def test_the_terminal_method_is_offered_only_to_clients_that_announced_it() -> None:
    services, _ = make_services()
    async with acp_client(services, hello=False) as client:
        plain = await client.hello()
        assert [method["id"] for method in plain["authMethods"]] == ["custom"]
        able = await client.hello(auth={"terminal": True})
        assert able["authMethods"][1] == {
            "type": "terminal",
            "id": "hermes-setup",
            "name": "Set up Hermes",
            "description": "Choose a provider and a model in a terminal.",
            "args": ["--setup"],
        }


async def test_authenticate_succeeds_only_where_prompts_will_work() -> None:
    services, _ = make_services()
    async with acp_client(services) as client:
        assert await client.call("authenticate", methodId="custom") == {}
        assert (await client.request("authenticate", methodId="other"))["error"]["code"] == -32602


async def test_without_credentials_sessions_need_authentication_and_the_message_says_how() -> None:
    async with acp_client(without_provider(), hello=False) as client:
        assert [method["id"] for method in (await client.hello())["authMethods"]] == ["hermes-setup"]
        for method, params in (
            ("session/new", {"cwd": "/tmp"}),
            ("session/load", {"cwd": "/tmp", "sessionId": "x"}),
            ("authenticate", {"methodId": "hermes-setup"}),
        ):
            error = (await client.request(method, **params))["error"]
            assert error["code"] == -32000
            assert "hermes acp --setup" in error["message"]


async def test_unknown_methods_and_broken_frames_are_answered_and_the_connection_goes_on() -> None:
    services, _ = make_services()
    async with acp_client(services) as client:
        assert (await client.request("ping"))["error"]["code"] == -32601
        assert (await client.request("_zed.dev/x"))["error"]["code"] == -32601
        start = len(client.frames)
        client.channel.say(b"{", b"[]", b"17")
        client.notify("unknown/notification")
        client.send({"jsonrpc": "2.0", "id": 77, "result": {}})
        await client.hello()
        codes = [f["error"]["code"] for f in client.frames[start:] if "error" in f]
        assert codes == [-32700, -32600, -32600]


# --- modes and options


async def test_a_mode_holds_at_once_is_told_and_comes_back_after_a_load() -> None:
    services, _ = make_services(hang())
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        assert await client.call("session/set_mode", sessionId=session, modeId="accept_edits") == {}
        live = client.tree.registry.by_key(session)
        assert live is not None
        assert live.memory.extras["edit_permission"] == "accept_edits"
        assert (await client.updated("current_mode_update"))["currentModeId"] == "accept_edits"
        options = (await client.updated("config_option_update"))["configOptions"]
        assert options[0]["currentValue"] == "accept_edits"
        client.notify("session/cancel", sessionId=session)
        await client.answer(request)
        await client.call("session/close", sessionId=session)
        loaded = await client.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
        assert loaded["modes"]["currentModeId"] == "accept_edits"


async def test_config_options_set_modes_and_models_and_answer_the_whole_list() -> None:
    services, model = make_services()
    async with acp_client(services) as client:
        session = await client.new_session()

        async def set_option(option: str, value: Any) -> Any:
            return await client.request("session/set_config_option", sessionId=session, configId=option, value=value)

        mode = (await set_option("mode", "dont_ask"))["result"]["configOptions"]
        policy = (await set_option("edit_approval_policy", "workspace_session"))["result"]["configOptions"]
        chosen = (await set_option("model", "custom:other"))["result"]["configOptions"]
        assert [o["currentValue"] for o in mode] == ["dont_ask", "custom:scripted-1"]
        assert [o["currentValue"] for o in policy] == ["accept_edits", "custom:scripted-1"]
        assert [o["currentValue"] for o in chosen] == ["accept_edits", "custom:other"]
        for option, value in (("mode", "x"), ("colour", "red"), ("mode", True)):
            assert (await set_option(option, value))["error"]["code"] == -32602
        await client.prompt(session, "hi")
        assert model.requests[-1].model == "other"


async def test_a_model_is_not_switched_under_a_running_turn() -> None:
    services, _ = make_services(hang())
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        refused = await client.request("session/set_model", sessionId=session, modelId="custom:other")
        assert refused["error"]["code"] == -32600
        client.notify("session/cancel", sessionId=session)
        await client.answer(request)
        assert await client.call("session/set_model", sessionId=session, modelId="custom:other") == {}
        stored = await services.store.get_session(session)
        assert stored is not None
        assert stored.model == "other"


# --- slash commands


async def say_command(client: AcpClient, session: str, text: str) -> str:
    start = len(client.frames)
    assert (await client.prompt(session, text)) == {"stopReason": "end_turn"}
    kinds = [u["sessionUpdate"] for u in client.updates("agent_message_chunk", "usage_update", after=start)]
    assert kinds == ["agent_message_chunk", "usage_update"]
    return client.text(after=start)


async def test_commands_are_answered_without_a_model_call() -> None:
    services, model = make_services()
    async with acp_client(services) as client:
        session = await client.new_session()
        assert "/model" in await say_command(client, session, "/help")
        assert await say_command(client, session, "/model") == "Model: scripted-1\nProvider: custom"
        assert "nap" in await say_command(client, session, "/tools")
        assert "0 of 1000000" in await say_command(client, session, "/context")
        assert (await say_command(client, session, "/version")).startswith("Hermes ")
        switched = await say_command(client, session, "/model custom:bigger")
        assert switched.startswith("Model: bigger\nProvider: custom")
        assert model.requests == []
        await client.prompt(session, "/unknown thing")
        assert model.requests[-1].model == "bigger"
        assert model.requests[-1].messages[-1].text == "/unknown thing"


async def test_reset_forgets_the_conversation() -> None:
    services, model = make_services(say("one"), say("two"))
    async with acp_client(services) as client:
        session = await client.new_session()
        await client.prompt(session, "first")
        await say_command(client, session, "/reset")
        await client.prompt(session, "second")
        assert [row.text for row in model.requests[-1].messages] == ["second"]
        start = len(client.frames)
        await client.call("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
        assert client.text("user_message_chunk", after=start) == "second"


async def test_commands_that_change_the_session_say_that_it_is_busy() -> None:
    services, _ = make_services(hang())
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        for command in ("/reset", "/compress", "/model other"):
            assert "busy" in await say_command(client, session, command)
        client.notify("session/cancel", sessionId=session)
        await client.answer(request)


async def test_steer_guides_the_running_turn_and_is_a_prompt_when_none_runs() -> None:
    started = trio.Event()
    go_on = trio.Event()

    async def first(request: Any, on_delta: Any) -> Any:
        started.set()
        await go_on.wait()
        return await say(calls=[call("nap", seconds=0)])(request, on_delta)

    services, model = make_services(first, say("steered"), say("prompted"))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        await started.wait()
        assert "next step" in await say_command(client, session, "/steer be brief")
        go_on.set()
        await client.answer(request)
        assert "be brief" in str(model.requests[1].messages)
        await client.prompt(session, "/steer and now")
        assert model.requests[-1].messages[-1].text == "and now"


async def test_queue_runs_its_text_after_the_current_turn() -> None:
    services, model = make_services(say("one", pause=0.05), say("two"))
    async with acp_client(services) as client:
        session = await client.new_session()
        first = client.start_prompt(session, "hi")
        queued = client.start_prompt(session, "/queue then this")
        await client.answer(queued)
        await client.answer(first)
        assert model.requests[-1].messages[-1].text == "then this"
