"""Every row of the `/model` matrix, as a prompt, as a method and as a config option of an editor."""

from __future__ import annotations

from typing import Any

import pytest

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
async def test_a_name_with_its_provider_is_taken_apart_by_every_method(method: str) -> None:
    services, _ = worldly()
    async with acp_client(services) as client:
        session = await client.new_session()
        for chosen in ("custom:big", "custom:qwen3:8b", "custom:vendor/model:beta"):
            given: dict[str, Any] = {"modelId": chosen}
            if method == "session/set_config_option":
                given = {"configId": "model", "value": chosen}
            assert "error" not in await client.request(method, sessionId=session, **given)
            stored = await services.store.get_session(session)
            assert stored is not None
            assert (stored.provider, stored.model) == ("custom", chosen.removeprefix("custom:"))
