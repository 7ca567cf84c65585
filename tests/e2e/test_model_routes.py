"""A model route with an endpoint and a key of its own, through the real server."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from hermes.testing import FakeProvider, Reply, Script
from tests.support.http_clients import served

pytestmark = pytest.mark.e2e


async def test_a_route_is_served_by_its_own_endpoint_with_its_own_key(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "from the small one"}))) as small:
        route = {"model": "small-1", "base_url": small.base_url, "api_key": "route-key-012345"}
        config = {"gateway": {"api_server": {"model_routes": {"fast": route}}}}
        script = Script.of(Reply.of({"text": "from the large one"}))
        async with served(tmp_path / "home", script, config=config) as run:
            headers = {"Authorization": f"Bearer {run.server.key}"}
            async with httpx2.AsyncClient(base_url=run.base_url, headers=headers, timeout=30) as client:
                said = {}
                for model in ("fast", "hermes-agent"):
                    body = {"model": model, "messages": [{"role": "user", "content": "who?"}]}
                    answer = await client.post("/chat/completions", json=body)
                    said[model] = (answer.json()["choices"][0]["message"]["content"], answer.headers["x-hermes-model"])
                run_id = (await client.post("/runs", json={"input": "who?", "model": "fast"})).json()["run_id"]
                events = (await client.get(f"/runs/{run_id}/events")).text
            assert said == {
                "fast": ("from the small one", "small-1"),
                "hermes-agent": ("from the large one", "fake-model"),
            }
            assert '"route_source":"model_routes"' in events and "route-key" not in events
            assert {record.headers["authorization"] for record in small.requests} == {"Bearer route-key-012345"}
            assert {record.body["model"] for record in small.requests} == {"small-1"}
            assert "route-key" not in run.server.stderr


async def test_a_route_may_name_the_variable_of_its_key_and_a_declared_model_needs_no_list(tmp_path: Path) -> None:
    async with FakeProvider() as other:
        endpoint = {"base_url": other.base_url, "api_key": "usual-key-01234", "models": ["declared-1"]}
        routes = {"own": {"provider": "lab", "model": "small-1", "key_env": "ROUTE_KEY"}}
        config = {
            "providers": {"lab": endpoint},
            "model": {"provider": "lab", "default": "large-1"},
            "gateway": {"api_server": {"model_routes": routes}},
        }
        async with served(
            tmp_path / "home", Script(), config=config, ROUTE_KEY="route-key-012345", HERMES_MODEL=""
        ) as run:
            headers = {"Authorization": f"Bearer {run.server.key}"}
            async with httpx2.AsyncClient(base_url=run.base_url, headers=headers, timeout=30) as client:
                for model in ("own", "declared-1", "a-label"):
                    body = {"model": model, "messages": [{"role": "user", "content": "who?"}]}
                    assert (await client.post("/chat/completions", json=body)).status_code == 200
        asked = [(record.body["model"], record.headers["authorization"]) for record in other.requests]
        assert asked == [
            ("small-1", "Bearer route-key-012345"),
            ("declared-1", "Bearer usual-key-01234"),
            ("large-1", "Bearer usual-key-01234"),
        ]
