"""The menu of models: one builder behind every door, and what each door asks of the endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes.agent.providers.http_stream import HttpClient
from hermes.agent.providers.local_servers import ServedModel
from hermes.agent.providers.registry import CustomProvider, Models, ModelSettings
from tests.support.gateway_host import connected
from tests.support.http_surface import KEY, Surface, http_surface

TOKEN = {"Authorization": "", "X-Hermes-Session-Token": KEY}
HERE = CustomProvider("here", "http://127.0.0.1:1/v1", models={"m1": None})
THERE = CustomProvider("there", "http://127.0.0.1:2/v1", models={"n1": None})


class CountingModels(Models):
    """The real registry; what it asks endpoints for is noted instead of sent."""

    def __init__(self, client: HttpClient) -> None:
        super().__init__(ModelSettings(default="m1", provider="here"), {}, client, custom=(HERE, THERE))
        self.asked: list[tuple[str, bool]] = []

    async def served_models(self, provider: str, *, refresh: bool = False) -> tuple[ServedModel, ...]:
        self.asked.append((provider, refresh))
        return (ServedModel("listed"),)


@asynccontextmanager
async def with_models() -> AsyncIterator[tuple[Surface, CountingModels]]:
    async with http_surface() as surface:
        client = HttpClient()
        models = CountingModels(client)
        object.__setattr__(surface.tree.services, "models", models)
        yield surface, models
        await client.aclose()


def slugs(menu: dict[str, Any]) -> list[str]:
    return [row["slug"] for row in menu["providers"]]


async def test_the_three_doors_lead_to_one_menu() -> None:
    async with with_models() as (surface, _):
        bearer = (await surface.client.get("/api/model/options")).json()
        page = (await surface.client.get("/api/model/options", headers=TOKEN)).json()
        short = (await surface.client.get("/api/model/options?include_unconfigured=false")).json()
        whole = (await surface.client.get("/api/model/options?include_unconfigured=true", headers=TOKEN)).json()
        async with connected(surface.tree) as host:
            called = await host.call("model.options")
            called_whole = await host.call("model.options", include_unconfigured=True)
        assert bearer == whole == called_whole
        assert page == short == called
        assert (page["model"], page["provider"]) == ("m1", "custom:here")
        assert len(slugs(bearer)) > len(slugs(page)) and {"custom:here", "custom:there"} <= set(slugs(page))
        assert next(row for row in page["providers"] if row["is_current"])["models"][0] == "m1"


@pytest.mark.parametrize("door", ["bearer", "token", "gateway"])
async def test_an_ordinary_look_asks_the_current_endpoint_and_a_refresh_asks_all_anew(door: str) -> None:
    async with with_models() as (surface, models):
        for refresh in (False, True):
            models.asked.clear()
            if door == "gateway":
                async with connected(surface.tree) as host:
                    await host.call("model.options", refresh=refresh)
            else:
                path = f"/api/model/options?refresh={str(refresh).lower()}"
                await surface.client.get(path, headers=TOKEN if door == "token" else {})
            expected = ["custom:here", "custom:there"] if refresh else ["custom:here"]
            assert sorted(models.asked) == [(name, refresh) for name in expected]


async def test_only_what_the_user_has_set_up_himself_may_be_asked_for() -> None:
    async with with_models() as (surface, _):
        menu = (await surface.client.get("/api/model/options?explicit_only=true", headers=TOKEN)).json()
        assert set(slugs(menu)) <= {"custom:here", "custom:there"}


@pytest.mark.parametrize("token", ["", "wrong", "Bearer " + KEY])
async def test_a_token_that_is_not_the_key_opens_nothing(token: str) -> None:
    async with http_surface() as surface:
        headers = {"Authorization": "", "X-Hermes-Session-Token": token}
        assert (await surface.client.get("/api/model/options", headers=headers)).status_code == 401
