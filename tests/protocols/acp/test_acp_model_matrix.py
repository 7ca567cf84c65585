"""Every row of the `/model` matrix, as a prompt, as a method and as a config option of an editor."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.agent.model_switch import ModelWorld, parse_model_command
from hermes.agent.provider_rows import PROVIDER_ROWS
from tests.agent.test_model_catalog import ACCEPTED, REFUSED
from tests.agent.test_model_switch import FAILS, NEW, ROWS
from tests.support.acp import acp_client
from tests.support.model_worlds import worldly


async def test_every_line_means_in_an_editor_what_it_means_elsewhere() -> None:
    services, models = worldly()
    async with acp_client(services) as client:
        session = await client.new_session()
        for world, line, expected in ROWS:
            if not line:
                continue
            models.now = world
            before = await services.store.get_session(session)
            start = len(client.frames)
            assert await client.prompt(session, f"/model {line}") == {"stopReason": "end_turn"}
            said = client.text(after=start)
            stored = await services.store.get_session(session)
            assert stored is not None and before is not None
            if expected[0] == FAILS:
                assert expected[1] in said, line
                assert (stored.provider, stored.model) == (before.provider, before.model)
            else:
                assert said.startswith(f"Model: {expected[1]}\nProvider: {expected[0]}"), line
                assert (stored.provider, stored.model) == expected[:2], line
                assert (NEW in said) == (len(expected) == 3), line


@pytest.mark.parametrize("method", ["session/set_model", "session/set_config_option"])
async def test_every_name_means_in_a_menu_what_it_means_in_a_line(method: str) -> None:
    services, models = worldly()
    async with acp_client(services) as client:
        session = await client.new_session()
        chosen = 0
        for world, line, expected in ROWS:
            command = parse_model_command(line)
            if not command.target or command.provider is not None:
                # A menu gives one word: the provider of a line stands before it there, with a colon.
                continue
            chosen += 1
            models.now = world
            before = await services.store.get_session(session)
            answer = await client.request(method, sessionId=session, **given(method, command.target))
            stored = await services.store.get_session(session)
            assert stored is not None and before is not None
            if expected[0] == FAILS:
                assert expected[1] in answer["error"]["message"], line
                assert (stored.provider, stored.model) == (before.provider, before.model), line
            else:
                assert "error" not in answer, f"{line}: {answer}"
                assert (stored.provider, stored.model) == expected[:2], line
        assert chosen >= 75


@pytest.mark.parametrize("method", ["session/set_model", "session/set_config_option"])
async def test_the_guard_refuses_in_a_menu_what_it_refuses_elsewhere(method: str) -> None:
    services, models = worldly()
    models.now = ModelWorld("custom", "scripted-1", authenticated=frozenset(row.id for row in PROVIDER_ROWS))
    async with acp_client(services) as client:
        session = await client.new_session()
        for model, provider in REFUSED:
            before = await services.store.get_session(session)
            answer = await client.request(method, sessionId=session, **given(method, f"{provider}:{model}"))
            stored = await services.store.get_session(session)
            if "error" in answer:
                assert answer["error"]["code"] == -32602
                assert stored == before, model
            else:
                # The spelling of an aggregator, given to the vendor itself, means the vendor's own.
                assert stored is not None and "/" in model and "/" not in (stored.model or "")
        for name, place, why in ACCEPTED:
            if name and place:
                answer = await client.request(method, sessionId=session, **given(method, f"{place}:{name}"))
                assert "is not a model of" not in str(answer), why


def given(method: str, chosen: str) -> dict[str, Any]:
    return {"modelId": chosen} if method == "session/set_model" else {"configId": "model", "value": chosen}


@pytest.mark.parametrize("method", ["session/set_model", "session/set_config_option"])
async def test_a_name_with_its_provider_is_taken_apart_by_every_method(method: str) -> None:
    services, _ = worldly()
    async with acp_client(services) as client:
        session = await client.new_session()
        for chosen in ("custom:big", "custom:qwen3:8b", "custom:vendor/model:beta"):
            assert "error" not in await client.request(method, sessionId=session, **given(method, chosen))
            stored = await services.store.get_session(session)
            assert stored is not None
            assert (stored.provider, stored.model) == ("custom", chosen.removeprefix("custom:"))
