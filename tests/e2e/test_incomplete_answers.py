"""A Responses endpoint that never finishes an answer: the next model of the chain goes on (through the server)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from hermes.testing import FakeProvider, Reply, Script
from tests.support.http_clients import served

pytestmark = pytest.mark.e2e


def piece(text: str, reason: str = "length") -> Reply:
    return Reply.of({"text": text}, {"finish_reason": reason})


async def test_the_next_model_finishes_what_three_incomplete_answers_began(tmp_path: Path) -> None:
    script = Script.of(piece("One, "), piece("two, "), piece("three, "))
    async with FakeProvider(Script.of(piece("four.", "stop"))) as other:
        fallback = {"provider": "custom", "model": "second", "base_url": other.base_url, "api_key": "k-0123456789"}
        config: dict[str, Any] = {"model": {"api_mode": "codex_responses"}, "fallback_providers": [fallback]}
        async with served(tmp_path / "home", script, config=config) as run:
            headers = {"Authorization": f"Bearer {run.server.key}"}
            async with httpx2.AsyncClient(base_url=run.base_url, headers=headers, timeout=30) as client:
                run_id = (await client.post("/runs", json={"input": "count"})).json()["run_id"]
                events = (await client.get(f"/runs/{run_id}/events")).text
                status = (await client.get(f"/runs/{run_id}")).json()
            assert (status["status"], status["output"]) == ("completed", "One, two, three, four.")
            assert '"model":"second"' in events
            assert len(run.provider.requests) == 3 and len(other.requests) == 1
            assert all(record.path.endswith("/responses") for record in run.provider.requests)
