"""Every row of the `/model` matrix and of the offline guard, as the `model` of a request body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hermes.agent.model_switch import ModelWorld, parse_model_command
from tests.agent.test_model_catalog import ACCEPTED, REFUSED
from tests.agent.test_model_switch import CLAUDE, FAILS, ROWS, Expected
from tests.support.http_surface import Surface, http_surface
from tests.support.model_worlds import ManyWorlds

DEFAULT = ("custom", "scripted-1")
BODY = {"messages": [{"role": "user", "content": "hi"}], "input": "hi", "message": "hi"}


def rows() -> Iterator[tuple[ModelWorld, str, dict[str, str], Expected]]:
    """Rows that name a model: (world, line, the members of a body that say it, what it means)."""
    for world, line, expected in ROWS:
        command = parse_model_command(line)
        if command.target:
            given = {"model": command.target, "provider": command.provider}
            yield world, line, {name: value for name, value in given.items() if value}, expected


def worldly(surface: Surface) -> ManyWorlds:
    models = ManyWorlds(surface.model)
    object.__setattr__(surface.tree.services, "models", models)
    return models


def test_there_are_enough_rows() -> None:
    assert len(list(rows())) >= 80
    assert len(ACCEPTED) + len(REFUSED) >= 40


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_frontend_gets_the_model_that_it_names_or_the_default_and_is_told(path: str) -> None:
    async with http_surface(within=120) as surface:
        models = worldly(surface)
        for world, line, given, expected in rows():
            models.now = world
            asked = len(surface.model.requests)
            answer = await surface.post(path, {**BODY, **given})
            if expected[0] == FAILS and "provider" in given:
                assert answer.status_code == 400, f"{line}: {answer.text}"
                assert expected[1] in answer.json()["error"]["message"], line
                assert len(surface.model.requests) == asked, line
                continue
            assert answer.status_code == 200, f"{line}: {answer.text}"
            # A name that is in nobody's list, and names no provider, is a label which the frontend was built with.
            nobodys = len(expected) == 3 and given["model"] == expected[1]
            label = "provider" not in given and (expected[0] == FAILS or nobodys)
            ran = DEFAULT if label else expected[:2]
            assert models.called[-1] == ran, line
            assert answer.headers["x-hermes-model"] == surface.model.requests[-1].model == ran[1], line
            assert answer.json()["model"] == given["model"], line


@pytest.mark.parametrize("path", ["/v1/runs", "/api/sessions/{}/chat"])
async def test_a_run_means_every_name_and_refuses_what_cannot_be_meant(path: str) -> None:
    async with http_surface(within=120) as surface:
        models = worldly(surface)
        session = (await surface.post("/api/sessions", {})).json()["session"]["id"]
        for world, line, given, expected in rows():
            models.now = world
            asked = len(surface.model.requests)
            answer = await surface.post(path.format(session), {**BODY, **given})
            if expected[0] == FAILS:
                assert answer.status_code == 400, f"{line}: {answer.text}"
                assert expected[1] in answer.json()["error"]["message"], line
                assert len(surface.model.requests) == asked, line
                continue
            assert answer.status_code in (200, 202), f"{line}: {answer.text}"
            if path == "/v1/runs":
                await surface.ended(answer.json()["run_id"])
            assert models.called[-1] == expected[:2], line
            assert surface.model.requests[-1].model == expected[1], line


async def test_a_session_is_made_with_the_model_that_is_named() -> None:
    async with http_surface(within=120) as surface:
        models = worldly(surface)
        for world, line, given, expected in rows():
            models.now = world
            answer = await surface.post("/api/sessions", given)
            if given == {"model": "openai/gpt-5.2", "provider": "openai"}:
                # The guard of a new session takes names as they stand.
                assert "is not a model of" in answer.json()["error"]["message"]
            elif expected[0] == FAILS:
                assert answer.status_code >= 400, line
                assert expected[1] in answer.json()["error"]["message"], line
            else:
                assert answer.status_code == 201, f"{line}: {answer.text}"
                stored = await surface.tree.services.store.get_session(answer.json()["session"]["id"])
                assert stored is not None
                assert (stored.provider, stored.model) == expected[:2], line


EVERYBODY = frozenset({"anthropic", "openai-api", "gemini", "deepseek", "xai", "openrouter", "nous", "huggingface"})


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/runs", "/api/sessions"])
async def test_the_guard_decides_every_row_before_anything_runs(path: str) -> None:
    async with http_surface(within=120) as surface:
        models = worldly(surface)
        models.now = ModelWorld("anthropic", "claude-sonnet-4-6", authenticated=EVERYBODY)
        for model, provider in REFUSED:
            answer = await surface.post(path, {**BODY, "model": model, "provider": provider})
            error: dict[str, Any] = answer.json().get("error") or {}
            if path != "/api/sessions" and model.startswith("anthropic/"):
                # A turn may use the spelling of an aggregator; the guard of a session takes names as they stand.
                assert (answer.status_code, models.called[-1][1]) == (
                    200 if "runs" not in path else 202,
                    "claude-sonnet-4-6",
                )
                continue
            assert answer.status_code >= 400, f"{model} {provider}: {answer.text}"
            assert "is not a model of" in error["message"], f"{model} {provider}: {error}"
        for name, place, why in ACCEPTED:
            given = {key: value for key, value in (("model", name), ("provider", place)) if value}
            answer = await surface.post(path, {**BODY, **given})
            assert "is not a model of" not in answer.text, why


async def test_names_that_need_a_key_or_are_nobodys_are_told_as_that() -> None:
    async with http_surface() as surface:
        worldly(surface).now = CLAUDE
        for given, says in (
            ({"model": "sonnet", "provider": "anthropic"}, "ambiguous: claude-"),
            ({"model": "x", "provider": "opnrouter"}, "did you mean openrouter"),
            ({"model": "deepseek-chat", "provider": "deepseek"}, "no credentials"),
        ):
            answer = await surface.post("/v1/chat/completions", {**BODY, **given})
            assert answer.status_code == 400 and says in answer.json()["error"]["message"]
