"""A session that is fixed to a model runs with it or not at all, through the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from hermes.testing import FakeProvider, Reply, Script
from tests.support.http_clients import Served, served

pytestmark = pytest.mark.e2e


def client_of(run: Served) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {run.server.key}"}
    return httpx2.AsyncClient(base_url=run.server.origin, headers=headers, timeout=30)


def refusing() -> Reply:
    return Reply.model_validate({"steps": [], "faults": {"status": 403}})


async def test_a_locked_session_fails_rather_than_run_on_the_next_model_of_the_chain(tmp_path: Path) -> None:
    script = Script.of(*[refusing()] * 3)
    async with FakeProvider(Script(when_used_up="echo")) as other:
        chain = [{"provider": "custom", "model": "second", "base_url": other.base_url, "api_key": "k-0123456789"}]
        async with (
            served(tmp_path / "home", script, config={"fallback_providers": chain}) as run,
            client_of(run) as http,
        ):
            locked = {"id": "locked", "model": "fake-model", "require_model_lock": True}
            assert (await http.post("/api/sessions", json=locked)).status_code == 201
            assert (await http.post("/api/sessions", json={"id": "free"})).status_code == 201
            said: dict[str, Any] = {}
            for name in ("locked", "free"):
                said[name] = (await http.post(f"/api/sessions/{name}/chat", json={"message": "hi"})).json()
            once = {"message": "hi", "model": "fake-model", "require_model_lock": True}
            said["once"] = (await http.post("/api/sessions/free/chat", json=once)).json()
    assert {name: one["failed"] for name, one in said.items()} == {"locked": True, "free": False, "once": True}
    runtime = said["locked"]["runtime"]
    assert (runtime["model"], runtime["route_source"]) == ("fake-model", "session_model_lock")
    assert runtime["model_lock"] == said["once"]["runtime"]["model_lock"] == "confirmed"
    assert len(other.requests) == 1


async def test_a_model_that_its_endpoint_does_not_list_cannot_be_locked(tmp_path: Path) -> None:
    async with served(tmp_path / "home", Script(models=["fake-model", "other"])) as run, client_of(run) as http:
        answers = [
            await http.post("/api/sessions", json={"id": "a", "model": "ghost", "require_model_lock": True}),
            await http.post("/api/sessions", json={"id": "b", "model": "other", "require_model_lock": True}),
            await http.post("/api/sessions/b/model", json={"model": "ghost"}),
            await http.post(
                "/api/sessions/b/chat", json={"message": "x", "model": "ghost", "require_model_lock": True}
            ),
        ]
        assert [answer.status_code for answer in answers] == [409, 201, 409, 409]
        codes = {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409}
        assert codes == {"model_lock_unavailable"}
        assert (await http.get("/api/sessions/a")).status_code == 404


async def test_an_endpoint_without_a_list_may_serve_any_model_that_is_locked(tmp_path: Path) -> None:
    async with served(tmp_path / "home", Script(models=[])) as run, client_of(run) as http:
        body = {"id": "a", "model": "ghost", "require_model_lock": True}
        assert (await http.post("/api/sessions", json=body)).status_code == 201
