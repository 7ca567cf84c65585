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
