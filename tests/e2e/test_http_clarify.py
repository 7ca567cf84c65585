"""A run that was started with ``clarify`` may ask its client, through the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import Reply, Script
from tests.support.http_clients import served

pytestmark = pytest.mark.e2e

QUESTION = {"questions": [{"question": "Which?", "choices": ["a", "b"]}]}
ASKS = Reply.of({"tool_call": {"name": "clarify", "arguments": QUESTION}})


async def waiting(http: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    """The status of the run once it waits for an answer."""
    with trio.fail_after(20):
        while True:
            status: dict[str, Any] = (await http.get(f"/v1/runs/{run_id}")).json()
            if "clarify" in status:
                return status
            await trio.sleep(0.02)


async def test_a_run_asks_only_when_it_was_started_so_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    script = Script.of(ASKS, Reply.of({"text": "b it is"}), Reply.of({"text": "no questions"}))
    async with served(tmp_path / "home", script) as run:
        headers = {"Authorization": f"Bearer {run.server.key}"}
        async with httpx2.AsyncClient(base_url=run.server.origin, headers=headers, timeout=30) as http:
            run_id = (await http.post("/v1/runs", json={"input": "go", "clarify": True})).json()["run_id"]
            path = f"/v1/runs/{run_id}/clarify"
            asked = (await waiting(http, run_id))["clarify"]
            assert [question["question"] for question in asked["questions"]] == ["Which?"]
            refused = [
                await http.post(path, content=b"{"),
                await http.post(path, json={"answers": "b"}),
                await http.post(path, json={"answers": {}, "request_id": ""}),
                await http.post(path, json={"answers": {}, "request_id": "other"}),
                await http.post("/v1/runs/run_none/clarify", json={"answers": {}}),
            ]
            assert [answer.status_code for answer in refused] == [400, 400, 400, 409, 404]
            answers = {asked["questions"][0]["qid"]: "b"}
            answer = await http.post(path, json={"request_id": asked["request_id"], "answers": answers})
            assert (answer.status_code, answer.json()["resolved"]) == (200, 1)
            events = [json.loads(line[6:]) for line in (await http.get(f"/v1/runs/{run_id}/events")).text.splitlines()
                      if line.startswith("data: ")]  # fmt: skip
            names = [event["event"] for event in events]
            assert names.index("clarify.request") < names.index("clarify.responded") < names.index("run.completed")
            assert events[-1]["output"] == "b it is"
            late = await http.post(path, json={"answers": answers})
            assert (late.status_code, late.json()["error"]["code"]) == (409, "approval_not_active")

            silent = (await http.post("/v1/runs", json={"input": "go"})).json()["run_id"]
            await http.get(f"/v1/runs/{silent}/events")
        offered = [[tool["function"]["name"] for tool in one.body["tools"]] for one in run.provider.requests]
        assert "clarify" in offered[0] and "clarify" not in offered[-1]
